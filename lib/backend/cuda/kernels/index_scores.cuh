// Scores of the keys of an index, which select_keys.cu and select_blocks.cu choose by: where its rows lie, how tensor
// cores multiply 32 of them with queries, and scores as ranks, whole numbers in the same order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_tiles.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/select_keys.h"

namespace llm::cuda {
namespace {

constexpr int kIndexDim = 128;  ///< of an index whose scores are made by tensor cores
constexpr int kHeadGroup = 8;   ///< queries of a product
constexpr int kStrip = 32;      ///< keys of a warp
constexpr int kGroupBytes = kHeadGroup * kIndexDim * 2;

/// Rows of the index, as operands: as they are, E4M3, or decoded to F16.
enum class IndexRows { Plain, Float8, Decoded };

struct IndexArgs {
  const unsigned char* keys;
  const std::int32_t *positions, *sequence, *block_table;
  DType type;
  int table_stride, dim, row_bytes;
  int shift;  ///< the index has a key for each 2^shift positions
  bool round_query;
};

/// The number of the last key of an index that a token at a position sees; -1: it sees none.
__device__ __forceinline__ int last_key(int position, int shift) { return ((position + 1) >> shift) - 1; }

/// A score as a number in the order of scores, never 0.
__device__ __forceinline__ std::uint32_t rank_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const std::uint32_t bits = __float_as_uint(score + 0.0f);  // the zeros are equal
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ const unsigned char* row_at(const IndexArgs& a, int sequence, int key) {
  const int position = key << a.shift;
  const int block =
      __ldcg(a.block_table + static_cast<std::int64_t>(sequence) * a.table_stride + position / kCacheBlock);
  return a.keys + cache_rows_offset(block, 1, 0, a.row_bytes) +
         static_cast<std::size_t>(position % kCacheBlock >> a.shift) * static_cast<std::size_t>(a.row_bytes);
}

/// A warp writes query `g` of a group as an operand: `four` are elements 4 lane .. 4 lane + 3, its parts lie
/// `part_bytes` apart. Element 32 i + 8 t + j lies in unit 4 g + t of the i-th 512 bytes. Returns what products are to
/// be multiplied with.
template <bool kBFloat16, int kParts>
__device__ __forceinline__ float write_query(const float4& four, bool round, int g, int lane, unsigned char* group,
                                             int part_bytes) {
  float x[4] = {four.x, four.y, four.z, four.w};
  int bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
  if (round) {  // 32 neighbours are 8 lanes'
    int of_block = bits;
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) of_block = max(of_block, __shfl_xor_sync(kAll, of_block, offset));
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = rounded_q8x32(x[i], of_block);
    bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
  }
  bits = __reduce_max_sync(kAll, bits);
  const int power = bits < 0x7f800000 ? query_power<kBFloat16>(bits >> 23) : 0;
  const float up = __int_as_float((127 + power) << 23);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= up;
  unsigned char* const to = group + lane / 8 * 512 + (g * 4 + lane % 8 / 2) * 16 + lane % 2 * 8;
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    *reinterpret_cast<uint2*>(to + static_cast<std::int64_t>(p) * part_bytes) =
        make_uint2(pack<kBFloat16>(x[0], x[1]), pack<kBFloat16>(x[2], x[3]));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float rest = x[i] - narrowed<kBFloat16>(x[i]);
      x[i] = isfinite(x[i]) ? rest : 0.0f;
    }
  }
  return __int_as_float((127 - power) << 23);
}

/// 32 keys that a warp has as operands, in registers.
template <bool kBFloat16, int kParts, IndexRows kRows>
class IndexStrip {
 public:
  static constexpr int kTiles = kStrip / 16;
  /// Of key 16 m + lane / 4 (+ 8 for the last two) with queries 2 (lane % 4) and one more.
  using Dots = float[kTiles][4];

  /// Keys from `first` on; behind the last one, that one again.
  __device__ __forceinline__ void load(const IndexArgs& a, int sequence, int first, int last, int lane) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned char* const row = row_at(a, sequence, min(first + m * 16 + half * 8 + lane / 4, last));
#pragma unroll
        for (int i = 0; i < kQuads; ++i) keys[m][half][i] = unit(a.type, row, i * 4 + lane % 4);
      }
    }
  }

  /// With a group of queries, of which `q` is the lane's unit of 16 bytes. Two chains of the first parts, one of the
  /// others.
  __device__ __forceinline__ void multiply(const unsigned char* q, int part_bytes, Dots& dots) const {
    constexpr int kChains = kParts > 1 ? 3 : 2;
    float sum[kTiles][kChains][4] = {};
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const uint4 b = *reinterpret_cast<const uint4*>(q + p * part_bytes + i * 512);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint4 &low = keys[m][0][i], &high = keys[m][1][i];
          multiply_add<kBFloat16>(sum[m][p == 0 ? 0 : 2], {low.x, high.x, low.y, high.y}, b.x, b.y);
          multiply_add<kBFloat16>(sum[m][p == 0 ? 1 : 2], {low.z, high.z, low.w, high.w}, b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        dots[m][j] = sum[m][0][j] + sum[m][1][j];
        if constexpr (kParts > 1) dots[m][j] += sum[m][2][j];
      }
    }
  }

 private:
  static constexpr int kQuads = kIndexDim / 32;

  static __device__ __forceinline__ uint4 unit(DType type, const unsigned char* row, int u) {
    if constexpr (kRows == IndexRows::Plain) {
      return __ldcg(reinterpret_cast<const uint4*>(row) + u);
    } else if constexpr (kRows == IndexRows::Float8) {
      return f8_eight(__ldcg(reinterpret_cast<const uint2*>(row) + u));
    } else {
      float x[8];
      decode8_in_memory(type, row, u * 8, kIndexDim, x);
      return make_uint4(pack<false>(x[0], x[1]), pack<false>(x[2], x[3]), pack<false>(x[4], x[5]),
                        pack<false>(x[6], x[7]));
    }
  }

  uint4 keys[kTiles][2][kQuads];
};

