// Sixteen f32 lanes in plain C++. vec.h says what each function means.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace llm::cpu::LLM_ISA {

struct F32x16 {
  float lane[16];
};

/// a * b + c rounded once. Without the instruction: the product is exact in f64 and the sum is rounded to odd, which
/// makes the second rounding, to f32, the only one that counts. So this set's results equal those of the others.
inline float fma_scalar(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
  return __builtin_fmaf(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
  const double s = product + addend, t = s - product;
  const double error = (product - (s - t)) + (addend - t);  // exact; NaN where s is not finite
  std::int64_t bits = __builtin_bit_cast(std::int64_t, s);
  const std::int64_t inexact = (error < 0) | (error > 0);
  const std::int64_t towards_zero = (error > 0) != (s > 0);
  bits += (inexact & ~bits & 1) * (1 - 2 * towards_zero);
  return static_cast<float>(__builtin_bit_cast(double, bits));
#endif
}

template <class F>
[[gnu::always_inline]] inline F32x16 each_lane(F f) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}

inline F32x16 zero() { return {}; }
inline F32x16 set1(float x) {
  return each_lane([&](int) { return x; });
}

inline F32x16 set1(Half x) { return set1(to_float(x)); }

inline float widen(float x) { return x; }
inline float widen(std::int8_t x) { return static_cast<float>(x); }
inline float widen(Half h) { return to_float(h); }
inline float widen(BFloat16 h) { return to_float(h); }
inline float widen(Float8E4M3 f) { return to_float(f); }
template <class T>
inline F32x16 load_first(const T* p, int n) {
  T lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<unsigned>(n) * sizeof(T));
  return each_lane([&](int i) { return widen(lanes[i]); });
}
template <class T>
inline F32x16 load(const T* p) {
  return load_first(p, 16);
}

inline void narrow(float x, float& y) { y = x; }
inline void narrow(float x, Half& y) { y = to_half(x); }
inline void narrow(float x, BFloat16& y) { y = to_bfloat16(x); }
inline void narrow(float x, Float8E4M3& y) { y = to_float8_e4m3(x); }
template <class T>
inline void store_first(T* p, int n, const F32x16& a) {
  T lanes[16];
  for (int i = 0; i < 16; ++i) narrow(a.lane[i], lanes[i]);
  __builtin_memcpy(p, lanes, static_cast<unsigned>(n) * sizeof(T));
}
template <class T>
inline void store(T* p, const F32x16& a) {
  store_first(p, 16, a);
}

inline F32x16 operator+(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F32x16 operator-(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F32x16 operator*(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F32x16 operator/(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_lane([&](int i) { return fma_scalar(a.lane[i], b.lane[i], c.lane[i]); });
}
inline F32x16 sqrt(const F32x16& a) {
  return each_lane([&](int i) { return __builtin_sqrtf(a.lane[i]); });
}
inline F32x16 max(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32x16 min(const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32x16 negate_magnitude(const F32x16& a) {
  return each_lane([&](int i) { return -__builtin_fabsf(a.lane[i]); });
}
inline F32x16 if_negative(const F32x16& x, const F32x16& a, const F32x16& b) {
  return each_lane([&](int i) { return x.lane[i] < 0 ? a.lane[i] : b.lane[i]; });
}
inline F32x16 keep_lanes(const F32x16& a, int begin, int end, const F32x16& other) {
  return each_lane([&](int i) { return i >= begin && i < end ? a.lane[i] : other.lane[i]; });
}
// In two factors, so that the result may be subnormal; the first product is exact. Adding 1.5 * 2^23 leaves the integer
// in the low bits, for a NaN something harmless.
inline F32x16 times_power_of_2(const F32x16& a, const F32x16& n) {
  return each_lane([&](int i) {
    const std::uint32_t shifted = __builtin_bit_cast(std::uint32_t, n.lane[i] + 0x1.8p23f);
    const auto e = static_cast<std::int32_t>(shifted - 0x4b400000u);
    const std::int32_t half = e >> 1;
    const std::uint32_t f = (static_cast<std::uint32_t>(half) + 127u) << 23;
    const std::uint32_t g = (static_cast<std::uint32_t>(e) - static_cast<std::uint32_t>(half) + 127u) << 23;
    return a.lane[i] * __builtin_bit_cast(float, f) * __builtin_bit_cast(float, g);
  });
}

inline float first_lane(const F32x16& a) { return a.lane[0]; }
inline float sum(F32x16 a) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) a.lane[i] += a.lane[i + width];
  return a.lane[0];
}
inline float max_lane(F32x16 a) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
  return a.lane[0];
}
inline void store_sums(float* y, const F32x16& a, const F32x16& b, const F32x16& c, const F32x16& d) {
  y[0] = sum(a), y[1] = sum(b), y[2] = sum(c), y[3] = sum(d);
}
inline void add_sums(float* y, const F32x16& a, const F32x16& b, const F32x16& c, const F32x16& d) {
  y[0] += sum(a), y[1] += sum(b), y[2] += sum(c), y[3] += sum(d);
}

inline F32x16 swap_pairs(const F32x16& a) {
  return each_lane([&](int i) { return a.lane[i ^ 1]; });
}
inline F32x16 copy_even(const F32x16& a) {
  return each_lane([&](int i) { return a.lane[i & ~1]; });
}
inline F32x16 copy_odd(const F32x16& a) {
  return each_lane([&](int i) { return a.lane[i | 1]; });
}
inline F32x16 fma_minus_even_plus_odd(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_lane([&](int i) { return fma_scalar(a.lane[i], b.lane[i], i % 2 == 0 ? -c.lane[i] : c.lane[i]); });
}
inline void deinterleave(const F32x16& a, const F32x16& b, F32x16& even, F32x16& odd) {
  even = each_lane([&](int i) { return i < 8 ? a.lane[2 * i] : b.lane[2 * i - 16]; });
  odd = each_lane([&](int i) { return i < 8 ? a.lane[2 * i + 1] : b.lane[2 * i - 15]; });
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace llm::cpu::LLM_ISA
