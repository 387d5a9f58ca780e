// One answer as it grows: from the logits after its last token to the next token, the text so far complete, and the
// reason to stop. It knows no session: generate() drives one, a batch drives many.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/logprobs.h"
#include "runtime/model.h"
#include "runtime/sampler.h"
#include "runtime/stop_matcher.h"
#include "runtime/thinking.h"

namespace llm {

class Constraint;
class TokenMasks;

enum class StopReason : std::uint8_t { EndOfGeneration, StopString, Length, ContextFull, TimeUp, Cancelled };
std::string_view name(StopReason);

struct AnswerOptions {
  std::int64_t max_tokens = -1;  ///< -1: until something else ends it
  SamplerOptions sampling;
  /// Of sampling.dry_sequence_breakers, found once for many answers; if there are none and dry acts, each finds them.
  std::shared_ptr<const SequenceBreakers> breakers = nullptr;
  std::uint64_t row = 0;  ///< of the random numbers, beside sampling.seed
  enum class EndToken : std::uint8_t { Stops, Ignored } end_token = EndToken::Stops;
  enum class ControlTokens : std::uint8_t { Hidden, Shown } control_tokens = ControlTokens::Hidden;  ///< in its text
  /// The answer ends before the first of these; they have no meaning in the thinking, but for the mark that ends it.
  /// One that is the text of a control token is that token, too, which gives no text.
  std::vector<std::string> stop_strings = {};
  /// What the answer must be, from its first byte to its end: it ends as soon as nothing may follow. May be shared by
  /// answers.
  std::shared_ptr<TokenMasks> constraint = {};
  std::optional<ReasoningOptions> reasoning = {};  ///< nothing: all text is the answer
  std::optional<int> logprobs = {};  ///< log probabilities are kept, with those of so many of the likeliest tokens
};

/// What became complete: first the thinking, then the text.
struct AnswerText {
  std::string thinking, text;
};

class Answer {
 public:
  /// What is sampled follows `prompt`: penalties look back at it, and the first piece of text is joined to it (a
  /// leading space, a character whose first bytes end the prompt). The model must outlive the answer.
  Answer(const Model&, AnswerOptions, std::span<const Token> prompt);
  Answer(Answer&&) noexcept;
  ~Answer();

  /// Samples from the logits [vocab] after the last token. Not after the answer has ended. Throws ErrorKind::Notation
  /// if the vocabulary has no token that the constraint allows.
  void sample(std::span<const float> logits);
  /// How a backend may draw the next token in place of sample(), or the one after it if one is drawn already (`unseen`
  /// = 1, which rule.newest is to say). Valid until the next call. Nothing if it takes the logits.
  std::optional<DrawRule> rule(int unseen);
  /// A token that was drawn by its rule.
  void take(Token);
  /// Ends it for a reason that the caller sees first.
  void end(StopReason reason) { reason_ = reason; }

  bool ended() const { return reason_.has_value(); }
  StopReason reason() const { return *reason_; }
  /// What was generated, without the end token. The last one is to be evaluated if the answer has not ended.
  std::span<const Token> tokens() const { return tokens_; }
  /// That may follow those there are.
  std::size_t tokens_left() const;
  /// Of each of tokens(), if they were asked for.
  std::span<const Logprobs> token_logprobs() const { return logprobs_; }
  /// How many of tokens() come before the stop string that ended it, if one did and its text was taken.
  std::size_t text_tokens() const;
  /// Where each of tokens() begins in the text, in bytes, if there is no thinking: a token that goes on with a
  /// character begins where that does, even if the prompt began it.
  std::vector<std::size_t> text_offsets() const;
  /// Of an answer that has ended and whose text was taken: it has the form that it must have, to its end.
  bool form_is_whole() const;
  /// Of tokens(), those of the thinking and its marks.
  std::int64_t thinking_tokens() const { return thinking_ ? thinking_->tokens() : 0; }
  /// The text that became complete since the last call and is no beginning of a stop string: whole UTF-8 sequences; at
  /// the end, what is left.
  AnswerText take_text();

 private:
  struct Chosen {
    Token token;
    enum class By : std::uint8_t { Model, Rule } by;  ///< Rule: it was put in, and ends nothing
  };
  /// Where the text stands after a token.
  struct TextEnd {
    std::size_t begin;           ///< of the token, as text_offsets() has it
    std::size_t searched_bytes;  ///< of the answer, that stop strings were looked for in
    bool inside;                 ///< of a character, or of what may become the mark that ends the thinking
  };
  Chosen choose(std::span<const float> logits);
  bool form_holds() const;
  void follow_form(Token);
  std::span<const float> allowed_only(std::span<const float> logits);
  bool ends(Token);
  std::string shown(Token) const;
  void add(Token);
  bool allow(std::span<const float> logits, std::span<const std::uint64_t> tokens);
  void take_in(Token);
  enum class StopText : std::uint8_t { None, OfAnswer, Mark };  ///< Mark: the one that ends the thinking
  void stop_at(StopText);
  std::size_t begin_of(Token) const;
  void mark_text_end(std::size_t begin);
  void give_out(const ReasoningParser::Parts&);
  void search(const std::string& text);
  void add_answer(const std::string& text);

  const Tokenizer& tokenizer_;
  AnswerOptions options_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::unique_ptr<Constraint> constraint_;  ///< none: any text will do
  bool form_fits_ = true;                   ///< all tokens so far, even if they may turn out to begin the thinking
  std::optional<Thinking> thinking_;
  std::vector<float> masked_;  ///< logits, -infinity where the constraint forbids
  std::vector<Token> stop_tokens_;
  std::size_t n_tokens_;  ///< a model may have more rows than its vocabulary has tokens
  std::vector<Token> tokens_;
  std::vector<Logprobs> logprobs_;
  std::vector<TextEnd> text_ends_;  ///< of each token
  std::size_t searched_bytes_ = 0, answer_bytes_ = 0;
  StopText stop_text_ = StopText::None;
  AnswerText ready_;
  std::string formed_;    ///< all text of the answer, where that has a form
  std::string end_mark_;  ///< text of the end token, where control tokens are shown
  std::optional<StopReason> reason_;
};

}  // namespace llm
