// The kernels of wgmma_expert_products() and wgmma_expert_products_f8(): blocks that stay, a tile of 256 rows of an
// expert (E4M3: 192) and a group of up to 128 routes (192) after another. As in wgmma_products.cuh sixteen warps
// (twelve) decode a strip each and multiply, and others copy, which run ahead from one tile to the next:
//   one warp     pieces of weights into a ring
//   three warps  the routes' rows of x, 16 bytes at a time, since neighbouring routes are not neighbouring rows. Of F16
//                lines of panels (half_panels.h) whose permutation is turned from that of the row into that of the
//                place; of E4M3 128 elements of plain rows
// The tensor cores take 8 cycles for each column and 64 of k, a quarter of a multiprocessor issues 660 instructions to
// decode them (Q4_K), which hide each other in part, and the weights come in 470 (4.5 TB/s) to 660 cycles (3.3 TB/s).
// So groups of few routes have kernels of fewer columns; several of these in one have not enough registers. In E4M3 the
// tensor cores take 6 cycles for each column and 128 of k of 192 rows, for which 880 instructions decode.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/wgmma_products.cuh"

namespace llm::cuda {

struct WgmmaExpertArguments : WgmmaOperands {
  RouteGroups groups;
  int more_than = 0;                          ///< routes, of the groups that are the kernel's
  const float* row_scales[kMaxTargets] = {};  ///< of targets in E4M3: Float8Target's
};

inline constexpr int kGatherers = 96;    ///< threads that copy rows of x
inline constexpr int kGathersAhead = 3;  ///< lines of x on their way, of all columns
static_assert(kGroupedColumns == kMostPanelColumns);

/// How a block is made up: warps that multiply a strip each, registers of their lanes. Four warps more copy.
template <class Weights>
struct ExpertBlockShape {
  static constexpr int kWarps = kWgmmaWarps, kRegisters = kWgmmaRegisters;
};
/// Decoding takes longer than products here, so that weights are decoded for more columns at a time, of fewer rows:
/// sums of 192 columns take 96 registers.
template <>
struct ExpertBlockShape<Float8Weights> {
  static constexpr int kWarps = 12, kRegisters = 160;
};
inline constexpr int kFloat8TileRows = ExpertBlockShape<Float8Weights>::kWarps * kTileRows;

/// What is known of a group's columns.
struct ExpertColumn {
  std::int32_t route;
  float unscale;
};

/// Shared memory: barriers, tables of columns and of their rows of x, the groups that are the kernel's, lines of x,
/// pieces of weights.
template <class T, int kColumns, class Weights>
struct WgmmaExpertPlaces {
  static constexpr int kWarps = ExpertBlockShape<Weights>::kWarps, kRegisters = ExpertBlockShape<Weights>::kRegisters;
  static constexpr int kRows = kWarps * kTileRows, kThreads = 32 * (kWarps + 4);
  /// What a thread has when the block starts; of less than all together those who multiply would wait forever.
  static constexpr int kFirstRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kThreads * kFirstRegisters >= 32 * (kWarps * kRegisters + 4 * kWgmmaCopyRegisters));
  /// Of groups under way: a line of x may be 8 ahead, a tile has 2 (of E4M3), 4 or more.
  static constexpr int kColumnTables = 2 + kMostXStages / (kBlockK / Weights::kLineK);
  static constexpr int kXBytes = kColumns * kPanelLine, kWBytes = kWarps * T::kPieceBytes;
  static constexpr int kTableBytes = kColumns * static_cast<int>(sizeof(ExpertColumn));
  static constexpr int kRowsBytes = kColumns * static_cast<int>(sizeof(std::uint32_t));
  int max_groups, x_stages, w_stages;

