// How the codes of a tile lie in bit planes, and how a lane makes bytes for the tensor cores of them.
//
// A piece is 16 rows x 32 * kSteps k of a strip: 8 steps, a whole tile, or 4 where the codes of 8 would take too many
// registers. In the registers of m16n8k32 (tile_mma.cuh), lane (g, t) has of step s the codes of register r, byte b:
// row g + 8 (r & 1), k = 32 s + 16 (r >> 1) + 4 t + b. A plane holds some bits of every code, in quads of 4 words, one
// for each r: quad i of a lane is at 512 i + 16 lane, so that a warp loads whole lines.
//
// Where the bits of a code lie is chosen so that few instructions make the byte: high nibbles stay where they are, the
// value then is a multiple, and signed codes have their top bit flipped at load, which makes the top of the byte the
// sign. What a byte of 1 stands for is the unit, a power of two; products are scaled by it where that is exact.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/bits.cuh"
#include "tensor/codebooks.h"

namespace llm::cuda {

/// Where a lane reads a piece from. In global memory: read once, by one multiprocessor.
struct FromGlobal {
  static LLM_HOST_DEVICE uint4 quad(const std::byte* from) {
    uint4 v;
#ifdef __CUDA_ARCH__
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
#else
    std::memcpy(&v, from, sizeof v);
#endif
    return v;
  }
  static LLM_HOST_DEVICE uint2 pair(const std::byte* from) {
    uint2 v;
#ifdef __CUDA_ARCH__
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
#else
    std::memcpy(&v, from, sizeof v);
#endif
    return v;
  }
  static LLM_HOST_DEVICE std::uint32_t word(const std::byte* from) {
    std::uint32_t v;
#ifdef __CUDA_ARCH__
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
#else
    std::memcpy(&v, from, sizeof v);
#endif
    return v;
  }
};
/// Anywhere else: shared memory, or the host's.
struct FromMemory {
  static LLM_HOST_DEVICE uint4 quad(const std::byte* from) { return *reinterpret_cast<const uint4*>(from); }
  static LLM_HOST_DEVICE uint2 pair(const std::byte* from) { return *reinterpret_cast<const uint2*>(from); }
  static LLM_HOST_DEVICE std::uint32_t word(const std::byte* from) {
    return *reinterpret_cast<const std::uint32_t*>(from);
  }
};

LLM_HOST_DEVICE std::uint32_t word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

LLM_HOST_DEVICE int unsigned_byte(std::uint32_t w, int i) {
  return static_cast<int>(permute_bytes(w, 0, 0x4440u + static_cast<unsigned>(i)));
}
LLM_HOST_DEVICE int signed_byte(std::uint32_t w, int i) {
  return static_cast<int>(permute_bytes(w, 0, 0x8880u + 0x1111u * static_cast<unsigned>(i)));
}

/// The same as floats: as the lowest byte of 2^23 (and 128 more, where the sign is turned into one), which is
/// subtracted. Twice as fast as a conversion.
LLM_HOST_DEVICE float unsigned_byte_float(std::uint32_t w, int i) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(permute_bytes(w, 0x4b000000u, 0x7440u + static_cast<unsigned>(i))) - 8388608.0f;
#else
  return static_cast<float>(unsigned_byte(w, i));
#endif
}
LLM_HOST_DEVICE float signed_byte_float(std::uint32_t w, int i) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(permute_bytes(w ^ 0x80808080u, 0x4b000000u, 0x7440u + static_cast<unsigned>(i))) - 8388736.0f;
#else
  return static_cast<float>(signed_byte(w, i));
#endif
}

/// Bits at `from` brought to `to`; the caller masks what comes along.
LLM_HOST_DEVICE std::uint32_t moved(std::uint32_t w, int from, int to) {
  return from > to ? w >> (from - to) : w << (to - from);
}

// --- planes: which step and byte field f (of kBits bits, the lowest first) of a word of quad i holds ---

