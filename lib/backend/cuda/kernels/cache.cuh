// Rows of the cache on the device: eight elements decoded at a time, a block of 32 encoded by a warp. Decoding gives
// the values of lib/tensor's decoders, encoding the bytes of host::store_cache_row.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/float8.cuh"
#include "tensor/dtype.h"

namespace llm::cuda {

inline constexpr int kCacheBlock = 64;   ///< positions of a block of the cache
inline constexpr int kMaxHeadDim = 768;  ///< widest head

/// Where the rows of (block, KV head) begin; its 64 rows lie one behind the other.
LLM_HOST_DEVICE std::size_t cache_rows_offset(std::int64_t block, int kv_heads, int kv_head, int row_bytes) {
  return static_cast<std::size_t>((block * kv_heads + kv_head) * kCacheBlock) * static_cast<std::size_t>(row_bytes);
}

/// What a kernel is compiled for: the types that matter by themselves, everything else behind a switch.
enum class CacheSource { F16, BF16, F8, Q8_0, Any };

/// Bytes of a quantised type's block of 32 elements; 0 for the others.
LLM_HOST_DEVICE int cache_block_bytes(DType t) {
  switch (t) {
    case DType::Q8_0:
      return 34;
    case DType::Q4_0:
    case DType::IQ4_NL:
      return 18;
    case DType::Q4_1:
      return 20;
    case DType::Q5_0:
      return 22;
    case DType::Q5_1:
      return 24;
    default:
      return 0;
  }
}
/// Bytes of an element of a type without blocks; 0 for the others.
LLM_HOST_DEVICE int cache_element_bytes(DType t) {
  switch (t) {
    case DType::F32:
      return 4;
    case DType::F16:
    case DType::BF16:
      return 2;
    case DType::F8_E4M3:
      return 1;
    default:
      return 0;
  }
}
LLM_HOST_DEVICE int cache_row_bytes(DType t, int head_dim) {
  return head_dim / 32 * cache_block_bytes(t) + head_dim * cache_element_bytes(t);
}

/// Byte `i` of `word` less 128. A float with the byte as its low mantissa bits is 2^23 + the byte: a permutation and a
/// sum are cheaper than a conversion.
__device__ __forceinline__ float signed_byte(std::uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540u | static_cast<std::uint32_t>(i))) - (8388608.0f + 128);
}

__device__ __forceinline__ float2 widen_pair(std::uint32_t halves) {
  __half2_raw raw;
  raw.x = static_cast<unsigned short>(halves);
  raw.y = static_cast<unsigned short>(halves >> 16);
  return __half22float2(__half2(raw));
}
__device__ __forceinline__ void widen_halves(const uint4& w, float (&x)[8]) {
  const std::uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = widen_pair(words[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}
__device__ __forceinline__ std::uint32_t bytes2(const unsigned char* p) {
  return *reinterpret_cast<const std::uint16_t*>(p);
}

/// Elements e0 .. e0 + 7 of a Q8_0 row in shared memory, e0 a multiple of 8. Blocks of 34 bytes leave quants at even
/// addresses only: three aligned words are read and shifted, up to 4 bytes beyond the row.
__device__ __forceinline__ void decode8_q8_0(const unsigned char* row, int e0, float (&x)[8]) {
  const unsigned char* const block = row + e0 / 32 * 34;
  const float d = half_to_float(bytes2(block));
  const unsigned char* const quants = block + 2 + e0 % 32;
  const std::uint32_t beyond = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(quants)) & 3u;
  const auto* const words = reinterpret_cast<const std::uint32_t*>(quants - beyond);
  const std::uint32_t shift = beyond * 8;
  const std::uint32_t w0 = words[0], w1 = words[1], w2 = words[2];
  const std::uint32_t low = __funnelshift_r(w0, w1, shift) ^ 0x80808080u;  // q + 128
  const std::uint32_t high = __funnelshift_r(w1, w2, shift) ^ 0x80808080u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = d * signed_byte(low, i);
    x[4 + i] = d * signed_byte(high, i);
  }
}

/// Elements e0 .. e0 + 7 of a row of E4M3, those from `dim` on 0. Rows of a multiple of 8 begin at a multiple of 8.
__device__ __forceinline__ void decode8_f8(const unsigned char* row, int e0, int dim, float (&x)[8]) {
  std::uint32_t words[2] = {};
  if (dim % 8 == 0) {
    const uint2 w = *reinterpret_cast<const uint2*>(row + e0);
    words[0] = w.x, words[1] = w.y;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (e0 + i < dim) words[i / 4] |= std::uint32_t{row[e0 + i]} << (8 * (i % 4));
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float2 pair = widen_pair(f8_neighbours(words[i / 4], i % 4));
    x[i] = pair.x * (1 / kOneF8);
    x[i + 1] = pair.y * (1 / kOneF8);
  }
}

