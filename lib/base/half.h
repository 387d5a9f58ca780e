// IEEE half and bfloat16 as storage: exact widening, narrowing with round to nearest even. Always inlined: these are
// used in files compiled for different instruction sets, and one out-of-line copy would serve them all.
#pragma once

#include <bit>
#include <cstdint>

namespace llm {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] constexpr float to_float(BFloat16 h) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(h.bits) << 16);
}

/// Selection by masks rather than branches, which a compiler would keep around the float product: a loop over this is
/// vectorised.
[[gnu::always_inline]] constexpr float to_float(Half h) {
  const std::int32_t magnitude = h.bits & 0x7fff;
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-24f);  // exact
  const std::int32_t is_normal = -static_cast<std::int32_t>(magnitude >= 0x0400);
  const std::int32_t is_special = -static_cast<std::int32_t>(magnitude >= 0x7c00);  // Inf, NaN
  const std::int32_t normal = (magnitude << 13) + (112 << 23) + (is_special & (112 << 23));
  const std::int32_t bits = (normal & is_normal) | (subnormal & ~is_normal);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) | (static_cast<std::uint32_t>(h.bits & 0x8000) << 16));
}

[[gnu::always_inline]] constexpr BFloat16 to_bfloat16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};  // keep NaN a NaN
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

[[gnu::always_inline]] constexpr Half to_half(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  const std::uint16_t sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};   // NaN
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded 2^-24 multiple in the low mantissa bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
}

}  // namespace llm
