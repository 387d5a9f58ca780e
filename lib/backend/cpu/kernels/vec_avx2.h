// Sixteen f32 lanes in two AVX registers, with FMA and F16C. vec.h says what each function means.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/intrinsics.h"
#include "base/half.h"

namespace llm::cpu::LLM_ISA {

struct F32x16 {
  __m256 lo, hi;
};

inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 set1(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}

inline __m256 widen_half(__m128i h) { return _mm256_cvtph_ps(h); }
inline __m256 widen_bfloat16(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
inline __m128i load_8_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

/// E4M3 as F16 times 2^-8, which the bits without the sign are (base/half.h). Shifted there, the sign is bit 15 and bit
/// 14; adding one to the others changes bit 14 where they are all set, which is NaN. Bit 14 gets that difference, and
/// with it an F16 that has them all set is NaN as well.
inline __m256i halves_of_e4m3(__m128i bytes) {
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i next = _mm256_add_epi16(shifted, _mm256_set1_epi16(0x80));
  return _mm256_xor_si256(shifted, _mm256_and_si256(next, _mm256_set1_epi16(0x4000)));
}

inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32x16 load(const Half* p) { return {widen_half(load_8_words(p)), widen_half(load_8_words(p + 8))}; }
inline F32x16 set1(Half x) {
  const __m256 v = widen_half(_mm_set1_epi16(static_cast<short>(x.bits)));
  return {v, v};
}
inline F32x16 load(const std::int8_t* p) {
  const __m128i bytes = load_8_words(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}
inline F32x16 load(const BFloat16* p) { return {widen_bfloat16(load_8_words(p)), widen_bfloat16(load_8_words(p + 8))}; }
inline F32x16 load(const Float8E4M3* p) {
  const __m256i h = halves_of_e4m3(load_8_words(p));
  const __m256 up = _mm256_set1_ps(0x1p8f);
  return {_mm256_mul_ps(widen_half(_mm256_castsi256_si128(h)), up),
          _mm256_mul_ps(widen_half(_mm256_extracti128_si256(h, 1)), up)};
}

template <class T>
inline F32x16 load_first(const T* p, int n) {
  alignas(32) T lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<unsigned>(n) * sizeof(T));
  return load(lanes);
}

inline __m128i narrow_half(__m256 a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline __m128i narrow_bfloat16(__m256 a) {
  const __m256i u = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
inline void store_8_words(void* p, __m128i a) { _mm_storeu_si128(static_cast<__m128i*>(p), a); }
inline void store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store(Half* p, F32x16 a) {
  store_8_words(p, narrow_half(a.lo));
  store_8_words(p + 8, narrow_half(a.hi));
}
inline void store(BFloat16* p, F32x16 a) {
  store_8_words(p, narrow_bfloat16(a.lo));
  store_8_words(p + 8, narrow_bfloat16(a.hi));
}
/// Element by element: loops over to_float8_e4m3() are vectorised.
inline void store(Float8E4M3* p, F32x16 a) {
  alignas(32) float lanes[16];
  store(lanes, a);
  for (int i = 0; i < 16; ++i) p[i] = to_float8_e4m3(lanes[i]);
}
template <class T>
inline void store_first(T* p, int n, F32x16 a) {
  alignas(32) T lanes[16];
  store(lanes, a);
  __builtin_memcpy(p, lanes, static_cast<unsigned>(n) * sizeof(T));
}

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 sqrt(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline F32x16 negate_magnitude(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(a.lo, sign), _mm256_or_ps(a.hi, sign)};
}
inline F32x16 if_negative(F32x16 x, F32x16 a, F32x16 b) {
  const __m256 none = _mm256_setzero_ps();
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, none, _CMP_LT_OQ)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, none, _CMP_LT_OQ))};
}
inline F32x16 keep_lanes(F32x16 a, int begin, int end, F32x16 other) {
  const __m256i below = _mm256_set1_epi32(begin - 1), above = _mm256_set1_epi32(end);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), next = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
  const __m256i in_lo = _mm256_and_si256(_mm256_cmpgt_epi32(lane, below), _mm256_cmpgt_epi32(above, lane));
  const __m256i in_hi = _mm256_and_si256(_mm256_cmpgt_epi32(next, below), _mm256_cmpgt_epi32(above, next));
  return {_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(in_lo)),
          _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(in_hi))};
}
// In two factors, so that the result may be subnormal; the first product is exact.
inline __m256 times_power_of_2(__m256 a, __m256 n) {
  const __m256i e = _mm256_cvtps_epi32(n), bias = _mm256_set1_epi32(127);
  const __m256i half = _mm256_srai_epi32(e, 1), rest = _mm256_sub_epi32(e, half);
  const __m256i f = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i g = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(f)), _mm256_castsi256_ps(g));
}
inline F32x16 times_power_of_2(F32x16 a, F32x16 n) {
  return {times_power_of_2(a.lo, n.lo), times_power_of_2(a.hi, n.hi)};
}

inline float first_lane(F32x16 a) { return _mm256_cvtss_f32(a.lo); }
inline float sum(F32x16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float max_lane(F32x16 a) {
  const __m256 m8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

inline __m128 sums_of_4(F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  const __m256 a8 = _mm256_add_ps(a.lo, a.hi), b8 = _mm256_add_ps(b.lo, b.hi);
  const __m256 c8 = _mm256_add_ps(c.lo, c.hi), d8 = _mm256_add_ps(d.lo, d.hi);
  const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
  const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
  const __m256 s2 = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  const __m256 s = _mm256_add_ps(_mm256_shuffle_ps(s2, s2, 0x88), _mm256_shuffle_ps(s2, s2, 0xdd));
  return _mm_unpacklo_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));  // a c a c | b d b d
}
inline void store_sums(float* y, F32x16 a, F32x16 b, F32x16 c, F32x16 d) { _mm_storeu_ps(y, sums_of_4(a, b, c, d)); }
inline void add_sums(float* y, F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  _mm_storeu_ps(y, _mm_add_ps(_mm_loadu_ps(y), sums_of_4(a, b, c, d)));
}

inline F32x16 swap_pairs(F32x16 a) { return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)}; }
inline F32x16 copy_even(F32x16 a) { return {_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)}; }
inline F32x16 copy_odd(F32x16 a) { return {_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)}; }
inline F32x16 fma_minus_even_plus_odd(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmaddsub_ps(a.lo, b.lo, c.lo), _mm256_fmaddsub_ps(a.hi, b.hi, c.hi)};
}
inline __m256 in_order(__m256 x) {  // quarters 0 2 1 3 -> 0 1 2 3
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
}
inline void deinterleave(F32x16 a, F32x16 b, F32x16& even, F32x16& odd) {
  even = {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88)), in_order(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
  odd = {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xdd)), in_order(_mm256_shuffle_ps(b.lo, b.hi, 0xdd))};
}

// Not the intrinsic: from functions that only fetch ahead GCC 12 left no prefetch in the code.
inline void prefetch(const void* p) { __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p))); }

}  // namespace llm::cpu::LLM_ISA
