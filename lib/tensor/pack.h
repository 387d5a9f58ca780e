// Quants into the bit layouts of blocks.h: the inverses of what decode.cpp reads, shared by the plain encoders and the
// searching quantisers. Always inlined, like blocks.h, because kernels include it.
#pragma once

#include <cstdint>

#include "tensor/blocks.h"

namespace llm {

/// 32 quants of 4 bits; higher bits are ignored.
[[gnu::always_inline]] inline void pack_nibbles(const std::uint8_t* q, std::uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = static_cast<std::uint8_t>((q[i] & 0x0f) | ((q[16 + i] & 0x0f) << 4));
}

/// Bit 4 of 32 quants.
[[gnu::always_inline]] inline void pack_fifth_bits(const std::uint8_t* q, std::uint8_t* qh) {
  for (int i = 0; i < 4; ++i) {
    unsigned bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (q[8 * i + k] >> 4 & 1u) << k;
    qh[i] = static_cast<std::uint8_t>(bits);
  }
}

/// The low two bits of 256 quants as Q2_K and Q3_K keep them.
[[gnu::always_inline]] inline void pack_pairs_of_bits(const std::uint8_t* q, std::uint8_t* qs) {
  for (int i = 0; i < 64; ++i) {
    const std::uint8_t* first = q + 128 * (i / 32) + i % 32;
    qs[i] = static_cast<std::uint8_t>((first[0] & 3) | ((first[32] & 3) << 2) | ((first[64] & 3) << 4) |
                                      ((first[96] & 3) << 6));
  }
}

/// Bit `bit` of 256 quants as Q3_K and Q5_K keep it.
[[gnu::always_inline]] inline void pack_high_bit(const std::uint8_t* q, int bit, std::uint8_t* packed) {
  for (int i = 0; i < 32; ++i) {
    unsigned bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (static_cast<unsigned>(q[32 * k + i]) >> bit & 1u) << k;
    packed[i] = static_cast<std::uint8_t>(bits);
  }
}

/// The inverse of unpack_scales_q4_k().
[[gnu::always_inline]] inline void pack_scales_q4_k(const std::uint8_t* scale, const std::uint8_t* min,
                                                    std::uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<std::uint8_t>(scale[i] | ((scale[4 + i] >> 4) << 6));
    packed[4 + i] = static_cast<std::uint8_t>(min[i] | ((min[4 + i] >> 4) << 6));
    packed[8 + i] = static_cast<std::uint8_t>((scale[4 + i] & 0x0f) | ((min[4 + i] & 0x0f) << 4));
  }
}

/// The inverse of unpack_scales_q3_k().
[[gnu::always_inline]] inline void pack_scales_q3_k(const std::int8_t* scale, std::uint8_t* packed) {
  for (int i = 0; i < 12; ++i) packed[i] = 0;
  for (int i = 0; i < 16; ++i) {
    const int s = scale[i] + 32;
    packed[i % 8] = static_cast<std::uint8_t>(packed[i % 8] | ((s & 0x0f) << (4 * (i / 8))));
    packed[8 + i % 4] = static_cast<std::uint8_t>(packed[8 + i % 4] | ((s >> 4) << (2 * (i / 4))));
  }
}

/// 256 quants of 4 bits as Q4_K and Q5_K keep them; higher bits are ignored.
[[gnu::always_inline]] inline void pack_nibbles_q4_k(const std::uint8_t* q, std::uint8_t* qs) {
  for (int i = 0; i < 128; ++i) {
    const std::uint8_t* first = q + 64 * (i / 32) + i % 32;
    qs[i] = static_cast<std::uint8_t>((first[0] & 0x0f) | ((first[32] & 0x0f) << 4));
  }
}

