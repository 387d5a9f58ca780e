// The kernel of grouped products: 128 rows of an expert's weights times up to 128 routes, 64 of k (a chunk) at a time.
//
// 4 warps of 32 rows each, all routes. A warp copies its own tiles to shared memory as they are and decodes them
// straight into registers, as operands (tile_operands.cuh); each code is decoded once in 128 routes. The B operand, in
// the order of k that these want, is 8 neighbouring bytes of a row of x, which all warps share: chunks of 16 KB arrive
// by asynchronous copies of the routes' rows, two ahead. Columns beyond a group's routes are left out by 32.
//
// Per chunk and warp, 128 routes: 128 products of 4,096 operations, 830 cycles of a quarter's tensor cores at the rate
// of mma.sync (62 % of wgmma's); by the disassembly 470 other instructions of Q4_K, 270 of which decode and 64 load B.
// These read 16 KB each, the 8 warps of a multiprocessor's two blocks in 1,024 of 1,660 cycles. One block decodes while
// the other multiplies: 60-75 % of the 610 TFLOP/s that mma.sync reaches are expected where groups are full. A group of
// few routes costs the decoding: its weights are read at some 60 % of the memory's speed.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/kernel_target.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "backend/cuda/kernels/tile_operands.cuh"

namespace llm::cuda {

/// Targets of one type.
struct GroupedArguments {
  KernelTarget targets[kMaxTargets];
  int n_targets = 0;
  int blocks = 0;  ///< of kGroupedRows, of all targets
  int k = 0;
  const uint4* x = nullptr;
  const uint4* x_rest = nullptr;  ///< null: x has one part
  const float* unscale = nullptr;
  RouteGroups groups;
  int x_stages = 0, w_stages = 0;  ///< chunks of x, pieces of weights in shared memory
};

inline constexpr int kGroupedWarps = 4, kGroupedThreads = 32 * kGroupedWarps;
inline constexpr int kGroupedStrips = 2;  ///< of 16 rows, of a warp
inline constexpr int kGroupedRows = kTileRows * kGroupedStrips * kGroupedWarps;
inline constexpr int kChunkBytes = kGroupedColumns * kChunkK * 2;
inline constexpr int kColumnStep = 32;  ///< columns that are multiplied or left out together

/// What a block knows of its columns.
struct GroupedColumn {
  std::int32_t route;
  std::uint32_t x;  ///< where its row begins, in 16 bytes
  float unscale;
};

/// Where 16 bytes (`vector` of 8) of a row of 128 bytes lie in shared memory: the four 32 bytes that lanes of 4
/// neighbouring rows read at a time fall into different banks.
LLM_HOST_DEVICE int half_vector_at(int row, int vector) {
  return row * 128 + (((vector / 2) ^ (row % 4)) * 32) + vector % 2 * 16;
}
/// The same of elements 16 j + 4 t on.
LLM_HOST_DEVICE int half_quad_at(int row, int j, int t) { return row * 128 + ((j ^ (row % 4)) * 32) + 8 * t; }

/// The A operands of a chunk and a strip: [16 of k][register].
using StripOperands = std::uint32_t[kChunkK / 16][4];

/// Weights as tiles: their pieces as they lie in memory.
template <class T>
struct TileWeights {
  static constexpr int kChunks = kPieceChunks<T>;
  static constexpr int kStageBytes = T::kPieceBytes, kStages = 2;
  static constexpr int kParts = 1;  ///< of x
  static std::int64_t pieces_of(std::int64_t k) { return pieces<T>(k); }

  static __device__ __forceinline__ void copy(unsigned char* to, const std::byte* matrix, int strip, int piece, int k,
                                              int /*n*/, int lane) {
    const std::byte* const from = matrix + strip * strip_bytes<T>(k) + 16 * lane;
#pragma unroll
    for (int i = 0; i < T::Codes::kBytes; i += kQuadBytes)
      copy16_async(to + i + 16 * lane, from + codes_at<T>(piece) + i);
#pragma unroll
    for (int i = 0; i < T::Scales::kBytes; i += kQuadBytes)
      if (i + 16 * lane < T::Scales::kBytes)
        copy16_async(to + T::Codes::kBytes + i + 16 * lane, from + scales_at<T>(piece, k) + i);
  }
  template <int kChunk>
  static __device__ __forceinline__ void decode(const unsigned char* stage, int lane, StripOperands& a) {
    TileChunk<T, kChunk> chunk;
    chunk.load(reinterpret_cast<const std::byte*>(stage), lane);
#pragma unroll
    for (int j = 0; j < kChunkK / 16; ++j) chunk.operand(j, a[j]);
  }
};

/// Rows of F16 or BF16: a piece is a chunk of 16 rows.
template <DType type>
struct FloatWeights {
  static constexpr int kElementBytes = 2;
  static constexpr int kParts = 1;
  static constexpr int kChunks = 1, kStageBytes = kTileRows * kChunkK * kElementBytes, kStages = 3;
  static std::int64_t pieces_of(std::int64_t k) { return (k + kChunkK - 1) / kChunkK; }

