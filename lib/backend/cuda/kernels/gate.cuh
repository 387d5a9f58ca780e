// Activations of gates, for every kernel that has one in it.
#pragma once

#include <cmath>

#include "backend/cuda/kernels/forms.cuh"
#include "graph/op.h"

namespace llm::cuda {

#ifdef __CUDACC__

/// x / (1 + exp(-x)); where exp(-x) is next to overflow and beyond, a number of at most 2e-36 instead of 0.
__device__ __forceinline__ float silu(float x) {
  const float y = quotient(fmaxf(x, -89.0f), fminf(1.0f + expf(-x), 0x1p126f));
  return fabsf(x) < INFINITY ? y : x < 0 ? NAN : x;
}
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
/// As host::softplus has it.
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
/// As host::gelu has it.
__device__ __forceinline__ float gelu(float x) {
  constexpr float kSqrt2OverPi = 0.7978845608028654f;
  return x * (1.0f + tanhf(kSqrt2OverPi * (x + 0.044715f * x * x * x))) * 0.5f;
}

/// As host::clamped_silu has it; NaN passes the comparisons.
__device__ __forceinline__ float clamped_silu(float gate, float up) {
  constexpr float kLimit = kClampedSiluLimit;
  const float g = gate > kLimit ? kLimit : gate, u = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
  return silu(kClampedSiluSlope * g) * (1.0f / kClampedSiluSlope) * (u + 1.0f);
}

/// As host::limited_silu has it; NaN passes the comparisons.
template <Limited kLimited>
__device__ __forceinline__ float limited_silu(float gate, float up, float limit) {
  const auto limited = [=](float x) { return x > limit ? limit : x; };
  const float g = kLimited == Limited::Gate ? silu(limited(gate)) : limited(silu(gate));
  return g * (up < -limit ? -limit : limited(up));
}

template <Activation kActivation>
__device__ __forceinline__ float gated(float gate, float up) {
  if constexpr (kActivation == Activation::ClampedSilu)
    return clamped_silu(gate, up);
  else if constexpr (kActivation == Activation::Relu)
    return (gate < 0 ? 0.0f : gate) * up;
  else if constexpr (kActivation == Activation::Sigmoid)
    return sigmoid(gate) * up;
  else if constexpr (kActivation == Activation::Softplus)
    return softplus(gate) * up;
  else if constexpr (kActivation == Activation::Identity)
    return gate * up;
  else
    return (kActivation == Activation::Silu ? silu(gate) : gelu(gate)) * up;
}

#endif  // __CUDACC__

}  // namespace llm::cuda
