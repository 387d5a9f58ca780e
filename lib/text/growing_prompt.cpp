#include "text/growing_prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace llm {
namespace {

bool stands_for_text(TokenKind kind) { return kind == TokenKind::Normal || kind == TokenKind::Byte; }

/// The stretches behind `begin`, counted from there.
std::vector<TextSpan> spans_from(const std::vector<TextSpan>& spans, std::size_t begin) {
  std::vector<TextSpan> behind;
  for (const TextSpan& s : spans) {
    if (s.end > begin) behind.push_back({std::max(s.begin, begin) - begin, s.end - begin});
  }
  return behind;
}

}  // namespace

GrowingPrompt::GrowingPrompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (std::size_t t = 0; t < tokenizer.n_vocab(); ++t) {
    const auto token = static_cast<Token>(t);
    if (!stands_for_text(tokenizer.kind(token)))
      longest_special_ = std::max(longest_special_, tokenizer.token_text(token).size());
  }
}

/// Bytes that are the same, and written by the same.
std::size_t GrowingPrompt::alike(const PromptText& next) const {
  const std::string_view a = text_.text, b = next.text;
  auto same = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const std::vector<TextSpan>&x = text_.user, &y = next.user;
  const auto [i, j] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
  if (i != x.end() && j != y.end()) {
    same = std::min(same, i->begin != j->begin ? std::min(i->begin, j->begin) : std::min(i->end, j->end));
  } else if (i != x.end() || j != y.end()) {
    same = std::min(same, i != x.end() ? i->begin : j->begin);
  }
  return same;
}

/// Those before the last control token that is one in both texts, whatever follows: what stands behind one is encoded
/// as it would be alone. Which one it is, is decided by no more bytes than the longest has.
std::size_t GrowingPrompt::tokens_to_keep(std::size_t alike) const {
  for (std::size_t i = made_.ids.size(); i-- > 1;) {
    const TokenSource& source = made_.sources[i];
    const bool markup = source.origin == TokenOrigin::Template && tokenizer_.kind(made_.ids[i]) == TokenKind::Control;
    if (markup && source.bytes.end + longest_special_ <= alike) return i;
  }
  return 0;
}

const EncodedPrompt& GrowingPrompt::encode(PromptText next) {
  const std::size_t kept = tokens_to_keep(alike(next));
  if (kept == 0) {
    made_ = tokenizer_.encode(next);
  } else {
    const std::size_t begin = made_.sources[kept].bytes.begin;
    const EncodedPrompt more =
        tokenizer_.encode(PromptText{next.text.substr(begin), spans_from(next.user, begin)}, AddSpecial::Never);
    made_.ids.resize(kept);
    made_.sources.resize(kept);
    made_.ids.insert(made_.ids.end(), more.ids.begin(), more.ids.end());
    for (const TokenSource& s : more.sources)
      made_.sources.push_back({s.origin, {s.bytes.begin + begin, s.bytes.end + begin}});
    const SpecialTokens& special = tokenizer_.special();
    if (special.add_eos && made_.ids.back() != special.eos) {
      made_.ids.push_back(special.eos);
      made_.sources.push_back({TokenOrigin::Rule, {next.text.size(), next.text.size()}});
    }
  }
  text_ = std::move(next);
  return made_;
}

}  // namespace llm