  static __device__ __forceinline__ void copy(unsigned char* to, const std::byte* matrix, int strip, int piece, int k,
                                              int n, int lane) {
    constexpr int kInVector = 16 / kElementBytes, kVectors = kChunkK / kInVector;
#pragma unroll
    for (int i = lane; i < kTileRows * kVectors; i += 32) {
      const int row = i / kVectors, vector = i % kVectors, at = piece * kChunkK + vector * kInVector;
      const std::int64_t matrix_row = strip * kTileRows + row;
      const bool exists = matrix_row < n && at < k;
      const std::byte* const from = matrix + (exists ? (matrix_row * k + at) * kElementBytes : 0);
      copy16_or_zero_async(to + half_vector_at(row, vector), from, exists);
    }
  }
  template <int>
  static __device__ __forceinline__ void decode(const unsigned char* stage, int lane, StripOperands& a) {
#pragma unroll
    for (int j = 0; j < kChunkK / 16; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 four = quad(stage, tile_row(lane / 4, half), j, lane % 4);
        a[j][half] = four.x;
        a[j][2 + half] = four.y;
      }
  }

 private:
  /// Elements 16 j + 4 t on, as halves.
  static __device__ __forceinline__ uint2 quad(const unsigned char* stage, int row, int j, int t) {
    const uint2 v = *reinterpret_cast<const uint2*>(stage + half_quad_at(row, j, t));
    if constexpr (type == DType::F16) return v;
    const auto halves = [](std::uint32_t w) {
      return pack_halves(bits_to_float(w << 16), bits_to_float(w & 0xffff0000u));
    };
    return make_uint2(halves(v.x), halves(v.y));
  }
};

/// Rows of F16 that multiply x in two parts. The second time they are times kRestUnit, so that both parts have one sum;
/// that rounds those below 2^-14 / kRestUnit, by 2^-25 at most.
struct TwoPartWeights : FloatWeights<DType::F16> {
  static constexpr int kParts = 2;

  static __device__ __forceinline__ void shrink(StripOperands& a) {
#pragma unroll
    for (auto& operand : a)
#pragma unroll
      for (std::uint32_t& pair : operand) pair = scaled_halves(pair, kRestUnit);
  }
};

/// Shared memory: chunks of x, pieces of weights [warp][strip][stage], columns.
template <class Weights>
constexpr std::size_t grouped_shared_bytes(int x_stages, int w_stages) {
  return static_cast<std::size_t>(x_stages) * kChunkBytes +
         static_cast<std::size_t>(kGroupedWarps * kGroupedStrips * w_stages) * Weights::kStageBytes +
         kGroupedColumns * sizeof(GroupedColumn);
}

template <class Weights>
class GroupedBlock {
 public:
  __device__ __forceinline__ GroupedBlock(const GroupedArguments& arguments, unsigned char* shared, int expert,
                                          int count)
      : p(arguments),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        x(shared),
        expert(expert),
        count(count) {
    unsigned char* const pieces = x + p.x_stages * kChunkBytes;
    weights = pieces + warp * kGroupedStrips * p.w_stages * Weights::kStageBytes;
    columns =
        reinterpret_cast<GroupedColumn*>(pieces + kGroupedWarps * kGroupedStrips * p.w_stages * Weights::kStageBytes);
    int target = 0;
    while (target + 1 < p.n_targets && static_cast<int>(blockIdx.x) >= p.targets[target + 1].first) ++target;
    to = &p.targets[target];
    matrix = to->matrix + expert * to->matrix_bytes;
    first_strip = ((static_cast<int>(blockIdx.x) - to->first) * kGroupedWarps + warp) * kGroupedStrips;
  }

