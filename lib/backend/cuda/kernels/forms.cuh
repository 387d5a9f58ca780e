// Rows in the forms that products take: device functions of one warp, which owns 256 neighbouring elements of a row.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/float8.cuh"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/rows.h"

namespace llm::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// A lane's part of a block: elements 4 lane .. 4 lane + 3 and 128 + 4 lane .. 128 + 4 lane + 3, so that the loads of a
/// warp are whole lines and four neighbouring codes, which stay neighbours in act_layout.h, are one store.
struct BlockPart {
  float4 low, high;
};

/// What the word `lane` (4 .. 15) of a ColumnBlock is made of: four sums of the block's half `half`, which lie in the
/// lanes source(0) .. source(3), in their low or their high parts.
struct SumWord {
  int first, stride, half;
  bool high;
  LLM_HOST_DEVICE int source(int i) const { return first + stride * i; }
};
LLM_HOST_DEVICE SumWord sum_word(int lane) {
  // Words 4-7: low32, high32, two words each; any lane of 8 neighbours has the sum of their 32 codes, the second is
  // read. Words 8-15: low16, high16, four words each; the first of 4 neighbours has the sum of their 16 codes.
  if (lane < 8) return {1, 8, lane & 1, (lane & 2) != 0};
  return {(lane & 1) * 16, 4, (lane >> 1) & 1, (lane & 4) != 0};
}
/// Two sums of less than 2^15 in one word, which add up like two.
LLM_HOST_DEVICE int pack_sums(int low, int high) { return low + high * 65536; }
LLM_HOST_DEVICE int packed_low(int sums) { return static_cast<std::int16_t>(sums & 0xffff); }
LLM_HOST_DEVICE int packed_high(int sums) { return (sums - packed_low(sums)) >> 16; }
/// A byte of ColumnBlock's low or high sums.
LLM_HOST_DEVICE unsigned sum_byte(int sum, bool high) {
  return static_cast<unsigned>(high ? sum >> 7 : sum & 0x7f) & 0xffu;
}

/// The power of two (its exponent, negated) that brings finite magnitudes of at most the float with these bits to 32768
/// or less; 0 if they already are.
LLM_HOST_DEVICE int half_exponent(unsigned largest_bits) {
  if (largest_bits <= 0x47000000u) return 0;
  return static_cast<int>(largest_bits >> 23) - 142 + ((largest_bits & 0x7fffffu) != 0 ? 1 : 0);
}

#ifdef __CUDACC__

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x % kWarp); }

/// Elements k .. k+3 of a row of n; zeros beyond its end. `wide`: rows are multiples of 4 and aligned to 16 bytes.
__device__ __forceinline__ float4 load_quad(const float* row, int k, int n, bool wide) {
  float4 v = make_float4(0, 0, 0, 0);
  if (wide) {
    if (k < n) v = *reinterpret_cast<const float4*>(row + k);
    return v;
  }
  if (k < n) v.x = row[k];
  if (k + 1 < n) v.y = row[k + 1];
  if (k + 2 < n) v.z = row[k + 2];
  if (k + 3 < n) v.w = row[k + 3];
  return v;
}
__device__ __forceinline__ void store_quad(float* row, int k, int n, bool wide, float4 v) {
  if (wide) {
    if (k < n) *reinterpret_cast<float4*>(row + k) = v;
    return;
  }
  if (k < n) row[k] = v.x;
  if (k + 1 < n) row[k + 1] = v.y;
  if (k + 2 < n) row[k + 2] = v.z;
  if (k + 3 < n) row[k + 3] = v.w;
}
__device__ __forceinline__ BlockPart load_part(const float* row, int block, int n, bool wide) {
  const int k = block * kBlockK + 4 * lane_id();
  return {load_quad(row, k, n, wide), load_quad(row, k + kBlockK / 2, n, wide)};
}

/// Past the first cache, which may hold what an earlier step had in the same place. Zeros behind the row's end;
/// rows are aligned to 16 bytes.
__device__ __forceinline__ BlockPart load_fresh_part(const float* row, int block, int k) {
  const auto quad = [&](int i) {
    return i < k ? __ldcg(reinterpret_cast<const float4*>(row + i)) : make_float4(0, 0, 0, 0);
  };
  const int first = block * kBlockK + 4 * lane_id();
  return {quad(first), quad(first + kBlockK / 2)};
}

__device__ __forceinline__ void store_part(float* row, int block, int n, bool wide, const BlockPart& v) {
  const int k = block * kBlockK + 4 * lane_id();
  store_quad(row, k, n, wide, v.low);
  store_quad(row, k + kBlockK / 2, n, wide, v.high);
}

