// A block of threads times some columns: rows of F32, F16 or BF16 by f32 columns, the part that the products over plain
// and over expert matrices share.
//
// The order of a row's sum depends on k, n and the type alone: its elements are dealt out in turns of kPerLoad to the
// lanes of `split` warps; a lane adds up its own in ascending order, then lanes are added pair by pair (xor 16, 8, 4,
// 2, 1), then warps in their order. How many columns or rows a warp has in hand changes nothing of that.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/products.h"

namespace llm::cuda {

inline constexpr int kProductWarps = 8;  ///< of a block of threads
inline constexpr int kProductThreads = kProductWarps * 32;
inline constexpr int kExpertRows = 4;  ///< in a warp's hand, of wide rows

/// Warps that share a row of n, so that matrices of few rows also fill the device.
LLM_HOST_DEVICE int row_split(std::int64_t k, std::int64_t n, int per_load) {
  int split = n >= 8192 ? 1 : n >= 4096 ? 2 : n >= 2048 ? 4 : 8;
  while (split > 1 && k < std::int64_t{split} * 32 * per_load) split /= 2;
  return split;
}
/// Rows that a block of threads does, `rows` in each warp's hand.
LLM_HOST_DEVICE int block_rows(int split, int rows) { return kProductWarps / split * rows; }

/// Which of `count` totals reduce_lanes() leaves in a lane; 32 / count lanes have the same one.
LLM_HOST_DEVICE int total_of_lane(int lane, int count) { return lane / (32 / count); }

#ifdef __CUDACC__

/// Lane by lane the totals of `kCount` values over the warp: each step adds pairs of lanes and halves what a lane is
/// responsible for, as long as there is something to halve.
template <int kWidth = 16, int kCount>
__device__ __forceinline__ float reduce_lanes(const float (&v)[kCount], int lane) {
  if constexpr (kWidth == 0) {
    return v[0];
  } else if constexpr (kCount == 1) {
    const float sum[1] = {v[0] + __shfl_xor_sync(0xffffffffu, v[0], kWidth)};
    return reduce_lanes<kWidth / 2>(sum, lane);
  } else {
    float half[kCount / 2];
    const bool upper = (lane & kWidth) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float mine = upper ? v[i + kCount / 2] : v[i], theirs = upper ? v[i] : v[i + kCount / 2];
      half[i] = mine + __shfl_xor_sync(0xffffffffu, theirs, kWidth);
    }
    return reduce_lanes<kWidth / 2>(half, lane);
  }
}

/// Storage types by tag: 16 bytes at once where rows are aligned (kPerLoad elements), else one element.
struct F32Rows {
  static constexpr int kBytes = 4;
  __device__ static float widen(unsigned bits) { return __uint_as_float(bits); }
};
struct F16Rows {
  static constexpr int kBytes = 2;
  __device__ static float widen(unsigned bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
};
struct Bf16Rows {
  static constexpr int kBytes = 2;
  __device__ static float widen(unsigned bits) { return __uint_as_float(bits << 16); }
};

template <class Type, int kPerLoad>
struct Weights {
  static_assert(kPerLoad * Type::kBytes == 16);
  uint4 words;
  __device__ __forceinline__ void load(const std::byte* row, int k) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(row + static_cast<std::int64_t>(k) * Type::kBytes));
  }
  /// Elements 4 quad .. 4 quad + 3 of those loaded.
  __device__ __forceinline__ void widen(int quad, float (&v)[4]) const {
    if constexpr (Type::kBytes == 4) {
      v[0] = Type::widen(words.x), v[1] = Type::widen(words.y);
      v[2] = Type::widen(words.z), v[3] = Type::widen(words.w);
    } else {
      const unsigned first = quad == 0 ? words.x : words.z, second = quad == 0 ? words.y : words.w;
      v[0] = Type::widen(first & 0xffffu), v[1] = Type::widen(first >> 16);
      v[2] = Type::widen(second & 0xffffu), v[3] = Type::widen(second >> 16);
    }
  }
};
template <class Type>
struct Weights<Type, 1> {
  unsigned bits;
  __device__ __forceinline__ void load(const std::byte* row, int k) {
    const void* const at = row + static_cast<std::int64_t>(k) * Type::kBytes;
    bits = Type::kBytes == 4 ? __ldg(static_cast<const unsigned*>(at)) : __ldg(static_cast<const unsigned short*>(at));
  }
  __device__ __forceinline__ void widen(int /*quad*/, float (&v)[1]) const { v[0] = Type::widen(bits); }
};

