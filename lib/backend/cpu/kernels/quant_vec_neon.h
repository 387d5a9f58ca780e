// 128-bit registers of integers on Arm: one lane, signed products of bytes. By SDOT in the set neondotprod, by widening
// multiplications without. quant_vec_avx512.h says what each function means.
#pragma once

#include <arm_neon.h>

namespace llm::cpu::LLM_ISA::quant {

inline constexpr bool kKeepsBias = false, kSums32 = true;

using V = int32x4_t;
using F = float32x4_t;
using Lane = V;
inline constexpr int kLanes = 1;
inline constexpr int kWidth = 4;

LLM_INLINE int8x16_t as_s8(V a) { return vreinterpretq_s8_s32(a); }
LLM_INLINE uint8x16_t as_u8(V a) { return vreinterpretq_u8_s32(a); }
LLM_INLINE int16x8_t as_s16(V a) { return vreinterpretq_s16_s32(a); }
LLM_INLINE uint16x8_t as_u16(V a) { return vreinterpretq_u16_s32(a); }
LLM_INLINE uint32x4_t as_u32(V a) { return vreinterpretq_u32_s32(a); }
LLM_INLINE int64x2_t as_s64(V a) { return vreinterpretq_s64_s32(a); }
LLM_INLINE V as_v(int8x16_t a) { return vreinterpretq_s32_s8(a); }
LLM_INLINE V as_v(uint8x16_t a) { return vreinterpretq_s32_u8(a); }
LLM_INLINE V as_v(int16x8_t a) { return vreinterpretq_s32_s16(a); }
LLM_INLINE V as_v(uint16x8_t a) { return vreinterpretq_s32_u16(a); }
LLM_INLINE V as_v(uint32x4_t a) { return vreinterpretq_s32_u32(a); }
LLM_INLINE V as_v(int64x2_t a) { return vreinterpretq_s32_s64(a); }

LLM_INLINE V zero() { return vdupq_n_s32(0); }
LLM_INLINE F zero_f() { return vdupq_n_f32(0); }
LLM_INLINE V splat32(int x) { return vdupq_n_s32(x); }
LLM_INLINE V splat16(int x) { return as_v(vdupq_n_s16(static_cast<std::int16_t>(x))); }
LLM_INLINE V splat8(int x) { return as_v(vdupq_n_s8(static_cast<std::int8_t>(x))); }
LLM_INLINE V splat128(Lane x) { return x; }
LLM_INLINE F splat_f(float x) { return vdupq_n_f32(x); }
LLM_INLINE V load(const void* p) { return as_v(vld1q_u8(static_cast<const u8*>(p))); }
LLM_INLINE void store(void* p, V x) { vst1q_u8(static_cast<u8*>(p), as_u8(x)); }
LLM_INLINE F load_f(const float* p) { return vld1q_f32(p); }
LLM_INLINE void store_f(float* p, F x) { vst1q_f32(p, x); }

LLM_INLINE Lane load16(const void* p) { return load(p); }
LLM_INLINE Lane load8_twice(const void* low, const void* high) {
  return as_v(vcombine_u8(vld1_u8(static_cast<const u8*>(low)), vld1_u8(static_cast<const u8*>(high))));
}
LLM_INLINE Lane load8(const void* p) { return as_v(vcombine_u8(vld1_u8(static_cast<const u8*>(p)), vdup_n_u8(0))); }
LLM_INLINE Lane load4(const void* p) { return vsetq_lane_s32(load_i32(p), zero(), 0); }
LLM_INLINE Lane load4_each(const void* a, const void* b, const void* c, const void* d) {
  return Lane{load_i32(a), load_i32(b), load_i32(c), load_i32(d)};
}

template <class... X>
LLM_INLINE Lane bytes_16(X... x) {
  static_assert(sizeof...(x) == 16);
  return as_v(int8x16_t{static_cast<std::int8_t>(x)...});
}
template <class... X>
LLM_INLINE Lane words_8(X... x) {
  static_assert(sizeof...(x) == 8);
  return as_v(int16x8_t{static_cast<std::int16_t>(x)...});
}
LLM_INLINE Lane words_8(int x) { return splat16(x); }
LLM_INLINE Lane ints_4(int a, int b, int c, int d) { return Lane{a, b, c, d}; }
LLM_INLINE Lane ints_4(int x) { return splat32(x); }
LLM_INLINE Lane longs_2(std::uint64_t x) { return vreinterpretq_s32_u64(vdupq_n_u64(x)); }

LLM_INLINE V add32(V a, V b) { return vaddq_s32(a, b); }
LLM_INLINE V add16(V a, V b) { return as_v(vaddq_s16(as_s16(a), as_s16(b))); }
LLM_INLINE V sub32(V a, V b) { return vsubq_s32(a, b); }
LLM_INLINE V sub16(V a, V b) { return as_v(vsubq_s16(as_s16(a), as_s16(b))); }
LLM_INLINE V sub8(V a, V b) { return as_v(vsubq_s8(as_s8(a), as_s8(b))); }
LLM_INLINE V add8(V a, V b) { return as_v(vaddq_s8(as_s8(a), as_s8(b))); }
LLM_INLINE V min8(V a, V b) { return as_v(vminq_u8(as_u8(a), as_u8(b))); }
LLM_INLINE V sub8_to_zero(V a, V b) { return as_v(vqsubq_u8(as_u8(a), as_u8(b))); }
LLM_INLINE V min32(V a, V b) { return vminq_s32(a, b); }
LLM_INLINE V max32(V a, V b) { return vmaxq_s32(a, b); }
LLM_INLINE V mul32(V a, V b) { return vmulq_s32(a, b); }
LLM_INLINE V mul16(V a, V b) { return as_v(vmulq_s16(as_s16(a), as_s16(b))); }
LLM_INLINE V madd16(V a, V b) {
  return vpaddq_s32(vmull_s16(vget_low_s16(as_s16(a)), vget_low_s16(as_s16(b))), vmull_high_s16(as_s16(a), as_s16(b)));
}
LLM_INLINE V madd16(V acc, V a, V b) { return vaddq_s32(acc, madd16(a, b)); }

/// Products of elements of 16 bits, before they are added up: of bytes 0 to 7 and 8 to 15.
struct Products {
  int16x8_t low, high;
};
LLM_INLINE Products products(V w, V a) {
  return {vmull_s8(vget_low_s8(as_s8(w)), vget_low_s8(as_s8(a))), vmull_high_s8(as_s8(w), as_s8(a))};
}
/// Added to others.
LLM_INLINE Products products(const Products& p, V w, V a) {
  return {vmlal_s8(p.low, vget_low_s8(as_s8(w)), vget_low_s8(as_s8(a))), vmlal_high_s8(p.high, as_s8(w), as_s8(a))};
}
/// The sums of four neighbours.
LLM_INLINE V sums_of_4(const Products& p) { return vpaddq_s32(vpaddlq_s16(p.low), vpaddlq_s16(p.high)); }

/// w is at least -128, a at least -127: two products fit into int16.
#if defined(LLM_ISA_neondotprod)
LLM_INLINE V dot8(V acc, V w, V a) { return vdotq_s32(acc, as_s8(w), as_s8(a)); }
LLM_INLINE V lane_dot8(V acc, V w, V a) { return dot8(acc, w, a); }
/// With element i of a.
template <int i>
LLM_INLINE V dot8_element(V acc, V w, V a) {
  return vdotq_laneq_s32(acc, as_s8(w), as_s8(a), i);
}
#else
LLM_INLINE V dot8(V acc, V w, V a) {
  const Products p = products(w, a);
  return vpadalq_s16(acc, vpaddq_s16(p.low, p.high));
}
LLM_INLINE V lane_dot8(V acc, V w, V a) {
  const int16x8_t low = vmull_s8(vget_low_s8(as_s8(w)), vget_low_s8(as_s8(a)));
  return vpadalq_s16(acc, vmlal_high_s8(low, as_s8(w), as_s8(a)));
}
#endif

LLM_INLINE V pack32(V a, V b) { return as_v(vqmovn_high_s32(vqmovn_s32(a), b)); }
LLM_INLINE V pack16(V a, V b) { return as_v(vqmovun_high_s16(vqmovun_s16(as_s16(a)), as_s16(b))); }
LLM_INLINE V even32(V a, V b) { return vuzp1q_s32(a, b); }
LLM_INLINE V odd32(V a, V b) { return vuzp2q_s32(a, b); }
LLM_INLINE V and_(V a, V b) { return vandq_s32(a, b); }
LLM_INLINE V or_(V a, V b) { return vorrq_s32(a, b); }
LLM_INLINE V xor_(V a, V b) { return veorq_s32(a, b); }
LLM_INLINE V or_and(V a, V b, V mask) { return or_(a, and_(b, mask)); }
template <int n>
LLM_INLINE V shr16(V a) {
  if constexpr (n == 0)
    return a;
  else
    return as_v(vshrq_n_u16(as_u16(a), n));
}
template <int n>
LLM_INLINE V sar16(V a) {
  return as_v(vshrq_n_s16(as_s16(a), n));
}
template <int n>
LLM_INLINE V shl16(V a) {
  return as_v(vshlq_n_s16(as_s16(a), n));
}
template <int n>
LLM_INLINE V shr32(V a) {
  if constexpr (n == 0)
    return a;
  else
    return as_v(vshrq_n_u32(as_u32(a), n));
}
template <int n>
LLM_INLINE V sar32(V a) {
  return vshrq_n_s32(a, n);
}
template <int n>
LLM_INLINE V shl32(V a) {
  return vshlq_n_s32(a, n);
}
LLM_INLINE V shr32(V a, V n) { return as_v(vshlq_u32(as_u32(a), vnegq_s32(n))); }
LLM_INLINE V shl32(V a, V n) { return vshlq_s32(a, n); }
LLM_INLINE V shuffle8(V a, V index) { return as_v(vqtbl1q_u8(as_u8(a), as_u8(index))); }  ///< 0 from 16 on
LLM_INLINE V low8(V a, V b) { return as_v(vzip1q_u8(as_u8(a), as_u8(b))); }
LLM_INLINE V high8(V a, V b) { return as_v(vzip2q_u8(as_u8(a), as_u8(b))); }
LLM_INLINE V low32(V a, V b) { return vzip1q_s32(a, b); }
LLM_INLINE V high32(V a, V b) { return vzip2q_s32(a, b); }
LLM_INLINE V low64(V a, V b) { return as_v(vzip1q_s64(as_s64(a), as_s64(b))); }
LLM_INLINE V high64(V a, V b) { return as_v(vzip2q_s64(as_s64(a), as_s64(b))); }

LLM_INLINE V widen16(const std::int16_t* p) { return vmovl_s16(vld1_s16(p)); }
LLM_INLINE V narrow32(V a, V b) { return pack32(a, b); }
/// Word i as int32 in all elements.
template <int i>
LLM_INLINE V splat_word(V words) {
  return vdupq_laneq_s32(i < 4 ? vmovl_s16(vget_low_s16(as_s16(words))) : vmovl_high_s16(as_s16(words)), i % 4);
}

LLM_INLINE F to_f(V a) { return vcvtq_f32_s32(a); }
LLM_INLINE V bits(F a) { return vreinterpretq_s32_f32(a); }
LLM_INLINE F as_f(V a) { return vreinterpretq_f32_s32(a); }
LLM_INLINE F add(F a, F b) { return vaddq_f32(a, b); }
LLM_INLINE F mul(F a, F b) { return vmulq_f32(a, b); }
LLM_INLINE F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
LLM_INLINE F negate(F a) { return vnegq_f32(a); }
LLM_INLINE F widen_halves(uint16x4_t halves) { return vcvt_f32_f16(vreinterpret_f16_u16(halves)); }
LLM_INLINE F low_halves(V a) { return widen_halves(vmovn_u32(as_u32(a))); }

template <class Of>
LLM_INLINE V join(const Of& of) {
  return of(0);
}

LLM_INLINE V natural_order(V a) { return a; }

LLM_INLINE V add_where(V a, V x, V bits, V value) {
  return add8(a, and_(as_v(vtstq_u8(as_u8(x), as_u8(bits))), value));
}
LLM_INLINE V negate_where(V a, V x, V bits) {
  const V negative = as_v(vtstq_u8(as_u8(x), as_u8(bits)));
  return sub8(xor_(a, negative), negative);
}

template <class At>
LLM_INLINE F halves(const At& at) {
  return widen_halves(uint16x4_t{load_u16(at(0)), load_u16(at(1)), load_u16(at(2)), load_u16(at(3))});
}

template <class At>
LLM_INLINE V byte_elements(const At& at) {
  return Lane{*at(0), *at(1), *at(2), *at(3)};
}

LLM_INLINE void fetch_near(const u8* p) { __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*p)); }
LLM_INLINE void fetch_far(const u8* p) { __asm__ volatile("prfm pldl2keep, %0" : : "Q"(*p)); }
LLM_INLINE void fetch_to(bool near, const u8* p) { near ? fetch_near(p) : fetch_far(p); }
template <bool near>
LLM_INLINE void fetch_scheduled(const u8* p) {
  fetch_to(near, p);
}
LLM_INLINE void fetch_to_write(const float* p) { __asm__ volatile("prfm pstl1keep, %0" : : "Q"(*p)); }
LLM_INLINE void fetch_after(V& x, const u8* p) { __asm__ volatile("prfm pldl1keep, %1" : "+w"(x) : "Q"(*p)); }
LLM_INLINE void fetch_far_after(V& x, const u8* p) { __asm__ volatile("prfm pldl2keep, %1" : "+w"(x) : "Q"(*p)); }

}  // namespace llm::cpu::LLM_ISA::quant
