// Storing keys and values in the paged cache.
//
// A warp takes 32 neighbouring elements of a row, one per lane: a block of the quantised types. A token of 8 KV heads
// of 128 is 64 warps for 8 KB read: the kernel's time is that of its launch; a prompt of 8,192 tokens moves 64 MB of
// f32 and half as much F16, 95 MB, 21 us at the read limit.
#include <algorithm>

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/select_keys.h"

namespace llm::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

// --- lib/tensor/rounding.h, on the device ---

__device__ std::uint16_t finite_half(float x) {
  return half_bits(x < -65504.0f ? -65504.0f : x > 65504.0f ? 65504.0f : x);
}
__device__ float inverse(float x) { return fabsf(x) < 1.17549435e-38f ? 0.0f : 1.0f / x; }
__device__ int round_between(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return low;
  if (x >= static_cast<float>(high)) return high;
  return __float2int_rn(x);
}
__device__ int nearest_iq4(float x) {
  x = x < -128.0f ? -128.0f : x > 128.0f ? 128.0f : x;
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    if (fabsf(x - iq4_value(i)) < fabsf(x - iq4_value(best))) best = i;
  }
  return best;
}

// --- over a warp, an element per lane ---

__device__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, offset));
  return x;
}
/// The first value of the largest magnitude, with its sign.
__device__ float extreme(float x) {
  const float largest = warp_max(fabsf(x));
  return __shfl_sync(kAll, x, __ffs(static_cast<int>(__ballot_sync(kAll, fabsf(x) == largest))) - 1);
}
/// The first of the smallest values.
__device__ float first_min(float x) {
  const float least = -warp_max(-x);
  return __shfl_sync(kAll, x, __ffs(static_cast<int>(__ballot_sync(kAll, x == least))) - 1);
}
/// The last of the largest values.
__device__ float last_max(float x) {
  const float largest = warp_max(x);
  return __shfl_sync(kAll, x, 31 - __clz(static_cast<int>(__ballot_sync(kAll, x == largest))));
}

__device__ void store16(unsigned char* p, std::uint16_t bits) { *reinterpret_cast<std::uint16_t*>(p) = bits; }

/// 32 quants of 4 or 5 bits, one per lane: bit 4 of all as a word at `qh` if there is one, then nibbles.
__device__ void store_nibbles(int q, unsigned char* qh, unsigned char* qs, int lane) {
  const std::uint32_t fifth = __ballot_sync(kAll, (q & 16) != 0);
  const int upper = __shfl_sync(kAll, q, lane + 16);
  if (qh != nullptr && lane < 4) qh[lane] = static_cast<unsigned char>(fifth >> (8 * lane));
  if (lane < 16) qs[lane] = static_cast<unsigned char>((q & 15) | (upper & 15) << 4);
}

/// A block of 32, `x` this lane's element, into bytes at even addresses: what host::store_cache_row writes.
__device__ void store_block(DType t, float x, unsigned char* block, int lane) {
  if (__any_sync(kAll, !isfinite(x))) {  // rounded to integers it would look like any other
    for (int i = lane; i < cache_block_bytes(t); i += 32) block[i] = 0xff;
    return;
  }
  if (t == DType::Q8_0) {
    const std::uint16_t d = finite_half(fabsf(extreme(x)) / 127.0f);
    const int q = round_between(x * inverse(half_to_float(d)), -127, 127);
    if (lane == 0) store16(block, d);
    block[2 + lane] = static_cast<unsigned char>(q);
  } else if (t == DType::IQ4_NL) {
    const std::uint16_t d = finite_half(extreme(x) / -127.0f);
    if (lane == 0) store16(block, d);
    store_nibbles(nearest_iq4(x * inverse(half_to_float(d))), nullptr, block + 2, lane);
  } else if (t == DType::Q4_0 || t == DType::Q5_0) {
    const int half = t == DType::Q4_0 ? 8 : 16;
    const std::uint16_t d = finite_half(extreme(x) / static_cast<float>(-half));
    const int q = round_between(x * inverse(half_to_float(d)), -half, half - 1) + half;
    if (lane == 0) store16(block, d);
    store_nibbles(q, half == 16 ? block + 2 : nullptr, block + (half == 16 ? 6 : 2), lane);
  } else {  // Q4_1, Q5_1
    const int top = t == DType::Q4_1 ? 15 : 31;
    const std::uint16_t m = finite_half(first_min(x));
    const float min = half_to_float(m);
    const std::uint16_t d = finite_half((last_max(x) - min) / static_cast<float>(top));
    const int q = round_between((x - min) * inverse(half_to_float(d)), 0, top);
    if (lane == 0) {
      store16(block, d);
      store16(block + 2, m);
    }
    store_nibbles(q, top == 31 ? block + 4 : nullptr, block + (top == 31 ? 8 : 4), lane);
  }
}