struct NibblePlane {
  static constexpr int kBits = 4, kQuads = 4;
  static LLM_HOST_DEVICE int step(int quad, int field) { return 2 * quad + field % 2; }
  static LLM_HOST_DEVICE int byte(int field) { return field / 2; }
};
/// The four codes of a step side by side, as selectors of permute_bytes().
struct SelectorPlane {
  static constexpr int kBits = 4, kQuads = 4;
  static LLM_HOST_DEVICE int step(int quad, int field) { return 2 * quad + field / 4; }
  static LLM_HOST_DEVICE int byte(int field) { return field % 4; }
};
struct PairPlane {
  static constexpr int kBits = 2, kQuads = 2;
  static LLM_HOST_DEVICE int step(int quad, int field) { return 4 * quad + field % 4; }
  static LLM_HOST_DEVICE int byte(int field) { return field / 4; }
  static LLM_HOST_DEVICE std::uint32_t at(const uint4 (&quads)[2], int step, int r, int to) {
    return moved(word(quads[step / 4], r), 2 * (step % 4), to);
  }
};
/// Steps are ordered so that neighbours, which want their bits side by side, share a shift.
struct BitPlane {
  static constexpr int kBits = 1, kQuads = 1;
  static LLM_HOST_DEVICE int step(int, int field) { return 0x72301456 >> (4 * (field % 8)) & 7; }
  static LLM_HOST_DEVICE int bit(int step) { return 0x70125634 >> (4 * step) & 7; }
  static LLM_HOST_DEVICE int byte(int field) { return field / 8; }
  static LLM_HOST_DEVICE std::uint32_t at(const uint4& quad, int step, int r, int to) {
    return moved(word(quad, r), bit(step), to);
  }
};
struct BytePlane {
  static constexpr int kBits = 8, kQuads = 4;
  static LLM_HOST_DEVICE int step(int quad, int) { return quad; }
  static LLM_HOST_DEVICE int byte(int field) { return field; }
};
/// The four codes of a step side by side as in SelectorPlane, in two parts: of each nibble's lower two bits those of
/// two steps, of its third bit those of four. A step's selectors have a neighbour's in the upper half of their word.
struct SelectorPairPlane {
  static constexpr int kBits = 2, kQuads = 2;
  static LLM_HOST_DEVICE int step(int quad, int field) { return 4 * quad + 2 * (field % 2) + field / 8; }
  static LLM_HOST_DEVICE int byte(int field) { return field / 2 % 4; }
  static LLM_HOST_DEVICE std::uint32_t at(const uint4 (&quads)[2], int step, int r) {
    return moved(word(quads[step / 4], r), 2 * (step / 2 % 2), 0) & 0x33333333u;
  }
};
struct SelectorBitPlane {
  static constexpr int kBits = 1, kQuads = 1;
  static LLM_HOST_DEVICE int step(int, int field) { return 2 * (field % 4) + field / 16; }
  static LLM_HOST_DEVICE int byte(int field) { return field / 4 % 4; }
  static LLM_HOST_DEVICE std::uint32_t at(const uint4& quad, int step, int r) {
    return moved(word(quad, r), step / 2, 2) & 0x44444444u;
  }
};
struct NoPlane {
  static constexpr int kBits = 1, kQuads = 0;
  static LLM_HOST_DEVICE int step(int, int) { return 0; }
  static LLM_HOST_DEVICE int byte(int) { return 0; }
};

inline constexpr int kQuadBytes = 512;  ///< of a warp

template <class LowPlane, class HighPlane, int kSteps_, bool kSigned_, int kPasses_, int kPassShift_>
struct Planes {
  using Low = LowPlane;
  using High = HighPlane;
  static constexpr int kSteps = kSteps_;  ///< of a piece
  static constexpr bool kSigned = kSigned_;
  /// The unit of step s is 2^(-kPassShift * (s % kPasses)); with one pass it is kUnit for all.
  static constexpr int kPasses = kPasses_, kPassShift = kPassShift_;
  static constexpr int kBytes = (Low::kQuads + High::kQuads) * kQuadBytes;
  static_assert(kBytes * 8 == 16 * 32 * kSteps * (Low::kBits + (High::kQuads > 0 ? High::kBits : 0)));
};

// --- codes; field() gives what the planes hold of code q, the number in the file ---

/// 4 bits, unsigned; odd steps times 16.
struct CodesU4 : Planes<NibblePlane, NoPlane, 8, false, 2, 4> {
  static constexpr float kUnit = 1;
  uint4 low[4];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return q; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    return word(low[step / 2], r) & (step % 2 == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
  }
};

