// Activations that are not kept as they are: ActFormat::BF16 by rounding, Q8x32 and Q8x256 by a scalar function that
// every kernel matches bit for bit.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace llm {

/// Elements under one scale: 32 or 256 (1 for F32 and BF16).
constexpr std::int64_t act_block_elems(ActFormat f) {
  return f == ActFormat::Q8x32 ? 32 : f == ActFormat::Q8x256 ? 256 : 1;
}

/// Quantises `n` f32 under one scale: amax = max|x|, scale = amax / 127, q = round_to_nearest_even(x * (127 / amax)).
/// amax < 2^-100 gives scale 0 and zeros; an element that is not finite gives scale NaN and zeros, so that the fault
/// shows in every product. Returns the scale; x ~ scale * q.
float quantize_activation_block(const float* x, std::int64_t n, std::int8_t* q);

/// The values that the quantised form stands for: y[i] = scale * q[i] block by block; n a multiple of the block. F32
/// copies.
void round_trip_activation(ActFormat, const float* x, float* y, std::int64_t n);

}  // namespace llm
