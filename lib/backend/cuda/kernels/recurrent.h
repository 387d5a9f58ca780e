// Layers with a recurrent state: a short convolution along each sequence, the gated delta rule, and the selective state
// spaces of Mamba-2 and of Mamba (graph/op.h).
#pragma once

#include <cstddef>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"
#include "tensor/dtype.h"

namespace llm::cuda {

inline constexpr int kMaxStateRows = 256;  ///< elements of a key, or of B and C

/// x, y [tokens][channels], w [channels][width] or null, where all weights are 1 / width, bias [channels] or null; a
/// slot of `states` has [(width - 1) * dilation][channels]. `sequences`: most of a step.
struct ConvShape {
  int channels = 0, width = 0, sequences = 1;
  Activation activation = Activation::Silu;
  int dilation = 1;
};
struct ConvOperands {
  const float* x;
  const std::byte* w;
  DType w_type;  ///< F32, F16 or BF16
  const float* bias;
  float* states;
};
void short_conv(const ConvShape&, const ConvOperands&, const StepView&, int tokens, float* y, const Launch&);

/// Of a state's head one for all, or one for each of its rows.
enum class Decays { OfHeads, OfRows };
/// qkv [tokens][2 key_heads dk + heads dv], alpha [tokens][heads] or, for each row, [tokens][heads][dk], beta
/// [tokens][heads], y [tokens][heads][dv]; a slot of `states` has [heads][dk][dv].
struct DeltaShape {
  int heads = 0, dk = 0, dv = 0, sequences = 1;
  GatedDelta op;
  Decays decays = Decays::OfHeads;
};
struct DeltaOperands {
  const float *qkv, *alpha, *beta;
  const float *a, *bias;  ///< weights: [heads], and as many as a token's alpha
  float* states;
};
/// Of `tokens` tokens at most.
void gated_delta(const DeltaShape&, const DeltaOperands&, const StepView&, int tokens, float* y, const Launch&);

/// Of a head one for all (Mamba-2), or one for each element of x (Mamba).
enum class Steps { OfHeads, OfElements };
/// xbc [tokens][heads p + 2 groups n], dt [tokens][heads] or, for each element, [tokens][heads][p], y
/// [tokens][heads][p]; a slot of `states` has [heads][n][p].
struct ScanShape {
  int heads = 0, n = 0, p = 0, groups = 1, sequences = 1;
  Steps steps = Steps::OfHeads;
};
struct ScanOperands {
  const float *xbc, *dt;
  const float *a, *d, *bias;  ///< weights: as many as a token's dt, but of elements a [heads][p][n]
  float* states;
};
/// Of `tokens` tokens at most.
void selective_scan(const ScanShape&, const ScanOperands&, const StepView&, int tokens, float* y, const Launch&);

}  // namespace llm::cuda
