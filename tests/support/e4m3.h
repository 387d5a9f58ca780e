// E4M3 by the definition of the OCP's "8-bit Floating Point Specification", without the library: the value of every
// code, and the nearest code by trying them all.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace llm::test {

/// Four bits of exponent with bias 7, three of mantissa; no infinities, and all bits but the sign set are NaN.
inline float e4m3_value(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

/// Of all numbers of x's sign the nearest, of two the one with the even mantissa; NaN where x is not finite.
inline std::uint8_t nearest_e4m3(float x) {
  if (!std::isfinite(x)) return 0x7f;
  const int sign = std::signbit(x) ? 0x80 : 0;
  int best = sign;
  for (int bits = sign + 1; bits < sign + 0x7f; ++bits) {
    const auto off = [&](int code) {
      return std::fabs(static_cast<double>(e4m3_value(static_cast<std::uint8_t>(code))) - static_cast<double>(x));
    };
    if (off(bits) < off(best) || (off(bits) == off(best) && bits % 2 == 0)) best = bits;
  }
  return static_cast<std::uint8_t>(best);
}

}  // namespace llm::test