  /// `routes` are the group's.
  __device__ __forceinline__ void run(const std::int32_t* routes) {
    constexpr int kSteps = Weights::kChunks * Weights::kParts;  ///< of a piece
    const int steps = (p.k + kChunkK - 1) / kChunkK * Weights::kParts;
    const bool works = first_strip * kTileRows < to->n;  // otherwise the warp only helps to copy x
    for (int piece = 0; piece + 1 < p.w_stages; ++piece) copy_weights(piece, works);
    find_columns(routes);
    __syncthreads();
    for (int step = 0; step + 1 < p.x_stages; ++step) {
      copy_x(step);
      commit_copies();
    }
#pragma unroll
    for (int s = 0; s < kGroupedStrips; ++s)
#pragma unroll
      for (int c = 0; c < kGroupedColumns / 8; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[s][c][i] = 0;

    int x_stage = 0, w_stage = 0;
    for (int step = 0; step < steps; ++step) {
      if (p.x_stages > 2) {
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncthreads();  // this chunk is there for all, and all have done with the one before
      const int in_piece = step % kSteps;
      copy_x(step + p.x_stages - 1);
      if (in_piece == 0) copy_weights(step / kSteps + p.w_stages - 1, works);
      commit_copies();
      if (works) {
        StripOperands a[kGroupedStrips];
        decode<0>(in_piece / Weights::kParts, weights + w_stage * Weights::kStageBytes, a);
        if (in_piece % Weights::kParts != 0) shrink(a);
        multiply(x + x_stage * kChunkBytes, a);
      }
      x_stage = after(x_stage, p.x_stages);
      if (in_piece == kSteps - 1) w_stage = after(w_stage, p.w_stages);
    }
    if (works) store();
  }

 private:
  static __device__ __forceinline__ int after(int stage, int stages) { return stage + 1 == stages ? 0 : stage + 1; }

  /// Columns beyond the group's routes are the last one's again: their products are not stored.
  __device__ __forceinline__ void find_columns(const std::int32_t* routes) {
    static_assert(kGroupedThreads == kGroupedColumns);
    const std::int32_t route = routes[min(static_cast<int>(threadIdx.x), count - 1)];
    const int row = route / p.groups.routes_per_row;
    columns[threadIdx.x] = {route, static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(p.k / 8),
                            p.unscale[row]};
  }

  /// What a step multiplies with: one part of a chunk after the other.
  /// A thread copies vectors v and v + 4 of every 32nd row: 64 neighbouring bytes of 8 rows are asked for together.
  __device__ __forceinline__ void copy_x(int step) {
    constexpr int kVectors = kChunkK / 8;
    const int chunk = step / Weights::kParts;
    const uint4* const part = step % Weights::kParts == 0 ? p.x : p.x_rest;
    if (chunk * kChunkK >= p.k) return;
    const int first = static_cast<int>(threadIdx.x) / 4, vector = static_cast<int>(threadIdx.x) % 4;
    unsigned char* const low = x + x_fill * kChunkBytes + half_vector_at(first, vector);
    unsigned char* const high = x + x_fill * kChunkBytes + half_vector_at(first, vector + 4);
    const uint4* const from = part + chunk * kVectors + vector;
    x_fill = after(x_fill, p.x_stages);
    if ((chunk + 1) * kChunkK <= p.k) {
#pragma unroll
      for (int i = 0; i < kGroupedColumns && i < count; i += kColumnStep) {
        const uint4* const row = from + columns[first + i].x;
        copy16_async(low + i * 128, row);
        copy16_async(high + i * 128, row + 4);
      }
    } else {  // zeros beyond the row's end
      const int left = p.k / 8 - chunk * kVectors;
      for (int i = 0; i < kGroupedColumns && i < count; i += kColumnStep) {
        const uint4* const row = part + columns[first + i].x;
        const bool has_low = vector < left, has_high = vector + 4 < left;
        copy16_or_zero_async(low + i * 128, row + (has_low ? chunk * kVectors + vector : 0), has_low);
        copy16_or_zero_async(high + i * 128, row + (has_high ? chunk * kVectors + vector + 4 : 0), has_high);
      }
    }
  }

  /// The warp's own; strips beyond the matrix are read as its last.
  __device__ __forceinline__ void copy_weights(int piece, bool works) {
    if (!works || piece * (Weights::kChunks * kChunkK) >= p.k) return;
    const int last = (to->n - 1) / kTileRows;
#pragma unroll
    for (int s = 0; s < kGroupedStrips; ++s)
      Weights::copy(weights + (s * p.w_stages + w_fill) * Weights::kStageBytes, matrix, min(first_strip + s, last),
                    piece, p.k, to->n, lane);
    w_fill = after(w_fill, p.w_stages);
  }

  /// `stage` is the first strip's.
  template <int kChunk>
  __device__ __forceinline__ void decode(int in_piece, const unsigned char* stage,
                                         StripOperands (&a)[kGroupedStrips]) const {
    if constexpr (kChunk + 1 < Weights::kChunks) {
      if (in_piece != kChunk) return decode<kChunk + 1>(in_piece, stage, a);
    }
#pragma unroll
    for (int s = 0; s < kGroupedStrips; ++s)
      Weights::template decode<kChunk>(stage + s * p.w_stages * Weights::kStageBytes, lane, a[s]);
  }

  static __device__ __forceinline__ void shrink(StripOperands (&a)[kGroupedStrips]) {
    if constexpr (Weights::kParts > 1) {
#pragma unroll
      for (StripOperands& strip : a) Weights::shrink(strip);
    }
  }

  __device__ __forceinline__ void multiply(const unsigned char* stage, const StripOperands (&a)[kGroupedStrips]) {
    constexpr int kTiles = kColumnStep / 8;
    const unsigned char* const own = stage + half_quad_at(lane / 4, 0, lane % 4);
#pragma unroll
    for (int step = 0; step < kGroupedColumns / kColumnStep; ++step) {
      if (step * kColumnStep >= count) break;
#pragma unroll
      for (int j = 0; j < kChunkK / 16; ++j) {
        const int offset = half_quad_at(lane / 4, j, lane % 4) - half_quad_at(lane / 4, 0, lane % 4);
        uint2 b[kTiles];
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
          b[i] = *reinterpret_cast<const uint2*>(own + offset + (step * kTiles + i) * (8 * 128));
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
#pragma unroll
          for (int s = 0; s < kGroupedStrips; ++s)
            multiply_add<false>(sums[s][step * kTiles + i], a[s][j], b[i].x, b[i].y);
      }
    }
  }

  /// Eight lanes write 8 neighbouring results of a route.
  __device__ __forceinline__ void store() const {
    const float scale = to->scale != nullptr ? to->scale[expert] : 1.0f;
    const float* const bias = to->bias != nullptr ? to->bias + static_cast<std::int64_t>(expert) * to->n : nullptr;
#pragma unroll
    for (int tile = 0; tile < kGroupedColumns / 8; ++tile)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int c = 8 * tile + 2 * (lane % 4) + odd;
        if (c >= count) continue;
        const GroupedColumn column = columns[c];
        float* const y = to->y + static_cast<std::int64_t>(column.route) * to->n;
#pragma unroll
        for (int s = 0; s < kGroupedStrips; ++s)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = (first_strip + s) * kTileRows + tile_row(lane / 4, half);
            if (row >= to->n) continue;
            float value = sums[s][tile][2 * half + odd] * column.unscale;
            if (to->scale != nullptr) value *= scale;
            if (bias != nullptr) value += bias[row];
            y[row] = value;
          }
      }
  }

