// Tile registers of AMX (Intel's Software Developer's Manual, volume 1, chapter 18): eight, of at most 16 rows of 64
// bytes. Written as instructions: GCC 12's own functions do not tell the compiler that a configuration's 64 bytes are
// read, nor that a tile is loaded from memory.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/intrinsics.h"

namespace llm::cpu::LLM_ISA::tiles {

inline constexpr int kTiles = 8;

/// What LDTILECFG reads: palette 1, rows and bytes of a row of each tile.
struct alignas(64) Config {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(Config) == 64);

/// Sets the shapes of this thread's tiles, which become zero.
[[gnu::always_inline]] inline void configure(const Config& c) { __asm__ volatile("ldtilecfg %0" : : "m"(c)); }

/// Back to the state that costs nothing to save.
[[gnu::always_inline]] inline void release() { __asm__ volatile("tilerelease"); }

template <int tile>
[[gnu::always_inline]] inline void zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "n"(tile));
}

/// Row r is at p + r * stride.
template <int tile>
[[gnu::always_inline]] inline void load(const void* p, std::int64_t stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "n"(tile), "r"(p), "r"(stride) : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void store(void* p, std::int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "n"(tile), "r"(p), "r"(stride) : "memory");
}

/// sum[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], in int32; `a` has signed bytes, `b` too or unsigned ones.
template <int sum, int a, int b, bool b_unsigned>
[[gnu::always_inline]] inline void dot() {
  if constexpr (b_unsigned)
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(sum), "n"(a), "n"(b));
  else
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(sum), "n"(a), "n"(b));
}

/// The same of BF16 with f32 sums, in an order of its own.
template <int sum, int a, int b>
[[gnu::always_inline]] inline void dot_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(sum), "n"(a), "n"(b));
}

}  // namespace llm::cpu::LLM_ISA::tiles
