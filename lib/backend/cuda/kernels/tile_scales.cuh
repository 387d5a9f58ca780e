// How the scales of a piece lie beside its codes: unpacked to bytes and halves, in the order in which lanes read them.
// Lane (g, t) needs those of rows g (half 0) and g + 8 (half 1), for which words are [g][half][...]; minimums lie as
// the A operand of a product with the activations' sums.
//
// Each kind has kBytes of a piece; load(); the value of word w of it, made of a source of blocks (tiles.cuh); and what
// the products ask a lane's registers for.
#pragma once

#include "backend/cuda/kernels/tile_codes.cuh"

namespace llm::cuda {

LLM_HOST_DEVICE float low_half(std::uint32_t w) { return half_to_float(w & 0xffffu); }
LLM_HOST_DEVICE float high_half(std::uint32_t w) { return half_to_float(w >> 16); }

/// Row of (g, half).
LLM_HOST_DEVICE int tile_row(int g, int half) { return g + 8 * half; }

/// Four bytes of integer scales or minimums of a row, from sub-block s on.
template <class Source>
LLM_HOST_DEVICE std::uint32_t four_scales(const Source& from, int row, int s) {
  std::uint32_t w = 0;
  for (int i = 0; i < 4; ++i) w |= from.scale(row, s + i) << (8 * i);
  return w;
}
template <class Source>
LLM_HOST_DEVICE std::uint32_t four_minimums(const Source& from, int row, int s) {
  std::uint32_t w = 0;
  for (int i = 0; i < 4; ++i) w |= from.minimum(row, s + i) << (8 * i);
  return w;
}

// --- one d per 256 (and dmin), integer scales of sub-blocks of kScaleK (0: none): scale() ---

/// Q4_K, Q5_K: 8 scales and 8 minimums of 6 bits.
///   0 scales [g][half][8]   128 minimums [g][t % 2][half][4]   256 halves [g][half][d, dmin]
struct Scales32Minimums {
  static constexpr int kBytes = 320, kScaleK = 32, kMinimumK = 32;
  uint4 scales;
  uint2 minimums, halves;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    scales = From::quad(from + 16 * (lane / 4));
    minimums = From::pair(from + 128 + 16 * (lane / 4) + 8 * (lane % 2));
    halves = From::pair(from + 256 + 8 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    if (w < 32) return four_scales(from, tile_row(w / 4, w / 2 % 2), 4 * (w % 2));
    if (w < 64) return four_minimums(from, tile_row((w - 32) / 4, w % 2), 4 * (w / 2 % 2));
    const int row = tile_row((w - 64) / 2, w % 2);
    return from.d(row) | from.m(row) << 16;
  }
  LLM_HOST_DEVICE int scale(int half, int s) const { return unsigned_byte(word(scales, 2 * half + s / 4), s % 4); }
  LLM_HOST_DEVICE float d(int half) const { return low_half(half == 0 ? halves.x : halves.y); }
  LLM_HOST_DEVICE float dmin(int half) const { return high_half(half == 0 ? halves.x : halves.y); }
  LLM_HOST_DEVICE std::uint32_t minimum_word(int half) const { return half == 0 ? minimums.x : minimums.y; }
  static LLM_HOST_DEVICE int minimum(const std::byte* from, int g, int half, int s) {
    return static_cast<int>(from[128 + 16 * g + 8 * (s / 4) + 4 * half + s % 4]);
  }
};

/// Q6_K, Q3_K, IQ2_XS, IQ2_S, IQ1_M: 16 scales, signed.   0 scales [g][half][16]   256 halves [g][half] d
struct Scales16 {
  static constexpr int kBytes = 288, kScaleK = 16, kMinimumK = 0;
  uint4 scales[2];
  std::uint32_t halves;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    for (int half = 0; half < 2; ++half) scales[half] = From::quad(from + 32 * (lane / 4) + 16 * half);
    halves = From::word(from + 256 + 4 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    if (w < 64) return four_scales(from, tile_row(w / 8, w / 4 % 2), 4 * (w % 4));
    return from.d(tile_row(w - 64, 0)) | from.d(tile_row(w - 64, 1)) << 16;
  }
  LLM_HOST_DEVICE int scale(int half, int s) const { return signed_byte(word(scales[half], s / 4), s % 4); }
  LLM_HOST_DEVICE float d(int half) const { return half == 0 ? low_half(halves) : high_half(halves); }
};

/// Q2_K: 16 scales and 16 minimums of 4 bits.
///   0 scales [g][half][16]   256 minimums [g][t][half][4]   512 halves [g][half][d, dmin]
struct Scales16Minimums {
  static constexpr int kBytes = 576, kScaleK = 16, kMinimumK = 16;
  uint4 scales[2];
  uint2 minimums, halves;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    for (int half = 0; half < 2; ++half) scales[half] = From::quad(from + 32 * (lane / 4) + 16 * half);
    minimums = From::pair(from + 256 + 8 * lane);
    halves = From::pair(from + 512 + 8 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    if (w < 64) return four_scales(from, tile_row(w / 8, w / 4 % 2), 4 * (w % 4));
    if (w < 128) return four_minimums(from, tile_row((w - 64) / 8, w % 2), 4 * (w / 2 % 4));
    const int row = tile_row((w - 128) / 2, w % 2);
    return from.d(row) | from.m(row) << 16;
  }
  LLM_HOST_DEVICE int scale(int half, int s) const { return unsigned_byte(word(scales[half], s / 4), s % 4); }
  LLM_HOST_DEVICE float d(int half) const { return low_half(half == 0 ? halves.x : halves.y); }
  LLM_HOST_DEVICE float dmin(int half) const { return high_half(half == 0 ? halves.x : halves.y); }
  LLM_HOST_DEVICE std::uint32_t minimum_word(int half) const { return half == 0 ? minimums.x : minimums.y; }
  static LLM_HOST_DEVICE int minimum(const std::byte* from, int g, int half, int s) {
    return static_cast<int>(from[256 + 32 * g + 8 * (s / 4) + 4 * half + s % 4]);
  }
};

/// IQ4_XS, IQ3_XXS, IQ3_S, IQ2_XXS, IQ1_S: 8 scales, signed.   0 scales [g][half][8]   128 halves [g][half] d
struct Scales32 {
  static constexpr int kBytes = 160, kScaleK = 32, kMinimumK = 0;
  uint4 scales;
  std::uint32_t halves;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    scales = From::quad(from + 16 * (lane / 4));
    halves = From::word(from + 128 + 4 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    if (w < 32) return four_scales(from, tile_row(w / 4, w / 2 % 2), 4 * (w % 2));
    return from.d(tile_row(w - 32, 0)) | from.d(tile_row(w - 32, 1)) << 16;
  }
  LLM_HOST_DEVICE int scale(int half, int s) const { return signed_byte(word(scales, 2 * half + s / 4), s % 4); }
  LLM_HOST_DEVICE float d(int half) const { return half == 0 ? low_half(halves) : high_half(halves); }
};

/// TQ1_0, TQ2_0.   0 halves [g][half] d
struct ScalesOne {
  static constexpr int kBytes = 32, kScaleK = 0, kMinimumK = 0;
  std::uint32_t halves;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    halves = From::word(from + 4 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    return from.d(tile_row(w, 0)) | from.d(tile_row(w, 1)) << 16;
  }
  LLM_HOST_DEVICE int scale(int, int) const { return 1; }
  LLM_HOST_DEVICE float d(int half) const { return half == 0 ? low_half(halves) : high_half(halves); }
};

// --- a d per step or half step (and an offset m) ---

struct AsHalf {
  static LLM_HOST_DEVICE float value(std::uint32_t w, int i) { return i == 0 ? low_half(w) : high_half(w); }
};
struct AsBFloat {
  static LLM_HOST_DEVICE float value(std::uint32_t w, int i) {
    return bits_to_float(i == 0 ? w << 16 : w & 0xffff0000u);
  }
};

/// d per step.   0 [g][half][8]
template <class Number>
struct StepScales {
  static constexpr int kBytes = 256, kScaleK = 32;
  static constexpr bool kOffset = false;
  uint4 scales[2];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    for (int half = 0; half < 2; ++half) scales[half] = From::quad(from + 32 * (lane / 4) + 16 * half);
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    const int row = tile_row(w / 8, w / 4 % 2), k = 64 * (w % 4);
    return from.d_at(row, k) | from.d_at(row, k + 32) << 16;
  }
  LLM_HOST_DEVICE float d(int half, int s) const { return Number::value(word(scales[half], s / 2), s % 2); }
};

