// Passes over the logits of a whole vocabulary, four lanes at a time. Each is a fixed sequence of float operations:
// the same bits on every machine.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

inline constexpr float kNever = -std::numeric_limits<float>::infinity();  ///< the logit of what cannot come

struct Candidate {
  Token token;
  float logit;
};
/// The one order of candidates: higher logit first, of equal ones the lower id.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// -infinity of nothing.
float largest(std::span<const float> logits);
/// The lowest id of the largest logit.
Candidate best_of(std::span<const float> logits);
std::size_t count_at_least(std::span<const float> logits, float least);
/// Replaces `found` by all tokens with at least this logit, by id. -infinity is never found.
void gather_at_least(std::span<const float> logits, float least, std::vector<Candidate>& found);
/// Replaces `found` by the k best (fewer if fewer are above -infinity), best first.
void gather_best(std::span<const float> logits, std::size_t k, std::vector<Candidate>& found);

/// Sums over d = logit - most, none of which is above 0.
struct ExpSums {
  double total = 0;   ///< of e^d, at least 1 if `most` is among the logits
  double moment = 0;  ///< of d e^d
};
ExpSums exp_sums(std::span<const float> logits, float most);

/// e^(logit - most) of each, to about 1e-7 of it; 0 below e^-87.
void exps(std::span<const float> logits, float most, std::span<float> out);

/// Of the logits above -infinity.
struct Moments {
  std::size_t count = 0;
  double mean = 0, deviation = 0;  ///< of the population
};
Moments moments(std::span<const float> logits);

/// The token whose share of the sum of e^logit holds the point `uniform` in [0, 1).
Token draw_from(std::span<const float> logits, double uniform);

}  // namespace llm
