// Sixteen f32 lanes in one AVX-512 register. vec.h says what each function means.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/intrinsics.h"
#include "base/half.h"

namespace llm::cpu::LLM_ISA {

struct F32x16 {
  __m512 v;
};

inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline F32x16 zero() { return {_mm512_setzero_ps()}; }
inline F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }

inline F32x16 set1(Half x) { return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(x.bits)))}; }

inline F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32x16 load(const Half* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline F32x16 load(const BFloat16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline F32x16 load(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
/// As vec_avx2.h has it.
inline F32x16 widen_e4m3(__m128i bytes) {
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i next = _mm256_add_epi16(shifted, _mm256_set1_epi16(0x80));
  const __m256i h = _mm256_xor_si256(shifted, _mm256_and_si256(next, _mm256_set1_epi16(0x4000)));
  return {_mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(0x1p8f))};
}
inline F32x16 load(const Float8E4M3* p) { return widen_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline F32x16 load_first(const Float8E4M3* p, int n) { return widen_e4m3(_mm_maskz_loadu_epi8(first_lanes(n), p)); }
inline F32x16 load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline F32x16 load_first(const Half* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
inline F32x16 load_first(const BFloat16* p, int n) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

inline __m256i narrow_half(F32x16 a) { return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// Integer rounding: the instruction for it takes subnormals for zero.
inline __m256i narrow_bfloat16(F32x16 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
inline void store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
inline void store(Half* p, F32x16 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_half(a)); }
inline void store(BFloat16* p, F32x16 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bfloat16(a)); }
/// Element by element: loops over to_float8_e4m3() are vectorised.
inline void store(Float8E4M3* p, F32x16 a) {
  alignas(64) float lanes[16];
  store(lanes, a);
  for (int i = 0; i < 16; ++i) p[i] = to_float8_e4m3(lanes[i]);
}
inline void store_first(Float8E4M3* p, int n, F32x16 a) {
  Float8E4M3 lanes[16];
  store(lanes, a);
  __builtin_memcpy(p, lanes, static_cast<unsigned>(n));
}
inline void store_first(float* p, int n, F32x16 a) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline void store_first(Half* p, int n, F32x16 a) { _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_half(a)); }
inline void store_first(BFloat16* p, int n, F32x16 a) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bfloat16(a));
}

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 sqrt(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 negate_magnitude(F32x16 a) { return {_mm512_or_ps(a.v, _mm512_set1_ps(-0.0f))}; }
inline F32x16 if_negative(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_LT_OQ), b.v, a.v)};
}
inline F32x16 keep_lanes(F32x16 a, int begin, int end, F32x16 other) {
  const auto mask = static_cast<__mmask16>(first_lanes(end) & ~first_lanes(begin));
  return {_mm512_mask_blend_ps(mask, other.v, a.v)};
}
inline F32x16 times_power_of_2(F32x16 a, F32x16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

inline float first_lane(F32x16 a) { return _mm512_cvtss_f32(a.v); }
inline float sum(F32x16 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
inline float max_lane(F32x16 a) {
  const __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

// One 128-bit block per sum after two steps, so that the four share the rest of the tree.
inline __m128 sums_of_4(F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x44), _mm512_shuffle_f32x4(a.v, b.v, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c.v, d.v, 0x44), _mm512_shuffle_f32x4(c.v, d.v, 0xee));
  __m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, s));
}
inline void store_sums(float* y, F32x16 a, F32x16 b, F32x16 c, F32x16 d) { _mm_storeu_ps(y, sums_of_4(a, b, c, d)); }
inline void add_sums(float* y, F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  _mm_storeu_ps(y, _mm_add_ps(_mm_loadu_ps(y), sums_of_4(a, b, c, d)));
}

inline F32x16 swap_pairs(F32x16 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
inline F32x16 copy_even(F32x16 a) { return {_mm512_moveldup_ps(a.v)}; }
inline F32x16 copy_odd(F32x16 a) { return {_mm512_movehdup_ps(a.v)}; }
inline F32x16 fma_minus_even_plus_odd(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmaddsub_ps(a.v, b.v, c.v)}; }
inline void deinterleave(F32x16 a, F32x16 b, F32x16& even, F32x16& odd) {
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
  even = {_mm512_permutex2var_ps(a.v, evens, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, odds, b.v)};
}

// Not the intrinsic: from functions that only fetch ahead GCC 12 left no prefetch in the code.
inline void prefetch(const void* p) { __asm__ volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p))); }

}  // namespace llm::cpu::LLM_ISA