// --- in f32 ---

/// A warp has 32 neighbours.
__global__ void __launch_bounds__(kThreads) rounded_queries_kernel(const float* q, std::int64_t n, float* to) {
  let_next_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_previous();
  const float x = round_q8x32(i < n ? __ldcg(q + i) : 0.0f);
  if (i < n) to[i] = x;
}
inline void round_queries(const float* q, std::int64_t n, float* to, const Launch& at) {
  launch(rounded_queries_kernel, dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)), dim3(kThreads), 0, at, q,
         n, to);
}

/// `kKeys` rows from `first` on; behind the last one, that one again. A lane has 8 elements of each unit of 256.
template <int kUnits, int kKeys>
__device__ __forceinline__ void load_rows(const IndexArgs& a, int sequence, int first, int last, int lane,
                                          float (&x)[kKeys][kUnits][8]) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
    const unsigned char* const row = row_at(a, sequence, min(first + k, last));
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int e = (u * 32 + lane) * 8;
      if (e < a.dim) {
        decode8_in_memory(a.type, row, e, a.dim, x[k][u]);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) x[k][u][j] = 0;
      }
    }
  }
}

/// The products of the rows with q, in all lanes.
template <int kUnits, int kKeys>
__device__ __forceinline__ void multiply_rows(const float (&x)[kKeys][kUnits][8], const float* q, int dim, int lane,
                                              float (&dots)[kKeys]) {
#pragma unroll
  for (int k = 0; k < kKeys; ++k) dots[k] = 0;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int e = (u * 32 + lane) * 8 + j;
      if (e >= dim) continue;
      const float of_query = __ldcg(q + e);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) dots[k] = fmaf(of_query, x[k][u][j], dots[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kKeys; ++k) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) dots[k] += __shfl_xor_sync(kAll, dots[k], offset);
  }
}

// --- on the host ---

inline bool rounds_query(const CacheView& c, ActFormat query) {
  return query == ActFormat::Q8x32 && cache_block_bytes(c.k_type) != 0;
}
/// Beside what a kernel of scores has of its own.
inline int most_shared() { return device_limits().block_bytes - 1024; }

/// Parts of a query, of scores by tensor cores; 0: they are made in f32.
inline int query_parts(const CacheView& c, Scores scores) {
  if (c.head_dim_k != kIndexDim || c.k_type == DType::F32) return 0;
  if (scores == Scores::Exact && cache_block_bytes(c.k_type) != 0) return 0;
  return scores == Scores::Rounded ? 1 : c.k_type == DType::BF16 ? 3 : 2;
}
inline IndexRows index_rows(const CacheView& c) {
  return c.k_type == DType::F16 || c.k_type == DType::BF16 ? IndexRows::Plain
         : c.k_type == DType::F8_E4M3                      ? IndexRows::Float8
                                                           : IndexRows::Decoded;
}
/// Of an index with a key for each position.
inline IndexArgs index_arguments(const CacheView& c, ActFormat query, const StepView& step) {
  return {.keys = reinterpret_cast<const unsigned char*>(c.k),
          .positions = step.positions,
          .sequence = step.sequence,
          .block_table = step.block_table,
          .type = c.k_type,
          .table_stride = step.table_stride,
          .dim = c.head_dim_k,
          .row_bytes = cache_row_bytes(c.k_type, c.head_dim_k),
          .shift = 0,
          .round_query = rounds_query(c, query)};
}

/// CTAs of a token, or some: all at once on the device, unless the keys are fewer.
inline unsigned splits_for(int groups, std::int64_t keys_each, std::int64_t keys) {
  const std::int64_t most = (keys + keys_each - 1) / keys_each;
  const std::int64_t room = 2 * device_limits().multiprocessors / std::max(groups, 1);
  return static_cast<unsigned>(std::clamp<std::int64_t>(room, 1, std::max<std::int64_t>(1, most)));
}

}  // namespace
}  // namespace llm::cuda
