// 512-bit registers of integers, with VNNI. What a function does to a lane it does to all of them.
#pragma once

#include "backend/cpu/kernels/quant_vec_x86.h"

namespace llm::cpu::LLM_ISA::quant {

inline constexpr bool kKeepsBias = true, kSums32 = true;

using V = __m512i;
using F = __m512;
inline constexpr int kLanes = 4;   ///< 128-bit lanes of a register
inline constexpr int kWidth = 16;  ///< int32 or f32 elements of a register

LLM_INLINE V zero() { return _mm512_setzero_si512(); }
LLM_INLINE F zero_f() { return _mm512_setzero_ps(); }
LLM_INLINE V splat32(int x) { return _mm512_set1_epi32(x); }
LLM_INLINE V splat16(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
LLM_INLINE V splat8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
LLM_INLINE V splat128(Lane x) { return _mm512_broadcast_i32x4(x); }
LLM_INLINE F splat_f(float x) { return _mm512_set1_ps(x); }
LLM_INLINE V load(const void* p) { return _mm512_loadu_si512(p); }
LLM_INLINE void store(void* p, V x) { _mm512_storeu_si512(p, x); }
LLM_INLINE F load_f(const float* p) { return _mm512_loadu_ps(p); }
LLM_INLINE void store_f(float* p, F x) { _mm512_storeu_ps(p, x); }

LLM_INLINE V add32(V a, V b) { return _mm512_add_epi32(a, b); }
LLM_INLINE V add16(V a, V b) { return _mm512_add_epi16(a, b); }
LLM_INLINE V sub32(V a, V b) { return _mm512_sub_epi32(a, b); }
LLM_INLINE V sub16(V a, V b) { return _mm512_sub_epi16(a, b); }
LLM_INLINE V sub8(V a, V b) { return _mm512_sub_epi8(a, b); }
LLM_INLINE V add8(V a, V b) { return _mm512_add_epi8(a, b); }
LLM_INLINE V min8(V a, V b) { return _mm512_min_epu8(a, b); }           ///< unsigned
LLM_INLINE V sub8_to_zero(V a, V b) { return _mm512_subs_epu8(a, b); }  ///< unsigned, 0 where b > a
LLM_INLINE V min32(V a, V b) { return _mm512_min_epi32(a, b); }
LLM_INLINE V max32(V a, V b) { return _mm512_max_epi32(a, b); }
LLM_INLINE V mul32(V a, V b) { return _mm512_mullo_epi32(a, b); }
LLM_INLINE V mul16(V a, V b) { return _mm512_mullo_epi16(a, b); }
LLM_INLINE V madd16(V a, V b) { return _mm512_madd_epi16(a, b); }
LLM_INLINE V madd16(V acc, V a, V b) { return _mm512_dpwssd_epi32(acc, a, b); }
LLM_INLINE V dot8(V acc, V w, V a) { return _mm512_dpbusd_epi32(acc, w, a); }  ///< w unsigned, a signed
/// The same sums in any order within a lane.
LLM_INLINE V lane_dot8(V acc, V w, V a) { return dot8(acc, w, a); }
LLM_INLINE V pack32(V a, V b) { return _mm512_packs_epi32(a, b); }
LLM_INLINE V pack16(V a, V b) { return _mm512_packus_epi16(a, b); }
/// In each lane: elements 0 and 2 of a, then of b; or 1 and 3.
LLM_INLINE V even32(V a, V b) {
  return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88));
}
LLM_INLINE V odd32(V a, V b) {
  return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd));
}
LLM_INLINE V and_(V a, V b) { return _mm512_and_si512(a, b); }
LLM_INLINE V or_(V a, V b) { return _mm512_or_si512(a, b); }
LLM_INLINE V xor_(V a, V b) { return _mm512_xor_si512(a, b); }
LLM_INLINE V or_and(V a, V b, V mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xf8); }  ///< a | (b & mask)
template <int n>
LLM_INLINE V shr16(V a) {
  return _mm512_srli_epi16(a, n);
}
template <int n>
LLM_INLINE V sar16(V a) {
  return _mm512_srai_epi16(a, n);
}
template <int n>
LLM_INLINE V shl16(V a) {
  return _mm512_slli_epi16(a, n);
}
template <int n>
LLM_INLINE V shr32(V a) {
  return _mm512_srli_epi32(a, n);
}
template <int n>
LLM_INLINE V sar32(V a) {
  return _mm512_srai_epi32(a, n);
}
template <int n>
LLM_INLINE V shl32(V a) {
  return _mm512_slli_epi32(a, n);
}
LLM_INLINE V shr32(V a, V n) { return _mm512_srlv_epi32(a, n); }
LLM_INLINE V shl32(V a, V n) { return _mm512_sllv_epi32(a, n); }
LLM_INLINE V shuffle8(V a, V index) { return _mm512_shuffle_epi8(a, index); }
LLM_INLINE V low8(V a, V b) { return _mm512_unpacklo_epi8(a, b); }
LLM_INLINE V high8(V a, V b) { return _mm512_unpackhi_epi8(a, b); }
LLM_INLINE V low32(V a, V b) { return _mm512_unpacklo_epi32(a, b); }
LLM_INLINE V high32(V a, V b) { return _mm512_unpackhi_epi32(a, b); }
LLM_INLINE V low64(V a, V b) { return _mm512_unpacklo_epi64(a, b); }
LLM_INLINE V high64(V a, V b) { return _mm512_unpackhi_epi64(a, b); }

