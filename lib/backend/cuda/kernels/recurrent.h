// Layers with a recurrent state: a short convolution along each sequence, and the gated delta rule (graph/op.h).
#pragma once

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

inline constexpr int kMaxConvWidth = 8;
inline constexpr int kMaxDeltaKey = 256;  ///< elements of a key

/// x, y [tokens][channels], w [channels][width]; a slot of `states` has [width - 1][channels]. `sequences`: most of a
/// step.
struct ConvShape {
  int channels = 0, width = 0, sequences = 1;
};
void short_conv(const ConvShape&, const float* x, const float* w, float* states, const StepView&, int tokens, float* y,
                const Launch&);

/// qkv [tokens][2 key_heads dk + heads dv], alpha and beta [tokens][heads], y [tokens][heads][dv]; a slot of `states`
/// has [heads][dk][dv].
struct DeltaShape {
  int heads = 0, dk = 0, dv = 0, sequences = 1;
  GatedDelta op;
};
struct DeltaOperands {
  const float *qkv, *alpha, *beta;
  const float *a, *bias;  ///< [heads], weights
  float* states;
};
/// Of `tokens` tokens at most.
void gated_delta(const DeltaShape&, const DeltaOperands&, const StepView&, int tokens, float* y, const Launch&);

}  // namespace llm::cuda