/// Four in a piece: Q8_0, where it has 4 steps, and Q2_0, where each is of two.   0 [g][half][4]
template <int kStepsEach>
struct FourScales {
  static constexpr int kBytes = 128, kScaleK = 32;
  static constexpr bool kOffset = false;
  uint4 scales;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    scales = From::quad(from + 16 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    const int row = tile_row(w / 4, w / 2 % 2), k = 64 * kStepsEach * (w % 2);
    return from.d_at(row, k) | from.d_at(row, k + 32 * kStepsEach) << 16;
  }
  LLM_HOST_DEVICE float d(int half, int s) const {
    const int i = s / kStepsEach;
    return AsHalf::value(word(scales, 2 * half + i / 2), i % 2);
  }
};

/// Q1_0: d per four steps.   0 [g][half][2]
struct TwoScales {
  static constexpr int kBytes = 64, kScaleK = 32;
  static constexpr bool kOffset = false;
  uint2 scales;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    scales = From::pair(from + 8 * (lane / 4));
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    const int row = tile_row(w / 2, w % 2);
    return from.d_at(row, 0) | from.d_at(row, 128) << 16;
  }
  LLM_HOST_DEVICE float d(int half, int s) const { return AsHalf::value(half == 0 ? scales.x : scales.y, s / 4); }
};

