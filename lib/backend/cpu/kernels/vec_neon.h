// Sixteen f32 lanes in four NEON registers. vec.h says what each function means.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "base/half.h"

namespace llm::cpu::LLM_ISA {

struct F32x16 {
  float32x4_t v[4];
};

/// f of the registers of each operand: written out, so that they are registers for certain.
template <class F, class... A>
[[gnu::always_inline]] inline F32x16 each_quarter(const F& f, const A&... a) {
  return {f(a.v[0]...), f(a.v[1]...), f(a.v[2]...), f(a.v[3]...)};
}

inline F32x16 set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline F32x16 zero() { return set1(0.0f); }

inline float32x4_t widen_half(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
inline float32x4_t widen_bfloat16(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
inline uint16x8_t load_8_words(const void* p) { return vld1q_u16(static_cast<const std::uint16_t*>(p)); }

inline F32x16 load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline F32x16 load(const Half* p) {
  const uint16x8_t low = load_8_words(p), high = load_8_words(p + 8);
  return {widen_half(vget_low_u16(low)), widen_half(vget_high_u16(low)), widen_half(vget_low_u16(high)),
          widen_half(vget_high_u16(high))};
}
inline F32x16 set1(Half x) {
  const float32x4_t v = widen_half(vdup_n_u16(x.bits));
  return {v, v, v, v};
}
inline F32x16 load(const BFloat16* p) {
  const uint16x8_t low = load_8_words(p), high = load_8_words(p + 8);
  return {widen_bfloat16(vget_low_u16(low)), widen_bfloat16(vget_high_u16(low)), widen_bfloat16(vget_low_u16(high)),
          widen_bfloat16(vget_high_u16(high))};
}
inline F32x16 load(const std::int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}

/// As vec_avx2.h has it.
inline uint16x8_t halves_of_e4m3(int8x8_t bytes) {
  const uint16x8_t shifted = vreinterpretq_u16_s16(vshll_n_s8(bytes, 7));
  return veorq_u16(shifted, vandq_u16(vaddq_u16(shifted, vdupq_n_u16(0x80)), vdupq_n_u16(0x4000)));
}
inline F32x16 load(const Float8E4M3* p) {
  const int8x16_t bytes = vld1q_s8(reinterpret_cast<const std::int8_t*>(p));
  const uint16x8_t low = halves_of_e4m3(vget_low_s8(bytes)), high = halves_of_e4m3(vget_high_s8(bytes));
  const auto widened = [](uint16x4_t h) { return vmulq_n_f32(widen_half(h), 0x1p8f); };
  return {widened(vget_low_u16(low)), widened(vget_high_u16(low)), widened(vget_low_u16(high)),
          widened(vget_high_u16(high))};
}

template <class T>
inline F32x16 load_first(const T* p, int n) {
  alignas(16) T lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<unsigned>(n) * sizeof(T));
  return load(lanes);
}

inline uint16x4_t narrow_half(float32x4_t a) { return vreinterpret_u16_f16(vcvt_f16_f32(a)); }
inline uint16x4_t narrow_bfloat16(float32x4_t a) {
  const uint32x4_t u = vreinterpretq_u32_f32(a);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet), 16);
}
template <class Narrow>
[[gnu::always_inline]] inline void store_narrow(void* p, F32x16 a, const Narrow& narrow) {
  auto* const to = static_cast<std::uint16_t*>(p);
  vst1q_u16(to, vcombine_u16(narrow(a.v[0]), narrow(a.v[1])));
  vst1q_u16(to + 8, vcombine_u16(narrow(a.v[2]), narrow(a.v[3])));
}
inline void store(float* p, F32x16 a) {
  vst1q_f32(p, a.v[0]);
  vst1q_f32(p + 4, a.v[1]);
  vst1q_f32(p + 8, a.v[2]);
  vst1q_f32(p + 12, a.v[3]);
}
inline void store(Half* p, F32x16 a) {
  store_narrow(p, a, [](float32x4_t x) { return narrow_half(x); });
}
inline void store(BFloat16* p, F32x16 a) {
  store_narrow(p, a, [](float32x4_t x) { return narrow_bfloat16(x); });
}
/// Element by element: loops over to_float8_e4m3() are vectorised.
inline void store(Float8E4M3* p, F32x16 a) {
  alignas(16) float lanes[16];
  store(lanes, a);
  for (int i = 0; i < 16; ++i) p[i] = to_float8_e4m3(lanes[i]);
}
template <class T>
inline void store_first(T* p, int n, F32x16 a) {
  alignas(16) T lanes[16];
  store(lanes, a);
  __builtin_memcpy(p, lanes, static_cast<unsigned>(n) * sizeof(T));
}

