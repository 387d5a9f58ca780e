// From logits to a token: llama.cpp's samplers by name, order and default, with counter-based randomness.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/draw.h"
#include "runtime/candidates.h"
#include "runtime/random.h"
#include "runtime/repetition.h"
#include "runtime/sampler_options.h"

namespace llm {

/// A chain of samplers. Draws depend on (seed, row, index) alone, so results do not depend on what else runs, and a
/// position can be sampled again. What it remembers (the tokens before, Mirostat's mu) follows accept() and rewind().
class Sampler {
 public:
  /// `breakers` are DRY's, found in the vocabulary; without, nothing ends a repetition.
  explicit Sampler(SamplerOptions, std::uint64_t row = 0, std::shared_ptr<const SequenceBreakers> breakers = {});

  /// `logits` [vocab] are finite or -infinity (not to be sampled). `index` counts the tokens generated in this row.
  /// What bias forbids altogether is decided by the logits alone: a token is always found.
  Token sample(std::span<const float> logits, std::uint64_t index);
  /// A token enters the history: the prompt's and what was generated. Mirostat learns from it if it was a candidate of
  /// the sample just taken.
  void accept(Token);
  /// Forgets accepted tokens from `count` on.
  void rewind(std::size_t count);
  std::size_t accepted() const { return history_.size(); }

  /// The same as a rule for a backend that draws: for the token after those accepted and `unseen` (0 or 1) more that
  /// rule.newest stands for. `n_tokens` of a row may be sampled. Valid until the next call. Nothing if the chain is
  /// more than a rule can say.
  std::optional<DrawRule> rule(std::size_t n_tokens, std::uint64_t index, int unseen);

  /// What the chain leaves to draw from, with the logits that the draw would use: for tests and tools. Best first where
  /// top-k or top-p act, else by id.
  std::span<const Candidate> candidates(std::span<const float> logits, std::uint64_t index = 0);
  double mu() const { return mu_.back(); }  ///< Mirostat's bound on the surprise, in bits

 private:
  static std::vector<SamplerKind> stages_of(const SamplerOptions&);
  static std::vector<LogitEdit> biases_of(const SamplerOptions&);
  void run(std::span<const float> logits, std::uint64_t index);
  void apply(SamplerKind, std::uint64_t index);
  void add_bias(std::span<const float> logits);
  bool acts(SamplerKind) const;
  bool is_rule() const;
  void list_edits(int unseen);
  double temperature() const;
  double learned_mu(Token) const;

  SamplerOptions options_;
  std::uint64_t row_;
  std::shared_ptr<const SequenceBreakers> breakers_;
  std::vector<SamplerKind> stages_;
  std::vector<LogitEdit> biases_;
  std::vector<Token> history_;
  RecentTokens recent_;
  std::vector<double> mu_;  ///< by the length of the history; one value if Mirostat is off
  bool sampled_ = false;    ///< candidates_ are those of the next token to be accepted
  Candidates candidates_;
  std::vector<LogitEdit> edits_;  ///< of the rule given last
};

}  // namespace llm