  const GroupedArguments& p;
  const KernelTarget* to;
  int lane, warp;
  unsigned char *x, *weights;
  GroupedColumn* columns;
  const std::byte* matrix;
  int expert, count, first_strip;
  int x_fill = 0, w_fill = 0;  ///< stages that the next copies go to
  float sums[kGroupedStrips][kGroupedColumns / 8][4];
};

/// Block (128 rows of a target, group).
template <class Weights>
__global__ void __launch_bounds__(kGroupedThreads, 2) grouped_kernel(const __grid_constant__ GroupedArguments p) {
  let_next_start();
  wait_for_previous();
  const int group = static_cast<int>(blockIdx.y);
  const int n_groups = *p.groups.n_groups, expert = p.groups.expert[group], count = p.groups.count[group];
  const std::int32_t* const routes = p.groups.routes + p.groups.first[group];
  if (group >= n_groups) return;  // what was read then is memory that nobody wrote
  GroupedBlock<Weights>(p, dynamic_shared(), expert, count).run(routes);
}

/// With a chunk and a piece less ahead where shared memory is small.
template <class Weights>
void launch_grouped_kernel(GroupedArguments p, const Launch& at) {
  constexpr auto kKernel = grouped_kernel<Weights>;
  static_assert(3 - 1 <= (Weights::kStages - 1) * Weights::kChunks * Weights::kParts,
                "a piece is asked for before its first chunk");
  const DeviceLimits& device = device_limits();
  const auto limit = static_cast<std::size_t>(device.block_bytes);
  p.x_stages = 3;
  p.w_stages = Weights::kStages;
  // Two blocks to a multiprocessor want all of it.
  allow_all_shared<kKernel>(static_cast<int>(std::min(grouped_shared_bytes<Weights>(p.x_stages, p.w_stages), limit)));
  if (grouped_shared_bytes<Weights>(p.x_stages, p.w_stages) > limit) p.x_stages = p.w_stages = 2;
  launch(kKernel, dim3(static_cast<unsigned>(p.blocks), static_cast<unsigned>(p.groups.max_groups)),
         dim3(kGroupedThreads), grouped_shared_bytes<Weights>(p.x_stages, p.w_stages), at, p);
}

/// One launch for targets of `type`.
template <DType type>
void launch_grouped_products(const GroupedArguments& p, const Launch& at) {
  if constexpr (type == DType::F16)
    p.x_rest != nullptr ? launch_grouped_kernel<TwoPartWeights>(p, at)
                        : launch_grouped_kernel<FloatWeights<type>>(p, at);
  else if constexpr (type == DType::BF16)
    launch_grouped_kernel<FloatWeights<type>>(p, at);
  else
    launch_grouped_kernel<TileWeights<Tile<type>>>(p, at);
}

}  // namespace llm::cuda
