// Blocks of the types whose elements are levels of a codebook's row with signs (IQ1, IQ2, IQ3), as tile_raw.cuh has the
// others. A code is the level's number and, above it, the sign (IQ1: whether delta is negative): of IQ1 and IQ2 2 + 1
// bits, of IQ3 3 + 1. tile_codes.cuh has the tables that make bytes of them.
#pragma once

#include "backend/cuda/kernels/tile_raw.cuh"
#include "tensor/codebooks.h"

namespace llm::cuda {

namespace grids {
#include "tensor/codebooks.inc"
}  // namespace grids

/// A grid's Grid::levels for the device: 0.5 to 4 KB, read where a file's blocks are packed.
template <int n>
struct GridLevels {
  std::uint16_t rows[n];
};
template <int n>
constexpr GridLevels<n> grid_levels(const std::uint16_t (&rows)[n]) {
  GridLevels<n> levels{};
  for (int r = 0; r < n; ++r) levels.rows[r] = rows[r];
  return levels;
}
__device__ const auto kDeviceIQ2_XXS = grid_levels(grids::kPackedIQ2_XXS);
__device__ const auto kDeviceIQ2_XS = grid_levels(grids::kPackedIQ2_XS);
__device__ const auto kDeviceIQ2_S = grid_levels(grids::kPackedIQ2_S);
__device__ const auto kDeviceIQ3_XXS = grid_levels(grids::kPackedIQ3_XXS);
__device__ const auto kDeviceIQ3_S = grid_levels(grids::kPackedIQ3_S);
__device__ const auto kDeviceIQ1 = grid_levels(grids::kPackedIQ1);

#ifdef __CUDA_ARCH__
#define LLM_GRID_LEVELS(name, row) kDevice##name.rows[row]
#else
#define LLM_GRID_LEVELS(name, row) kGrid##name.levels[row]
#endif

/// Levels of 8 elements of 2 bits, or 4 of 3, and the one of element e; with a sign's bit.
LLM_HOST_DEVICE unsigned code_of_8(unsigned levels, int e, unsigned sign) {
  return (levels >> (2 * (e % 8)) & 3u) | sign << 2;
}
LLM_HOST_DEVICE unsigned code_of_4(unsigned levels, int e, unsigned sign) {
  return (levels >> (3 * (e % 4)) & 7u) | sign << 3;
}
/// Bit e % 8 of seven_signs(index).
LLM_HOST_DEVICE unsigned seven_sign(std::uint32_t index, int e) {
  const unsigned folded = index ^ index >> 4, again = folded ^ folded >> 2;
  return e % 8 < 7 ? index >> (e % 8) & 1u : (again ^ again >> 1) & 1u;
}
/// Of a SignsAndScale and its scale.
LLM_HOST_DEVICE unsigned sign_in(std::uint32_t word, int e) { return seven_sign(word >> (7 * (e / 8 % 4)) & 127u, e); }
LLM_HOST_DEVICE std::uint32_t odd(std::uint32_t scale) { return 2 * scale + 1; }

template <>
struct Raw<DType::IQ2_XXS> {
  using Block = BlockIQ2_XXS;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const Bytes group = b + 2 + 8 * (e / 32);
    return code_of_8(LLM_GRID_LEVELS(IQ2_XXS, group[e / 8 % 4]), e, sign_in(word_at(group + 4), e));
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return odd(word_at(b + 2 + 8 * s + 4) >> 28); }
};
template <>
struct Raw<DType::IQ2_XS> {
  using Block = BlockIQ2_XS;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const unsigned q = half_at(b + 2 + 2 * (e / 8));
    return code_of_8(LLM_GRID_LEVELS(IQ2_XS, q & 511u), e, seven_sign(q >> 9, e));
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return odd(nibble_of(b + 66, s)); }
};
template <>
struct Raw<DType::IQ2_S> {
  using Block = BlockIQ2_S;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const unsigned row = b[2 + e / 8] | (b[66 + e / 32] >> (2 * (e / 8 % 4)) & 3u) << 8;
    return code_of_8(LLM_GRID_LEVELS(IQ2_S, row), e, bit_of(b + 34, e));
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return odd(nibble_of(b + 74, s)); }
};
template <>
struct Raw<DType::IQ3_XXS> {
  using Block = BlockIQ3_XXS;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    return code_of_4(LLM_GRID_LEVELS(IQ3_XXS, b[2 + e / 4]), e, sign_in(word_at(b + 66 + 4 * (e / 32)), e));
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return odd(word_at(b + 66 + 4 * s) >> 28); }
};
template <>
struct Raw<DType::IQ3_S> {
  using Block = BlockIQ3_S;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const unsigned row = b[2 + e / 4] | bit_of(b + 66, e / 4) << 8;
    return code_of_4(LLM_GRID_LEVELS(IQ3_S, row), e, bit_of(b + 74, e));
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return odd(nibble_of(b + 106, s)); }
};
template <>
struct Raw<DType::IQ1_S> {
  using Block = BlockIQ1_S;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const unsigned h = half_at(b + 34 + 2 * (e / 32));
    return code_of_8(LLM_GRID_LEVELS(IQ1, b[2 + e / 8] | (h >> (3 * (e / 8 % 4)) & 7u) << 8), e, h >> 15);
  }
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) { return half_at(b); }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) { return odd(half_at(b + 34 + 2 * s) >> 12 & 7u); }
};
template <>
struct Raw<DType::IQ1_M> {
  using Block = BlockIQ1_M;
  static constexpr int kElems = 256;
  static LLM_HOST_DEVICE unsigned code(Bytes b, int e) {
    const unsigned h = nibble_of(b + 32, e / 8);
    return code_of_8(LLM_GRID_LEVELS(IQ1, b[e / 8] | (h & 7u) << 8), e, h >> 3);
  }
  /// iq1_m_d()
  static LLM_HOST_DEVICE std::uint32_t d(Bytes b) {
    std::uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= half_at(b + 48 + 2 * i) >> 12 << (4 * i);
    return bits;
  }
  static LLM_HOST_DEVICE std::uint32_t scale(Bytes b, int s) {
    return odd(half_at(b + 48 + 2 * (s / 4)) >> (3 * (s % 4)) & 7u);
  }
};

#undef LLM_GRID_LEVELS

}  // namespace llm::cuda