/// kWidth int16 at p as int32.
LLM_INLINE V widen16(const std::int16_t* p) {
  return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
/// a, then b, as int16.
LLM_INLINE V narrow32(V a, V b) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), pack32(a, b));
}

LLM_INLINE F to_f(V a) { return _mm512_cvtepi32_ps(a); }
LLM_INLINE V bits(F a) { return _mm512_castps_si512(a); }
LLM_INLINE F as_f(V a) { return _mm512_castsi512_ps(a); }
LLM_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
LLM_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
LLM_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
LLM_INLINE F negate(F a) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), splat32(-0x7fffffff - 1)));
}
/// The f16 in the low half of each 32-bit element.
LLM_INLINE F low_halves(V a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }

/// Lane b is of(b).
template <class Of>
LLM_INLINE V join(const Of& of) {
  const __m256i lo = _mm256_inserti128_si256(_mm256_castsi128_si256(of(0)), of(1), 1);
  const __m256i hi = _mm256_inserti128_si256(_mm256_castsi128_si256(of(2)), of(3), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}

/// Element kLanes * j + b is element j of lane b of `a`.
LLM_INLINE V natural_order(V a) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
}

/// a + value in the bytes where x has one of the bits.
LLM_INLINE V add_where(V a, V x, V bits, V value) {
  return _mm512_mask_add_epi8(a, _mm512_test_epi8_mask(x, bits), a, value);
}
/// -a in the bytes where x has one of the bits.
LLM_INLINE V negate_where(V a, V x, V bits) {
  return _mm512_mask_sub_epi8(a, _mm512_test_epi8_mask(x, bits), zero(), a);
}

/// The f16 at at(0), at(1), ... as f32.
template <class At>
LLM_INLINE F halves(const At& at) {
  const auto h = [&](int i) LLM_LAMBDA { return static_cast<short>(load_u16(at(i))); };
  return _mm512_cvtph_ps(_mm256_setr_epi16(h(0), h(1), h(2), h(3), h(4), h(5), h(6), h(7), h(8), h(9), h(10), h(11),
                                           h(12), h(13), h(14), h(15)));
}

/// The bytes at at(0), at(1), ... as int32.
template <class At>
LLM_INLINE V byte_elements(const At& at) {
  const auto e = [&](int i) LLM_LAMBDA { return static_cast<char>(*at(i)); };
  return _mm512_cvtepu8_epi32(_mm_setr_epi8(e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7), e(8), e(9), e(10), e(11),
                                            e(12), e(13), e(14), e(15)));
}

/// The first bytes of 16 blocks of 17 bytes at w as int32.
LLM_INLINE V byte_elements_17(const u8* w) {
  // by the words that hold them: permuting bytes would need VBMI, which Cascade Lake lacks
  const V word = _mm512_setr_epi32(0, 8, 17, 25, 34, 42, 51, 59, 0, 8, 17, 25, 34, 42, 51, 59);
  const V low = _mm512_permutex2var_epi16(load(w), word, load(w + 64));
  const V high = _mm512_permutex2var_epi16(load(w + 136), word, load(w + 200));
  const V words = _mm512_mask_blend_epi32(0xff00, low, high);
  return shuffle8(words, splat128(_mm_setr_epi8(0, -1, -1, -1, 5, -1, -1, -1, 8, -1, -1, -1, 13, -1, -1, -1)));
}

/// The f16 of 16 blocks of 18 bytes at w, the first of each.
LLM_INLINE F halves_18(const u8* w) {
  const V word = _mm512_castsi128_si512(_mm_setr_epi16(0, 9, 18, 27, 36, 45, 54, 63));
  const V low = _mm512_permutex2var_epi16(load(w), word, load(w + 64));
  const V high = _mm512_permutex2var_epi16(load(w + 144), word, load(w + 208));
  return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm512_castsi512_si256(low), _mm512_castsi512_si128(high), 1));
}

/// The f16 of kWidth / parts blocks of `bytes` bytes at w, the first of each, `parts` times each.
template <int parts, int bytes>
LLM_INLINE F halves_repeated(const u8* w) {
  static_assert(parts == 2 || parts == 4);
  const auto h = [&](int i) LLM_LAMBDA { return static_cast<short>(load_u16(w + i * bytes)); };
  if constexpr (parts == 4) {
    const V four =
        _mm512_castsi128_si512(_mm_castps_si128(_mm_cvtph_ps(_mm_setr_epi16(h(0), h(1), h(2), h(3), 0, 0, 0, 0))));
    return as_f(_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), four));
  } else {
    const __m256 eight = _mm256_cvtph_ps(_mm_setr_epi16(h(0), h(1), h(2), h(3), h(4), h(5), h(6), h(7)));
    return as_f(_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                         _mm512_castsi256_si512(_mm256_castps_si256(eight))));
  }
}

/// Asks for the cache line at p after x is computed.
LLM_INLINE void fetch_after(V& x, const u8* p) { __asm__ volatile("prefetcht0 %1" : "+v"(x) : "m"(*p)); }
LLM_INLINE void fetch_far_after(V& x, const u8* p) { __asm__ volatile("prefetcht1 %1" : "+v"(x) : "m"(*p)); }

}  // namespace llm::cpu::LLM_ISA::quant
