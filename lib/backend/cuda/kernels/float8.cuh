// E4M3 on the device (Float8E4M3 of base/half.h): its bits, and F16 numbers made of them.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/bits.cuh"

namespace llm::cuda {

inline constexpr float kMostF8 = 448;  ///< largest number of E4M3

/// What 1 is in the F16 numbers that f8_neighbours() and f8_twins() make: GPUs of capability 8.9 have an instruction
/// for that, others leave the exponents as they are. A power of 2, so that no bit of a result depends on it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr float kOneF8 = 1;
#else
inline constexpr float kOneF8 = 0x1p-8f;
#endif

#ifdef __CUDACC__

/// Two numbers to nearest even, the first in the low byte. Beyond 448 it is 448, infinities as well; NaN stays NaN.
__device__ __forceinline__ unsigned f8_pair(float2 x) { return __nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, __NV_E4M3); }
/// As to_float8_e4m3() has it: what is not finite is NaN.
__device__ __forceinline__ __nv_fp8_e4m3 to_f8(float x) {
  __nv_fp8_e4m3 y;
  y.__x = __nv_cvt_float_to_fp8(isfinite(x) ? x : __int_as_float(0x7fffffff), __NV_SATFINITE, __NV_E4M3);
  return y;
}

/// a * b of two F16 numbers each.
__device__ __forceinline__ std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
/// Two E4M3 as F16 times 2^-8, exactly: the bits without the sign are those of such an F16 (base/half.h). What stands
/// for NaN is then 480 2^-8. Times 35,008 that is infinite and 448 2^-8 is not; and 0 times it is added, which is NaN
/// or nothing. `signed_bytes`: permute_bytes() to a byte and its sign, twice. 5 instructions with that, of which the
/// two of floats leave the busiest unit alone.
__device__ __forceinline__ std::uint32_t f8_halves(std::uint32_t signed_bytes) {
  const std::uint32_t halves = signed_bytes << 7 & 0xbf80bf80u, large = multiply_halves(halves, 0x78467846u);
  std::uint32_t y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(large), "r"(0u), "r"(halves));
  return y;
}
/// Of elements `i` and `i` + 1 of a word, for i of 0 or 2.
__device__ __forceinline__ std::uint32_t f8_halves_of_word(std::uint32_t word, int i) {
  return f8_halves(permute_bytes(word, 0, i == 0 ? 0x9180u : 0xb3a2u));
}
/// Of elements `i` of two words.
__device__ __forceinline__ std::uint32_t f8_halves_of_words(std::uint32_t first, std::uint32_t second, int i) {
  return f8_halves(permute_bytes(first, second, 0xc480u + 0x1111u * static_cast<std::uint32_t>(i)));
}

#if __CUDA_ARCH__ >= 890
/// Two E4M3 as F16.
__device__ __forceinline__ std::uint32_t convert_f8(std::uint32_t pair) {
  std::uint32_t y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(static_cast<std::uint16_t>(pair)));
  return y;
}
#endif

/// Elements `i` and `i` + 1 of a word, for i of 0 or 2, in units of kOneF8.
__device__ __forceinline__ std::uint32_t f8_neighbours(std::uint32_t word, int i) {
#if __CUDA_ARCH__ >= 890
  return convert_f8(word >> (8 * i));
#else
  return f8_halves_of_word(word, i);
#endif
}
/// Elements `i` of two words, in units of kOneF8.
__device__ __forceinline__ std::uint32_t f8_twins(std::uint32_t first, std::uint32_t second, int i) {
#if __CUDA_ARCH__ >= 890
  return convert_f8(permute_bytes(first, second, 0x40u + 0x11u * static_cast<std::uint32_t>(i)));
#else
  return f8_halves_of_words(first, second, i);
#endif
}

/// Eight elements as F16.
__device__ __forceinline__ uint4 f8_eight(uint2 words) {
  const auto pair = [](std::uint32_t word, int i) {
    const std::uint32_t halves = f8_neighbours(word, i);
    return kOneF8 == 1 ? halves : multiply_halves(halves, 0x5c005c00u);
  };
  return make_uint4(pair(words.x, 0), pair(words.x, 2), pair(words.y, 0), pair(words.y, 2));
}

#endif  // __CUDACC__

}  // namespace llm::cuda
