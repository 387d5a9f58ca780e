// Vocabulary model `rwkv`: at each place of a text the longest token that stands there. Tokens are strings of bytes;
// the file writes them as Python does, with backslash escapes.
#include "text/token_sink.h"
#include "text/token_trie.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

class RwkvTokenizer final : public Tokenizer {
 public:
  RwkvTokenizer(Vocabulary, Warnings&);

 private:
  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token token, std::string& out) const override { out += bytes_[static_cast<std::size_t>(token)]; }

  std::vector<std::string> bytes_;  ///< [n_vocab]
  TokenTrie trie_;
};

/// The value of two hexadecimal digits at the front, or -1.
int hex_byte(std::string_view text) {
  int value = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const char c = i < text.size() ? text[i] : '-';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

/// A backslash with nothing that it escapes stands for itself.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char escape = text[++i];
    const int byte = escape == 'x' ? hex_byte(text.substr(i + 1)) : -1;
    if (byte >= 0) {
      out += static_cast<char>(byte);
      i += 2;
    } else if (escape == 'n' || escape == 't' || escape == 'r') {
      out += escape == 'n' ? '\n' : escape == 't' ? '\t' : '\r';
    } else {
      if (escape == 'x') out += '\\';
      out += escape;
    }
  }
  return out;
}

RwkvTokenizer::RwkvTokenizer(Vocabulary vocabulary, Warnings& warnings) : Tokenizer(std::move(vocabulary)) {
  const Vocabulary& v = this->vocabulary();
  warn_duplicates(v, warnings);
  for (const std::string_view text : v.texts) bytes_.push_back(unescaped(text));
  std::vector<std::pair<std::string_view, Token>> texts;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    if (v.encodes_text(id)) texts.push_back({bytes_[static_cast<std::size_t>(id)], id});
  }
  trie_ = TokenTrie(std::move(texts));
}

void RwkvTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  for (const Fragment& fragment : fragments) {
    std::size_t at = fragment.token == kNoToken ? 0 : fragment.text.size();
    if (at > 0) out.push(fragment.token, fragment.begin + at);
    while (at < fragment.text.size()) {
      const TokenTrie::Match match = trie_.longest(fragment.text.substr(at));
      at += std::max<std::size_t>(match.length, 1);
      const Token token = match.token != kNoToken ? match.token : vocabulary().special.unk;
      if (token != kNoToken) out.push(token, fragment.begin + at);
    }
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_rwkv(const Metadata& metadata, Warnings& warnings) {
  return std::make_unique<RwkvTokenizer>(read_vocabulary(metadata, {}, warnings), warnings);
}

}  // namespace llm
