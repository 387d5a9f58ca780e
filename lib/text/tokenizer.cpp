#include "text/tokenizer.h"

#include <algorithm>
#include <array>

#include "text/special_matcher.h"
#include "text/token_sink.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void check_spans(const PromptText& prompt) {
  std::size_t at = 0;
  for (const TextSpan& span : prompt.user) {
    check(span.begin >= at && span.end >= span.begin && span.end <= prompt.text.size(), "spans of a prompt in order");
    at = span.end;
  }
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const Metadata& metadata, Warnings& warnings) {
  const auto model = metadata.get<std::string_view>(kModelKey);
  if (metadata.has(kTemplateKey)) metadata.get<std::string_view>(kTemplateKey);  // refused early if it is not a string
  std::string known;
  for (const VocabularyModel& row : vocabulary_models()) {
    if (row.name == model) return row.load(metadata, warnings);
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  metadata.fail(kModelKey, "vocabulary model \"" + escaped(model) + "\" is not supported; supported: " + known);
}

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : vocabulary_(std::make_unique<const Vocabulary>(std::move(vocabulary))),
      specials_(std::make_unique<const SpecialMatcher>(*vocabulary_)) {}

Tokenizer::~Tokenizer() = default;

/// The text cut at its special tokens. Markup has no byte in the stretches `plain`.
std::vector<Tokenizer::Fragment> Tokenizer::find_fragments(std::string_view text, std::span<const TextSpan> plain,
                                                           PlainStretches found) const {
  if (text.size() > kMaxTextBytes) fail_length(text.size());
  std::vector<Fragment> fragments;
  for (std::size_t at = 0; at < text.size();) {
    const SpecialMatcher::Match match = specials_->next(text, at, plain, found);
    std::size_t end = match.at;
    if (match.token != kNoToken && match.token == vocabulary_->trims_before) {
      while (end > at && is_ascii_space(text[end - 1])) --end;
    }
    if (end > at) fragments.push_back({text.substr(at, end - at), kNoToken, at});
    if (match.token == kNoToken) break;
    at = match.at + match.length;
    if (!vocabulary_->trims_after.empty() && vocabulary_->trims_after[static_cast<std::size_t>(match.token)]) {
      while (at < text.size() && is_ascii_space(text[at])) ++at;
    }
    fragments.push_back({text.substr(match.at, at - match.at), match.token, match.at});
  }
  return fragments;
}

/// BOS and EOS go around the fragments of a text of so many bytes.
void Tokenizer::encode_text(std::span<const Fragment> fragments, std::size_t bytes, AddSpecial add,
                            TokenSink& sink) const {
  const SpecialTokens& special = vocabulary_->special;
  const bool adds = add == AddSpecial::AsFileSays;
  const bool has_bos = !fragments.empty() && fragments.front().token == special.bos;
  const bool has_eos = !fragments.empty() && fragments.back().token == special.eos;
  if (adds && special.add_bos && !has_bos) sink.push(special.bos, 0);
  encode_fragments(fragments, sink);
  if (adds && special.add_eos && !has_eos) sink.push(special.eos, bytes);
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextSpan everything{0, text.size()};
  const std::span<const TextSpan> plain(&everything, options.parse_special ? 0 : 1);
  const std::vector<Fragment> fragments = find_fragments(text, plain, PlainStretches::AnyUserDefined);
  TokenSink sink(TokenSink::Places::Dropped);
  sink.reserve(text.size() / 4 + 8);
  encode_text(fragments, text.size(), options.add_special ? AddSpecial::AsFileSays : AddSpecial::Never, sink);
  return std::move(sink.ids());
}

EncodedPrompt Tokenizer::encode(const PromptText& prompt, AddSpecial add) const {
  check_spans(prompt);
  const std::vector<Fragment> fragments = find_fragments(prompt.text, prompt.user, PlainStretches::NoMarkup);
  TokenSink sink(TokenSink::Places::Kept);
  encode_text(fragments, prompt.text.size(), add, sink);
  EncodedPrompt out;
  out.ids = std::move(sink.ids());
  out.sources = sources_of(out.ids, sink.ends(), prompt.user);
  return out;
}

bool Tokenizer::drops_bytes() const {
  for (unsigned b = 0; b < 256; ++b)
    if (drops(static_cast<std::uint8_t>(b))) return true;
  return false;
}

std::map<std::uint8_t, std::size_t> Tokenizer::lost_bytes(std::string_view text, std::span<const Token> ids) const {
  std::array<std::size_t, 256> there{};
  for (const char c : text) ++there[static_cast<std::uint8_t>(c)];
  std::map<std::uint8_t, std::size_t> lost;
  for (unsigned b = 0; b < there.size(); ++b) {
    const auto byte = static_cast<std::uint8_t>(b);
    if (there[b] > 0 && drops(byte)) lost[byte] = there[b];
  }
  if (lost.empty()) return lost;
  for (const Token token : ids) {  // those of tokens that have several bytes
    for (const char c : spelling(token)) {
      const auto found = lost.find(static_cast<std::uint8_t>(c));
      if (found != lost.end() && --found->second == 0) lost.erase(found);
    }
  }
  return lost;
}

/// The bytes of each token, which end at `ends`, and whose they are.
std::vector<TokenSource> Tokenizer::sources_of(std::span<const Token> ids, std::span<const std::uint32_t> ends,
                                               std::span<const TextSpan> user) const {
  std::vector<TokenSource> sources;
  sources.reserve(ends.size());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t end = ends[i];
    while (!user.empty() && (user.front().end <= begin || user.front().begin == user.front().end)) {
      user = user.subspan(1);
    }
    // White space of a user may be swallowed by a control token, which is the template's all the same.
    const bool from_user = !user.empty() && user.front().begin < end && kind(ids[i]) != TokenKind::Control;
    const TokenOrigin of_text = from_user ? TokenOrigin::User : TokenOrigin::Template;
    sources.push_back({begin == end ? TokenOrigin::Rule : of_text, {begin, end}});
    begin = end;
  }
  return sources;
}

