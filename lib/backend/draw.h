// Tokens that a backend draws itself from the logits of its step, so that these need not leave its memory and the next
// step can begin before anybody has seen the token. The rule is the common part of the sampler chain; its meaning is
// host::draw() (backend/host/draw.h), what the runtime's Sampler does with the same settings.
#pragma once

#include <cstdint>
#include <span>

namespace llm {

/// Largest top_k of a rule, most edits, and most logits of a row.
inline constexpr int kMostDrawn = 128, kMostEdits = 256, kMostLogits = 1 << 19;

/// What is known about one token before its logit counts.
struct LogitEdit {
  std::int32_t token = 0;
  std::int32_t count = 0;  ///< how often it is among the tokens that penalties look back at
  float bias = 0;          ///< added first; -infinity: not to be drawn
};

/// Biases, penalties, the top_k best, of these the fewest whose probabilities reach top_p together, of these those at
/// least min_p times as likely as the best; logits divided by the temperature; the token whose share holds `uniform`.
struct DrawRule {
  double uniform = 0;     ///< in [0, 1)
  float temperature = 0;  ///< <= 0: the best of the edited logits
  int top_k = 1;          ///< 1 .. kMostDrawn
  float top_p = 1, min_p = 0;
  int min_keep = 0;                               ///< candidates that top_p and min_p leave at least
  float repeat = 1, presence = 0, frequency = 0;  ///< penalties of tokens with a count
  std::int32_t n_tokens = 0;                      ///< of the row, from the first: what may be drawn
  /// Each token once, at most kMostEdits and fewer than n_tokens.
  std::span<const LogitEdit> edits = {};
  /// A row of the step before: what it draws counts once more for the penalties. -1: none.
  std::int32_t newest = -1;

  bool penalises() const { return repeat != 1 || presence != 0 || frequency != 0; }
};

/// In StepData::tokens, for the token that output row `row` of the step submitted before draws.
constexpr std::int32_t drawn_by(std::int32_t row) { return ~row; }

}  // namespace llm
