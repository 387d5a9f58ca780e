// Bytes, numbers of 16 bits and floats by their bits: where it can be, what an instruction does on the device, also on
// the host, where layouts are tested.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "backend/cuda/kernels/act_layout.h"
#include "base/half.h"

namespace llm::cuda {

/// Byte i of the result is byte (selector >> 4i) % 8 of b:a, or, where bit 3 of that is set, eight copies of its sign.
LLM_HOST_DEVICE std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  std::uint32_t v;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(selector));
  return v;
#else
  const std::uint64_t both = (static_cast<std::uint64_t>(b) << 32) | a;
  std::uint32_t v = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i) & 0xf;
    const auto byte = static_cast<std::uint32_t>(both >> (8 * (s & 7)) & 0xff);
    v |= (s & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return v;
#endif
}

LLM_HOST_DEVICE float half_to_float(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
#else
  return to_float(Half{static_cast<std::uint16_t>(bits)});
#endif
}
LLM_HOST_DEVICE float bits_to_float(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
#endif
}

#ifdef __CUDACC__

/// As to_half() and to_bfloat16() have it: of what is not a number its sign is kept, and that it is none.
__device__ __forceinline__ std::uint16_t half_bits(float x) {
  if (isnan(x)) return static_cast<std::uint16_t>((__float_as_uint(x) >> 16 & 0x8000u) | 0x7e00u);
  return __half_raw(__float2half_rn(x)).x;
}
__device__ __forceinline__ std::uint16_t bfloat16_bits(float x) {
  if (isnan(x)) return static_cast<std::uint16_t>(__float_as_uint(x) >> 16 | 0x40u);
  return __nv_bfloat16_raw(__float2bfloat16_rn(x)).x;
}

/// Two numbers as operands have them, the first in the lower half. What is not a number is some NaN.
__device__ __forceinline__ std::uint32_t pack_halves(float low, float high) {
  const __half2_raw raw = __floats2half2_rn(low, high);
  return raw.x | static_cast<std::uint32_t>(raw.y) << 16;
}
/// Such a pair times a number of F16.
__device__ __forceinline__ std::uint32_t scaled_halves(std::uint32_t pair, float factor) {
  const __half2_raw halves = {static_cast<std::uint16_t>(pair), static_cast<std::uint16_t>(pair >> 16)};
  const __half2_raw raw = __hmul2(halves, __float2half2_rn(factor));
  return raw.x | static_cast<std::uint32_t>(raw.y) << 16;
}
/// Of F16 or BF16.
template <bool kBFloat16>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (kBFloat16) {
    const __nv_bfloat162_raw raw = __floats2bfloat162_rn(low, high);
    return raw.x | static_cast<std::uint32_t>(raw.y) << 16;
  } else {
    return pack_halves(low, high);
  }
}

#endif  // __CUDACC__

}  // namespace llm::cuda
