// Integer vectors for the products of quantised weights: one register of kLanes 128-bit lanes, in each of which the
// same happens. A header per register width: 512 bits with VNNI (quant_vec_avx512.h, which says what each function
// means), 256 with or without (quant_vec_avx2.h), 128 on Arm (quant_vec_neon.h). Not defined (LLM_QUANT_SIMD) for the
// portable set. They differ in how bytes are multiplied:
//   kKeepsBias   weights are unsigned bytes: those of types with a bias are stored with it. Else they are signed, but
//                for small ones of AVX2 (stores_bias(), kStreamsBias)
//   kSums32      four products are added up in an int32 at once; else two in an int16
#pragma once

#if defined(LLM_ISA_avx512) || defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni) || defined(LLM_ISA_neon)
#define LLM_QUANT_SIMD 1

#include <cstddef>
#include <cstdint>

#define LLM_INLINE [[gnu::always_inline]] inline
#define LLM_LAMBDA __attribute__((always_inline))  // an attribute of a lambda's function has no other place in C++20

namespace llm::cpu::LLM_ISA::quant {

using u8 = std::uint8_t;
using i64 = std::int64_t;

template <class T>
LLM_INLINE T load_number(const void* p) {
  T x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
LLM_INLINE std::uint16_t load_u16(const void* p) { return load_number<std::uint16_t>(p); }
LLM_INLINE int load_i32(const void* p) { return load_number<int>(p); }
LLM_INLINE long long load_i64(const void* p) { return load_number<long long>(p); }

}  // namespace llm::cpu::LLM_ISA::quant

#if defined(LLM_ISA_avx512)
#include "backend/cpu/kernels/quant_vec_avx512.h"
#elif defined(LLM_ISA_neon)
#include "backend/cpu/kernels/quant_vec_neon.h"
#else
#include "backend/cpu/kernels/quant_vec_avx2.h"
#endif

namespace llm::cpu::LLM_ISA::quant {

inline constexpr i64 kVectorBytes = sizeof(V);

/// Lane b is the 16 bytes at at(b).
template <class At>
LLM_INLINE V lanes(const At& at) {
  return join([&](int b) LLM_LAMBDA { return load16(at(b)); });
}
/// Lane b is the 8 bytes at at(b), then zeros.
template <class At>
LLM_INLINE V lanes8(const At& at) {
  return join([&](int b) LLM_LAMBDA { return load8(at(b)); });
}
/// Lane b is the 4 bytes at at(b), then zeros.
template <class At>
LLM_INLINE V lanes4(const At& at) {
  return join([&](int b) LLM_LAMBDA { return load4(at(b)); });
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
/// In each lane: the sums of neighbouring elements of a, then of b.
LLM_INLINE V sum2(V a, V b) { return add32(even32(a, b), odd32(a, b)); }
LLM_INLINE F sum2(F a, F b) { return add(as_f(even32(bits(a), bits(b))), as_f(odd32(bits(a), bits(b)))); }
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