/// 5 bits, unsigned; odd steps times 8.
struct CodesU5 : Planes<NibblePlane, BitPlane, 8, false, 2, 3> {
  static constexpr float kUnit = 1;
  uint4 low[4], high;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
    high = From::quad(codes + kQuadBytes * 4 + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int plane, unsigned q, int step) {
    if (step % 2 == 0) return plane == 0 ? q & 15 : q >> 4;
    return plane == 0 ? q >> 1 : q & 1;
  }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    const std::uint32_t w = word(low[step / 2], r);
    if (step % 2 == 0) return (w & 0x0f0f0f0fu) | (BitPlane::at(high, step, r, 4) & 0x10101010u);
    return (w & 0xf0f0f0f0u) | (BitPlane::at(high, step, r, 3) & 0x08080808u);
  }
};

/// The upper nibbles of bytes whose upper nibble the plane holds.
LLM_HOST_DEVICE std::uint32_t upper_nibbles(const uint4 (&low)[4], int step, int r) {
  const std::uint32_t w = word(low[step / 2], r);
  return (step % 2 == 0 ? w << 4 : w) & 0xf0f0f0f0u;
}

/// 4 bits less 8, times 16.
struct CodesS4 : Planes<NibblePlane, NoPlane, 8, true, 1, 0> {
  static constexpr float kUnit = 0x1p-4f;
  uint4 low[4];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return q ^ 8; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const { return upper_nibbles(low, step, r); }
};

/// 5 bits less 16, times 8.
struct CodesS5 : Planes<NibblePlane, BitPlane, 8, true, 1, 0> {
  static constexpr float kUnit = 0x1p-3f;
  uint4 low[4], high;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
    high = From::quad(codes + kQuadBytes * 4 + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int plane, unsigned q, int) { return plane == 0 ? (q ^ 16) >> 1 : q & 1; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    return upper_nibbles(low, step, r) | (BitPlane::at(high, step, r, 3) & 0x08080808u);
  }
};

/// 6 bits less 32, times 4.
struct CodesS6 : Planes<NibblePlane, PairPlane, 8, true, 1, 0> {
  static constexpr float kUnit = 0x1p-2f;
  uint4 low[4], high[2];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
    for (int i = 0; i < 2; ++i) high[i] = From::quad(codes + kQuadBytes * (4 + i) + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int plane, unsigned q, int) { return plane == 0 ? (q ^ 32) >> 2 : q & 3; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    return upper_nibbles(low, step, r) | (PairPlane::at(high, step, r, 2) & 0x0c0c0c0cu);
  }
};

/// 3 bits less 4, times 32.
struct CodesS3 : Planes<PairPlane, BitPlane, 8, true, 1, 0> {
  static constexpr float kUnit = 0x1p-5f;
  uint4 low[2], high;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 2; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
    high = From::quad(codes + kQuadBytes * 2 + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int plane, unsigned q, int) { return plane == 0 ? (q ^ 4) >> 1 : q & 1; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    return (PairPlane::at(low, step, r, 6) & 0xc0c0c0c0u) | (BitPlane::at(high, step, r, 5) & 0x20202020u);
  }
};

/// 2 bits, unsigned; step s times 4^(s % 4).
struct CodesU2 : Planes<PairPlane, NoPlane, 8, false, 4, 2> {
  static constexpr float kUnit = 1;
  uint4 low[2];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 2; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return q; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    return word(low[step / 4], r) & (0x03030303u << (2 * (step % 4)));
  }
};

/// 1 bit, set for 1 and clear for -1; times 64.
struct CodesSign : Planes<BitPlane, NoPlane, 8, true, 1, 0> {
  static constexpr float kUnit = 0x1p-6f;
  uint4 low;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    low = From::quad(codes + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return q ^ 1; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    return (BitPlane::at(low, step, r, 7) & 0x80808080u) | 0x40404040u;
  }
};

/// 2 bits less 1, times -64: 1 - q fits two bits as a signed number, q - 1 does not.
struct CodesTernary : Planes<PairPlane, NoPlane, 8, true, 1, 0> {
  static constexpr float kUnit = -0x1p-6f;
  uint4 low[2];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 2; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return (1 - q) & 3; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const { return PairPlane::at(low, step, r, 6) & 0xc0c0c0c0u; }
};

/// int8. Four steps are a piece.
struct CodesS8 : Planes<BytePlane, NoPlane, 4, true, 1, 0> {
  static constexpr float kUnit = 1;
  uint4 low[4];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return q; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const { return word(low[step], r); }
};