  static LLM_HOST_DEVICE int warp_counts() { return 8 * kWgmmaBarriers; }
  static LLM_HOST_DEVICE int columns(int table) { return kWgmmaAlignment / 2 + table * kTableBytes; }
  static LLM_HOST_DEVICE int rows(int table) { return columns(kColumnTables) + table * kRowsBytes; }
  static LLM_HOST_DEVICE int groups() { return rows(kColumnTables); }
  LLM_HOST_DEVICE int x(int stage) const {
    const int begin = groups() + 2 * max_groups;
    return (begin + kWgmmaAlignment - 1) / kWgmmaAlignment * kWgmmaAlignment + stage * kXBytes;
  }
  LLM_HOST_DEVICE int w(int stage) const { return x(x_stages) + stage * kWBytes; }
  LLM_HOST_DEVICE int bytes() const { return w(w_stages); }
};
static_assert(8 * kWgmmaBarriers + 4 * kWgmmaThreads / 32 <= kWgmmaAlignment / 2);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A tile of rows and a group of routes.
struct ExpertItem {
  const KernelTarget* to;
  const float* row_scales;  ///< of the target's
  int tile;                 ///< of the target's
  int expert, first_route, count;
};

/// Groups of up to kColumns routes, and of more than those that have other kernels.
template <class T, int kColumns, class Weights>
struct WgmmaExpertBlock {
  using Places = WgmmaExpertPlaces<T, kColumns, Weights>;
  static constexpr int kLines = T::kPieceK / Weights::kLineK;  ///< of a piece
  using Sums = float[kColumns / 2];
  const WgmmaExpertArguments& p;
  Places places;
  std::byte* memory;
  WgmmaBarriers barriers;
  int lane, pieces;
  int items = 0;  ///< of all blocks

