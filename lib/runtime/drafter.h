// What guesses how a text goes on. A guess never changes a text: the model looks at guessed tokens in one step, and
// those stay that would have been sampled anyway.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace llm {

struct Guess {
  Token token;
  double probability;  ///< that it comes, if those before it do: by what came of such guesses lately
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  /// Another text. What was learned about guesses stays.
  virtual void begin(std::span<const Token> text) = 0;
  /// The text has one more token.
  virtual void append(Token) = 0;
  /// Of the text, the session holds this much from now on: the context was full.
  virtual void shifted(std::span<const Token> /*held*/) {}
  /// Before the first guess behind a text: false if the drafter has to read on first. It has then read a part.
  virtual bool ready() { return true; }
  /// What may follow the text and `ahead`, which are the guesses that this drafter made since the text last grew.
  virtual std::optional<Guess> guess(std::span<const Token> ahead) = 0;
  /// Of the next guess, before it is made: 1 where finding out costs nothing.
  virtual double outlook() const { return 1; }
  /// Why it guesses no more, told once; empty: it does.
  virtual std::string take_fault() { return {}; }
};

}  // namespace llm