/// n values times `factor` plus `offset` as bytes, the first one lowest.
constexpr std::uint32_t bytes_of(const std::int8_t* values, int n, int factor = 1, int offset = 0) {
  std::uint32_t w = 0;
  for (int i = 0; i < n; ++i)
    w |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(factor * values[i] + offset)) << (8 * i);
  return w;
}
constexpr std::uint32_t four_values(const std::int8_t (&values)[16], int first) { return bytes_of(values + first, 4); }
struct TableIQ4 {
  static constexpr float kUnit = 1;
  static constexpr std::uint32_t k0 = four_values(kValuesIQ4, 0), k4 = four_values(kValuesIQ4, 4),
                                 k8 = four_values(kValuesIQ4, 8), k12 = four_values(kValuesIQ4, 12);
};
struct TableE2M1 {
  static constexpr float kUnit = 1;
  static constexpr std::uint32_t k0 = four_values(kValuesE2M1, 0), k4 = four_values(kValuesE2M1, 4),
                                 k8 = four_values(kValuesE2M1, 8), k12 = four_values(kValuesE2M1, 12);
};

/// Eight magnitudes, then the same with a minus; the scale of IQ3_XXS is a quarter of d.
struct TableIQ3_XXS {
  static constexpr float kUnit = 0x1p-2f;
  static constexpr std::uint32_t k0 = bytes_of(kLevelsIQ3_XXS, 4), k4 = bytes_of(kLevelsIQ3_XXS + 4, 4),
                                 k8 = bytes_of(kLevelsIQ3_XXS, 4, -1), k12 = bytes_of(kLevelsIQ3_XXS + 4, 4, -1);
};
struct TableIQ3_S {
  static constexpr float kUnit = 1;
  static constexpr std::uint32_t k0 = bytes_of(kLevelsIQ3_S, 4), k4 = bytes_of(kLevelsIQ3_S + 4, 4),
                                 k8 = bytes_of(kLevelsIQ3_S, 4, -1), k12 = bytes_of(kLevelsIQ3_S + 4, 4, -1);
};
/// Three magnitudes, a fourth that no grid has, the same with a minus; the scale is an eighth of d.
struct TableIQ2 {
  static constexpr float kUnit = 0x1p-3f;
  static constexpr std::uint32_t k0 = bytes_of(kLevelsIQ2, 3), k4 = bytes_of(kLevelsIQ2, 3, -1);
};
/// Eight times level + delta, with delta = 1/8 and then -1/8.
struct TableIQ1 {
  static constexpr float kUnit = 0x1p-3f;
  static constexpr std::uint32_t k0 = bytes_of(kLevelsIQ1, 3, 8, 1), k4 = bytes_of(kLevelsIQ1, 3, 8, -1);
};

/// 4 bits that choose one of 16 bytes: from each half of the table by the lower three, then by the top one.
template <class Table>
struct CodesTable : Planes<SelectorPlane, NoPlane, 8, true, 1, 0> {
  static constexpr float kUnit = Table::kUnit;
  uint4 low[4];
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 4; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int, unsigned q, int) { return q; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    const std::uint32_t w = word(low[step / 2], r);
    const std::uint32_t in_half = (w & 0x77777777u) >> (16 * (step % 2));
    const std::uint32_t half = (((w >> 1) & 0x44444444u) | 0x32103210u) >> (16 * (step % 2));
    return permute_bytes(permute_bytes(Table::k0, Table::k4, in_half), permute_bytes(Table::k8, Table::k12, in_half),
                         half);
  }
};

/// 3 bits that choose one of 8 bytes.
template <class Table>
struct CodesTable8 : Planes<SelectorPairPlane, SelectorBitPlane, 8, true, 1, 0> {
  static constexpr float kUnit = Table::kUnit;
  uint4 low[2], high;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes, int lane) {
    for (int i = 0; i < 2; ++i) low[i] = From::quad(codes + kQuadBytes * i + 16 * lane);
    high = From::quad(codes + kQuadBytes * 2 + 16 * lane);
  }
  static LLM_HOST_DEVICE unsigned field(int plane, unsigned q, int) { return plane == 0 ? q & 3 : q >> 2; }
  LLM_HOST_DEVICE std::uint32_t bytes(int step, int r) const {
    const std::uint32_t two_steps = SelectorPairPlane::at(low, step, r) | SelectorBitPlane::at(high, step, r);
    return permute_bytes(Table::k0, Table::k4, two_steps >> (16 * (step % 2)));
  }
};

}  // namespace llm::cuda