template <class F>
__device__ __forceinline__ float4 map(float4 a, F f) {
  return make_float4(f(a.x), f(a.y), f(a.z), f(a.w));
}
template <class F>
__device__ __forceinline__ float4 map(float4 a, float4 b, F f) {
  return make_float4(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w));
}
template <class F>
__device__ __forceinline__ BlockPart map(const BlockPart& a, const BlockPart& b, F f) {
  return {map(a.low, b.low, f), map(a.high, b.high, f)};
}

/// a / b, rounded to nearest as IEEE has it, for b of magnitude 2^-100 .. 2^126 where both a and the quotient are
/// finite and of magnitude 2^-100 or more; below that the last bit may differ, and zero loses its sign. The compiler's
/// division is the same steps with a branch for all other operands, behind which the next division waits.
__device__ __forceinline__ float quotient(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  r = fmaf(r, fmaf(-b, r, 1.0f), r);
  float q = a * r;
  q = fmaf(r, fmaf(-b, q, a), q);
  return fmaf(r, fmaf(-b, q, a), q);
}

/// Magnitudes as bits order like the magnitudes, with infinity and NaN above all finite ones.
__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ unsigned largest_bits(float4 v) {
  return max(max(magnitude_bits(v.x), magnitude_bits(v.y)), max(magnitude_bits(v.z), magnitude_bits(v.w)));
}
inline constexpr unsigned kInfinityBits = 0x7f800000u;
__device__ __forceinline__ unsigned finite_bits(float x) {
  const unsigned bits = magnitude_bits(x);
  return bits < kInfinityBits ? bits : 0;
}
/// Of the elements that are finite.
__device__ __forceinline__ unsigned largest_finite_bits(const BlockPart& v) {
  const unsigned low =
      max(max(finite_bits(v.low.x), finite_bits(v.low.y)), max(finite_bits(v.low.z), finite_bits(v.low.w)));
  return max(low,
             max(max(finite_bits(v.high.x), finite_bits(v.high.y)), max(finite_bits(v.high.z), finite_bits(v.high.w))));
}

/// quantize_activation_block's scale of a block whose largest magnitude has these bits.
struct CodeScale {
  float scale, inverse;
  unsigned live;  ///< all bits; 0 where all codes are 0
};
__device__ __forceinline__ CodeScale code_scale(unsigned largest) {
  constexpr unsigned kSmallestAmaxBits = (127u - 100u) << 23;  // 2^-100
  constexpr unsigned kLargestAmaxBits = (127u + 100u) << 23;
  // Without a branch, so that blocks go side by side. What is divided by stays where quotient() is exact.
  const bool finite = largest < kInfinityBits, live = finite && largest >= kSmallestAmaxBits;
  const float amax = __uint_as_float(largest), down = largest > kLargestAmaxBits ? 0x1p-64f : 1.0f;
  const float scale = quotient(amax, 127.0f), inverse = quotient(127.0f, amax * down) * down;
  return {live ? scale : finite ? 0.0f : __uint_as_float(0x7fc00000u), live ? inverse : 0.0f, live ? ~0u : 0u};
}

/// Four codes as bytes. The addition leaves the integer, rounded to nearest even, in the low bits of the mantissa.
__device__ __forceinline__ unsigned quantize_quad(float4 v, const CodeScale& s) {
  constexpr float kShift = 0x1.8p23f;
  const auto code = [&](float x) { return __float_as_uint(__fadd_rn(__fmul_rn(x, s.inverse), kShift)); };
  const unsigned first = __byte_perm(code(v.x), code(v.y), 0x0040), second = __byte_perm(code(v.z), code(v.w), 0x0040);
  return __byte_perm(first, second, 0x5410) & s.live;
}
__device__ __forceinline__ int sum_of_codes(unsigned codes) { return __dp4a(static_cast<int>(codes), 0x01010101, 0); }

__device__ __forceinline__ void store_codes(std::byte* q, int row, int block, int n, unsigned low, unsigned high) {
  std::byte* const codes = q + codes_offset(row / kColumns, block, n);
  const int k = 4 * lane_id(), column = row % kColumns;
  *reinterpret_cast<unsigned*>(codes + code_offset(k, column)) = low;
  *reinterpret_cast<unsigned*>(codes + code_offset(k + kBlockK / 2, column)) = high;
}

