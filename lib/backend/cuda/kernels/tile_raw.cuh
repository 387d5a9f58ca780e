// Blocks of the storage types as they lie in a file (tensor/blocks.h), read code by code and scale by scale on either
// side, without alignment: what tiles are packed from. Those of codebooks are in tile_grids.cuh.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"
#include "tensor/blocks.h"

namespace llm::cuda {

using Bytes = const std::uint8_t*;

LLM_HOST_DEVICE std::uint32_t half_at(Bytes b) { return b[0] | static_cast<std::uint32_t>(b[1]) << 8; }
LLM_HOST_DEVICE std::uint32_t word_at(Bytes b) { return half_at(b) | half_at(b + 2) << 16; }
/// Element e of 32 in nibbles: the low halves of 16 bytes, then the high ones.
LLM_HOST_DEVICE unsigned nibble32(Bytes qs, int e) { return e < 16 ? qs[e] & 15u : qs[e - 16] >> 4; }
/// Of 256 in pairs of bits, as in Q2_K.
LLM_HOST_DEVICE unsigned pair256(Bytes qs, int e) { return qs[32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3u; }
/// Of 256 in nibbles, as in Q4_K.
LLM_HOST_DEVICE unsigned nibble256(Bytes qs, int e) { return qs[32 * (e / 64) + e % 32] >> (4 * (e / 32 % 2)) & 15u; }
LLM_HOST_DEVICE unsigned bit_of(Bytes bits, int e) { return bits[e / 8] >> (e % 8) & 1u; }
LLM_HOST_DEVICE unsigned nibble_of(Bytes nibbles, int i) { return nibbles[i / 2] >> (4 * (i % 2)) & 15u; }

/// A type's block: code() of element e, the f16 bits d() and m() (minimum, or its scale), integer scale() and minimum()
/// of sub-block s.
template <DType>
struct Raw;

template <>
struct Raw<DType::Q4_0> {
  using Block = BlockQ4_0;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 2, e); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
};
template <>
struct Raw<DType::Q4_1> {
  using Block = BlockQ4_1;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 4, e); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t m(Bytes b) { return half_at(b + 2); }
};
template <>
struct Raw<DType::Q5_0> {
  using Block = BlockQ5_0;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 6, e) | bit_of(b + 2, e) << 4; }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
};
template <>
struct Raw<DType::Q5_1> {
  using Block = BlockQ5_1;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 8, e) | bit_of(b + 4, e) << 4; }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t m(Bytes b) { return half_at(b + 2); }
};
template <>
struct Raw<DType::Q8_0> {
  using Block = BlockQ8_0;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return b[2 + e]; }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
};
template <>
struct Raw<DType::IQ4_NL> {
  using Block = BlockIQ4_NL;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 2, e); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
};
template <>
struct Raw<DType::MXFP4> {
  using Block = BlockMXFP4;
  static constexpr int kElems = 32;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 1, e); }
  /// e8m0_half() as bits of a BF16, which has all of its values.
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return b[0] < 2 ? 0x20u << b[0] : (b[0] - 1u) << 7; }
};
template <>
struct Raw<DType::NVFP4> {
  using Block = BlockNVFP4;
  static constexpr int kElems = 64;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const Bytes qs = b + 4 + 8 * (e / 16);
    return e % 16 < 8 ? qs[e % 8] & 15u : qs[e % 8] >> 4;
  }
  /// ue4m3_half() of the 16 elements from e on, as bits of an F16, which has all of its values: a mantissa of 3 bits,
  /// an exponent with a bias of 7 rather than 15, and half of it; below 8 the number is that times 2^-10. The sign is
  /// ignored, but not where 0x7f is told from 0xff.
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b, int e) {
    const std::uint32_t x = b[e / 16] & 0x7fu;
    if (b[e / 16] == 0x7f) return 0;
    if (x >= 8) return (x << 7) + ((15u - 7u - 1u) << 10);
    // x * 2^-10: the leading bit of x becomes the hidden one
    return x == 0 ? 0 : x == 1 ? 5u << 10 : x < 4 ? 6u << 10 | (x & 1u) << 9 : 7u << 10 | (x & 3u) << 8;
  }
};
template <>
struct Raw<DType::Q2_K> {
  using Block = BlockQ2_K;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return pair256(b + 16, e); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b + 80); }
  static LLM_HOST_DEVICE std::uint32_t m(Bytes b) { return half_at(b + 82); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return b[s] & 15u; }
  static LLM_HOST_DEVICE std::uint32_t minimum(Bytes b, int s) { return b[s] >> 4; }
};
template <>
struct Raw<DType::Q3_K> {
  using Block = BlockQ3_K;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    return pair256(b + 32, e) | (b[e % 32] >> (e / 32) & 1u) << 2;
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b + 108); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) {
    const Bytes packed = b + 96;
    const unsigned low = packed[s % 8] >> (4 * (s / 8)) & 15u, high = packed[8 + s % 4] >> (2 * (s / 4)) & 3u;
    return ((low | high << 4) - 32u) & 0xffu;
  }
};
/// Scales and minimums of Q4_K and Q5_K, see unpack_scales_q4_k().
struct RawScales4K {
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t m(Bytes b) { return half_at(b + 2); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) {
    const Bytes packed = b + 4;
    return s < 4 ? packed[s] & 63u : (packed[4 + s] & 15u) | (packed[s - 4] >> 2 & 0x30u);
  }
  static LLM_HOST_DEVICE std::uint32_t minimum(Bytes b, int s) {
    const Bytes packed = b + 4;
    return s < 4 ? packed[4 + s] & 63u : static_cast<unsigned>(packed[4 + s] >> 4) | (packed[s] >> 2 & 0x30u);
  }
};
template <>
struct Raw<DType::Q4_K> : RawScales4K {
  using Block = BlockQ4_K;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble256(b + 16, e); }
};
template <>
struct Raw<DType::Q5_K> : RawScales4K {
  using Block = BlockQ5_K;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    return nibble256(b + 48, e) | (b[16 + e % 32] >> (e / 32) & 1u) << 4;
  }
};
template <>
struct Raw<DType::Q6_K> {
  using Block = BlockQ6_K;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const int half = e / 128, in = e % 128;
    const unsigned low = b[64 * half + in % 64] >> (4 * (in / 64)) & 15u;
    return low | (b[128 + 32 * half + in % 32] >> (2 * (in / 32)) & 3u) << 4;
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b + 208); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return b[192 + s]; }
};
template <>
struct Raw<DType::IQ4_XS> {
  using Block = BlockIQ4_XS;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return nibble32(b + 8 + 16 * (e / 32), e % 32); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) {
    const unsigned low = b[4 + s / 2] >> (4 * (s % 2)) & 15u, high = half_at(b + 2) >> (2 * s) & 3u;
    return ((low | high << 4) - 32u) & 0xffu;
  }
};
template <>
struct Raw<DType::TQ2_0> {
  using Block = BlockTQ2_0;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return pair256(b, e); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b + 64); }
};
template <>
struct Raw<DType::TQ1_0> {
  using Block = BlockTQ1_0;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    if (e < 160) return trit_of(b[e % 32], e / 32);
    return e < 240 ? trit_of(b[32 + e % 16], (e - 160) / 16) : trit_of(b[48 + e % 4], (e - 240) / 4);
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b + 52); }

 private:
  /// trit()
  static LLM_HOST_DEVICE unsigned trit_of(unsigned byte, int p) {
    const unsigned power = p == 0 ? 1 : p == 1 ? 3 : p == 2 ? 9 : p == 3 ? 27 : 81;
    return (byte * power & 255u) * 3 >> 8;
  }
};
template <>
struct Raw<DType::Q2_0> {
  using Block = BlockQ2_0;
  static constexpr int kElems = 64;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return b[2 + e / 4] >> (2 * (e % 4)) & 3u; }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
};
template <>
struct Raw<DType::Q1_0> {
  using Block = BlockQ1_0;
  static constexpr int kElems = 128;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) { return bit_of(b + 2, e); }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
};

}  // namespace llm::cuda