/// d and m per step.   0 d [g][half][8]   256 m [g][half][8]
struct StepScalesOffsets {
  static constexpr int kBytes = 512, kScaleK = 32;
  static constexpr bool kOffset = true;
  uint4 scales[2], offsets[2];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    for (int half = 0; half < 2; ++half) scales[half] = From::quad(from + 32 * (lane / 4) + 16 * half);
    for (int half = 0; half < 2; ++half) offsets[half] = From::quad(from + 256 + 32 * (lane / 4) + 16 * half);
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    const int row = tile_row(w / 8 % 8, w / 4 % 2), k = 64 * (w % 4);
    if (w < 64) return from.d_at(row, k) | from.d_at(row, k + 32) << 16;
    return from.m_at(row, k) | from.m_at(row, k + 32) << 16;
  }
  LLM_HOST_DEVICE float d(int half, int s) const { return AsHalf::value(word(scales[half], s / 2), s % 2); }
  LLM_HOST_DEVICE float m(int half, int s) const { return AsHalf::value(word(offsets[half], s / 2), s % 2); }
};

/// NVFP4: d per 16.   0 [g][half][16]
struct HalfStepScales {
  static constexpr int kBytes = 512, kScaleK = 16;
  static constexpr bool kOffset = false;
  uint4 scales[4];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* from, int lane) {
    for (int i = 0; i < 4; ++i) scales[i] = From::quad(from + 64 * (lane / 4) + 16 * i);
  }
  template <class Source>
  static LLM_HOST_DEVICE std::uint32_t word_of(const Source& from, int w) {
    const int row = tile_row(w / 16, w / 8 % 2), k = 32 * (w % 8);
    return from.d_at(row, k) | from.d_at(row, k + 16) << 16;
  }
  LLM_HOST_DEVICE float d(int half, int s) const {
    return AsHalf::value(word(scales[2 * half + s / 8], s / 2 % 4), s % 2);
  }
};

}  // namespace llm::cuda