  __device__ __forceinline__ std::uint32_t address(int place) const {
    return barriers.first + static_cast<std::uint32_t>(place);
  }
  /// The same list in all blocks, by all threads.
  __device__ __forceinline__ void find_groups() {
    auto* const counts = reinterpret_cast<int*>(memory + Places::warp_counts());
    auto* const groups = reinterpret_cast<std::uint16_t*>(memory + Places::groups());
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, n = of_warp(*p.groups.n_groups);
    int found = 0;
    for (int first = 0; first < n; first += Places::kThreads) {
      const int group = first + thread, count = group < n ? p.groups.count[group] : 0;
      const bool mine = count > p.more_than && count <= kColumns;
      const unsigned votes = __ballot_sync(0xffffffffu, mine);
      if (lane == 0) counts[warp] = __popc(votes);
      __syncthreads();
      int before = found;
      for (int w = 0; w < Places::kThreads / 32; ++w) {
        if (w < warp) before += counts[w];
        found += counts[w];
      }
      if (mine) groups[before + __popc(votes & ((1u << lane) - 1))] = static_cast<std::uint16_t>(group);
      __syncthreads();
    }
    items = of_warp(found) * p.tiles;
  }
  /// f(index, table of its columns) of all items that are the block's, in order.
  template <class F>
  __device__ __forceinline__ void for_items(F&& f) const {
    int table = 0;
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x)) {
      f(i, table);
      table = (table + 1) % Places::kColumnTables;
    }
  }
  __device__ __forceinline__ ExpertItem item(int index) const {
    const int group = reinterpret_cast<const std::uint16_t*>(memory + Places::groups())[index / p.tiles];
    const int tile = index % p.tiles;
    const int target = p.target_of(tile);
    return {.to = &p.targets[target],
            .row_scales = p.row_scales[target],
            .tile = tile - p.targets[target].first,
            .expert = p.groups.expert[group],
            .first_route = p.groups.first[group],
            .count = p.groups.count[group]};
  }
  /// The same for all lanes of a warp, as the compiler sees.
  static __device__ __forceinline__ int of_warp(int x) { return __shfl_sync(0xffffffffu, x, 0); }

  // --- those who copy ---

  __device__ __forceinline__ void copy_weights() const {
    RingPosition at(p.w_stages);
    for_items([&](int index, int) {
      const ExpertItem it = item(index);
      const int last = (it.to->n - 1) / kTileRows, i = lane % kMostStrips;
      const std::byte* const strip = it.to->matrix + it.expert * it.to->matrix_bytes +
                                     min(it.tile * Places::kWarps + i, last) * strip_bytes<T>(p.k);
      for (int piece = 0; piece < pieces; ++piece, at.advance()) {
        wait_barrier(barriers.w_empty(at.slot), at.phase ^ 1);
        if (lane == 0) arrive_expecting(barriers.w_full(at.slot), Places::kWBytes);
        __syncwarp();
        if (i < Places::kWarps)
          copy_piece<T>(strip, piece, p.k, address(places.w(at.slot) + i * T::kPieceBytes), barriers.w_full(at.slot),
                        lane);
      }
    });
  }

  /// By kGatherers threads, `thread` of them.
  __device__ __forceinline__ void copy_rows(int thread) const {
    RingPosition at(p.x_stages), there(p.x_stages);  // of the lines asked for, and of those that are there
    int under_way = 0;
    for_items([&](int index, int table) {
      const ExpertItem it = item(index);
      find_columns(it, table, thread);
      for (int line = 0; line < pieces * kLines; ++line, at.advance()) {
        wait_barrier(barriers.x_empty(at.slot), at.phase ^ 1);
        copy_lines(line, memory + places.x(at.slot), table, it.count, thread);
        commit_copies();
        if (++under_way <= kGathersAhead) continue;
        wait_for_copies<kGathersAhead>();
        hand_over(there);
        --under_way;
      }
    });
    wait_for_copies<0>();
    for (; under_way > 0; --under_way) hand_over(there);
  }
  __device__ __forceinline__ void hand_over(RingPosition& there) const {
    publish_operand();
    arrive(barriers.x_full(there.slot));
    there.advance();
  }
  __device__ __forceinline__ void find_columns(const ExpertItem& item, int table, int thread) const {
    auto* const columns = reinterpret_cast<ExpertColumn*>(memory + Places::columns(table));
    auto* const rows = reinterpret_cast<std::uint32_t*>(memory + Places::rows(table));
    for (int c = thread; c < item.count; c += kGatherers) {
      const std::int32_t route = p.groups.routes[item.first_route + c];
      const int row = route / p.groups.routes_per_row;
      columns[c] = {route, p.unscale[row]};
      rows[c] = row_at(static_cast<std::uint32_t>(row));
    }
    asm volatile("bar.sync 1, %0;" ::"n"(kGatherers) : "memory");
  }
  /// A thread copies the same 16 bytes of every 12th column's line. What is in lines without a route comes into
  /// products that are not stored.
  __device__ __forceinline__ void copy_lines(int line, std::byte* to, int table, int columns, int thread) const {
    constexpr int kVectors = kPanelLine / 16, kStep = kGatherers / kVectors, kTogether = 4;
    static_assert(kGatherers % kVectors == 0);
    const auto* const rows = reinterpret_cast<const std::uint32_t*>(memory + Places::rows(table));
    const auto vector = static_cast<std::uint32_t>(thread % kVectors * 16);
#pragma unroll 1
    for (int first = thread / kVectors; first < columns; first += kTogether * kStep) {
      std::uint32_t row[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) row[i] = rows[min(first + i * kStep, columns - 1)];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const auto column = static_cast<std::uint32_t>(first + i * kStep);
        if (first + i * kStep < columns) copy_vector(to + (line_at(column) ^ vector), line, row[i], vector);
      }
    }
  }
  /// 16 bytes of a line: those at `vector` of it.
  __device__ __forceinline__ void copy_vector(std::byte* to, int line, std::uint32_t row, std::uint32_t vector) const {
    const std::int64_t pitch = Weights::kByRow ? kPanelLine : static_cast<std::int64_t>(p.lines) * kPanelLine;
    const std::byte* const from = p.x + line * pitch;
    if constexpr (Weights::kByRow)
      copy16_or_zero_async(to, from + row + vector, line * kPanelLine + static_cast<int>(vector) < p.k);
    else
      copy16_async(to, from + (row ^ vector));
  }
  /// Where a row of x begins: of panels, its line in the first one.
  __device__ __forceinline__ std::uint32_t row_at(std::uint32_t row) const {
    return Weights::kByRow ? row * static_cast<std::uint32_t>(p.k) : line_at(row);
  }
  /// Where the first 16 bytes of a line lie: any others at the place xor theirs.
  static __device__ __forceinline__ std::uint32_t line_at(std::uint32_t line) {
    return line * kPanelLine + line % 8 * 16;
  }

  // --- those who multiply ---

  /// Eight lanes write 8 neighbouring results of a route. `first` and `end`: the pieces whose sums these are; those
  /// before are in the results' place.
  __device__ __forceinline__ void store(const ExpertItem& item, int table, int strip, const Sums& sums, int first,
                                        int end) const {
    const KernelTarget& to = *item.to;
    const float scale = to.scale != nullptr ? to.scale[item.expert] : 1.0f;
    const auto* const columns = reinterpret_cast<const ExpertColumn*>(memory + Places::columns(table));
    float bias[2] = {}, of_row[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(item, strip, half);
      if (row >= to.n) continue;
      if (to.bias != nullptr) bias[half] = to.bias[static_cast<std::int64_t>(item.expert) * to.n + row];
      if constexpr (Weights::kByRow) of_row[half] = row_scale(item, row);
    }
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {  // pairs of rows of a column
      const int c = i / 2 * 8 + lane % 4 * 2 + i % 2;
      if (c >= item.count) continue;
      const ExpertColumn column = columns[c];
      float* const y = to.y + static_cast<std::int64_t>(column.route) * to.n;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(item, strip, half);
        if (row >= to.n) continue;
        float value = sums[i / 2 * 4 + 2 * half + i % 2];
        if constexpr (Weights::kByRow) {
          if (first > 0) value += y[row];
          if (end < pieces) {
            y[row] = value;
            continue;
          }
          value *= of_row[half];
        }
        value *= column.unscale;
        if (to.scale != nullptr) value *= scale;
        if (to.bias != nullptr) value += bias[half];
        y[row] = value;
      }
    }
  }
  /// The lane's of a strip.
  __device__ __forceinline__ int row_of(const ExpertItem& item, int strip, int half) const {
    return item.tile * Places::kRows + strip * kTileRows + tile_row(lane / 4, half);
  }
  static __device__ __forceinline__ float row_scale(const ExpertItem& item, int row) {
    return item.row_scales[static_cast<std::int64_t>(item.expert) * item.to->n + row];
  }

  __device__ __forceinline__ void multiply_all(int warp) const {
    StripProducts<T, kColumns, Places, Weights> products(places, memory, barriers, lane, warp);
    for_items([&](int index, int table) {
      const auto multiply = [&](int first, int end) {
        Sums sums;
        products.multiply(end - first, sums);
        store(item(index), table, warp, sums, first, end);
      };
      if constexpr (Weights::kByRow) {
        products.weights = weights_of(item(index), warp);
        constexpr int kSumPieces = Weights::kSumK / T::kPieceK;
#pragma unroll 1
        for (int first = 0; first < pieces; first += kSumPieces) multiply(first, min(first + kSumPieces, pieces));
      } else {
        multiply(0, pieces);
      }
      products.leave_last();  // behind the last look at the columns' table
    });
  }
  __device__ __forceinline__ Weights weights_of(const ExpertItem& item, int strip) const {
    Weights weights;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(item, strip, half);
      if (row < item.to->n) weights.inverse[half] = 1.0f / row_scale(item, row);
    }
    return weights;
  }
};