/// Element `i` of a row of a type without blocks.
__device__ void store_element(DType t, float x, unsigned char* row, int i) {
  switch (t) {
    case DType::F16:
      return store16(row + 2 * i, half_bits(x));
    case DType::BF16:
      return store16(row + 2 * i, bfloat16_bits(x));
    case DType::F8_E4M3:
      row[i] = to_f8(x).__x;
      return;
    default:
      reinterpret_cast<float*>(row)[i] = x;
  }
}

struct Side {
  const float* x;
  unsigned char* rows;
  DType type;
  int head_dim, row_bytes;
};

__global__ void __launch_bounds__(kThreads)
    append_kernel(const __grid_constant__ Side k, const __grid_constant__ Side v, int kv_heads, int stride,
                  const std::int32_t* slots, const std::int32_t* positions, int tokens) {
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = kThreads / 32;
  const int k_pieces = (k.head_dim + 31) / 32, v_pieces = (v.head_dim + 31) / 32;
  const int pieces = k_pieces + v_pieces;  // of 32 elements, of a (token, KV head)
  const std::int64_t all = std::int64_t{tokens} * kv_heads * pieces;
  wait_for_previous();
  for (std::int64_t i = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; i < all;
       i += std::int64_t{gridDim.x} * warps) {
    const int piece = static_cast<int>(i % pieces);
    const std::int64_t row = i / pieces;  // token * kv_heads + head
    const int slot = __ldcg(slots + row / kv_heads);
    if (slot < 0 || (stride > 1 && (__ldcg(positions + row / kv_heads) + 1) % stride != 0)) continue;
    const bool values = piece >= k_pieces;
    const Side& side = values ? v : k;
    const int element = (values ? piece - k_pieces : piece) * 32 + lane;
    const bool mine = element < side.head_dim;
    const float x = mine ? __ldcg(side.x + row * side.head_dim + element) : 0.0f;
    unsigned char* const to =
        side.rows + cache_rows_offset(slot / kCacheBlock, kv_heads, static_cast<int>(row % kv_heads), side.row_bytes) +
        static_cast<std::size_t>(slot % kCacheBlock / stride) * static_cast<std::size_t>(side.row_bytes);
    if (const int block = cache_block_bytes(side.type); block != 0) {
      store_block(side.type, x, to + element / 32 * block, lane);
    } else if (mine) {
      store_element(side.type, x, to, element);
    }
  }
}

void append(const float* k, const float* v, const CacheView& cache, int stride, const StepView& step, int tokens,
            const Launch& at) {
  if (tokens <= 0) return;
  const auto side = [](const float* x, std::byte* rows, DType type, int head_dim) {
    return Side{x, reinterpret_cast<unsigned char*>(rows), type, head_dim, cache_row_bytes(type, head_dim)};
  };
  const Side keys = side(k, cache.k, cache.k_type, cache.head_dim_k);
  const Side values = side(v, cache.v, cache.v_type, cache.head_dim_v);
  const int pieces = (cache.head_dim_k + 31) / 32 + (cache.head_dim_v + 31) / 32;
  constexpr int kWarps = kThreads / 32;
  const std::int64_t blocks = (std::int64_t{tokens} * cache.kv_heads * pieces + kWarps - 1) / kWarps;
  constexpr std::int64_t kMostBlocks = 4096;  // more than run at a time anywhere; the loop takes the rest
  launch(append_kernel, dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kThreads), 0, at,
         keys, values, cache.kv_heads, stride, step.slots, step.positions, tokens);
}

bool known(DType t) { return cache_block_bytes(t) != 0 || cache_element_bytes(t) != 0; }

}  // namespace

const char* cache_refusal(DType k, DType v, int head_dim_k, int head_dim_v) {
  if (!known(k) || !known(v)) {
    return "the GPU keeps keys and values as F32, F16, BF16, F8_E4M3, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 or IQ4_NL";
  }
  if (head_dim_k < 1 || head_dim_v < 0 || head_dim_k > kMaxHeadDim || head_dim_v > kMaxHeadDim) {
    return "attention heads are wider than 768, the most that the GPU's kernels take";
  }
  // Some GPUs have too little shared memory for them.
  if ((k == DType::F32 || v == DType::F32) && std::max(head_dim_k, head_dim_v) > 512)
    return "F32 keys and values of heads wider than 512 need more shared memory than some GPUs have";
  if ((cache_block_bytes(k) != 0 && head_dim_k % 32 != 0) || (cache_block_bytes(v) != 0 && head_dim_v % 32 != 0)) {
    return "quantised keys and values need heads of a multiple of 32";
  }
  return nullptr;
}

void append_to_cache(const float* k, const float* v, const CacheView& cache, const StepView& step, int tokens,
                     const Launch& at) {
  append(k, v, cache, 1, step, tokens, at);
}

void append_keys(const float* k, const CacheView& keys, int stride, const StepView& step, int tokens,
                 const Launch& at) {
  append(k, nullptr, keys, stride, step, tokens, at);
}

}  // namespace llm::cuda
