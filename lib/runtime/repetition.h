// What looks back at the tokens before: repetition, presence and frequency penalties, and DRY.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/candidates.h"
#include "text/tokenizer.h"

namespace llm {

/// How often each token occurs among the last `window` tokens of a history that grows and shrinks at its end.
class RecentTokens {
 public:
  explicit RecentTokens(int window) : window_(window) {}  ///< -1: all

  void entered(std::span<const Token> history);  ///< its last token is new
  void leaving(std::span<const Token> history);  ///< its last token is about to go
  const std::unordered_map<Token, int>& counts() const { return counts_; }

 private:
  /// The token that the window lost when the last one entered.
  const Token* beyond(std::span<const Token> history) const;
  void add(Token token, int n);
  int window_;
  std::unordered_map<Token, int> counts_;  ///< none is 0
};

/// Each recent token once: a logit above 0 is divided by `repeat`, another one multiplied (CTRL: Keskar and others,
/// 2019, divide only, which would make tokens with negative logits likelier); then `presence`, and `frequency` per
/// occurrence, are subtracted.
struct Penalties {
  float repeat = 1, presence = 0, frequency = 0;
};
void penalise(Candidates&, const std::unordered_map<Token, int>& counts, const Penalties&);

/// Token sequences that a repetition may not reach across: after the first token, one of the tails (often empty).
struct SequenceBreakers {
  std::unordered_map<Token, std::vector<std::vector<Token>>> tails;
};
/// The sequences that spell one of the strings: tokens that hold it, and tokens that end in its beginning with the rest
/// as the tokenizer splits it. Looks at every token of the vocabulary.
SequenceBreakers find_sequence_breakers(const Tokenizer&, std::span<const std::string> strings);

/// DRY ("don't repeat yourself", by p-e-w): a token that would prolong a repetition of the end of `history` by which n
/// >= allowed_length tokens are equal loses multiplier * base^(n - allowed_length).
struct Dry {
  float multiplier = 0, base = 1.75F;
  int allowed_length = 2;
};
void discourage_repeats(Candidates&, std::span<const Token> history, const Dry&, const SequenceBreakers&);

}  // namespace llm