#endif

/// Blocks of Places::kThreads, one for each multiprocessor.
template <class T, int kColumns, class Weights>
__global__ void __launch_bounds__(WgmmaExpertPlaces<T, kColumns, Weights>::kThreads, 1)
    wgmma_experts_kernel(const __grid_constant__ WgmmaExpertArguments p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Places = WgmmaExpertPlaces<T, kColumns, Weights>;
  if (!p.has_next) let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  std::byte* const memory = aligned_memory();
  WgmmaExpertBlock<T, kColumns, Weights> block{.p = p,
                                               .places = {p.groups.max_groups, p.x_stages, p.w_stages},
                                               .memory = memory,
                                               .barriers = {shared_address(memory)},
                                               .lane = lane,
                                               .pieces = static_cast<int>(llm::cuda::pieces<T>(p.k))};
  if (threadIdx.x == 0) block.barriers.init(kGatherers, Places::kWarps);
  if (!p.is_beside) wait_for_previous();
  if (p.has_next) let_next_start();
  block.find_groups();
  __syncthreads();
  if (warp < Places::kWarps) {
    take_registers<Places::kRegisters>();
    block.multiply_all(warp);
  } else {
    give_registers<kWgmmaCopyRegisters>();
    if (warp == Places::kWarps)
      block.copy_weights();
    else
      block.copy_rows(static_cast<int>(threadIdx.x) - 32 * (Places::kWarps + 1));
  }
  if (p.is_beside) wait_for_previous();  // whose end this launch's implies
#endif
}