/// A lane's codes of a block with one scale.
struct CodesOf256 {
  unsigned low, high;
  float scale;
  CodesOf256() = default;
  __device__ __forceinline__ explicit CodesOf256(const BlockPart& v) {
    const CodeScale s = code_scale(__reduce_max_sync(kWholeWarp, max(largest_bits(v.low), largest_bits(v.high))));
    low = quantize_quad(v.low, s), high = quantize_quad(v.high, s);
    scale = s.scale;
  }
  /// Word lane_id() of the block's ColumnBlock, for lanes 4 .. 15.
  __device__ __forceinline__ unsigned sums_word() const {
    int of16 = pack_sums(sum_of_codes(low), sum_of_codes(high));
    of16 += __shfl_xor_sync(kWholeWarp, of16, 1);
    of16 += __shfl_xor_sync(kWholeWarp, of16, 2);
    const int of32 = of16 + __shfl_xor_sync(kWholeWarp, of16, 4);
    const int offered = lane_id() % 4 == 1 ? of32 : of16;
    const SumWord from = sum_word(lane_id());
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int sums = __shfl_sync(kWholeWarp, offered, from.source(i) % kWarp);
      word |= sum_byte(from.half != 0 ? packed_high(sums) : packed_low(sums), from.high) << (8 * i);
    }
    return word;
  }
};

__device__ __forceinline__ void write_q8x256(std::byte* q, int capacity, int row, int block, int n,
                                             const BlockPart& v) {
  const CodesOf256 codes(v);
  store_codes(q, row, block, n, codes.low, codes.high);
  unsigned word = codes.sums_word();
  if (lane_id() < 4) word = lane_id() == 0 ? __float_as_uint(codes.scale) : 0;
  if (lane_id() >= 16) return;
  std::byte* const scales = q + scales_offset(ActFormat::Q8x256, row / kColumns, block, n, capacity);
  reinterpret_cast<unsigned*>(scales + row % kColumns * sizeof(ColumnBlock))[lane_id()] = word;
}

__device__ __forceinline__ unsigned max_of_8_lanes(unsigned x) {
  for (int width = 1; width < 8; width *= 2) x = max(x, __shfl_xor_sync(kWholeWarp, x, width));
  return x;
}

/// A lane's codes of a block with a scale for each 32: those of its low part are of step lane_id() / 8, those of its
/// high one of the step 4 further on.
struct CodesOf32 {
  unsigned low, high;
  float low_scale, high_scale;
  CodesOf32() = default;
  __device__ __forceinline__ explicit CodesOf32(const BlockPart& v) {
    const CodeScale of_low = code_scale(max_of_8_lanes(largest_bits(v.low)));
    const CodeScale of_high = code_scale(max_of_8_lanes(largest_bits(v.high)));
    low = quantize_quad(v.low, of_low), high = quantize_quad(v.high, of_high);
    low_scale = of_low.scale, high_scale = of_high.scale;
  }
};

__device__ __forceinline__ void write_q8x32(std::byte* q, int capacity, int row, int block, int n, const BlockPart& v) {
  const CodesOf32 codes(v);
  store_codes(q, row, block, n, codes.low, codes.high);

  if (lane_id() % 8 != 0) return;
  std::byte* const scales = q + scales_offset(ActFormat::Q8x32, row / kColumns, block, n, capacity);
  const auto store = [&](int step, float scale) {
    *reinterpret_cast<StepScale*>(scales + (step * kColumns + row % kColumns) * sizeof(StepScale)) = {scale};
  };
  store(lane_id() / 8, codes.low_scale);
  store(kSteps / 2 + lane_id() / 8, codes.high_scale);
}

/// To nearest even; NaN stays NaN.
__device__ __forceinline__ float round_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned rounded = magnitude_bits(x) > kInfinityBits ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  return __uint_as_float(rounded & 0xffff0000u);
}

__device__ __forceinline__ float half_factor(unsigned largest) {
  return __uint_as_float(static_cast<unsigned>(127 - half_exponent(largest)) << 23);
}
__device__ __forceinline__ float half_unscale(unsigned largest) {
  return __uint_as_float(static_cast<unsigned>(127 + half_exponent(largest)) << 23);
}
__device__ __forceinline__ void store_half_quad(__half* row, int k, int n, bool wide, float4 v, float factor) {
  const __half2 first = __floats2half2_rn(v.x * factor, v.y * factor);
  const __half2 second = __floats2half2_rn(v.z * factor, v.w * factor);
  if (wide) {
    if (k >= n) return;
    uint2 words;
    words.x = *reinterpret_cast<const unsigned*>(&first);
    words.y = *reinterpret_cast<const unsigned*>(&second);
    *reinterpret_cast<uint2*>(row + k) = words;
    return;
  }
  if (k < n) row[k] = __low2half(first);
  if (k + 1 < n) row[k + 1] = __high2half(first);
  if (k + 2 < n) row[k + 2] = __low2half(second);
  if (k + 3 < n) row[k + 3] = __high2half(second);
}

