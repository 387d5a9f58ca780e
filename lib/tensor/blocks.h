// The blocks of GGUF's storage types byte for byte, and how their packed scales unpack. No containers: kernels compiled
// for other instruction sets include this, which is also why the functions are always inlined (a copy kept by the
// linker could hold instructions that the machine lacks).
//
// Element i of a block in words:
//   Q4_0 Q5_0 Q8_0    d * q                    q signed (stored with an offset of 8 or 16, or as int8)
//   Q4_1 Q5_1         d * q + m                q unsigned
//   Q2_K Q4_K Q5_K    (d * scale) * q - (dmin * min)   scale and min per 16 (Q2_K) or 32 elements
//   Q3_K Q6_K         (d * scale) * q          scale per 16 elements
//   IQ2_XXS/XS/S      d * (2 scale + 1) / 8 * sign * g   g from a grid of codebooks.h; scale per 32 (XXS) or 16
//   elements IQ3_XXS           d * (2 scale + 1) / 4 * sign * g   scale per 32 elements IQ3_S             d * (2 scale
//   + 1) * sign * g       scale per 32 elements IQ1_S IQ1_M       d * (2 scale + 1) * (g + delta)    scale per 32 or 16
//   elements; delta 1/8 or -1/8 per 32 or 8 IQ4_NL IQ4_XS     d * v, d * scale * v     v = kValuesIQ4[q]; scale per 32
//   elements TQ1_0 TQ2_0 Q2_0  d * (q - 1)              q of 0 .. 2, in Q2_0 and TQ2_0 0 .. 3 Q1_0              d or -d
//   MXFP4 NVFP4       d * v                    v = kValuesE2M1[q]; d per 32 (e8m0_half()) or 16 (ue4m3_half()) elements
// with every product and sum rounded to f32 in the order of the parentheses; those from IQ2 on are exact in f32 in any
// order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace llm {

static_assert(std::endian::native == std::endian::little, "blocks are read in place as little endian");

