// A head on its way from its product into attention or the cache, by one warp: its norm, its rotation, and what a cache
// of elements keeps of it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels/bits.cuh"
#include "backend/cuda/kernels/float8.cuh"
#include "backend/cuda/kernels/norm.cuh"

namespace llm::cuda {

/// Of Rope.
struct Turn {
  int n_rot = 0;
  bool halves = false;
};

#ifdef __CUDACC__

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(__half* to, float x) { *to = __ushort_as_half(half_bits(x)); }
__device__ __forceinline__ void store(__nv_bfloat16* to, float x) { *to = __ushort_as_bfloat16(bfloat16_bits(x)); }
__device__ __forceinline__ void store(__nv_fp8_e4m3* to, float x) { *to = to_f8(x); }

/// As rms_norm() of rows of one warp.
__device__ __forceinline__ BlockPart normed_head(const BlockPart& x, const BlockPart& weight, int dim, float eps) {
  return normed(x, weight, norm_factor(warp_sum(squares(x, 0)), dim, eps), 0, dim);
}

/// A lane's angles of a token, of the row of rope_table(): asked for before the head is there. `kMost`: elements of the
/// longest head.
template <int kMost>
struct Angles {
  static constexpr int kTurns = kMost / 2 / kWarp;
  float cos[kTurns], sin[kTurns];
  __device__ __forceinline__ Angles(const float* row, const Turn& turn) {
#pragma unroll
    for (int j = 0; j < kTurns; ++j) {
      const int i = lane_id() + kWarp * j;
      const bool turns = i < turn.n_rot / 2;
      cos[j] = turns ? __ldcg(row + 2 * i) : 0.0f;
      sin[j] = turns ? __ldcg(row + 2 * i + 1) : 0.0f;
    }
  }
};

/// A warp turns a head of `dim` elements, of which it holds x; `put(i, y)` takes element i. `row` is shared memory of
/// its own for as many elements, rounded up to 4, at a multiple of 16 bytes; put may write it.
template <int kMost, class Put>
__device__ __forceinline__ void rotate(const BlockPart& x, int dim, const Angles<kMost>& angles, const Turn& turn,
                                       float* row, Put&& put) {
  const int lane = lane_id(), pairs = turn.n_rot / 2;
  store_part(row, 0, (dim + 3) / 4 * 4, /*wide=*/true, x);
  __syncwarp();
#pragma unroll
  for (int j = 0; j < Angles<kMost>::kTurns; ++j) {
    const int i = lane + kWarp * j;
    if (i >= pairs) break;
    const int first = turn.halves ? i : 2 * i, second = turn.halves ? i + pairs : 2 * i + 1;
    const float a = row[first], b = row[second];
    put(first, a * angles.cos[j] - b * angles.sin[j]);
    put(second, a * angles.sin[j] + b * angles.cos[j]);
  }
#pragma unroll 1
  for (int i = turn.n_rot + lane; i < dim; i += kWarp) put(i, row[i]);
}

#endif  // __CUDACC__

}  // namespace llm::cuda
