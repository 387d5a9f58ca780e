// Dot products of integers in 16 lanes of int32, for quantised keys and values.
//   set1_i32(x) load_i32(p) store_i32(p, a)
//   to_f32(a)                  rounded to nearest
//   store_words(p, a)          the low 16 bits of 16 lanes
// Scores: lane i of a register of keys has 4 bytes of key i.
//   Keys load_keys(p)          64 bytes
//   Query4 splat_query(p)      4 signed bytes, in every lane
//   add_dots(acc, keys, q)     acc + the exact sum of 4 products of an unsigned byte, from which kKeyMiddle is taken,
//                              and a signed one
// kDotPairs queries and kDotVectors registers of keys fill the registers.
// Values: lane i of a register has element i of 2 keys.
//   Words load_words(p)        16 x 2 int16, or int8 widened
//   Words splat_words(p)       2 int16, in every lane
//   add_dots(acc, a, b)        acc + the sum of 2 products
//   Words join_words(a, b)     16 int8 of one key at a, of the next at b
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/vec.h"

#if defined(LLM_ISA_neon)

#include "backend/cpu/kernels/integer_dots_neon.h"

#else

namespace llm::cpu::LLM_ISA {

constexpr int kKeyMiddle = 0;

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
inline I32x16 load_i32(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_i32(std::int32_t* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }
inline void store_words(std::int16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_castps_si512(a.v)));
}
struct Words {
  __m512i v;
};
inline Words load_words(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline Words load_words(const std::int8_t* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store_words(std::int32_t* p, Words a) { _mm512_storeu_si512(p, a.v); }
inline Words splat_words(const std::int16_t* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm512_set1_epi32(x)};
}
inline I32x16 add_dots(I32x16 acc, Words a, Words b) { return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)}; }
inline Words join_words(const std::int8_t* a, const std::int8_t* b) {
  const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)));
  const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b)));
  return {_mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16))};
}

#elif defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)

struct I32x16 {
  __m256i lo, hi;
};
inline __m256i load_32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline I32x16 set1_i32(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F32x16 to_f32(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline __m256i splat_4(const void* p) {
  std::int32_t x;
  __builtin_memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}
inline void store_32(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
inline I32x16 load_i32(const std::int32_t* p) { return {load_32(p), load_32(p + 8)}; }
inline void store_i32(std::int32_t* p, I32x16 a) {
  store_32(p, a.lo);
  store_32(p + 8, a.hi);
}
inline void store_words(std::int16_t* p, F32x16 a) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(a.lo), low),
                                             _mm256_and_si256(_mm256_castps_si256(a.hi), low));
  store_32(p, _mm256_permute4x64_epi64(packed, 0xd8));
}
struct Words {
  __m256i lo, hi;
};
inline Words load_words(const std::int32_t* p) { return {load_32(p), load_32(p + 8)}; }
inline Words load_words(const std::int8_t* p) {
  const auto* const from = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(from)), _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1))};
}
inline void store_words(std::int32_t* p, Words a) {
  store_32(p, a.lo);
  store_32(p + 8, a.hi);
}
inline Words splat_words(const std::int16_t* p) {
  const __m256i v = splat_4(p);
  return {v, v};
}
inline Words join_words(const std::int8_t* a, const std::int8_t* b) {
  const auto widen_8 = [](const std::int8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  };
  const auto join_8 = [&](int at) {
    return _mm256_blend_epi16(widen_8(a + at), _mm256_slli_epi32(widen_8(b + at), 16), 0xaa);
  };
  return {join_8(0), join_8(8)};
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
inline I32x16 add_dots(I32x16 acc, Words a, Words b) {
  return {_mm256_dpwssd_avx_epi32(acc.lo, a.lo, b.lo), _mm256_dpwssd_avx_epi32(acc.hi, a.hi, b.hi)};
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
inline I32x16 add_dots(I32x16 acc, Words a, Words b) {
  return {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, b.lo)),
          _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, b.hi))};
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
inline I32x16 load_i32(const std::int32_t* p) {
  I32x16 r;
  __builtin_memcpy(r.lane, p, sizeof r.lane);
  return r;
}
inline void store_i32(std::int32_t* p, const I32x16& a) { __builtin_memcpy(p, a.lane, sizeof a.lane); }
inline void store_words(std::int16_t* p, const F32x16& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int16_t>(__builtin_bit_cast(std::int32_t, a.lane[i]));
}
struct Words {
  std::int16_t word[32];
};
inline Words load_words(const std::int32_t* p) {
  Words r;
  __builtin_memcpy(r.word, p, sizeof r.word);
  return r;
}
inline Words load_words(const std::int8_t* p) {
  Words r;
  for (int i = 0; i < 32; ++i) r.word[i] = p[i];
  return r;
}
inline void store_words(std::int32_t* p, const Words& a) { __builtin_memcpy(p, a.word, sizeof a.word); }
inline Words splat_words(const std::int16_t* p) {
  Words r;
  for (int i = 0; i < 32; ++i) r.word[i] = p[i % 2];
  return r;
}
inline I32x16 add_dots(I32x16 acc, const Words& a, const Words& b) {
  for (int i = 0; i < 16; ++i) acc.lane[i] += a.word[2 * i] * b.word[2 * i] + a.word[2 * i + 1] * b.word[2 * i + 1];
  return acc;
}
inline Words join_words(const std::int8_t* a, const std::int8_t* b) {
  Words r;
  for (int i = 0; i < 16; ++i) {
    r.word[2 * i] = a[i];
    r.word[2 * i + 1] = b[i];
  }
  return r;
}

#endif

}  // namespace llm::cpu::LLM_ISA

#endif