// 32 elements. Nibbles: element i < 16 is the low half of qs[i], element 16 + i the high half.
struct BlockQ4_0 {
  Half d;
  std::uint8_t qs[16];
};
struct BlockQ4_1 {
  Half d, m;
  std::uint8_t qs[16];
};
// Bit i of qh (little endian) is bit 4 of element i.
struct BlockQ5_0 {
  Half d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct BlockQ5_1 {
  Half d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct BlockQ8_0 {
  Half d;
  std::int8_t qs[32];
};
struct BlockQ8_1 {
  Half d;
  Half s;  ///< d * sum of qs
  std::int8_t qs[32];
};

// 256 elements.
struct BlockQ2_K {
  std::uint8_t scales[16];  ///< per 16 elements: scale in the low half, min in the high half
  std::uint8_t qs[64];      ///< element 128 h + 32 k + l is bits 2k and 2k + 1 of qs[32 h + l]
  Half d, dmin;
};
struct BlockQ3_K {
  std::uint8_t hmask[32];   ///< bit e / 32 of hmask[e % 32]: if clear, 4 is subtracted from element e
  std::uint8_t qs[64];      ///< as in Q2_K
  std::uint8_t scales[12];  ///< unpack_scales_q3_k()
  Half d;
};
struct BlockQ4_K {
  Half d, dmin;
  std::uint8_t scales[12];  ///< unpack_scales_q4_k()
  std::uint8_t qs[128];     ///< element 64 h + l is the low half of qs[32 h + l], 64 h + 32 + l the high half (l < 32)
};
struct BlockQ5_K {
  Half d, dmin;
  std::uint8_t scales[12];  ///< as in Q4_K
  std::uint8_t qh[32];      ///< bit e / 32 of qh[e % 32] is bit 4 of element e
  std::uint8_t qs[128];     ///< as in Q4_K
};
struct BlockQ6_K {
  std::uint8_t ql[128];  ///< low 4 bits: element 128 h + 64 k + l is half k of ql[64 h + l] (l < 64, k < 2)
  std::uint8_t qh[64];  ///< high 2 bits: element 128 h + 32 k + l is bits 2k and 2k + 1 of qh[32 h + l] (l < 32, k < 4)
  std::int8_t scales[16];  ///< per 16 elements
  Half d;
};
struct BlockQ8_K {
  float d;
  std::int8_t qs[256];
  std::int16_t bsums[16];  ///< sums of 16 qs each
};

// 256 elements by codebooks. A "row" is an entry of a grid: 8 neighbouring elements (IQ1, IQ2) or 4 (IQ3).
struct BlockIQ2_XXS {
  Half d;
  std::uint16_t qs[32];  ///< per 32 elements 8 bytes, little endian: 4 rows, then a SignsAndScale
};
struct BlockIQ2_XS {
  Half d;
  std::uint16_t qs[32];    ///< per 8 elements: row in bits 0-8, seven_signs() index in bits 9-15
  std::uint8_t scales[8];  ///< nibble g % 2 of byte g / 2 for group g of 16 elements
};
struct BlockIQ2_S {
  Half d;
  std::uint8_t qs[32];     ///< low 8 bits of the row of 8 elements
  std::uint8_t signs[32];  ///< bit e % 8 of byte e / 8: element e is negative
  std::uint8_t qh[8];      ///< bits 8 and 9 of row r: bits 2 (r % 4) and up of byte r / 4
  std::uint8_t scales[8];  ///< as in IQ2_XS
};
struct BlockIQ3_XXS {
  Half d;
  std::uint8_t qs[64];     ///< rows of 4 elements
  std::uint8_t signs[32];  ///< per 32 elements 4 bytes: a SignsAndScale
};
struct BlockIQ3_S {
  Half d;
  std::uint8_t qs[64];     ///< low 8 bits of the row of 4 elements
  std::uint8_t qh[8];      ///< bit r % 8 of byte r / 8: bit 8 of row r
  std::uint8_t signs[32];  ///< as in IQ2_S
  std::uint8_t scales[4];  ///< nibble g % 2 of byte g / 2 for group g of 32 elements
};
struct BlockIQ1_S {
  Half d;
  std::uint8_t qs[32];  ///< low 8 bits of the row of 8 elements
  std::uint16_t
      qh[8];  ///< per 32 elements: bits 3r .. 3r + 2 are bits 8-10 of row r, 12-14 the scale, 15: delta is -1/8
};
struct BlockIQ1_M {
  std::uint8_t qs[32];  ///< low 8 bits of the row of 8 elements
  std::uint8_t qh[16];  ///< nibble r % 2 of byte r / 2: bits 8-10 of row r, and bit 3: its delta is -1/8
  std::uint16_t
      scales[4];  ///< bits 3 (g % 4) and up of g / 4: scale of group g of 16 elements; the top nibbles: iq1_m_d()
};
struct BlockIQ4_XS {
  Half d;
  std::uint16_t scales_h;    ///< bits 2g, 2g + 1: high bits of the scale of group g of 32 elements
  std::uint8_t scales_l[4];  ///< nibble g % 2 of byte g / 2: its low bits; iq4_xs_scale()
  std::uint8_t qs[128];      ///< per 32 elements 16 bytes as in Q4_0
};
// 32 elements.
struct BlockIQ4_NL {
  Half d;
  std::uint8_t qs[16];  ///< as in Q4_0
};
struct BlockMXFP4 {
  std::uint8_t e;       ///< e8m0_half()
  std::uint8_t qs[16];  ///< as in Q4_0
};

// 64 elements.
struct BlockNVFP4 {
  std::uint8_t d[4];    ///< ue4m3_half(), per 16 elements
  std::uint8_t qs[32];  ///< element 16 g + l is the low half of qs[8 g + l], 16 g + 8 + l the high half (l < 8)
};
struct BlockQ2_0 {
  Half d;
  std::uint8_t qs[16];  ///< element e is bits 2 (e % 4) and up of qs[e / 4]
};
// 128 elements.
struct BlockQ1_0 {
  Half d;
  std::uint8_t qs[16];  ///< bit e % 8 of byte e / 8: element e is d, else -d
};
// 256 elements of 3 or 4 values.
struct BlockTQ1_0 {
  std::uint8_t qs[48];  ///< 5 elements each, trit(): 32 p + i in qs[i] (i < 32), 160 + 16 p + i in qs[32 + i] (i < 16)
  std::uint8_t qh[4];   ///< 4 elements each: 240 + 4 p + i in qh[i]
  Half d;
};
struct BlockTQ2_0 {
  std::uint8_t qs[64];  ///< as in Q2_K
  Half d;
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2 && sizeof(Float8E4M3) == 1);
static_assert(sizeof(float) == 4 && sizeof(double) == 8);
static_assert(sizeof(BlockQ4_0) == 18 && offsetof(BlockQ4_0, qs) == 2);
static_assert(sizeof(BlockQ4_1) == 20 && offsetof(BlockQ4_1, m) == 2 && offsetof(BlockQ4_1, qs) == 4);
static_assert(sizeof(BlockQ5_0) == 22 && offsetof(BlockQ5_0, qh) == 2 && offsetof(BlockQ5_0, qs) == 6);
static_assert(sizeof(BlockQ5_1) == 24 && offsetof(BlockQ5_1, m) == 2 && offsetof(BlockQ5_1, qh) == 4 &&
              offsetof(BlockQ5_1, qs) == 8);
static_assert(sizeof(BlockQ8_0) == 34 && offsetof(BlockQ8_0, qs) == 2);
static_assert(sizeof(BlockQ8_1) == 36 && offsetof(BlockQ8_1, s) == 2 && offsetof(BlockQ8_1, qs) == 4);
static_assert(sizeof(BlockQ2_K) == 84 && offsetof(BlockQ2_K, qs) == 16 && offsetof(BlockQ2_K, d) == 80 &&
              offsetof(BlockQ2_K, dmin) == 82);
static_assert(sizeof(BlockQ3_K) == 110 && offsetof(BlockQ3_K, qs) == 32 && offsetof(BlockQ3_K, scales) == 96 &&
              offsetof(BlockQ3_K, d) == 108);
static_assert(sizeof(BlockQ4_K) == 144 && offsetof(BlockQ4_K, dmin) == 2 && offsetof(BlockQ4_K, scales) == 4 &&
              offsetof(BlockQ4_K, qs) == 16);
static_assert(sizeof(BlockQ5_K) == 176 && offsetof(BlockQ5_K, dmin) == 2 && offsetof(BlockQ5_K, scales) == 4 &&
              offsetof(BlockQ5_K, qh) == 16 && offsetof(BlockQ5_K, qs) == 48);
static_assert(sizeof(BlockQ6_K) == 210 && offsetof(BlockQ6_K, qh) == 128 && offsetof(BlockQ6_K, scales) == 192 &&
              offsetof(BlockQ6_K, d) == 208);
static_assert(sizeof(BlockQ8_K) == 292 && offsetof(BlockQ8_K, qs) == 4 && offsetof(BlockQ8_K, bsums) == 260);
static_assert(sizeof(BlockIQ2_XXS) == 66 && offsetof(BlockIQ2_XXS, qs) == 2);
static_assert(sizeof(BlockIQ2_XS) == 74 && offsetof(BlockIQ2_XS, qs) == 2 && offsetof(BlockIQ2_XS, scales) == 66);
static_assert(sizeof(BlockIQ2_S) == 82 && offsetof(BlockIQ2_S, qs) == 2 && offsetof(BlockIQ2_S, signs) == 34 &&
              offsetof(BlockIQ2_S, qh) == 66 && offsetof(BlockIQ2_S, scales) == 74);
static_assert(sizeof(BlockIQ3_XXS) == 98 && offsetof(BlockIQ3_XXS, qs) == 2 && offsetof(BlockIQ3_XXS, signs) == 66);
static_assert(sizeof(BlockIQ3_S) == 110 && offsetof(BlockIQ3_S, qs) == 2 && offsetof(BlockIQ3_S, qh) == 66 &&
              offsetof(BlockIQ3_S, signs) == 74 && offsetof(BlockIQ3_S, scales) == 106);
static_assert(sizeof(BlockIQ1_S) == 50 && offsetof(BlockIQ1_S, qs) == 2 && offsetof(BlockIQ1_S, qh) == 34);
static_assert(sizeof(BlockIQ1_M) == 56 && offsetof(BlockIQ1_M, qh) == 32 && offsetof(BlockIQ1_M, scales) == 48);
static_assert(sizeof(BlockIQ4_XS) == 136 && offsetof(BlockIQ4_XS, scales_h) == 2 &&
              offsetof(BlockIQ4_XS, scales_l) == 4 && offsetof(BlockIQ4_XS, qs) == 8);
static_assert(sizeof(BlockIQ4_NL) == 18 && offsetof(BlockIQ4_NL, qs) == 2);
static_assert(sizeof(BlockMXFP4) == 17 && offsetof(BlockMXFP4, qs) == 1);
static_assert(sizeof(BlockNVFP4) == 36 && offsetof(BlockNVFP4, qs) == 4);
static_assert(sizeof(BlockQ2_0) == 18 && offsetof(BlockQ2_0, qs) == 2);
static_assert(sizeof(BlockQ1_0) == 18 && offsetof(BlockQ1_0, qs) == 2);
static_assert(sizeof(BlockTQ1_0) == 54 && offsetof(BlockTQ1_0, qh) == 48 && offsetof(BlockTQ1_0, d) == 52);
static_assert(sizeof(BlockTQ2_0) == 66 && offsetof(BlockTQ2_0, d) == 64);

/// Q4_K and Q5_K: 8 scales and 8 mins of 6 bits. The first four of each are the low bits of bytes 0-3 and 4-7, whose
/// top two bits are the top of the last four; the low nibbles of these are bytes 8-11 (scale below, min above).
[[gnu::always_inline]] inline void unpack_scales_q4_k(const std::uint8_t* packed, std::uint8_t* scale,
                                                      std::uint8_t* min) {
  for (int i = 0; i < 4; ++i) {
    scale[i] = packed[i] & 0x3f;
    min[i] = packed[4 + i] & 0x3f;
    scale[4 + i] = static_cast<std::uint8_t>((packed[8 + i] & 0x0f) | ((packed[i] >> 2) & 0x30));
    min[4 + i] = static_cast<std::uint8_t>((packed[8 + i] >> 4) | ((packed[4 + i] >> 2) & 0x30));
  }
}

/// Q3_K: 16 scales of 6 bits with an offset of 32. Low nibbles: bytes 0-7 (0-7 below, 8-15 above); the top two bits of
/// scale i are bits 2 (i / 4) and up of byte 8 + i % 4.
[[gnu::always_inline]] inline void unpack_scales_q3_k(const std::uint8_t* packed, std::int8_t* scale) {
  for (int i = 0; i < 16; ++i) {
    const int low = (packed[i % 8] >> (4 * (i / 8))) & 0x0f;
    const int high = (packed[8 + i % 4] >> (2 * (i / 4))) & 0x03;
    scale[i] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

/// IQ2_XXS and IQ3_XXS, of 32 elements: bits 7j .. 7j + 6 are the seven_signs() index of elements 8j .. 8j + 7, bits
/// 28-31 the scale.
using SignsAndScale = std::uint32_t;
[[gnu::always_inline]] inline SignsAndScale signs_and_scale(const BlockIQ2_XXS& b, int group) {
  return b.qs[4 * group + 2] | (static_cast<std::uint32_t>(b.qs[4 * group + 3]) << 16);
}
[[gnu::always_inline]] inline SignsAndScale signs_and_scale(const BlockIQ3_XXS& b, int group) {
  std::uint32_t word;
  __builtin_memcpy(&word, b.signs + 4 * group, sizeof word);
  return word;
}
/// Row of elements 8 r .. 8 r + 7 of IQ2_XXS.
[[gnu::always_inline]] inline int iq2_xxs_row(const BlockIQ2_XXS& b, int r) {
  return (b.qs[r / 4 * 4 + r % 4 / 2] >> (8 * (r % 2))) & 0xff;
}

/// Eight signs, bit i for element i, of which an even number is negative, from the first seven.
[[gnu::always_inline]] inline std::uint8_t seven_signs(std::uint32_t index) {
  return static_cast<std::uint8_t>(index | (static_cast<std::uint32_t>(__builtin_parity(index)) << 7));
}

/// The scale of an IQ1_M block: its nibbles, lowest first, are the top ones of `scales`.
[[gnu::always_inline]] inline Half iq1_m_d(const BlockIQ1_M& b) {
  return {static_cast<std::uint16_t>((b.scales[0] >> 12) | ((b.scales[1] >> 8) & 0x00f0) |
                                     ((b.scales[2] >> 4) & 0x0f00) | (b.scales[3] & 0xf000))};
}

/// -32 .. 31
[[gnu::always_inline]] inline int iq4_xs_scale(const BlockIQ4_XS& b, int group) {
  const int low = (b.scales_l[group / 2] >> (4 * (group % 2))) & 0x0f;
  return (low | (((b.scales_h >> (2 * group)) & 3) << 4)) - 32;
}

/// Element p of a byte of TQ1_0, 0 .. 2. A byte is the fraction byte / 256, and p is its digit p + 1 behind the point
/// in base 3: the digits before it are shifted out at the top.
[[gnu::always_inline]] inline int trit(std::uint8_t byte, int p) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  return (((byte * kPowers[p]) & 0xff) * 3) >> 8;
}

/// Half of 2^(e - 127), the scale of MXFP4: half, because kValuesE2M1 are doubled. 255, NaN in the OCP format, is
/// 2^128.
[[gnu::always_inline]] inline float e8m0_half(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23);
}

/// Half of an unsigned float of 4 bits of exponent (bias 7) and 3 of mantissa, the scale of NVFP4. The sign's bit is
/// ignored and 0x7f, NaN as E4M3, is 0: what GGUF's decoders do.
[[gnu::always_inline]] inline float ue4m3_half(std::uint8_t x) {
  return x == 0x7f ? 0.0f : e4m3_magnitude(x & 0x7fu) * 0.5f;
}

}  // namespace llm
