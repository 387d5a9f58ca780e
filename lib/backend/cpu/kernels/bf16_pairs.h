// Pairs of neighbouring bfloat16, one per f32 lane, and what adds the products of two of them to a sum, on every
// instruction set but amx with the bits of vdpbf16ps: s = fma(w1, x1, s), then s = fma(w0, x0, s), each rounded to
// nearest even, subnormal operands and results as zero.
//   kPairSteps             steps that a product takes: 1 by the instruction; else the odd elements, then the even ones
//   load_pairs<step>(p)    what a step multiplies of the 32 elements at p
//   load_first_pairs<step>(p, n)   the same of the first n elements, others 0 and not read
//   add_pairs<step>(s, w, x)       s + w * x
//   SubnormalsAsZero       while it lives, f32 arithmetic of this thread takes them so
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/vec.h"
#include "base/half.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace llm::cpu::LLM_ISA {

#if defined(__x86_64__)

class SubnormalsAsZero {
 public:
  SubnormalsAsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kFlushOperands); }
  ~SubnormalsAsZero() { _mm_setcsr(before_); }
  SubnormalsAsZero(const SubnormalsAsZero&) = delete;
  SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;

 private:
  static constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
  unsigned before_;
};

#elif defined(__aarch64__)

class SubnormalsAsZero {
 public:
  SubnormalsAsZero() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    set(before_ | kFlush);
  }
  ~SubnormalsAsZero() { set(before_); }
  SubnormalsAsZero(const SubnormalsAsZero&) = delete;
  SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;

 private:
  /// FZ: operands and results. Whether a result is subnormal is seen before it is rounded, elsewhere afterwards.
  static constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;
  static void set(std::uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
  std::uint64_t before_;
};

#else

/// Unknown processors have the portable set only, which then agrees with itself: it keeps subnormals.
struct SubnormalsAsZero {};

#endif

#if defined(LLM_ISA_avx512)

inline __m512i load_elements(const BFloat16* p) { return _mm512_loadu_si512(p); }
inline __m512i load_first_elements(const BFloat16* p, int n) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((std::uint64_t{1} << n) - 1), p);
}

#if defined(LLM_ISA_avx512bf16)

inline constexpr int kPairSteps = 1;
using Pairs = __m512bh;

template <int step>
inline Pairs pairs_of(__m512i elements) {
  return reinterpret_cast<Pairs>(elements);
}
template <int step>
inline F32x16 add_pairs(F32x16 s, Pairs w, Pairs x) {
  return {_mm512_dpbf16_ps(s.v, w, x)};
}

#else

inline constexpr int kPairSteps = 2;
using Pairs = __m512;

template <int step>
inline Pairs pairs_of(__m512i elements) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_castsi512_ps(step == 0 ? _mm512_and_si512(elements, high) : _mm512_slli_epi32(elements, 16));
}
template <int step>
inline F32x16 add_pairs(F32x16 s, Pairs w, Pairs x) {
  return {_mm512_fmadd_ps(w, x, s.v)};
}

#endif

template <int step>
inline Pairs load_pairs(const BFloat16* p) {
  return pairs_of<step>(load_elements(p));
}
template <int step>
inline Pairs load_first_pairs(const BFloat16* p, int n) {
  return pairs_of<step>(load_first_elements(p, n));
}

#elif defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)

/// The lower eight lanes, then the upper ones.
inline constexpr int kPairSteps = 4;
using Pairs = __m256;

/// From memory in every step: a tile's sums leave no registers to keep elements for the next one.
template <int step>
inline Pairs load_pairs(const BFloat16* p) {
  __asm__ volatile("" : "+r"(p));
  const __m256i elements = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + (step < 2 ? 0 : 16)));
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  return _mm256_castsi256_ps(step % 2 == 0 ? _mm256_and_si256(elements, high) : _mm256_slli_epi32(elements, 16));
}
template <int step>
inline F32x16 add_pairs(F32x16 s, Pairs w, Pairs x) {
  if constexpr (step < 2) {
    return {_mm256_fmadd_ps(w, x, s.lo), s.hi};
  } else {
    return {s.lo, _mm256_fmadd_ps(w, x, s.hi)};
  }
}

#elif defined(LLM_ISA_neon)

/// Lanes four by four, each read once for both steps.
inline constexpr int kPairSteps = 8;
using Pairs = float32x4_t;

template <int step>
inline Pairs load_pairs(const BFloat16* p) {
  const uint32x4_t elements = vreinterpretq_u32_u16(load_8_words(p + step / 2 * 8));
  return vreinterpretq_f32_u32(step % 2 == 0 ? vandq_u32(elements, vdupq_n_u32(0xffff0000))
                                             : vshlq_n_u32(elements, 16));
}
template <int step>
inline F32x16 add_pairs(F32x16 s, Pairs w, Pairs x) {
  s.v[step / 2] = vfmaq_f32(s.v[step / 2], w, x);
  return s;
}

#else

inline constexpr int kPairSteps = 2;
using Pairs = F32x16;

template <int step>
inline Pairs load_pairs(const BFloat16* p) {
  BFloat16 elements[32];
  __builtin_memcpy(elements, p, sizeof elements);
  return each_lane([&](int i) { return to_float(elements[2 * i + (step == 0 ? 1 : 0)]); });
}
template <int step>
inline F32x16 add_pairs(F32x16 s, const Pairs& w, const Pairs& x) {
  return fma(w, x, s);
}

#endif

#if !defined(LLM_ISA_avx512)
template <int step>
inline Pairs load_first_pairs(const BFloat16* p, int n) {
  alignas(32) BFloat16 elements[32] = {};
  __builtin_memcpy(elements, p, static_cast<unsigned>(n) * sizeof(BFloat16));
  return load_pairs<step>(elements);
}
#endif

}  // namespace llm::cpu::LLM_ISA