__device__ __forceinline__ void load_column(const float* x, float (&v)[1]) { v[0] = *x; }
__device__ __forceinline__ void load_column(const float* x, float (&v)[4]) {
  const float4 q = *reinterpret_cast<const float4*>(x);
  v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
}

/// What a block of threads multiplies.
struct BlockTask {
  const std::byte* matrix;
  int k, n;  ///< n is at least the rows in a warp's hand
  int split;
  int first_row;
  std::int64_t other = 0;  ///< if not 0, a warp's second row is this many bytes from its first, of another matrix
};
/// Its columns: `first` .. and count more of x, or of the routes if there are any.
struct BlockColumns {
  int first, count;
  const std::int32_t* routes;
  int routes_per_row;
  __device__ __forceinline__ int index(int c) const { return first + (c < count ? c : count - 1); }
  __device__ __forceinline__ std::int64_t y_row(int c) const { return routes != nullptr ? routes[index(c)] : index(c); }
  __device__ __forceinline__ std::int64_t x_row(int c) const {
    return routes != nullptr ? routes[index(c)] / routes_per_row : index(c);
  }
};
/// One element of the product: a thread's share of what its block computed.
struct BlockTotal {
  float sum;
  int row, column;  ///< the column among BlockColumns; -1: not this thread's to store
};

/// Columns that earlier kernels wrote.
struct WrittenColumns {
  const float* x;
  __device__ __forceinline__ const float* operator()() const {
    wait_for_previous();
    return x;
  }
};

/// The block's rows times at most kCols columns, of those that columns_of() gives, which waits for the previous kernel.
/// `kAhead` loads of each of the warp's kRows rows are on their way, the first of them before that. Called by all
/// threads. Where the last warp's rows would end beyond n, it does the last kRows, some of which another one does too,
/// with the same bits. The two rows in hand of two matrices are BlockTotal::row of either.
template <class Type, int kPerLoad, int kCols, int kRows, int kAhead, class ColumnsOf>
__device__ __forceinline__ BlockTotal multiply_block(const BlockTask& task, const BlockColumns& columns,
                                                     const ColumnsOf& columns_of) {
  constexpr int kTotals = kCols * kRows, kElements = kPerLoad < 4 ? kPerLoad : 4, kQuads = kPerLoad / kElements;
  static_assert(kTotals <= 32);
  __shared__ float totals[kProductWarps][kTotals];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = task.other != 0 ? 1 : kRows;  // of one matrix in the warp's hand
  const int part = warp % task.split, row = min(task.first_row + warp / task.split * rows, task.n - rows);
  const int stride = task.split * 32 * kPerLoad;
  const std::int64_t row_bytes = static_cast<std::int64_t>(task.k) * Type::kBytes;
  const std::int64_t next = task.other != 0 ? task.other : row_bytes;
  const std::byte* const weights = task.matrix + row * row_bytes;

  // Loads beyond the row's end fetch its last elements instead, for nothing: without a condition they stay together.
  const int last = task.k - kPerLoad;
  const auto fetch = [&](Weights<Type, kPerLoad>& w, int r, int at) { w.load(weights + r * next, min(at, last)); };
  int k = (part * 32 + lane) * kPerLoad;
  Weights<Type, kPerLoad> ahead[kAhead][kRows];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      fetch(ahead[u][r], r, k + u * stride);
    }
  }
  const float* const x = columns_of();

  unsigned at[kCols];  // in elements, of which a step has fewer than 2^32
