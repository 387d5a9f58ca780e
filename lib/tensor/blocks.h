// The blocks of GGUF's storage types byte for byte, and how their packed scales unpack. No containers: kernels compiled
// for other instruction sets include this, which is also why the functions are always inlined (a copy kept by the
// linker could hold instructions that the machine lacks).
//
// Element i of a block in words:
//   Q4_0 Q5_0 Q8_0    d * q                    q signed (stored with an offset of 8 or 16, or as int8)
//   Q4_1 Q5_1         d * q + m                q unsigned
//   Q2_K Q4_K Q5_K    (d * scale) * q - (dmin * min)   scale and min per 16 (Q2_K) or 32 elements
//   Q3_K Q6_K         (d * scale) * q          scale per 16 elements
// with every product and sum rounded to f32 in the order of the parentheses.
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

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2 && sizeof(float) == 4 && sizeof(double) == 8);
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

}  // namespace llm
