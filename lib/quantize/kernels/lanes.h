// Vectors of f32 as wide as the registers of the instruction set, and what the searches do with them. A lane is one
// group of elements under one scale, so that nothing is ever summed across lanes and the width changes no result.
#pragma once

#include <cstdint>

namespace llm::quantizers::LLM_ISA {

#if defined(LLM_ISA_avx512)
inline constexpr int kLanes = 16;
#elif defined(LLM_ISA_avx2)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

using Floats [[gnu::vector_size(4 * kLanes)]] = float;
using Ints [[gnu::vector_size(4 * kLanes)]] = std::int32_t;

inline Floats all(float x) { return x - Floats{}; }  // x - 0 keeps the sign of a zero
inline Floats load(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }

inline Floats greater(Floats a, Floats b) { return a > b ? a : b; }
inline Floats lesser(Floats a, Floats b) { return a < b ? a : b; }
inline Floats clamp(Floats x, float low, float high) { return lesser(greater(x, all(low)), all(high)); }
inline Floats abs(Floats x) { return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & 0x7fffffff); }

/// To the nearest integer, ties to even; |x| < 2^22.
inline Floats round(Floats x) {
  constexpr float kMagic = 0x1.8p23f;  // from here on the last bit of the mantissa counts one
  return (x + kMagic) - kMagic;
}

/// a / b, and 0 where b is 0.
inline Floats ratio(Floats a, Floats b) {
  const Floats none = {};
  return b == none ? none : a / (b == none ? all(1.0f) : b);
}

}  // namespace llm::quantizers::LLM_ISA
