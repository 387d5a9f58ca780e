// Neighbouring positions that become one row (graph/op.h: Compress).
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"

namespace llm::cuda {

/// x, scores [tokens][parts * n], places [stride][parts * n], y [tokens][n]; a slot of `states` has [parts][3][n].
struct CompressShape {
  int n = 0, parts = 1, stride = 1;
  int sequences = 1;  ///< most of a step
};
struct CompressOperands {
  const float *x, *scores;
  const float* places;
  const std::int32_t* positions;  ///< [tokens]; those of a sequence's tokens ascend by one
  float* states;
};
/// Of `tokens` tokens at most.
void compress(const CompressShape&, const CompressOperands&, const StepView&, int tokens, float* y, const Launch&);

}  // namespace llm::cuda