std::size_t Tokenizer::n_vocab() const { return vocabulary_->size(); }

const SpecialTokens& Tokenizer::special() const { return vocabulary_->special; }

bool Tokenizer::adds_space_prefix() const { return vocabulary_->add_space_prefix; }

TokenKind Tokenizer::kind(Token token) const {
  check(token >= 0 && static_cast<std::size_t>(token) < n_vocab(), "token id inside the vocabulary");
  return vocabulary_->kind(token);
}

std::string_view Tokenizer::token_text(Token token) const {
  check(token >= 0 && static_cast<std::size_t>(token) < n_vocab(), "token id inside the vocabulary");
  return vocabulary_->text(token);
}

bool Tokenizer::is_end_of_generation(Token token) const { return std::ranges::binary_search(end_tokens(), token); }

std::span<const Token> Tokenizer::end_tokens() const { return vocabulary_->end_tokens; }

void Tokenizer::append_piece(Token token, ControlText control, std::string& out) const {
  switch (kind(token)) {
    case TokenKind::Control:
    case TokenKind::Unknown:
      if (control == ControlText::Given) out += vocabulary_->text(token);
      return;
    case TokenKind::Unused:
      return;
    case TokenKind::UserDefined:
      out += vocabulary_->text(token);
      return;
    case TokenKind::Undefined:
    case TokenKind::Normal:
    case TokenKind::Byte:
      append_text(token, out);
      return;
  }
}

std::string Tokenizer::piece(Token token) const {
  std::string out;
  append_piece(token, ControlText::Left, out);
  return out;
}

std::string Tokenizer::spelling(Token token) const {
  std::string out;
  append_piece(token, ControlText::Given, out);
  return out;
}

std::string Tokenizer::joined(std::span<const Token> tokens, ControlText control) const {
  std::string out;
  bool beginning = adds_space_prefix();
  for (const Token token : tokens) {
    append_piece(token, control, out);
    if (!beginning || out.empty()) continue;
    if (out.front() == ' ') out.erase(0, 1);
    beginning = false;
  }
  return out;
}

std::string Tokenizer::decode(std::span<const Token> tokens) const { return joined(tokens, ControlText::Left); }

std::string Tokenizer::spelling(std::span<const Token> tokens) const { return joined(tokens, ControlText::Given); }

std::string Tokenizer::describe() const { return vocabulary_->model + details() + ", " + counted(n_vocab(), "token"); }

}  // namespace llm
