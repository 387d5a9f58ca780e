// Integer vectors for the products of quantised weights: one register of kLanes 128-bit lanes, in each of which the
// same happens. 512-bit registers with VNNI, 256-bit ones with or without. Not defined (LLM_QUANT_SIMD) for the
// portable set.
#pragma once

#if defined(LLM_ISA_avx512) || defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)
#define LLM_QUANT_SIMD 1

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/intrinsics.h"

#define LLM_INLINE [[gnu::always_inline]] inline
#define LLM_LAMBDA __attribute__((always_inline))  // an attribute of a lambda's function has no other place in C++20

namespace llm::cpu::LLM_ISA::quant {

using u8 = std::uint8_t;
using i64 = std::int64_t;

#if defined(LLM_ISA_avx2)
inline constexpr bool kVnni = false;
#else
inline constexpr bool kVnni = true;
#endif

LLM_INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
LLM_INLINE std::uint16_t load_u16(const u8* p) {
  std::uint16_t x;
  __builtin_memcpy(&x, p, 2);
  return x;
}
LLM_INLINE int load_i32(const void* p) {
  int x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

#if defined(LLM_ISA_avx512)

using V = __m512i;
using F = __m512;
inline constexpr int kLanes = 4;   ///< 128-bit lanes of a register
inline constexpr int kWidth = 16;  ///< int32 or f32 elements of a register

LLM_INLINE V zero() { return _mm512_setzero_si512(); }
LLM_INLINE F zero_f() { return _mm512_setzero_ps(); }
LLM_INLINE V splat32(int x) { return _mm512_set1_epi32(x); }
LLM_INLINE V splat16(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
LLM_INLINE V splat8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
LLM_INLINE V splat128(__m128i x) { return _mm512_broadcast_i32x4(x); }
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
LLM_INLINE V pack32(V a, V b) { return _mm512_packs_epi32(a, b); }
LLM_INLINE V pack16(V a, V b) { return _mm512_packus_epi16(a, b); }
/// In each lane: elements 1 and 3 of a, then of b.
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

LLM_INLINE F to_f(V a) { return _mm512_cvtepi32_ps(a); }
LLM_INLINE V bits(F a) { return _mm512_castps_si512(a); }
LLM_INLINE F as_f(V a) { return _mm512_castsi512_ps(a); }
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

#else

using V = __m256i;
using F = __m256;
inline constexpr int kLanes = 2;
inline constexpr int kWidth = 8;

LLM_INLINE V zero() { return _mm256_setzero_si256(); }
LLM_INLINE F zero_f() { return _mm256_setzero_ps(); }
LLM_INLINE V splat32(int x) { return _mm256_set1_epi32(x); }
LLM_INLINE V splat16(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
LLM_INLINE V splat8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
LLM_INLINE V splat128(__m128i x) { return _mm256_broadcastsi128_si256(x); }
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
#else
LLM_INLINE V madd16(V acc, V a, V b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
#endif
LLM_INLINE V maddubs(V w, V a) { return _mm256_maddubs_epi16(w, a); }  ///< int16 sums of two products, saturating
LLM_INLINE V abs8(V a) { return _mm256_abs_epi8(a); }
LLM_INLINE V sign8(V a, V sign) { return _mm256_sign_epi8(a, sign); }
LLM_INLINE V pack32(V a, V b) { return _mm256_packs_epi32(a, b); }
LLM_INLINE V pack16(V a, V b) { return _mm256_packus_epi16(a, b); }
/// In each lane: elements 1 and 3 of a, then of b.
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
LLM_INLINE V low32(V a, V b) { return _mm256_unpacklo_epi32(a, b); }
LLM_INLINE V high32(V a, V b) { return _mm256_unpackhi_epi32(a, b); }
LLM_INLINE V low64(V a, V b) { return _mm256_unpacklo_epi64(a, b); }
LLM_INLINE V high64(V a, V b) { return _mm256_unpackhi_epi64(a, b); }

LLM_INLINE F to_f(V a) { return _mm256_cvtepi32_ps(a); }
LLM_INLINE V bits(F a) { return _mm256_castps_si256(a); }
LLM_INLINE F as_f(V a) { return _mm256_castsi256_ps(a); }
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

#endif

inline constexpr i64 kVectorBytes = sizeof(V);

/// Lane b is the 16 bytes at at(b).
template <class At>
LLM_INLINE V lanes(const At& at) {
  return join([&](int b) LLM_LAMBDA { return load16(at(b)); });
}
/// Lane b is the 8 bytes at at(b), then zeros.
template <class At>
LLM_INLINE V lanes8(const At& at) {
  return join([&](int b) LLM_LAMBDA { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(b))); });
}
/// Lane b is the 4 bytes at at(b), then zeros.
template <class At>
LLM_INLINE V lanes4(const At& at) {
  return join([&](int b) LLM_LAMBDA { return _mm_cvtsi32_si128(load_i32(at(b))); });
}

/// kWidth int16 at p as int32.
LLM_INLINE V widen16(const std::int16_t* p) {
#if defined(LLM_ISA_avx512)
  return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
  return _mm256_cvtepi16_epi32(load16(p));
#endif
}

LLM_INLINE F natural_order(F a) { return as_f(natural_order(bits(a))); }

template <int n>
LLM_INLINE V shift16(V a) {  ///< left if n > 0
  if constexpr (n > 0)
    return shl16<n>(a);
  else if constexpr (n < 0)
    return shr16<-n>(a);
  else
    return a;
}

struct Four {
  V v[4];
};
/// In each lane: v[t] is element t of a, b, c, d.
LLM_INLINE Four transpose4(V a, V b, V c, V d) {
  const V ab = low32(a, b), cd = low32(c, d), ab_high = high32(a, b), cd_high = high32(c, d);
  return {{low64(ab, cd), high64(ab, cd), low64(ab_high, cd_high), high64(ab_high, cd_high)}};
}
/// In each lane: the sums of the elements of a, b, c, d.
LLM_INLINE V sum4(V a, V b, V c, V d) {
  const V ab = add32(low32(a, b), high32(a, b)), cd = add32(low32(c, d), high32(c, d));
  return add32(low64(ab, cd), high64(ab, cd));
}
/// kWidth rows in elements: v[t] has the 4 bytes at at(row) + 4 t of each row.
template <class At>
LLM_INLINE Four load_rows(const At& at) {
  const auto group = [&](int j) LLM_LAMBDA { return lanes([&](int b) { return at(4 * b + j); }); };
  return transpose4(group(0), group(1), group(2), group(3));
}

/// Twice load_rows: v[t] has the 4 bytes at at(row) + 4 t of each row.
struct Eight {
  V v[8];
};
template <class At>
LLM_INLINE Eight load_rows_32(const At& at) {
  Four low, high;
#if defined(LLM_ISA_avx512)
  V first[4], second[4];  // of rows j, 4 + j, 8 + j, 12 + j: the first and the second 16 bytes
  for (int j = 0; j < 4; ++j) {
    const auto two_rows = [&](int row) LLM_LAMBDA {
      const auto half = [&](int r) LLM_LAMBDA { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at(r))); };
      return _mm512_inserti64x4(_mm512_castsi256_si512(half(row)), half(row + 4), 1);
    };
    const V a = two_rows(j), b = two_rows(j + 8);
    first[j] = _mm512_shuffle_i32x4(a, b, 0x88);
    second[j] = _mm512_shuffle_i32x4(a, b, 0xdd);
  }
  low = transpose4(first[0], first[1], first[2], first[3]);
  high = transpose4(second[0], second[1], second[2], second[3]);
#else
  low = load_rows(at);
  high = load_rows([&](int row) LLM_LAMBDA { return at(row) + 16; });
#endif
  return {{low.v[0], low.v[1], low.v[2], low.v[3], high.v[0], high.v[1], high.v[2], high.v[3]}};
}

template <int I>
struct Constant {
  static constexpr int value = I;
  constexpr operator int() const { return I; }
};
/// f(Constant<0>{}) ... f(Constant<n - 1>{}).
template <int n, int i = 0, class Fn>
LLM_INLINE void repeat(const Fn& f) {
  if constexpr (i < n) {
    f(Constant<i>{});
    repeat<n, i + 1>(f);
  }
}

}  // namespace llm::cpu::LLM_ISA::quant

#endif
