// The thinking of one answer as its tokens come: which part of the text each gives, what the thinking may take, and the
// tokens that are put in to end it. The parser of lib/text knows bytes; here are tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/reasoning.h"
#include "text/tokenizer.h"

namespace llm {

struct ReasoningOptions {
  ReasoningMarkers markers;
  ReasoningPhase begins = ReasoningPhase::Before;
  std::string begun = {};           ///< text that the answer has before its first token; none of it is given out
  std::int64_t budget = -1;         ///< tokens of thinking after its opening mark, which then ends; -1: no limit
  std::string budget_message = {};  ///< what the thinking ends with if it was ended by that
  /// What a constraint holds for: the answer behind the thinking, or all text, thinking or not.
  enum class Form : std::uint8_t { Answer, Everything } form = Form::Answer;
  /// What Answer::take() calls text: the answer alone, or all that was generated, marks included.
  enum class Text : std::uint8_t { Answer, Everything } text = Text::Answer;
};

class Thinking {
 public:
  /// Whether the answer must have a form, so that its first byte must be known.
  enum class AnswerForm : std::uint8_t { Free, Given };
  Thinking(const Tokenizer&, const ReasoningOptions&, AnswerForm);

  ReasoningPhase phase() const { return parser_.phase(); }
  const ReasoningMarkers& markers() const { return parser_.markers(); }
  /// The token that has to come now, whatever the model says. `in_character`: the text ends inside of one, which is not
  /// cut as long as that takes a few tokens only.
  std::optional<Token> put_in(bool in_character);
  /// Whether put_in() may have one after `unseen` more tokens, which nobody has seen yet.
  bool may_put_in(int unseen) const;
  /// Whether the thinking ends in what may become the mark that ends it.
  bool closing() const { return !parser_.begun_close().empty(); }
  /// Ends the thinking: the tokens of the mark come next.
  void close();

  // While an answer with a form may still begin with thinking, in a vocabulary that has a token for its mark:
  /// The tokens that go on with what begins the thinking, or with what must stand before the answer.
  std::vector<Token> openings() const;
  /// Whether the answer may begin without anything before it.
  bool answer_may_begin() const { return !parser_.markers().has_messages(); }
  /// Whether the token is one of openings(). If it is none, the answer has begun with the first token.
  bool go_on_opening(Token);

  /// Whether this token, with this text, ends the thinking and has bytes of the answer as well.
  bool runs_into_answer(Token, std::string_view text) const;

  /// A token and the text that became complete with it.
  ReasoningParser::Parts accept(Token, std::string text);
  /// The rest, when no more tokens come.
  ReasoningParser::Parts finish(std::string_view text);
  std::int64_t tokens() const { return tokens_; }  ///< of the thinking, its marks included

  /// A control token of the marks, whose text the thinking looks for.
  bool is_mark(Token) const;

 private:
  void put(std::string_view text);
  void count(ReasoningPhase before);

  const Tokenizer& tokenizer_;
  ReasoningParser parser_;
  AnswerForm form_;
  std::int64_t budget_;
  std::string message_;
  std::vector<Token> marks_;  ///< control tokens that marks are made of: these have a text
  std::vector<std::vector<Token>> openings_;
  std::size_t opened_ = 0;  ///< tokens of an opening that have come
  std::vector<Token> queue_;
  std::size_t queued_ = 0;  ///< of these have come
  bool closed_ = false;     ///< tokens that end this thinking were put in
  std::int64_t inside_ = 0, tokens_ = 0, undecided_ = 0;
  char last_ = '\n';  ///< of the thinking
};

}  // namespace llm