/// Value of a nibble type's quant before its scale.
__device__ __forceinline__ float iq4_value(int q) {
  // lib/tensor/codebooks.h: kValuesIQ4, four to a word, lowest byte first
  const std::uint32_t word = q < 8 ? (q < 4 ? 0xbfad9881u : 0xf6eaddcfu) : (q < 12 ? 0x26190d01u : 0x71594535u);
  return static_cast<float>(static_cast<std::int8_t>(word >> (8 * (q & 3))));
}

/// Types of 4 and 5 bits; e0 a multiple of 8. Every product and sum is rounded by itself, as lib/tensor does.
__device__ __forceinline__ void decode8_nibbles(DType t, const unsigned char* row, int e0, float (&x)[8]) {
  const unsigned char* const block = row + e0 / 32 * cache_block_bytes(t);
  const bool has_min = t == DType::Q4_1 || t == DType::Q5_1;
  const bool fifth = t == DType::Q5_0 || t == DType::Q5_1;
  const float d = half_to_float(bytes2(block));
  const float m = has_min ? half_to_float(bytes2(block + 2)) : 0.0f;
  const unsigned char* const qh = block + (has_min ? 4 : 2);
  const unsigned char* const qs = qh + (fifth ? 4 : 0);
  const int in_block = e0 % 32;
  const std::uint32_t high_bits = fifth ? qh[in_block / 8] : 0u;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t byte = qs[in_block % 16 + i];
    int q = static_cast<int>(in_block < 16 ? byte & 15u : byte >> 4);
    q |= static_cast<int>(high_bits >> i & 1u) << 4;
    if (t == DType::IQ4_NL) {
      x[i] = __fmul_rn(d, iq4_value(q));
    } else if (has_min) {
      x[i] = __fadd_rn(__fmul_rn(d, static_cast<float>(q)), m);
    } else {
      x[i] = __fmul_rn(d, static_cast<float>(q - (fifth ? 16 : 8)));
    }
  }
}

/// Elements e0 .. e0 + 7 of a row; e0 a multiple of 8 below `dim`, elements from `dim` on are 0. Of F16 and BF16 as
/// themselves (not Any), dim is a multiple of 8 and rows begin at multiples of 16 bytes; otherwise of what an element
/// takes, or of 2 where there are blocks.
template <CacheSource kSource>
__device__ __forceinline__ void decode8(DType t, const unsigned char* row, int e0, int dim, float (&x)[8]) {
  if constexpr (kSource == CacheSource::F16) {
    widen_halves(*reinterpret_cast<const uint4*>(row + 2 * e0), x);
  } else if constexpr (kSource == CacheSource::BF16) {
    const uint4 w = *reinterpret_cast<const uint4*>(row + 2 * e0);
    const std::uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = __uint_as_float(words[i] << 16);
      x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  } else if constexpr (kSource == CacheSource::Q8_0) {
    decode8_q8_0(row, e0, x);
  } else {
    if (t == DType::Q8_0) {
      decode8_q8_0(row, e0, x);
    } else if (t == DType::F8_E4M3) {
      decode8_f8(row, e0, dim, x);
    } else if (t == DType::F32 || t == DType::F16 || t == DType::BF16) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = 0;
        if (e0 + i >= dim) continue;
        if (t == DType::F32) {
          x[i] = reinterpret_cast<const float*>(row)[e0 + i];
        } else {
          const std::uint32_t bits = bytes2(row + 2 * (e0 + i));
          x[i] = t == DType::F16 ? half_to_float(bits) : __uint_as_float(bits << 16);
        }
      }
    } else {
      decode8_nibbles(t, row, e0, x);
    }
  }
}

/// As decode8() does, but reads of a row in memory nothing beyond it.
__device__ __forceinline__ void decode8_in_memory(DType type, const unsigned char* row, int e0, int dim,
                                                  float (&x)[8]) {
  if (type != DType::Q8_0) return decode8<CacheSource::Any>(type, row, e0, dim, x);
  const unsigned char* const block = row + e0 / 32 * 34;
  const unsigned char* const quants = block + 2 + e0 % 32;
  const float d = half_to_float(bytes2(block));
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const std::uint32_t word = (bytes2(quants + i) | bytes2(quants + i + 2) << 16) ^ 0x80808080u;
#pragma unroll
    for (int j = 0; j < 4; ++j) x[i + j] = d * signed_byte(word, j);
  }
}

/// Of 32 elements whose largest magnitude has these bits, as round_trip_activation() rounds them.
__device__ __forceinline__ float rounded_q8x32(float x, int bits) {
  if (bits >= 0x7f800000) return __int_as_float(0x7fffffff);
  const float amax = __int_as_float(bits);
  if (amax < 0x1p-100f) return 0.0f;
  const float q = rintf(__fmul_rn(x, __fdiv_rn(127.0f, amax)));
  return __fmul_rn(__fdiv_rn(amax, 127.0f), q);
}
/// Queries are rounded so, 32 elements at a time, one per lane.
__device__ __forceinline__ float round_q8x32(float x) {
  int bits = __float_as_int(x) & 0x7fffffff;
  for (int offset = 16; offset > 0; offset /= 2) bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, offset));
  return rounded_q8x32(x, bits);
}

}  // namespace llm::cuda
