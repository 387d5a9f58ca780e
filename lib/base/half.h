// IEEE half, bfloat16 and E4M3 as storage: exact widening, narrowing with round to nearest even. Always inlined: these
// are used in files compiled for different instruction sets, and one out-of-line copy would serve them all.
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
/// E4M3 of the OCP's "8-bit Floating Point Specification": 4 bits of exponent with a bias of 7, 3 of mantissa,
/// subnormal numbers, no infinities. All bits but the sign set are NaN, so that 448 is the largest number.
struct Float8E4M3 {
  std::uint8_t bits;
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

/// Of the bits without the sign, 0 .. 0x7f; those of NaN give the number that they would be, 480. An F16 with them in
/// place has an exponent that is 8 too small, subnormal numbers included.
[[gnu::always_inline]] constexpr float e4m3_magnitude(std::uint32_t bits) {
  return to_float(Half{static_cast<std::uint16_t>(bits << 7)}) * 0x1p8f;  // exact
}

[[gnu::always_inline]] constexpr float to_float(Float8E4M3 f) {
  const std::uint32_t magnitude = f.bits & 0x7fu;
  const std::uint32_t nan = magnitude == 0x7f ? 0x7fc00000u : 0;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(e4m3_magnitude(magnitude)) | nan;
  return std::bit_cast<float>(bits | (static_cast<std::uint32_t>(f.bits & 0x80u) << 24));
}

/// Beyond 448 it is 448; what is not finite is NaN, without a sign. By selection, so that loops are vectorised.
[[gnu::always_inline]] constexpr Float8E4M3 to_float8_e4m3(float f) {
  constexpr std::uint32_t kMost = 0x43e00000, kLeastNormal = 0x3c800000;  // 448, 2^-6
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  const std::uint32_t clipped = magnitude < kMost ? magnitude : kMost;
  const std::uint32_t normal = ((clipped + 0x7ffffu + ((clipped >> 20) & 1u)) >> 20) - ((127u - 7u) << 3);
  // Adding 2^14 leaves the rounded multiple of 2^-9 in the low mantissa bits.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(clipped) + 0x1p14f) - 0x46800000u;
  const std::uint32_t code = ((u >> 24) & 0x80u) | (clipped < kLeastNormal ? subnormal : normal);
  return {static_cast<std::uint8_t>(magnitude < 0x7f800000u ? code : 0x7fu)};
}

}  // namespace llm
