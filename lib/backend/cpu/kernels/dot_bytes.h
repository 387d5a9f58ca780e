// Dot products of bytes in 16 lanes, for scores over quantised keys: lane i of a register of keys has 4 bytes of key i.
//   Keys load_keys(p)          64 bytes
//   Query splat_query(p)       4 signed bytes, in every lane
//   I32x16 set1_i32(x)         all lanes
//   add_dots(acc, keys, q)     acc + the sum of 4 products of an unsigned and a signed byte, exact
//   to_f32(a)                  rounded to nearest
// kDotPairs queries and kDotVectors registers of keys fill the registers.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

#if defined(LLM_ISA_avx512)

constexpr int kDotPairs = 6, kDotVectors = 2;
struct I32x16 {
  __m512i v;
};
struct Keys {
  __m512i v;
};
struct Query4 {
  __m512i v;
};
inline I32x16 set1_i32(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Keys load_keys(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline Query4 splat_query(const std::int8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm512_set1_epi32(x)};
}
inline I32x16 add_dots(I32x16 acc, Keys k, Query4 q) { return {_mm512_dpbusd_epi32(acc.v, k.v, q.v)}; }
inline F32x16 to_f32(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }

#elif defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)

struct I32x16 {
  __m256i lo, hi;
};
inline __m256i load_32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline I32x16 set1_i32(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F32x16 to_f32(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline __m256i splat_4(const std::int8_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}

#if defined(LLM_ISA_avx2vnni)

constexpr int kDotPairs = 4, kDotVectors = 1;
struct Keys {
  __m256i lo, hi;
};
struct Query4 {
  __m256i v;
};
inline Keys load_keys(const std::uint8_t* p) { return {load_32(p), load_32(p + 32)}; }
inline Query4 splat_query(const std::int8_t* p) { return {splat_4(p)}; }
inline I32x16 add_dots(I32x16 acc, Keys k, Query4 q) {
  return {_mm256_dpbusd_avx_epi32(acc.lo, k.lo, q.v), _mm256_dpbusd_avx_epi32(acc.hi, k.hi, q.v)};
}

#else

// The sums of two products of bytes that the instruction for them gives do not fit into its 16 bits: even and odd bytes
// are widened first.
constexpr int kDotPairs = 2, kDotVectors = 1;
struct Keys {
  __m256i even_lo, odd_lo, even_hi, odd_hi;
};
struct Query4 {
  __m256i even, odd;
};
inline Keys load_keys(const std::uint8_t* p) {
  const __m256i low = _mm256_set1_epi16(0xff), a = load_32(p), b = load_32(p + 32);
  return {_mm256_and_si256(a, low), _mm256_srli_epi16(a, 8), _mm256_and_si256(b, low), _mm256_srli_epi16(b, 8)};
}
inline Query4 splat_query(const std::int8_t* p) {
  const __m256i v = splat_4(p);
  return {_mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), _mm256_srai_epi16(v, 8)};
}
inline I32x16 add_dots(I32x16 acc, Keys k, Query4 q) {
  const auto dots = [&](__m256i even, __m256i odd) {
    return _mm256_add_epi32(_mm256_madd_epi16(even, q.even), _mm256_madd_epi16(odd, q.odd));
  };
  return {_mm256_add_epi32(acc.lo, dots(k.even_lo, k.odd_lo)), _mm256_add_epi32(acc.hi, dots(k.even_hi, k.odd_hi))};
}

#endif

#else

constexpr int kDotPairs = 2, kDotVectors = 1;
struct I32x16 {
  std::int32_t lane[16];
};
struct Keys {
  const std::uint8_t* p;
};
struct Query4 {
  const std::int8_t* p;
};
inline I32x16 set1_i32(std::int32_t x) {
  I32x16 r;
  for (std::int32_t& lane : r.lane) lane = x;
  return r;
}
inline Keys load_keys(const std::uint8_t* p) { return {p}; }
inline Query4 splat_query(const std::int8_t* p) { return {p}; }
inline I32x16 add_dots(I32x16 acc, Keys k, Query4 q) {
  // Both sides as int: GCC 12 takes a product of unsigned and signed bytes for the instruction with its operands
  // exchanged where it has it.
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) acc.lane[i] += int{k.p[4 * i + j]} * int{q.p[j]};
  }
  return acc;
}
inline F32x16 to_f32(I32x16 a) {
  return each_lane([&](int i) { return static_cast<float>(a.lane[i]); });
}

#endif

}  // namespace llm::cpu::LLM_ISA
