// The vocabulary's arrays and flags as a file's metadata gives them, checked: what every vocabulary model starts from.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

inline constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
inline constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
inline constexpr std::string_view kTokenTypeKey = "tokenizer.ggml.token_type";
inline constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
inline constexpr std::string_view kModelKey = "tokenizer.ggml.model";
inline constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
inline constexpr std::string_view kLowercaseKey = "tokenizer.ggml.normalizer.lowercase";
inline constexpr std::string_view kStripAccentsKey = "tokenizer.ggml.normalizer.strip_accents";
inline constexpr std::string_view kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";

/// What a vocabulary model assumes where the file is silent.
struct VocabularyDefaults {
  /// Control tokens that serve without a key of their own.
  std::string_view bos_text = {}, eos_text = {}, unk_text = {}, sep_text = {};
  bool add_bos = false, add_eos = false, add_space_prefix = false;
};

struct Vocabulary {
  std::string model;                    ///< tokenizer.ggml.model
  std::vector<std::string_view> texts;  ///< [n_vocab], views of the mapped file
  std::vector<float> scores;            ///< [n_vocab] or empty
  std::vector<TokenKind> kinds;         ///< [n_vocab]
  std::vector<bool> markup;             ///< [n_vocab] control tokens, and user-defined ones that formats are made of
  std::vector<bool> trims_after;        ///< [n_vocab] or empty: white space after this special token is dropped
  Token trims_before = kNoToken;        ///< white space before this special token is dropped
  std::vector<Token> end_tokens;        ///< ascending
  SpecialTokens special;
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;

  std::size_t size() const { return texts.size(); }
  std::string_view text(Token id) const { return texts[static_cast<std::size_t>(id)]; }
  TokenKind kind(Token id) const { return kinds[static_cast<std::size_t>(id)]; }
  bool is_markup(Token id) const { return markup[static_cast<std::size_t>(id)]; }
  /// Whether text may become this token. The others have a spelling too, but text that is spelled so stays text.
  bool encodes_text(Token id) const { return !is_markup(id) && kind(id) != TokenKind::Byte; }
};

/// The byte of a token of kind Byte, whose text is <0x00> to <0xFF>.
std::uint8_t byte_value(std::string_view text);
/// The token of each byte, kNoToken where there is none.
std::array<Token, 256> byte_tokens(const Vocabulary&);

/// Text that is no token: the byte tokens of all its bytes, if there are such, else `unknown` if there is one. `begin`:
/// where it is.
void append_bytes(std::string_view bytes, std::size_t begin, const std::array<Token, 256>& byte_tokens, Token unknown,
                  TokenSink&);

/// U+2581, which stands for a space in token strings of several vocabulary models.
inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";
void append_unescaped(std::string_view text, std::string& out);

/// Throws ErrorKind::Model for arrays that cannot be used; everything that can be lived with is one warning per kind.
Vocabulary read_vocabulary(const Metadata&, const VocabularyDefaults&, Warnings&);

/// Token strings that are there more than once: `count` of them, for example `example`. Nothing if count is 0.
void warn_duplicates(std::size_t count, std::string_view example, Warnings&);
/// The same, for those who keep no table of them.
void warn_duplicates(const Vocabulary&, Warnings&);

/// Positions inside a text are kept in 32 bits, and a space may become three bytes.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
[[noreturn]] void fail_length(std::size_t bytes);

/// "1 token", "2 tokens".
std::string counted(std::size_t n, std::string_view noun);

}  // namespace llm
