// The scalar definition of quantised activations.
#include "tensor/activation.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/half.h"

namespace llm {
namespace {

constexpr float kSmallestAmax = 0x1p-100f;

/// Largest |x|, as the bits of a float: these order as the magnitudes do, with infinity and NaN above all finite ones.
std::int32_t largest_magnitude_bits(const float* x, std::int64_t n) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return largest;
}

/// |x| at most 2^22. The addition leaves the integer, rounded to nearest even, in the low bits of the mantissa.
std::int32_t round_to_int(float x) {
  constexpr float kShift = 0x1.8p23f;
  return std::bit_cast<std::int32_t>(x + kShift) - std::bit_cast<std::int32_t>(kShift);
}

}  // namespace

float quantize_activation_block(const float* x, std::int64_t n, std::int8_t* q) {
  constexpr std::int32_t kInfinityBits = 0x7f800000;
  const std::int32_t bits = largest_magnitude_bits(x, n);
  const float amax = std::bit_cast<float>(bits);
  if (bits >= kInfinityBits || amax < kSmallestAmax) {
    std::fill_n(q, n, std::int8_t{0});
    return bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const float inverse = 127.0f / amax;
  for (std::int64_t i = 0; i < n; ++i) q[i] = static_cast<std::int8_t>(round_to_int(x[i] * inverse));
  return amax / 127.0f;
}

void round_trip_activation(ActFormat format, const float* x, float* y, std::int64_t n) {
  if (format == ActFormat::F32) {
    std::copy_n(x, n, y);
    return;
  }
  if (format == ActFormat::BF16) {
    std::transform(x, x + n, y, [](float f) { return to_float(to_bfloat16(f)); });
    return;
  }
  const std::int64_t block = act_block_elems(format);
  check(n % block == 0, "activations are quantised in whole blocks");
  std::int8_t q[256];
  for (std::int64_t start = 0; start < n; start += block) {
    const float scale = quantize_activation_block(x + start, block, q);
    for (std::int64_t i = 0; i < block; ++i) y[start + i] = scale * static_cast<float>(q[i]);
  }
}

}  // namespace llm
