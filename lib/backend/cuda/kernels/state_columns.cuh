// Columns of the states of recurrent layers: a CTA has 32 of one head in registers while a sequence's tokens pass, four
// lanes share a column, of whose rows each has every fourth group of four.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/step_view.h"

namespace llm::cuda {

/// The tokens of one sequence of the step.
__device__ __forceinline__ SequenceRun run_of(const StepView& step, unsigned sequence) {
  const int4 r = __ldcg(reinterpret_cast<const int4*>(step.runs) + sequence);
  return {r.x, r.y, r.z, r.w};
}

inline constexpr int kStateColumns = 32;  ///< of a CTA
inline constexpr int kParts = 4;          ///< lanes that share a column
inline constexpr int kColumnThreads = kStateColumns * kParts;

/// Over the lanes of a column.
__device__ __forceinline__ float sum_parts(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Starts copies of `n` floats of each of `tokens` rows, which are `stride` floats apart, by all threads of the CTA: of
/// one row those of single floats begin sooner.
template <int kWidth>
__device__ __forceinline__ void copy_rows(float (*to)[kWidth], const float* from, int n, std::int64_t stride,
                                          int tokens) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool by_fours = n % 4 == 0 && stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  if (tokens == 1 || !by_fours) {
    for (int t = 0; t < tokens; ++t)
      for (int i = thread; i < n; i += kColumnThreads) copy4_async(&to[t][i], from + t * stride + i);
    return;
  }
  const int fours = n / 4;
  for (int i = thread; i < tokens * fours; i += kColumnThreads) {
    const int t = i / fours, at = i % fours * 4;
    copy16_async(&to[t][at], from + t * stride + at);
  }
}

/// A lane's rows of a column of one head's state [rows][width], in registers.
template <int kStateRows>
class StateColumn {
 protected:
  static constexpr int kRows = kStateRows / kParts;  ///< of a lane

  __device__ __forceinline__ StateColumn(int rows, int width)
      : rows(rows),
        width(width),
        head(static_cast<int>(blockIdx.y)),
        first_column(static_cast<int>(blockIdx.x) * kStateColumns),
        column(static_cast<int>(threadIdx.x) / kParts),
        part(static_cast<int>(threadIdx.x) % kParts) {}

  /// Rows 4 (4 m + part) .. + 3, for m = 0 .. kRows / 4 - 1: a warp reads 64 neighbouring bytes of a key at a time.
  __device__ __forceinline__ int row_of(int i) const { return (i / 4 * kParts + part) * 4 + i % 4; }
  __device__ __forceinline__ bool has_column() const { return first_column + column < width; }
  __device__ __forceinline__ bool inside(int i) const { return row_of(i) < rows && has_column(); }

  __device__ __forceinline__ float* column_of(float* states, int slot) const {
    const std::int64_t size = std::int64_t{rows} * width;
    return states + (std::int64_t{slot} * gridDim.y + head) * size + first_column + column;
  }
  __device__ __forceinline__ void load_state(float* states, int slot) {
    const float* const from = column_of(states, slot);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      state[i] = slot >= 0 && inside(i) ? __ldcg(from + static_cast<std::int64_t>(row_of(i)) * width) : 0.0f;
  }
  __device__ __forceinline__ void store_state(float* states, int slot) const {
    float* const to = column_of(states, slot);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (inside(i)) __stcg(to + static_cast<std::int64_t>(row_of(i)) * width, state[i]);
    }
  }

  /// The lane's rows of a key in shared memory.
  __device__ __forceinline__ void load(const float* key, float (&to)[kRows]) const {
#pragma unroll
    for (int m = 0; m < kRows / 4; ++m) {
      const float4 four = reinterpret_cast<const float4*>(key)[m * kParts + part];
      to[4 * m] = four.x, to[4 * m + 1] = four.y, to[4 * m + 2] = four.z, to[4 * m + 3] = four.w;
    }
  }
  /// Four chains, then their sum, then that over the lanes.
  template <class F>
  __device__ __forceinline__ static float sum(const F& product) {
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) sums[i % 4] = product(i, sums[i % 4]);
    return sum_parts((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }

  const int rows, width, head, first_column, column, part;
  float state[kRows];
};

inline dim3 column_grid(int width, int heads, int sequences) {
  return dim3(static_cast<unsigned>((width + kStateColumns - 1) / kStateColumns), static_cast<unsigned>(heads),
              static_cast<unsigned>(sequences));
}

/// Blocks that start as those of the convolution end share the few multiprocessors that are free first, and wait for
/// each other there for all tokens of a prompt.
inline Launch spread_launch(const Launch& at, int tokens) {
  Launch spread = at;
  if (tokens > kMaxColumns) spread.overlap = false;
  return spread;
}

}  // namespace llm::cuda
