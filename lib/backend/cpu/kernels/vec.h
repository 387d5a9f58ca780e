// The vector type of the float kernels: 16 f32 lanes, F32x16, on every instruction set, so that one source gives one
// order of operations and, every operation being correctly rounded, the same bits everywhere. A header per register
// width has:
//   zero() set1(x)                     all lanes; x of f32 or Half
//   load(p) load_first(p, n)           f32, Half, BFloat16 or Float8E4M3 widened exactly; the first n lanes, others 0
//                                      and not read; load also of int8
//   store(p, a) store_first(p, n, a)   as f32, or rounded to nearest even as one of these; no alignment needed
//   + - * / fma(a, b, c) sqrt(a)       fma is a * b + c rounded once
//   max(a, b) min(a, b)                b if either is NaN or both are equal
//   negate_magnitude(a)                -|a|
//   if_negative(x, a, b)               x < 0 ? a : b
//   keep_lanes(a, begin, end, other)   lanes [begin, end) of a, the others of `other`; 0 <= begin, end <= 16
//   times_power_of_2(a, n)             a * 2^n rounded once, n an integer in [-150, 128], a in [0.5, 2]
//   sum(a) max_lane(a)                 a tree: lanes i and i + 8, then i and i + 4, i + 2, i + 1
//   store_sums(y, a, b, c, d), add_sums(y, ...)    y[0..3] = or += the sums of four vectors
//   swap_pairs copy_even copy_odd      lanes 2i and 2i + 1 exchanged; both the even one; both the odd one
//   fma_minus_even_plus_odd(a, b, c)   a * b - c in even lanes, a * b + c in odd ones
//   deinterleave(a, b, even, odd)      of the 32 lanes of a and b
//   first_lane(a) prefetch(p)
#pragma once

#if defined(LLM_ISA_avx512)
#include "backend/cpu/kernels/vec_avx512.h"
#elif defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)
#include "backend/cpu/kernels/vec_avx2.h"
#elif defined(LLM_ISA_neon)
#include "backend/cpu/kernels/vec_neon.h"
#else
#include "backend/cpu/kernels/vec_portable.h"
#endif

namespace llm::cpu::LLM_ISA {

template <int I>
struct Index {
  static constexpr int value = I;
};
/// f(Index<0>{}), ..., f(Index<N - 1>{}): loops over registers must be unrolled for certain, not by the compiler's
/// judgement.
template <int N, int I = 0, class F>
[[gnu::always_inline]] inline void unroll(const F& f) {
  if constexpr (I < N) {
    f(Index<I>{});
    unroll<N, I + 1>(f);
  }
}

/// e^x = 2^n (1 + p)
struct Exponential {
  F32x16 n, p;
};
/// |x| <= 104. x = n ln 2 + r, and p = e^r - 1 = r + r^2 q(r) with q of degree 4 fitted by Remez' exchange for |r| <=
/// 0.347 (relative error of e^r: 3.1e-9).
inline Exponential exponential(F32x16 x) {
  const F32x16 magic = set1(0x1.8p23f);  // adding it rounds to an integer
  const F32x16 n = fma(x, set1(0x1.715476p+0f), magic) - magic;
  F32x16 r = fma(n, set1(-0x1.62e430p-1f), x);
  r = fma(n, set1(0x1.05c610p-29f), r);
  F32x16 q = set1(0x1.6a2318p-10f);
  q = fma(q, r, set1(0x1.123a8ep-7f));
  q = fma(q, r, set1(0x1.5558f6p-5f));
  q = fma(q, r, set1(0x1.555490p-3f));
  q = fma(q, r, set1(0x1.fffffcp-2f));
  return {n, fma(q, r * r, r)};
}

/// e^x within 1 ulp over the whole range, subnormal results included; -inf gives 0, NaN gives NaN.
inline F32x16 exp(F32x16 x) {
  x = min(set1(89.0f), max(set1(-104.0f), x));  // 2^-150 and 2^128 lie just outside
  const auto [n, p] = exponential(x);
  return times_power_of_2(p + set1(1.0f), n);
}

/// 1 / (1 + e^-x) from e^-|x|, which cannot overflow.
inline F32x16 sigmoid(F32x16 x) {
  const F32x16 e = exp(negate_magnitude(x));
  return if_negative(x, e, set1(1.0f)) / (set1(1.0f) + e);
}

/// Within 3 ulp, small x included: tanh |x| = -m / (2 + m) with m = e^(-2 |x|) - 1, which loses no digits. From |x|
/// = 9.02 on it is 1 in f32.
inline F32x16 tanh(F32x16 x) {
  const F32x16 half = max(set1(-10.0f), negate_magnitude(x));  // NaN stays
  const auto [n, p] = exponential(half + half);
  const F32x16 power = times_power_of_2(set1(1.0f), n);
  const F32x16 m = fma(power, p, power - set1(1.0f));
  return if_negative(x, m, zero() - m) / (set1(2.0f) + m);
}

}  // namespace llm::cpu::LLM_ISA
