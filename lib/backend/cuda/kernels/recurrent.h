// Layers with a recurrent state: a short convolution along each sequence, the gated delta rule, and the selective state
// space of Mamba-2 (graph/op.h).
#pragma once

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

inline constexpr int kMaxConvWidth = 8;
inline constexpr int kMaxStateRows = 256;  ///< elements of a key, or of B and C

/// x, y [tokens][channels], w [channels][width], bias [channels] or null; a slot of `states` has [width - 1][channels].
/// `sequences`: most of a step.
struct ConvShape {
  int channels = 0, width = 0, sequences = 1;
  Activation activation = Activation::Silu;
};
struct ConvOperands {
  const float *x, *w, *bias;
  float* states;
};
void short_conv(const ConvShape&, const ConvOperands&, const StepView&, int tokens, float* y, const Launch&);

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

/// xbc [tokens][heads p + 2 groups n], dt [tokens][heads], y [tokens][heads][p]; a slot of `states` has [heads][n][p].
struct ScanShape {
  int heads = 0, n = 0, p = 0, groups = 1, sequences = 1;
};
struct ScanOperands {
  const float *xbc, *dt;
  const float *a, *d, *bias;  ///< [heads], weights
  float* states;
};
/// Of `tokens` tokens at most.
void selective_scan(const ScanShape&, const ScanOperands&, const StepView&, int tokens, float* y, const Launch&);

}  // namespace llm::cuda
