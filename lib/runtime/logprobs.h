// Log probabilities of a sampled token and of the likeliest ones in its place.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

struct TokenLogprob {
  Token token;
  double logprob;  ///< natural logarithm
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> best;  ///< the likeliest, in order; of equal ones the lowest id first
};

/// What the model itself says, as OpenAI's API means it: the softmax of the raw logits over the whole vocabulary,
/// before bias, penalties, filters and temperature. The token that a chain chose may be far down that list. `n` may
/// exceed the vocabulary. A logit of -infinity has the log probability -infinity and is never among the best.
Logprobs logprobs(std::span<const float> logits, Token chosen, std::size_t n);

}  // namespace llm