using Quarter = float32x4_t;
inline F32x16 operator+(F32x16 a, F32x16 b) {
  return each_quarter([](Quarter x, Quarter y) { return vaddq_f32(x, y); }, a, b);
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return each_quarter([](Quarter x, Quarter y) { return vsubq_f32(x, y); }, a, b);
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return each_quarter([](Quarter x, Quarter y) { return vmulq_f32(x, y); }, a, b);
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return each_quarter([](Quarter x, Quarter y) { return vdivq_f32(x, y); }, a, b);
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return each_quarter([](Quarter x, Quarter y, Quarter z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
inline F32x16 sqrt(F32x16 a) {
  return each_quarter([](Quarter x) { return vsqrtq_f32(x); }, a);
}
// By comparison: the instructions for it give NaN where one of the two is.
inline Quarter max_4(Quarter a, Quarter b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Quarter min_4(Quarter a, Quarter b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline F32x16 max(F32x16 a, F32x16 b) {
  return each_quarter([](Quarter x, Quarter y) { return max_4(x, y); }, a, b);
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return each_quarter([](Quarter x, Quarter y) { return min_4(x, y); }, a, b);
}
inline F32x16 negate_magnitude(F32x16 a) {
  return each_quarter([](Quarter x) { return vnegq_f32(vabsq_f32(x)); }, a);
}
inline F32x16 if_negative(F32x16 x, F32x16 a, F32x16 b) {
  return each_quarter([](Quarter s, Quarter u, Quarter v) { return vbslq_f32(vcltzq_f32(s), u, v); }, x, a, b);
}
inline F32x16 keep_lanes(F32x16 a, int begin, int end, F32x16 other) {
  const int32x4_t first = vdupq_n_s32(begin), last = vdupq_n_s32(end);
  const auto kept = [&](int32x4_t lane, Quarter u, Quarter v) {
    return vbslq_f32(vandq_u32(vcgeq_s32(lane, first), vcltq_s32(lane, last)), u, v);
  };
  return {kept(int32x4_t{0, 1, 2, 3}, a.v[0], other.v[0]), kept(int32x4_t{4, 5, 6, 7}, a.v[1], other.v[1]),
          kept(int32x4_t{8, 9, 10, 11}, a.v[2], other.v[2]), kept(int32x4_t{12, 13, 14, 15}, a.v[3], other.v[3])};
}
// In two factors, so that the result may be subnormal; the first product is exact.
inline Quarter times_power_of_2(Quarter a, Quarter n) {
  const int32x4_t e = vcvtnq_s32_f32(n), bias = vdupq_n_s32(127);
  const int32x4_t half = vshrq_n_s32(e, 1), rest = vsubq_s32(e, half);
  const int32x4_t f = vshlq_n_s32(vaddq_s32(half, bias), 23), g = vshlq_n_s32(vaddq_s32(rest, bias), 23);
  return vmulq_f32(vmulq_f32(a, vreinterpretq_f32_s32(f)), vreinterpretq_f32_s32(g));
}
inline F32x16 times_power_of_2(F32x16 a, F32x16 n) {
  return each_quarter([](Quarter x, Quarter y) { return times_power_of_2(x, y); }, a, n);
}

inline float first_lane(F32x16 a) { return vgetq_lane_f32(a.v[0], 0); }
/// Lanes i and i + 8, then i and i + 4.
inline Quarter sum_to_4(F32x16 a) { return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3])); }
inline float sum(F32x16 a) {
  const Quarter s4 = sum_to_4(a);
  return vpadds_f32(vadd_f32(vget_low_f32(s4), vget_high_f32(s4)));
}
inline float max_lane(F32x16 a) {
  const Quarter m4 = max_4(max_4(a.v[0], a.v[2]), max_4(a.v[1], a.v[3]));
  const Quarter m2 = max_4(m4, vextq_f32(m4, m4, 2));
  return vgetq_lane_f32(max_4(m2, vdupq_laneq_f32(m2, 1)), 0);
}

inline Quarter sums_of_4(F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  const auto halves = [](Quarter x, Quarter y) {  // of two sums, side by side
    return vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(y)), vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
  };
  return vpaddq_f32(halves(sum_to_4(a), sum_to_4(b)), halves(sum_to_4(c), sum_to_4(d)));
}
inline void store_sums(float* y, F32x16 a, F32x16 b, F32x16 c, F32x16 d) { vst1q_f32(y, sums_of_4(a, b, c, d)); }
inline void add_sums(float* y, F32x16 a, F32x16 b, F32x16 c, F32x16 d) {
  vst1q_f32(y, vaddq_f32(vld1q_f32(y), sums_of_4(a, b, c, d)));
}

inline F32x16 swap_pairs(F32x16 a) {
  return each_quarter([](Quarter x) { return vrev64q_f32(x); }, a);
}
inline F32x16 copy_even(F32x16 a) {
  return each_quarter([](Quarter x) { return vtrn1q_f32(x, x); }, a);
}
inline F32x16 copy_odd(F32x16 a) {
  return each_quarter([](Quarter x) { return vtrn2q_f32(x, x); }, a);
}
inline F32x16 fma_minus_even_plus_odd(F32x16 a, F32x16 b, F32x16 c) {
  const auto f = [](Quarter x, Quarter y, Quarter z) {
    const uint32x4_t even_signs = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000));
    return vfmaq_f32(vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(z), even_signs)), x, y);
  };
  return each_quarter(f, a, b, c);
}
inline void deinterleave(F32x16 a, F32x16 b, F32x16& even, F32x16& odd) {
  even = {vuzp1q_f32(a.v[0], a.v[1]), vuzp1q_f32(a.v[2], a.v[3]), vuzp1q_f32(b.v[0], b.v[1]),
          vuzp1q_f32(b.v[2], b.v[3])};
  odd = {vuzp2q_f32(a.v[0], a.v[1]), vuzp2q_f32(a.v[2], a.v[3]), vuzp2q_f32(b.v[0], b.v[1]),
         vuzp2q_f32(b.v[2], b.v[3])};
}

inline void prefetch(const void* p) { __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*static_cast<const char*>(p))); }

}  // namespace llm::cpu::LLM_ISA
