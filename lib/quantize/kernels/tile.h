// Sixteen groups of elements side by side, transposed so that a vector holds one element of each.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "quantize/kernels/kernels.h"
#include "quantize/kernels/lanes.h"

namespace llm::quantizers::LLM_ISA {

inline constexpr int kTile = 16;  ///< groups

/// A number per group.
struct alignas(64) PerGroup {
  float v[kTile];
};

/// Groups of N elements, of 16 / kGroups blocks. The elements of a block are multiplied by a power of two that brings
/// the largest to 1 .. 2, so that no square overflows or vanishes: `factor`; `unit` is its inverse.
template <int N>
struct Tile {
  alignas(64) float x[N][kTile];
  alignas(64) float w[N][kTile];
  PerGroup factor, unit;
};

/// A power of two by which `n` elements come into the range of 1 .. 2 if their largest is above 2^-100.
inline float normalizing_factor(const float* x, std::int64_t n) {
  std::uint32_t largest = 0;  // positive floats are ordered as their bits are
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const std::uint32_t exponent = largest >> 23;
  return std::bit_cast<float>((254u - (exponent < 27u ? 27u : exponent > 253u ? 253u : exponent)) << 23);
}

/// Loads 16 / kGroups blocks from `first` on; where the source ends its last block is repeated.
template <int kGroups, int N>
void load_tile(const Source& s, std::int64_t first, Tile<N>& t) {
  for (int b = 0; b < kTile / kGroups; ++b) {
    const std::int64_t block = first + b < s.blocks ? first + b : s.blocks - 1;
    const float* x = s.x + block * kGroups * N;
    const float* w = s.weights + block % s.blocks_per_row * kGroups * N;
    const float factor = normalizing_factor(x, kGroups * N);
    for (int g = 0; g < kGroups; ++g) {
      const int lane = b * kGroups + g;
      for (int i = 0; i < N; ++i) t.x[i][lane] = x[g * N + i] * factor;
      for (int i = 0; i < N; ++i) t.w[i][lane] = w[g * N + i];
      t.factor.v[lane] = factor;
      t.unit.v[lane] = 1.0f / factor;
    }
  }
}

/// Calls f(tile, blocks) for all blocks; f(t, count, dst) gets where the first of `count` blocks goes.
template <class Block, int kGroups, int N, class F>
void for_tiles(const Source& s, std::byte* dst, const F& f) {
  constexpr int kBlocks = kTile / kGroups;
  Tile<N> tile;
  for (std::int64_t first = 0; first < s.blocks; first += kBlocks) {
    load_tile<kGroups>(s, first, tile);
    const int count = s.blocks - first < kBlocks ? static_cast<int>(s.blocks - first) : kBlocks;
    f(tile, count, dst + first * static_cast<std::int64_t>(sizeof(Block)));
  }
}

/// Sum of w x x of each group.
template <int N>
void energies(const Tile<N>& t, PerGroup& out) {
  for (int c = 0; c < kTile; c += kLanes) {
    Floats sum = {};
    for (int i = 0; i < N; ++i) sum += load(&t.w[i][c]) * load(&t.x[i][c]) * load(&t.x[i][c]);
    store(out.v + c, sum);
  }
}

/// A scale of a tile as a half, finite and never -0.
inline Half stored_half(float x, float unit) {
  constexpr float kLargest = 65504.0f;
  const float value = x * unit;
  return to_half(value > kLargest ? kLargest : value < -kLargest ? -kLargest : value + 0.0f);
}
/// What the half stands for among the elements of a tile.
inline float loaded_half(Half h, float factor) { return to_float(h) * factor; }

template <class Block>
void put(std::byte* dst, int index, const Block& b) {
  __builtin_memcpy(dst + static_cast<std::size_t>(index) * sizeof(Block), &b, sizeof b);
}

}  // namespace llm::quantizers::LLM_ISA