#pragma unroll
  for (int c = 0; c < kCols; ++c) at[c] = static_cast<unsigned>(columns.x_row(c) * task.k);
  float sums[kTotals] = {};
  while (k < task.k) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (k >= task.k) break;
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        float w[kRows][kElements];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          ahead[u][r].widen(quad, w[r]);
          if (quad + 1 == kQuads) fetch(ahead[u][r], r, k + kAhead * stride);
        }
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          float v[kElements];
          load_column(x + (at[c] + static_cast<unsigned>(k + quad * kElements)), v);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < kElements; ++i) sums[r * kCols + c] = fmaf(w[r][i], v[i], sums[r * kCols + c]);
          }
        }
      }
      k += stride;
    }
  }

  float sum = reduce_lanes(sums, lane);
  const int total = total_of_lane(lane, kTotals);
  if (task.split > 1) {
    __syncthreads();  // the readers of an earlier call are done
    totals[warp][total] = sum;
    __syncthreads();
    for (int p = 1; part == 0 && p < task.split; ++p) sum += totals[warp + p][total];
  }
  const bool mine = part == 0 && lane % (32 / kTotals) == 0 && total % kCols < columns.count;
  return {sum, rows == 1 ? row : row + total / kCols, mine ? total % kCols : -1};
}

/// Targets of one storage type, as the kernels take them.
struct FloatTarget {
  const std::byte* matrix = nullptr;
  const float *bias = nullptr, *scale = nullptr;
  float* y = nullptr;
  std::int64_t expert_bytes = 0;
  int n = 0, split = 1;
  int first_block = 0;  ///< of a launch's blocks of rows
};
struct FloatProducts {
  FloatTarget target[kMaxTargets];
  int targets = 0;
  int blocks = 0;  ///< of rows, over all targets
  int k = 0;
  const float* x = nullptr;
};

__device__ __forceinline__ int target_of(const FloatProducts& p, int block) {
  int t = 0;
  while (t + 1 < p.targets && block >= p.target[t + 1].first_block) ++t;
  return t;
}
__device__ __forceinline__ BlockTask task_of(const FloatProducts& p, int t, int block, int rows_in_hand, int expert) {
  const FloatTarget& target = p.target[t];
  return {target.matrix + expert * target.expert_bytes, p.k, target.n, target.split,
          (block - target.first_block) * block_rows(target.split, rows_in_hand)};
}

/// sum * scale + bias, two roundings.
__device__ __forceinline__ float finished(const FloatTarget& target, int expert, int row, float sum) {
  if (target.scale != nullptr) sum = __fmul_rn(sum, target.scale[expert]);
  if (target.bias != nullptr) sum = __fadd_rn(sum, target.bias[static_cast<std::int64_t>(expert) * target.n + row]);
  return sum;
}
__device__ __forceinline__ void finish(const FloatProducts& p, int t, int expert, const BlockColumns& columns,
                                       const BlockTotal& total) {
  if (total.column < 0) return;
  // Read here and not kept over the product: the compiler is not to know that t is what it was.
  asm volatile("" : "+r"(t));
  const FloatTarget& target = p.target[t];
  target.y[columns.y_row(total.column) * target.n + total.row] = finished(target, expert, total.row, total.sum);
}

#endif  // __CUDACC__

/// Whether loads of 16 bytes can be used for a matrix at an aligned place, and for columns at one.
bool loads_wide(const MatrixType&);
/// Whether all have fewer than kFewRows.
bool has_few_rows(std::span<const Target>);
/// Targets of one storage type for a kernel with `rows_in_hand` and `per_load`.
FloatProducts float_products_of(std::span<const Target>, const float* x, int per_load, int rows_in_hand, bool experts);

}  // namespace llm::cuda
