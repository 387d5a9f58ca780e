// From logits to a token: llama.cpp's samplers by name, order and default, with counter-based randomness.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

struct SamplerOptions {
  std::uint64_t seed = 0;
  float temperature = 0.8F;  ///< <= 0: greedy
  int top_k = 40;            ///< <= 0: all
  float top_p = 0.95F;       ///< 1: off
  float min_p = 0.05F;       ///< 0: off
  float repeat_penalty = 1;  ///< 1: off
  int repeat_last_n = 64;    ///< tokens looked back at; 0: off, -1: all
};

/// The chain penalties -> top-k -> top-p -> min-p -> temperature -> draw. The draw depends on (seed, row, index) alone,
/// so results do not depend on what else runs, and a position can be sampled again.
class Sampler {
 public:
  explicit Sampler(SamplerOptions, std::uint64_t row = 0);

  /// `logits` [vocab] are finite. `index` counts the tokens generated in this row. Of equal logits the lowest id is
  /// first.
  Token sample(std::span<const float> logits, std::uint64_t index);
  /// Tokens that the penalties look back at: the prompt's and the accepted ones.
  void accept(Token);
  /// Forgets accepted tokens from `count` on.
  void rewind(std::size_t count);
  std::size_t accepted() const { return history_.size(); }
  void forbid(std::vector<Token>);  ///< never sampled (what --ignore-eos gives), unless nothing else is left

  struct Candidate {
    Token token;
    float logit;
  };
  /// What the chain leaves before the temperature, best first where top-k or top-p act, else by id: for tests.
  std::span<const Candidate> candidates(std::span<const float> logits);

 private:
  void apply_penalties(std::span<float> logits) const;
  std::span<const float> prepare(std::span<const float> logits);
  void collect_all(std::span<const float> logits);
  void collect_top_k(std::span<const float> logits, std::size_t k);
  void keep_top_p();
  void keep_min_p();
  Token draw(std::uint64_t index) const;

  SamplerOptions options_;
  std::uint64_t row_;
  std::vector<Token> history_;
  std::vector<Token> forbidden_;
  std::vector<float> adjusted_;  ///< logits after penalties; -infinity where forbidden
  std::vector<Candidate> candidates_;
  bool sorted_ = false;  ///< candidates_ are best first
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011).
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);
/// Uniform in [0, 1) with 53 bits: key = seed, counter = (row, index), low words first.
double counter_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t index);

}  // namespace llm
