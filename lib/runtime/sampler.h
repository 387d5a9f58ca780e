// From logits to a token: llama.cpp's samplers by name, order and default, with counter-based randomness.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

struct SamplerOptions {
  std::uint64_t seed = 0;
  float temperature = 0.8F;   ///< <= 0: greedy
  int top_k = 40;             ///< <= 0: all
  float top_p = 0.95F;        ///< 1: off
  float min_p = 0.05F;        ///< 0: off
  float repeat_penalty = 1;   ///< 1: off
  int repeat_last_n = 64;     ///< tokens looked back at; 0: off, -1: all
};

/// The chain penalties -> top-k -> top-p -> min-p -> temperature -> draw. The draw depends on (seed, row, index) alone, so
/// results do not depend on what else runs, and a position can be sampled again.
class Sampler {
 public:
  explicit Sampler(SamplerOptions, std::uint64_t row = 0);

  /// `logits` [vocab] are finite. `index` counts the tokens generated in this row.
  Token sample(std::span<const float> logits, std::uint64_t index);
  /// Tokens that the penalties look back at: the prompt's and the accepted ones.
  void accept(Token);
  /// Forgets accepted tokens from `count` on.
  void rewind(std::size_t count);
  std::size_t accepted() const { return history_.size(); }
  void forbid(std::vector<Token>);  ///< never sampled: what --ignore-eos gives

 private:
  struct Candidate {
    Token token;
    float logit;
    float probability;
  };
  SamplerOptions options_;
  std::uint64_t row_;
  std::vector<Token> history_;
  std::vector<Token> forbidden_;
  std::vector<Candidate> candidates_;
};

/// Uniform in [0, 1) with 53 bits from a counter (Philox4x32-10, Salmon et al. 2011): key = seed, counter = (row, index).
double counter_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t index);

}  // namespace llm