/// What rounding to F16 leaves of a number times its row's factor; 0 where that is not finite.
__device__ __forceinline__ float half_rest(float x) {
  const float rest = x - __half2float(__float2half_rn(x));
  return rest == rest ? rest / kRestUnit : 0.0f;
}
__device__ __forceinline__ float4 half_rests(float4 v, float factor) {
  return map(v, [=](float x) { return half_rest(x * factor); });
}

/// Elements k .. k + 3.
__device__ __forceinline__ void store_panel_quad(std::byte* panels, int lines, int row, int k, float4 v, float factor) {
  const __half2 first = __floats2half2_rn(v.x * factor, v.y * factor);
  const __half2 second = __floats2half2_rn(v.z * factor, v.w * factor);
  *reinterpret_cast<__half2*>(panels + half_panels_offset(k, row, lines)) = first;
  *reinterpret_cast<__half2*>(panels + half_panels_offset(k + 2, row, lines)) = second;
}

/// What a row whose largest finite magnitude has these bits is divided by to be E4M3; 1 of a row of zeros.
__device__ __forceinline__ float f8_scale(unsigned largest) {
  constexpr unsigned kSmallest = (127u - 100u) << 23;  // 2^-100: below, the inverse overflows
  return largest < kSmallest ? 1.0f : __uint_as_float(largest) / kMostF8;
}
/// Rounded to nearest even. What is not finite becomes NaN: its difference from itself is.
__device__ __forceinline__ unsigned f8_pair(float x, float y, float inverse) {
  return f8_pair(make_float2(fmaf(x, inverse, x - x), fmaf(y, inverse, y - y)));
}
__device__ __forceinline__ unsigned f8_quad(float4 v, float inverse) {
  return __byte_perm(f8_pair(v.x, v.y, inverse), f8_pair(v.z, v.w, inverse), 0x5410);
}
/// Rows are multiples of 16.
__device__ __forceinline__ void store_f8_quad(unsigned char* row, int k, int n, float4 v, float inverse) {
  if (k < n) *reinterpret_cast<unsigned*>(row + k) = f8_quad(v, inverse);
}

/// Writes a block (one that begins inside the row) in all forms asked for. Called by whole warps. v is 0 beyond the
/// row's end; `largest` are largest_finite_bits() of the whole row and matter to F16 and E4M3 only. `kFew`: only f32
/// and codes are asked for.
template <bool kFew>
__device__ __forceinline__ void write_part(const Forms& y, int row, int block, int n, bool wide, const BlockPart& v,
                                           unsigned largest) {
  const std::int64_t begin = static_cast<std::int64_t>(row) * n;
  if (y.q8x256 != nullptr) write_q8x256(y.q8x256, y.capacity, row, block, n, v);
  if (y.q8x32 != nullptr) write_q8x32(y.q8x32, y.capacity, row, block, n, v);
  if (y.f32 != nullptr) store_part(y.f32 + begin, block, n, wide, v);
  if constexpr (kFew) return;
  if (y.rounded_bf16 != nullptr)
    store_part(y.rounded_bf16 + begin, block, n, wide, {map(v.low, round_to_bf16), map(v.high, round_to_bf16)});
  if (y.f16 != nullptr) {
    const int k = block * kBlockK + 4 * lane_id(), next = k + kBlockK / 2;
    __half* const half = static_cast<__half*>(y.f16) + begin;
    store_half_quad(half, k, n, wide, v.low, half_factor(largest));
    store_half_quad(half, next, n, wide, v.high, half_factor(largest));
    if (y.f16_rest != nullptr) {
      __half* const rest = static_cast<__half*>(y.f16_rest) + begin;
      store_half_quad(rest, k, n, wide, half_rests(v.low, half_factor(largest)), 1.0f);
      store_half_quad(rest, next, n, wide, half_rests(v.high, half_factor(largest)), 1.0f);
    }
  }
  if (y.f16_panels != nullptr) {
    const int k = block * kBlockK + 4 * lane_id(), lines = static_cast<int>(panel_lines(y.capacity));
    store_panel_quad(y.f16_panels, lines, row, k, v.low, half_factor(largest));
    store_panel_quad(y.f16_panels, lines, row, k + kBlockK / 2, v.high, half_factor(largest));
  }
  if (y.f8 != nullptr) {
    const int k = block * kBlockK + 4 * lane_id();
    unsigned char* const bytes = static_cast<unsigned char*>(y.f8) + begin;
    const float inverse = 1.0f / f8_scale(largest);
    store_f8_quad(bytes, k, n, v.low, inverse);
    store_f8_quad(bytes, k + kBlockK / 2, n, v.high, inverse);
  }
}

#endif  // __CUDACC__

}  // namespace llm::cuda
