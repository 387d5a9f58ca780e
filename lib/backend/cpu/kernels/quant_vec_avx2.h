// 256-bit registers of integers, with or without VNNI. quant_vec_avx512.h says what each function means.
#pragma once

#include "backend/cpu/kernels/quant_vec_x86.h"

namespace llm::cpu::LLM_ISA::quant {

#if defined(LLM_ISA_avx2vnni)
inline constexpr bool kKeepsBias = true, kSums32 = true;
#else
inline constexpr bool kKeepsBias = false, kSums32 = false;
#endif

using V = __m256i;
using F = __m256;
inline constexpr int kLanes = 2;
inline constexpr int kWidth = 8;

LLM_INLINE V zero() { return _mm256_setzero_si256(); }
LLM_INLINE F zero_f() { return _mm256_setzero_ps(); }
LLM_INLINE V splat32(int x) { return _mm256_set1_epi32(x); }
LLM_INLINE V splat16(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
LLM_INLINE V splat8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
LLM_INLINE V splat128(Lane x) { return _mm256_broadcastsi128_si256(x); }
LLM_INLINE F splat_f(float x) { return _mm256_set1_ps(x); }
LLM_INLINE V load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
LLM_INLINE void store(void* p, V x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
LLM_INLINE F load_f(const float* p) { return _mm256_loadu_ps(p); }
LLM_INLINE void store_f(float* p, F x) { _mm256_storeu_ps(p, x); }

LLM_INLINE V add32(V a, V b) { return _mm256_add_epi32(a, b); }
LLM_INLINE V add16(V a, V b) { return _mm256_add_epi16(a, b); }
LLM_INLINE V sub32(V a, V b) { return _mm256_sub_epi32(a, b); }
LLM_INLINE V sub16(V a, V b) { return _mm256_sub_epi16(a, b); }
LLM_INLINE V sub8(V a, V b) { return _mm256_sub_epi8(a, b); }
LLM_INLINE V add8(V a, V b) { return _mm256_add_epi8(a, b); }
LLM_INLINE V min8(V a, V b) { return _mm256_min_epu8(a, b); }           ///< unsigned
LLM_INLINE V sub8_to_zero(V a, V b) { return _mm256_subs_epu8(a, b); }  ///< unsigned, 0 where b > a
LLM_INLINE V min32(V a, V b) { return _mm256_min_epi32(a, b); }
LLM_INLINE V max32(V a, V b) { return _mm256_max_epi32(a, b); }
LLM_INLINE V mul32(V a, V b) { return _mm256_mullo_epi32(a, b); }
LLM_INLINE V mul16(V a, V b) { return _mm256_mullo_epi16(a, b); }
LLM_INLINE V madd16(V a, V b) { return _mm256_madd_epi16(a, b); }
#if defined(LLM_ISA_avx2vnni)
LLM_INLINE V madd16(V acc, V a, V b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }
LLM_INLINE V dot8(V acc, V w, V a) { return _mm256_dpbusd_avx_epi32(acc, w, a); }
LLM_INLINE V lane_dot8(V acc, V w, V a) { return dot8(acc, w, a); }
#else
LLM_INLINE V madd16(V acc, V a, V b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
#endif
LLM_INLINE V maddubs(V w, V a) { return _mm256_maddubs_epi16(w, a); }  ///< int16 sums of two products, saturating
LLM_INLINE V abs8(V a) { return _mm256_abs_epi8(a); }
LLM_INLINE V sign8(V a, V sign) { return _mm256_sign_epi8(a, sign); }
LLM_INLINE V pack32(V a, V b) { return _mm256_packs_epi32(a, b); }
LLM_INLINE V pack16(V a, V b) { return _mm256_packus_epi16(a, b); }
/// In each lane: elements 0 and 2 of a, then of b; or 1 and 3.
LLM_INLINE V even32(V a, V b) {
  return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}
LLM_INLINE V odd32(V a, V b) {
  return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
}
LLM_INLINE V and_(V a, V b) { return _mm256_and_si256(a, b); }
LLM_INLINE V or_(V a, V b) { return _mm256_or_si256(a, b); }
LLM_INLINE V xor_(V a, V b) { return _mm256_xor_si256(a, b); }
LLM_INLINE V or_and(V a, V b, V mask) { return or_(a, and_(b, mask)); }
template <int n>
LLM_INLINE V shr16(V a) {
  return _mm256_srli_epi16(a, n);
}
template <int n>
LLM_INLINE V sar16(V a) {
  return _mm256_srai_epi16(a, n);
}
template <int n>
LLM_INLINE V shl16(V a) {
  return _mm256_slli_epi16(a, n);
}
template <int n>
LLM_INLINE V shr32(V a) {
  return _mm256_srli_epi32(a, n);
}
template <int n>
LLM_INLINE V sar32(V a) {
  return _mm256_srai_epi32(a, n);
}
template <int n>
LLM_INLINE V shl32(V a) {
  return _mm256_slli_epi32(a, n);
}
LLM_INLINE V shr32(V a, V n) { return _mm256_srlv_epi32(a, n); }
LLM_INLINE V shl32(V a, V n) { return _mm256_sllv_epi32(a, n); }
LLM_INLINE V shuffle8(V a, V index) { return _mm256_shuffle_epi8(a, index); }
LLM_INLINE V low8(V a, V b) { return _mm256_unpacklo_epi8(a, b); }
LLM_INLINE V high8(V a, V b) { return _mm256_unpackhi_epi8(a, b); }
LLM_INLINE V low16(V a, V b) { return _mm256_unpacklo_epi16(a, b); }
LLM_INLINE V high16(V a, V b) { return _mm256_unpackhi_epi16(a, b); }
LLM_INLINE V low32(V a, V b) { return _mm256_unpacklo_epi32(a, b); }
LLM_INLINE V high32(V a, V b) { return _mm256_unpackhi_epi32(a, b); }
LLM_INLINE V low64(V a, V b) { return _mm256_unpacklo_epi64(a, b); }
LLM_INLINE V high64(V a, V b) { return _mm256_unpackhi_epi64(a, b); }

LLM_INLINE V widen16(const std::int16_t* p) { return _mm256_cvtepi16_epi32(load16(p)); }
LLM_INLINE V narrow32(V a, V b) { return _mm256_permute4x64_epi64(pack32(a, b), 0xd8); }

LLM_INLINE F to_f(V a) { return _mm256_cvtepi32_ps(a); }
LLM_INLINE V bits(F a) { return _mm256_castps_si256(a); }
LLM_INLINE F as_f(V a) { return _mm256_castsi256_ps(a); }
LLM_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
LLM_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
LLM_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
LLM_INLINE F negate(F a) { return _mm256_xor_ps(a, _mm256_castsi256_ps(splat32(-0x7fffffff - 1))); }
LLM_INLINE F low_halves(V a) {
  const V packed = _mm256_packus_epi32(and_(a, splat32(0xffff)), zero());
  return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

template <class Of>
LLM_INLINE V join(const Of& of) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(of(0)), of(1), 1);
}

LLM_INLINE V natural_order(V a) { return _mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); }

/// `bits` has one bit per byte; a is zero where `value` is not.
LLM_INLINE V add_where(V a, V x, V bits, V value) {
  return or_(a, and_(_mm256_cmpeq_epi8(and_(x, bits), bits), value));
}
LLM_INLINE V negate_where(V a, V x, V bits) {
  const V negative = _mm256_cmpeq_epi8(and_(x, bits), bits);
  return sub8(xor_(a, negative), negative);
}

template <class At>
LLM_INLINE F halves(const At& at) {
  const auto h = [&](int i) LLM_LAMBDA { return static_cast<short>(load_u16(at(i))); };
  return _mm256_cvtph_ps(_mm_setr_epi16(h(0), h(1), h(2), h(3), h(4), h(5), h(6), h(7)));
}

template <class At>
LLM_INLINE V byte_elements(const At& at) {
  const auto e = [&](int i) LLM_LAMBDA { return static_cast<char>(*at(i)); };
  return _mm256_cvtepu8_epi32(_mm_setr_epi8(e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7), 0, 0, 0, 0, 0, 0, 0, 0));
}

/// The first bytes of 8 blocks of 17 bytes at w as int32.
LLM_INLINE V byte_elements_17(const u8* w) {
  // a load has two neighbours, at byte 0 of the lower lane and byte 1 of the upper
  const auto pair = [&](int i) LLM_LAMBDA {
    const int at = 4 * i;  // -1: zero
    const auto to = [=](int byte, int from) LLM_LAMBDA { return static_cast<char>(byte == at ? from : -1); };
    const auto lane = [=](int from) LLM_LAMBDA {
      return _mm_setr_epi8(to(0, from), -1, -1, -1, to(4, from), -1, -1, -1, to(8, from), -1, -1, -1, to(12, from), -1,
                           -1, -1);
    };
    return shuffle8(load(w + 34 * i), _mm256_setr_m128i(lane(0), lane(1)));
  };
  return natural_order(or_(or_(pair(0), pair(1)), or_(pair(2), pair(3))));
}

LLM_INLINE void fetch_after(V& x, const u8* p) { __asm__ volatile("prefetcht0 %1" : "+x"(x) : "m"(*p)); }
LLM_INLINE void fetch_far_after(V& x, const u8* p) { __asm__ volatile("prefetcht1 %1" : "+x"(x) : "m"(*p)); }

}  // namespace llm::cpu::LLM_ISA::quant
