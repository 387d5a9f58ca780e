// Rounding of quants and scales, shared by the encoders.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "base/half.h"

namespace llm {

/// To the nearest integer, ties to even; NaN gives `low`.
inline int round_between(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return low;
  if (x >= static_cast<float>(high)) return high;
  return static_cast<int>(std::nearbyint(x));
}

/// A scale must stay finite.
inline Half finite_half(float x) {
  constexpr float kLargest = 65504.0f;
  return to_half(std::clamp(x, -kLargest, kLargest));
}

/// 1 / x for a scale; 0, which makes all quants 0, for a scale whose inverse may not be finite.
inline float inverse(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? 0.0f : 1.0f / x; }

/// The value of the largest magnitude, with its sign.
inline float extreme(std::span<const float> x) {
  return *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

/// The smallest of 0 .. top whose multiple of `unit` reaches `x`, within the rounding of the division.
inline std::uint8_t multiples_up(float x, float unit, int top) {
  return static_cast<std::uint8_t>(round_between(std::ceil(x * inverse(unit) * (1.0f - 0x1p-20f)), 0, top));
}

}  // namespace llm