/// 256 quants of 6 bits as Q6_K keeps them.
[[gnu::always_inline]] inline void pack_q6_k(const std::uint8_t* q, std::uint8_t* ql, std::uint8_t* qh) {
  for (int i = 0; i < 128; ++i) {
    const std::uint8_t* first = q + 128 * (i / 64) + i % 64;
    ql[i] = static_cast<std::uint8_t>((first[0] & 0x0f) | ((first[64] & 0x0f) << 4));
  }
  for (int i = 0; i < 64; ++i) {
    const std::uint8_t* first = q + 128 * (i / 32) + i % 32;
    qh[i] = static_cast<std::uint8_t>((first[0] >> 4) | ((first[32] >> 4) << 2) | ((first[64] >> 4) << 4) |
                                      ((first[96] >> 4) << 6));
  }
}

/// 64 quants of 2 bits as Q2_0 keeps them.
[[gnu::always_inline]] inline void pack_fours(const std::uint8_t* q, std::uint8_t* qs) {
  for (int i = 0; i < 16; ++i) {
    const std::uint8_t* four = q + 4 * i;
    qs[i] = static_cast<std::uint8_t>(four[0] | (four[1] << 2) | (four[2] << 4) | (four[3] << 6));
  }
}

/// 128 quants of one bit as Q1_0 keeps them.
[[gnu::always_inline]] inline void pack_bits(const std::uint8_t* q, std::uint8_t* qs) {
  for (int i = 0; i < 16; ++i) {
    unsigned bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (q[8 * i + k] & 1u) << k;
    qs[i] = static_cast<std::uint8_t>(bits);
  }
}

/// A byte of up to 5 quants of 0 .. 2, `stride` apart, so that trit() gives them back: the first is the first digit
/// behind the point, and the fraction is rounded up, by less than the last digit stands for.
[[gnu::always_inline]] inline std::uint8_t pack_trits(const std::uint8_t* q, int n, int stride) {
  constexpr int kFractions = 243;
  int digits = 0;
  for (int p = 0; p < 5; ++p) digits = 3 * digits + (p < n ? q[p * stride] : 0);
  return static_cast<std::uint8_t>((digits * 256 + kFractions - 1) / kFractions);
}

/// 256 quants of 0 .. 2 as TQ1_0 keeps them.
[[gnu::always_inline]] inline void pack_trits(const std::uint8_t* q, std::uint8_t* qs, std::uint8_t* qh) {
  for (int i = 0; i < 32; ++i) qs[i] = pack_trits(q + i, 5, 32);
  for (int i = 0; i < 16; ++i) qs[32 + i] = pack_trits(q + 160 + i, 5, 16);
  for (int i = 0; i < 4; ++i) qh[i] = pack_trits(q + 240 + i, 4, 4);
}

/// Numbers of 4 bits in pairs, the first of a pair in the low half.
template <int n>
[[gnu::always_inline]] inline void pack_pairs_of_nibbles(const std::uint8_t (&q)[n], std::uint8_t* packed) {
  for (int i = 0; i < n / 2; ++i) packed[i] = static_cast<std::uint8_t>(q[2 * i] | (q[2 * i + 1] << 4));
}

/// The inverse of iq4_xs_scale(), -32 .. 31 per group of 32.
[[gnu::always_inline]] inline void pack_iq4_xs_scales(const std::int8_t (&scale)[8], BlockIQ4_XS& b) {
  std::uint8_t low[8];
  unsigned high = 0;
  for (int g = 0; g < 8; ++g) {
    const unsigned s = static_cast<unsigned>(scale[g] + 32);
    low[g] = static_cast<std::uint8_t>(s & 0x0f);
    high |= (s >> 4) << (2 * g);
  }
  pack_pairs_of_nibbles(low, b.scales_l);
  b.scales_h = static_cast<std::uint16_t>(high);
}

/// The inverse of iq1_m_d() and of the scales of 3 bits beside it, per group of 16.
[[gnu::always_inline]] inline void pack_iq1_m_scales(Half d, const std::uint8_t (&scale)[16], BlockIQ1_M& b) {
  for (int i = 0; i < 4; ++i) {
    int packed = ((d.bits >> (4 * i)) & 0x0f) << 12;
    for (int g = 0; g < 4; ++g) packed |= scale[4 * i + g] << (3 * g);
    b.scales[i] = static_cast<std::uint16_t>(packed);
  }
}

}  // namespace llm
