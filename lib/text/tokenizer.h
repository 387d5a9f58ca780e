// Text to token ids and back, as the vocabulary inside a GGUF file defines it.
// Every vocabulary model is one subclass in its own file and one row of the table in vocabulary_models.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/metadata.h"

namespace llm {

inline constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

/// Kinds by their numbers in tokenizer.ggml.token_type.
enum class TokenKind : std::uint8_t {
  Undefined = 0,
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6
};

/// Whether BOS and EOS are added as the file's flags ask; never twice where the text has them already.
enum class AddSpecial : std::uint8_t { AsFileSays, Never };

struct EncodeOptions {
  bool add_special = true;  ///< AddSpecial::AsFileSays
  /// Text of control tokens becomes those tokens; false: it is plain text, and that of user-defined ones becomes them.
  bool parse_special = true;
};

/// Bytes [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

/// A rendered prompt: one text, and which stretches of it were written by somebody else than the template (messages,
/// documents, results of tools). There, the texts of control tokens are plain text, and so are those of user-defined
/// ones that formats are made of ("<tool_call>"); everywhere else they are markup. A border between the two changes
/// nothing by itself: the ids are those of the whole text, except that markup needs all of its bytes outside of `user`.
struct PromptText {
  std::string text;
  std::vector<TextSpan> user;  ///< ascending, not overlapping, within the text; may touch
};

/// What made a token.
enum class TokenOrigin : std::uint8_t {
  Rule,      ///< the vocabulary: BOS, EOS, a leading space; it stands for no byte of the text
  Template,  ///< text outside of PromptText::user
  User,      ///< a byte of PromptText::user at least
};

struct TokenSource {
  TokenOrigin origin = TokenOrigin::Rule;
  TextSpan bytes;  ///< of the text; empty, at the place where the token was put in, for Rule
};

struct EncodedPrompt {
  std::vector<Token> ids;
  std::vector<TokenSource> sources;  ///< of each id; `bytes` ascend without overlapping
};

/// Tokens with a meaning to the runtime; kNoToken where the file has none.
struct SpecialTokens {
  Token bos = kNoToken, eos = kNoToken, eot = kNoToken, unk = kNoToken, sep = kNoToken, pad = kNoToken;
  bool add_bos = false, add_eos = false;
};

struct Vocabulary;
enum class PlainStretches : std::uint8_t;
class SpecialMatcher;
class TokenSink;

class Tokenizer {
 public:
  /// Throws ErrorKind::Model (unknown model or pre-tokenizer, arrays of other lengths or types ...); warnings as the
  /// format's rules ask (duplicate token strings, ids out of range, missing pre-tokenizer key ...). Token strings stay
  /// views of the mapped file: the metadata must outlive the tokenizer.
  static std::unique_ptr<Tokenizer> load(const Metadata&, Warnings&);
  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Any bytes are accepted: what is not UTF-8 goes through as byte tokens. Safe to call from several threads.
  std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;

  /// A rendered prompt, with the origin of each token.
  EncodedPrompt encode(const PromptText&, AddSpecial = AddSpecial::AsFileSays) const;

  /// Whether there is a byte that texts may lose.
  bool drops_bytes() const;
  /// The bytes of a text for which `ids`, its encoding, have nothing, since the vocabulary has no token for them and no
  /// unknown one either: by their values, how many of each.
  std::map<std::uint8_t, std::size_t> lost_bytes(std::string_view text, std::span<const Token> ids) const;

  std::size_t n_vocab() const;
  const SpecialTokens& special() const;
  TokenKind kind(Token) const;
  std::string_view token_text(Token) const;   ///< as stored in the file
  bool is_end_of_generation(Token) const;     ///< eos, eot, eom and their kin
  std::span<const Token> end_tokens() const;  ///< all of these, ascending
  /// The vocabulary starts a text with a space that is no part of it: decoding drops the one at the beginning.
  bool adds_space_prefix() const;
  /// The bytes that a token stands for in text; control tokens give nothing.
  std::string piece(Token) const;
  std::string decode(std::span<const Token>) const;
  /// The same, and of control tokens their text.
  std::string spelling(Token) const;
  std::string spelling(std::span<const Token>) const;
  /// In words, for `llm-inspect show`: e.g. "gpt2, pre-tokenizer llama-bpe, 128256 tokens".
  std::string describe() const;

 protected:
  /// A stretch of text between special tokens, or (token != kNoToken) such a token with its text and what it swallows.
  struct Fragment {
    std::string_view text;
    Token token;
    std::size_t begin;  ///< where the text is in the whole one
  };

  explicit Tokenizer(Vocabulary vocabulary);
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  /// Appends the ids of the fragments, in order.
  virtual void encode_fragments(std::span<const Fragment>, TokenSink&) const = 0;
  /// Appends the bytes of a token that stands for text (not Control, Unknown or Unused).
  virtual void append_text(Token, std::string& out) const = 0;
  /// Where such a byte is part of no token of several bytes, the text loses it. For vocabularies that leave texts as
  /// they are.
  virtual bool drops(std::uint8_t) const { return false; }
  /// Follows the model's name in describe(), e.g. ", pre-tokenizer qwen2".
  virtual std::string details() const { return {}; }

  void encode_text(std::span<const Fragment>, std::size_t bytes, AddSpecial, TokenSink&) const;
  std::vector<Fragment> find_fragments(std::string_view text, std::span<const TextSpan> plain, PlainStretches) const;
  std::vector<TokenSource> sources_of(std::span<const Token>, std::span<const std::uint32_t> ends,
                                      std::span<const TextSpan> user) const;
  enum class ControlText : std::uint8_t { Left, Given };
  void append_piece(Token, ControlText, std::string& out) const;
  std::string joined(std::span<const Token>, ControlText) const;

  std::unique_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<const SpecialMatcher> specials_;
};

/// Where a stream of tokens stands in its text: after other text, the leading space of its first token belongs to it.
enum class StreamStart : std::uint8_t { Beginning, Continuation };

/// Joins the pieces of a stream of tokens and gives out whole UTF-8 sequences only.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, StreamStart start = StreamStart::Beginning);
  /// Text that became complete with this token; may be empty. Bytes that can never become UTF-8 come out as U+FFFD; no
  /// character goes on behind a token without text.
  std::string push(Token);
  /// What is left at the end: an incomplete sequence becomes U+FFFD.
  std::string finish();
  /// The tokens so far end inside of a character.
  bool in_character() const { return !held_.empty(); }
  /// ... which such a token goes on with; another one leaves it broken.
  bool goes_on_in_character(Token) const;

 private:
  const Tokenizer& tokenizer_;
  bool drop_space_;  ///< the next piece that is not empty loses its leading space
  std::string held_;
};

}  // namespace llm
