// Vocabulary model `plamo2`: of all ways to cut a text into tokens and unknown characters the one with the best sum of
// scores, found from its end. Scores are whole numbers, ten thousand times those of the file, and an unknown character,
// which goes through as byte tokens, costs as much as a score of -1000. Of equal sums the longer token counts.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/utf8.h"
#include "text/token_sink.h"
#include "text/token_trie.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

constexpr double kScale = 1e4;
constexpr std::int64_t kUnknown = -10'000'000;
constexpr std::int64_t kLeast = -20'000'000;  ///< a token must score better than that
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Plamo2Tokenizer final : public Tokenizer {
 public:
  Plamo2Tokenizer(const Metadata&, Vocabulary, Warnings&);

 private:
  /// The best way from a place to the end of the text.
  struct Best {
    std::int64_t score;
    std::uint32_t length;  ///< bytes of its first token
    Token token;           ///< kNoToken: an unknown character
  };

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token, std::string& out) const override;

  void encode_text(std::string_view text, std::size_t begin, std::vector<Best>& best, TokenSink&) const;
  Best best_from(std::string_view text, std::size_t at, const std::vector<Best>& best) const;

  TokenTrie trie_;
  std::vector<std::int64_t> scores_;  ///< [n_vocab]
  std::array<Token, 256> byte_token_;
};

Plamo2Tokenizer::Plamo2Tokenizer(const Metadata& metadata, Vocabulary vocabulary, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)), byte_token_(byte_tokens(this->vocabulary())) {
  const Vocabulary& v = this->vocabulary();
  warn_duplicates(v, warnings);
  if (std::find(byte_token_.begin(), byte_token_.end(), kNoToken) != byte_token_.end()) {
    metadata.fail(kTokensKey, "vocabulary model plamo2 needs a byte token, <0x00> to <0xFF>, for each byte");
  }
  scores_.resize(v.size(), 0);
  std::vector<std::pair<std::string_view, Token>> texts;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    const auto i = static_cast<std::size_t>(id);
    const double score = v.scores.empty() ? 0 : std::round(static_cast<double>(v.scores[i]) * kScale);
    if (!v.encodes_text(id) || !(score > static_cast<double>(kLeast))) continue;
    scores_[i] = static_cast<std::int64_t>(std::min(score, -static_cast<double>(kLeast)));
    texts.push_back({v.text(id), id});
  }
  trie_ = TokenTrie(std::move(texts));
}

void Plamo2Tokenizer::append_text(Token token, std::string& out) const {
  const std::string_view text = vocabulary().text(token);
  if (vocabulary().kind(token) == TokenKind::Byte) {
    out += static_cast<char>(byte_value(text));
  } else {
    out += text;
  }
}

void Plamo2Tokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  std::vector<Best> best;
  for (const Fragment& fragment : fragments) {
    if (fragment.token != kNoToken) {
      out.push(fragment.token, fragment.begin + fragment.text.size());
    } else {
      const std::size_t mark = fragment.text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
      encode_text(fragment.text.substr(mark), fragment.begin + mark, best, out);
    }
  }
}

void Plamo2Tokenizer::encode_text(std::string_view text, std::size_t begin, std::vector<Best>& best,
                                  TokenSink& out) const {
  best.assign(text.size() + 1, {0, 0, kNoToken});
  for (std::size_t at = text.size(); at-- > 0;) {
    if (!utf8::is_inside(text, at)) best[at] = best_from(text, at, best);
  }
  for (std::size_t at = 0; at < text.size(); at += best[at].length) {
    const Best& b = best[at];
    if (b.token != kNoToken) {
      out.push(b.token, begin + at + b.length);
    } else {
      append_bytes(text.substr(at, b.length), begin + at, byte_token_, kNoToken, out);
    }
  }
}

Plamo2Tokenizer::Best Plamo2Tokenizer::best_from(std::string_view text, std::size_t at,
                                                 const std::vector<Best>& best) const {
  const utf8::Unit unit = utf8::unit_at(text, at);
  const std::size_t character = unit.form == utf8::Form::Valid ? unit.length : 1;
  Best found{best[at + character].score + kUnknown, static_cast<std::uint32_t>(character), kNoToken};
  TokenTrie::Node node = TokenTrie::kRoot;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = trie_.step(node, static_cast<std::uint8_t>(text[i]));
    if (node == TokenTrie::kNone) break;
    const Token token = trie_.token(node);
    const bool cuts_a_character = i + 1 < text.size() && utf8::is_inside(text, i + 1);  // a broken file's token
    if (token == kNoToken || cuts_a_character) continue;
    const std::int64_t score = best[i + 1].score + scores_[static_cast<std::size_t>(token)];
    if (score >= found.score) found = {score, static_cast<std::uint32_t>(i + 1 - at), token};
  }
  return found;
}

}  // namespace

std::unique_ptr<Tokenizer> load_plamo2(const Metadata& metadata, Warnings& warnings) {
  const VocabularyDefaults defaults{
      .bos_text = "<|plamo:bos|>", .eos_text = "<|plamo:eos|>", .unk_text = "<|plamo:unk|>"};
  return std::make_unique<Plamo2Tokenizer>(metadata, read_vocabulary(metadata, defaults, warnings), warnings);
}

}  // namespace llm
