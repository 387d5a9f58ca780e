// Drawing tokens from rows of logits, by the rules of a step (backend/draw.h).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/cuda/kernels/launch.h"
#include "backend/draw.h"

namespace llm::cuda {

/// A DrawRule as the step's data have it.
struct DeviceRule {
  double uniform = 0;
  float temperature = 0, top_p = 1;
  float below = 0;  ///< log of min_p: how far from the best logit a candidate may be; -infinity: any
  float repeat = 1, presence = 0, frequency = 0;
  std::int32_t top_k = 1, min_keep = 0, n_tokens = 0;
  std::int32_t newest = -1;     ///< index into DrawMemory::drawn
  std::int32_t first_edit = 0;  ///< in words from the first of the step's data
  std::int32_t n_edits = 0;
  std::int32_t turn = 0;  ///< which of two places results go to
  std::int32_t unused = 0;
};
static_assert(sizeof(DeviceRule) == 64);

/// `rows` of the places for results; the step before has the one that is not `turn`.
inline DeviceRule device_rule(const DrawRule& r, int turn, std::int32_t rows, std::size_t first_edit) {
  return {.uniform = r.uniform,
          .temperature = r.temperature,
          .top_p = r.top_p,
          .below = r.min_p > 0 ? static_cast<float>(std::log(static_cast<double>(r.min_p)))
                               : -std::numeric_limits<float>::infinity(),
          .repeat = r.repeat,
          .presence = r.presence,
          .frequency = r.frequency,
          .top_k = r.top_k,
          .min_keep = r.min_keep,
          .n_tokens = r.n_tokens,
          .newest = r.newest < 0 ? -1 : (turn ^ 1) * rows + r.newest,
          .first_edit = static_cast<std::int32_t>(first_edit),
          .n_edits = static_cast<std::int32_t>(r.edits.size()),
          .turn = turn};
}

/// Logits that one block of threads narrows to the best.
inline constexpr int kDrawPart = 8192;
constexpr int draw_parts(int n) { return (n + kDrawPart - 1) / kDrawPart; }

/// Memory that every program's draws share, of rows <= `rows` and draw_parts() <= `parts`.
struct DrawMemory {
  std::int32_t* drawn = nullptr;      ///< [2][rows], by turn: what the last two steps that drew have drawn
  std::uint64_t* best = nullptr;      ///< [rows][parts][kMostDrawn]
  std::uint32_t* arrivals = nullptr;  ///< [rows]: 0 between launches
  int rows = 0;
};
/// Of one program, in this machine's memory that the device writes to: by turn and row.
struct DrawResults {
  std::int32_t* tokens = nullptr;  ///< [2][capacity]
  std::int32_t* bad = nullptr;     ///< [2][capacity]: 1 if a logit of the row is not finite
  int capacity = 0;
};

struct DrawStep {
  const float* logits = nullptr;  ///< [rows][n]
  int n = 0;
  const DeviceRule* rules = nullptr;        ///< [rows]
  const std::int32_t* data = nullptr;       ///< first word of the step's data
  const std::int32_t* used_rows = nullptr;  ///< [1]: rows that the step has
};

/// Rows beyond *used_rows are left alone. Reads every logit once.
void draw_tokens(const DrawStep&, int rows, const DrawMemory&, const DrawResults&, const Launch&);

}  // namespace llm::cuda