template <class T, int kColumns, class Weights>
void launch_wgmma_experts_kernel(WgmmaExpertArguments p, const Launch& at) {
  using Places = WgmmaExpertPlaces<T, kColumns, Weights>;
  const auto kernel = wgmma_experts_kernel<T, kColumns, Weights>;
  const DeviceLimits& device = device_limits();
  allow_shared<wgmma_experts_kernel<T, kColumns, Weights>>(device.block_bytes);
  Places places{p.groups.max_groups, 0, 0};
  const WgmmaStages stages =
      wgmma_stages(device.block_bytes - kWgmmaAlignment - places.x(0), Places::kXBytes, Places::kWBytes);
  check(stages.x >= kGathersAhead + 2, "multipliers leave a line when the next one is there");
  places.x_stages = p.x_stages = stages.x;
  places.w_stages = p.w_stages = stages.w;
  launch(kernel, dim3(static_cast<unsigned>(device.multiprocessors)), dim3(Places::kThreads),
         static_cast<std::size_t>(places.bytes() + kWgmmaAlignment), at, p);
}

/// Of one type: groups of more than kSmall routes first, and smaller ones beside them.
template <class T, int kSmall, int kLarge, class Weights>
void launch_wgmma_experts_kernels(WgmmaExpertArguments p, const Launch& at) {
  const bool has_next = p.has_next;
  p.more_than = kSmall;
  p.has_next = true;
  launch_wgmma_experts_kernel<T, kLarge, Weights>(p, at);
  p.more_than = 0;
  p.has_next = has_next;
  p.is_beside = true;
  launch_wgmma_experts_kernel<T, kSmall, Weights>(p, at);
}

/// `routes`: of an expert, in the mean.
template <DType type>
void launch_wgmma_experts(const WgmmaExpertArguments& p, int routes, const Launch& at) {
  if (routes <= 8)
    launch_wgmma_experts_kernels<Tile<type>, 16, kGroupedColumns, HalfWeights>(p, at);
  else if (routes <= 16)
    launch_wgmma_experts_kernels<Tile<type>, 32, kGroupedColumns, HalfWeights>(p, at);
  else
    launch_wgmma_experts_kernels<Tile<type>, 64, kGroupedColumns, HalfWeights>(p, at);
}

/// In E4M3 decoding takes longer than products of so few columns that fewer would gain nothing.
template <DType type>
void launch_wgmma_experts_f8(const WgmmaExpertArguments& p, const Launch& at) {
  if (p.groups.columns <= kFloat8Columns[1])
    launch_wgmma_experts_kernels<Tile<type>, kFloat8Columns[0], kFloat8Columns[1], Float8Weights>(p, at);
  else
    launch_wgmma_experts_kernels<Tile<type>, kFloat8Columns[0], kFloat8Columns[2], Float8Weights>(p, at);
}

}  // namespace llm::cuda
