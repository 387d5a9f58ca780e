// Layers of RWKV: how a sequence's row before differs, sums in shares of it, and the recurrences of RWKV-6 and RWKV-7
// (graph/op.h).
#pragma once

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

inline constexpr int kMaxWkvHead = 128;  ///< elements

/// x, y [tokens][channels]; a slot of `states` has [channels]. Of `tokens` tokens at most; `sequences`: most of a step.
void token_shift(const float* x, float* states, int channels, int sequences, const StepView&, int tokens, float* y,
                 const Launch&);

/// x, d [rows][n], w [m][n], more [rows][m][n] or null, y[0 .. m - 1] [rows][n].
struct LerpOperands {
  const float *x, *d, *w, *more;
  float* y[kMostLerps];
  int n = 0, m = 0;
};
void lerp(const LerpOperands&, int rows, const Launch&);

/// A slot of `states` has [heads][n][n]. r, w, a, v_first, mix, y, own [tokens][heads][n], k, v [tokens][kv_heads][n].
struct WkvShape {
  int n = 0, heads = 0, kv_heads = 0, sequences = 1;
};
struct WkvOperands {
  const float *r, *k, *v, *w;
  float* states;
  const float* first = nullptr;                                ///< of wkv6: [heads][n], or null
  const float* a = nullptr;                                    ///< from here on of wkv7
  const float *k_k = nullptr, *k_a = nullptr, *r_k = nullptr;  ///< [heads][n]
  const float *v_first = nullptr, *mix = nullptr;              ///< both or null
  float* own = nullptr;
};
/// Of `tokens` tokens at most.
void wkv6(const WkvShape&, const WkvOperands&, const StepView&, int tokens, float* y, const Launch&);
void wkv7(const WkvShape&, const WkvOperands&, const StepView&, int tokens, float* y, const Launch&);

}  // namespace llm::cuda
