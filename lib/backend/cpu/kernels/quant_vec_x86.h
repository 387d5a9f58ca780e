// 128-bit lanes of integers on x86-64, for the registers of quant_vec_avx512.h and quant_vec_avx2.h.
#pragma once

#include "backend/cpu/kernels/intrinsics.h"

namespace llm::cpu::LLM_ISA::quant {

using Lane = __m128i;

LLM_INLINE Lane load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
LLM_INLINE Lane load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }  ///< then zeros
LLM_INLINE Lane load4(const void* p) { return _mm_cvtsi32_si128(load_i32(p)); }                   ///< then zeros
LLM_INLINE Lane load8_twice(const void* low, const void* high) {
  return _mm_insert_epi64(load8(low), load_i64(high), 1);
}
LLM_INLINE Lane load4_each(const void* a, const void* b, const void* c, const void* d) {
  return _mm_insert_epi32(_mm_insert_epi32(_mm_insert_epi32(load4(a), load_i32(b), 1), load_i32(c), 2), load_i32(d), 3);
}

/// A lane of these elements, or of one repeated.
template <class... X>
LLM_INLINE Lane bytes_16(X... x) {
  return _mm_setr_epi8(static_cast<char>(x)...);
}
template <class... X>
LLM_INLINE Lane words_8(X... x) {
  return _mm_setr_epi16(static_cast<short>(x)...);
}
LLM_INLINE Lane words_8(int x) { return _mm_set1_epi16(static_cast<short>(x)); }
LLM_INLINE Lane ints_4(int a, int b, int c, int d) { return _mm_setr_epi32(a, b, c, d); }
LLM_INLINE Lane ints_4(int x) { return _mm_set1_epi32(x); }
LLM_INLINE Lane longs_2(std::uint64_t x) { return _mm_set1_epi64x(static_cast<long long>(x)); }

/// Asks for the cache line at p, in the first cache or in the second.
LLM_INLINE void fetch_near(const u8* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }
LLM_INLINE void fetch_far(const u8* p) { __asm__ volatile("prefetcht1 %0" : : "m"(*p)); }
/// The same where the compiler may place it. It keeps the order of assembly, and what it had to hold meanwhile costs
/// unpacking up to a fifth; but in a function that does nothing else, it drops these.
template <bool near>
LLM_INLINE void fetch_scheduled(const u8* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), near ? _MM_HINT_T0 : _MM_HINT_T1);
}
/// In the first cache if `near`, else in the second. The choice is the assembler's: one that the compiler saw would
/// tear the code around it into pieces.
LLM_INLINE void fetch_to(bool near, const u8* p) {
  __asm__ volatile(
      "testb %0, %0\n\tjz 1f\n\tprefetcht0 %1\n0:\n\t.subsection 1\n1:\tprefetcht1 %1\n\tjmp 0b\n\t.previous"
      :
      : "q"(near), "m"(*p)
      : "cc");
}
LLM_INLINE void fetch_to_write(const float* p) { __asm__ volatile("prefetchw %0" : : "m"(*p)); }

}  // namespace llm::cpu::LLM_ISA::quant
