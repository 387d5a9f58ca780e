// The kernel of wgmma_products(): 256 rows of weights times up to 128 columns, 64 of k (a chunk) at a time.
//
// Four groups of four warps multiply, a warp a strip of 16 rows. It decodes the strip's tiles out of shared memory
// straight into registers (tile_operands.cuh); columns are the other operand, which tensor cores read from shared
// memory themselves. A product of 16 of k runs on its own, but the next one of the warp is issued only when its turn
// has come: of four warps to a quarter of a multiprocessor some decode meanwhile. Two more warps copy: pieces of
// weights into one ring, which they begin before the previous kernel has ended, and chunks of columns into another.
//
// Where there are too few tiles for all multiprocessors, the blocks of a cluster share out k, and their sums are added
// by way of the cluster's shared memory, in the order of k.
//
// A chunk of 128 columns takes the tensor cores 1,024 cycles. Meanwhile a quarter of a multiprocessor issues 4 x 165
// instructions that decode Q4_K, 4 x 205 of Q6_K, and 16 KB of columns and 9.5 KB of weights come, 25 bytes a cycle,
// about what the second cache gives where all multiprocessors read.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/kernel_target.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ring_asm.cuh"
#include "backend/cuda/kernels/tile_operands.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"
#include "backend/cuda/kernels/wgmma.cuh"
#include "backend/cuda/kernels/wgmma_float8.cuh"
#include "backend/cuda/kernels/wgmma_plan.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "backend/cuda/kernels/wide_asm.cuh"

namespace llm::cuda {

/// Targets of one type, and what they are multiplied with.
struct WgmmaOperands {
  KernelTarget targets[kMaxTargets];
  int n_targets = 0;
  int tile_rows = kWgmmaRows;
  int tiles = 0;  ///< of all targets
  int k = 0;
  const std::byte* x = nullptr;
  int lines = 0;  ///< of a panel of x
  const float* unscale = nullptr;
  bool has_next = false;   ///< a launch follows that reads the same x: it may start once x is there
  bool is_beside = false;  ///< one came before: x is there, y is free, and it may still run until this one's end
  int x_stages = 0, w_stages = 0;

  WgmmaOperands() = default;
  WgmmaOperands(std::span<const Target>, const std::byte* x, int capacity, const float* unscale);
  /// Of a tile of all: its target.
  LLM_HOST_DEVICE int target_of(int tile) const {
    int target = 0;
    while (target + 1 < n_targets && tile >= targets[target + 1].first) ++target;
    return target;
  }
};

struct WgmmaArguments : WgmmaOperands {
  int columns = 0;
  WgmmaPlan plan;
};

inline constexpr int kWgmmaWarps = kWgmmaRows / kTileRows;    ///< that multiply
inline constexpr int kWgmmaThreads = 32 * (kWgmmaWarps + 4);  ///< fours of warps share out registers
inline constexpr int kWgmmaWeights = kWgmmaWarps, kWgmmaPanels = kWgmmaWarps + 1;  ///< the warps that copy
inline constexpr int kWgmmaRegisters = 112, kWgmmaCopyRegisters = 32;
inline constexpr int kMostStrips = 16;  ///< of a tile: a lane each for codes and scales of one's piece
inline constexpr int kMostXStages = 8, kMostWStages = 3;
inline constexpr int kWgmmaBarriers = 2 * (kMostXStages + kMostWStages) + 1;
inline constexpr int kWgmmaAlignment = 1024;  ///< of operands in shared memory
static_assert(kPanelK == kChunkK && kPanelK == HalfWeights::kLineK && kWgmmaWarps == kMostStrips);

/// Shared memory: barriers, chunks of columns, pieces of weights; in the end, in place of all stages, sums
/// [column][row].
template <class T, int kColumns>
struct WgmmaPlaces {
  static constexpr int kXBytes = kColumns * kPanelLine, kWBytes = kWgmmaWarps * T::kPieceBytes;
  static constexpr int kSumsPitch = kWgmmaRows + 4;  ///< floats: lanes of 4 neighbouring columns meet no bank twice
  static_assert(kXBytes % kWgmmaAlignment == 0 && 8 * kWgmmaBarriers <= kWgmmaAlignment);
  int x_stages, w_stages;

  static LLM_HOST_DEVICE int x(int stage) { return kWgmmaAlignment + stage * kXBytes; }
  LLM_HOST_DEVICE int w(int stage) const { return x(x_stages) + stage * kWBytes; }
  static LLM_HOST_DEVICE int sum(int column, int row) { return x(0) + 4 * (column * kSumsPitch + row); }
  LLM_HOST_DEVICE int bytes() const {
    const int stages = w(w_stages), sums = sum(kColumns, 0);
    return stages > sums ? stages : sums;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Full and empty of each stage of both rings.
struct WgmmaBarriers {
  std::uint32_t first;
  __device__ __forceinline__ std::uint32_t at(int i) const { return first + 8u * static_cast<unsigned>(i); }
  __device__ __forceinline__ std::uint32_t x_full(int stage) const { return at(stage); }
  __device__ __forceinline__ std::uint32_t x_empty(int stage) const { return at(kMostXStages + stage); }
  __device__ __forceinline__ std::uint32_t w_full(int stage) const { return at(2 * kMostXStages + stage); }
  __device__ __forceinline__ std::uint32_t w_empty(int stage) const {
    return at(2 * kMostXStages + kMostWStages + stage);
  }
  /// For which nobody waits. Before the first chunk there is none to leave, but with a branch for that among products
  /// that run the compiler lets them run one by one.
  __device__ __forceinline__ std::uint32_t nobody() const { return at(2 * (kMostXStages + kMostWStages)); }
  /// `x_copiers`: threads that arrive when a chunk of columns is there; `multipliers`: warps that leave stages.
  __device__ __forceinline__ void init(int x_copiers, int multipliers) const {
    init_barrier(nobody(), multipliers);
    for (int i = 0; i < kMostXStages; ++i) init_barrier(x_full(i), x_copiers), init_barrier(x_empty(i), multipliers);
    for (int i = 0; i < kMostWStages; ++i) init_barrier(w_full(i), 1), init_barrier(w_empty(i), multipliers);
    publish_barriers();
  }
};

/// What a warp of those that multiply does with the stages of both rings, strip `strip` of the tile with all columns: a
/// line of each column (Weights::kLineK of k) at a time, which are one chunk of weights or several. Of Places it wants
/// x(stage), w(stage) and how many of both there are.
template <class T, int kColumns, class Places, class Weights = HalfWeights>
struct StripProducts {
  using Sums = float[kColumns / 2];
  static constexpr int kChunks = kPieceChunks<T>;
  static constexpr int kLineChunks = Weights::kLineK / kChunkK;
  static constexpr int kChunkSteps = kChunkK / Weights::kProductK, kSteps = kLineChunks * kChunkSteps;  ///< products
  static_assert(kChunks % kLineChunks == 0);
  const Places& places;
  const std::byte* memory;
  const WgmmaBarriers& barriers;
  int lane, strip;
  Weights weights{};
  RingPosition x, w;
  std::uint32_t before;  ///< says that the line before is left, whose last products may run

  __device__ __forceinline__ StripProducts(const Places& places, const std::byte* memory, const WgmmaBarriers& barriers,
                                           int lane, int strip)
      : places(places),
        memory(memory),
        barriers(barriers),
        lane(lane),
        strip(strip),
        x(places.x_stages),
        w(places.w_stages),
        before(barriers.nobody()) {}

  __device__ __forceinline__ void leave(std::uint32_t empty) const {
    __syncwarp();
    if (lane == 0) arrive(empty);
  }
  /// sums = products of so many pieces. The last line of x is still to be left.
  __device__ __forceinline__ void multiply(int pieces, Sums& sums) {
    std::uint32_t a[kSteps][4];
#pragma unroll
    for (float& sum : sums) sum = zero_here();
#pragma unroll 1
    for (int piece = 0; piece < pieces; ++piece, w.advance()) {
      wait_barrier(barriers.w_full(w.slot), w.phase);
      multiply_chunk<0>(a, sums);
    }
    wait_for_products<0>();
  }
  __device__ __forceinline__ void leave_last() {
    leave(before);
    before = barriers.nobody();
  }

 private:
  template <int kChunk>
  __device__ __forceinline__ void multiply_chunk(std::uint32_t (&a)[kSteps][4], Sums& sums) {
    constexpr int kFirst = kChunk % kLineChunks * kChunkSteps;  // of the line's products
    TileChunk<T, kChunk, Weights> chunk;
    chunk.load(memory + places.w(w.slot) + strip * T::kPieceBytes, lane, weights);
    if constexpr (kFirst == 0) wait_barrier(barriers.x_full(x.slot), x.phase);
    const std::uint64_t line = operand_of_lines(barriers.first + static_cast<std::uint32_t>(places.x(x.slot)));
#pragma unroll
    for (int j = 0; j < kChunkSteps; ++j) {
      const int step = kFirst + j;
      wait_for_products<kSteps - 1>();  // of those that run none reads this operand
      if (step == kSteps - 1) leave(before);
      chunk.operand(j, a[step]);
      if (j == kChunkSteps - 1 && kChunk == kChunks - 1) leave(barriers.w_empty(w.slot));
      begin_products();
      if constexpr (Weights::kProductK == 16)
        multiply_warpgroup<kColumns>(sums, a[step], line + 2 * step);
      else
        multiply_warpgroup_f8<kColumns>(sums, a[step], line + 2 * step);
      commit_products();
    }
    if constexpr (kFirst + kChunkSteps == kSteps) {
      before = barriers.x_empty(x.slot);
      x.advance();
    }
    if constexpr (kChunk + 1 < kChunks) multiply_chunk<kChunk + 1>(a, sums);
  }
};

/// The piece of one of kMostStrips strips, of which a lane has lane % kMostStrips: half of the warp copies codes, the
/// other half scales.
template <class T>
__device__ __forceinline__ void copy_piece(const std::byte* strip, int piece, int k, std::uint32_t to,
                                           std::uint32_t full, int lane) {
  if (lane < kMostStrips)
    copy_bulk(to, strip + codes_at<T>(piece), T::Codes::kBytes, full);
  else
    copy_bulk(to + T::Codes::kBytes, strip + scales_at<T>(piece, k), T::Scales::kBytes, full);
}

/// The block's, from where operands may lie on.
__device__ __forceinline__ std::byte* aligned_memory() {
  std::byte* const memory = block_memory();
  const std::uint32_t beyond = shared_address(memory) % kWgmmaAlignment;
  return memory + (beyond == 0 ? 0 : kWgmmaAlignment - beyond);
}

/// What the roles of a block have in common.
template <class T, int kColumns>
struct WgmmaBlock {
  using Places = WgmmaPlaces<T, kColumns>;
  static constexpr int kChunks = kPieceChunks<T>;
  const WgmmaArguments& p;
  Places places;
  std::byte* memory;
  WgmmaBarriers barriers;
  const KernelTarget* to;
  int tile;          ///< of the target's
  int first_column;  ///< of the group
  int rank, first_piece, end_piece, lane;

  __device__ __forceinline__ std::uint32_t address(int place) const {
    return barriers.first + static_cast<std::uint32_t>(place);
  }

  /// Strips beyond the matrix are read as its last.
  __device__ __forceinline__ void copy_weights() const {
    const int last = (to->n - 1) / kTileRows, i = lane % kMostStrips;
    const std::byte* const strip = to->matrix + min(tile * kWgmmaWarps + i, last) * strip_bytes<T>(p.k);
    RingPosition at(p.w_stages);
    for (int piece = first_piece; piece < end_piece; ++piece, at.advance()) {
      wait_barrier(barriers.w_empty(at.slot), at.phase ^ 1);
      if (lane == 0) arrive_expecting(barriers.w_full(at.slot), Places::kWBytes);
      __syncwarp();
      copy_piece<T>(strip, piece, p.k, address(places.w(at.slot) + i * T::kPieceBytes), barriers.w_full(at.slot), lane);
    }
  }

  /// By one lane.
  __device__ __forceinline__ void copy_panels() const {
    if (!p.is_beside) wait_for_previous();
    if (p.has_next) let_next_start();
    const std::int64_t panel = static_cast<std::int64_t>(p.lines) * kPanelLine;
    const std::byte* from = p.x + first_piece * kChunks * panel + first_column * kPanelLine;
    RingPosition at(p.x_stages);
    for (int chunk = first_piece * kChunks; chunk < end_piece * kChunks; ++chunk, at.advance(), from += panel) {
      wait_barrier(barriers.x_empty(at.slot), at.phase ^ 1);
      arrive_expecting(barriers.x_full(at.slot), Places::kXBytes);
      copy_bulk(address(Places::x(at.slot)), from, Places::kXBytes, barriers.x_full(at.slot));
    }
  }

  /// All of k that is the block's, into shared memory.
  __device__ __forceinline__ void multiply(int warp) const {
    StripProducts<T, kColumns, Places> products(places, memory, barriers, lane, warp);
    float sums[kColumns / 2];
    products.multiply(end_piece - first_piece, sums);
    wait_for_multipliers();  // whose operands lie where sums go now
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
      const int row = warp * kTileRows + tile_row(lane / 4, i % 4 / 2);
      *reinterpret_cast<float*>(memory + Places::sum(column, row)) = sums[i];
    }
  }
  static __device__ __forceinline__ void wait_for_multipliers() {
    asm volatile("bar.sync 1, %0;" ::"n"(32 * kWgmmaWarps) : "memory");
  }

  /// The block's share of the group's columns: the sums of all blocks of the cluster, four rows a thread.
  __device__ __forceinline__ void finish(int thread) const {
    constexpr int kFours = kWgmmaRows / 4, kTogether = 32 * kWgmmaWarps / kFours;
    const int row = 4 * (thread % kFours), y_row = tile * kWgmmaRows + row;
    const int end = min(kColumns * (rank + 1) / p.plan.cluster, p.columns - first_column);
    if (y_row >= to->n) return;
    const float scale = to->scale != nullptr ? to->scale[0] : 1.0f;
    float bias[4] = {};
    if (to->bias != nullptr)
#pragma unroll
      for (int i = 0; i < 4; ++i) bias[i] = to->bias[min(y_row + i, to->n - 1)];
    for (int column = kColumns * rank / p.plan.cluster + thread / kFours; column < end; column += kTogether) {
      float v[4] = {};
      for (int r = 0; r < p.plan.cluster; ++r) {
        const float4 part = load_remote(address(Places::sum(column, row)), r);
        v[0] += part.x, v[1] += part.y, v[2] += part.z, v[3] += part.w;
      }
      const float unscale = p.unscale[first_column + column];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] *= unscale;
        if (to->scale != nullptr) v[i] *= scale;
        if (to->bias != nullptr) v[i] += bias[i];
      }
      float* const y = to->y + static_cast<std::int64_t>(first_column + column) * to->n + y_row;
      if (to->n % 4 == 0) {
        *reinterpret_cast<float4*>(y) = make_float4(v[0], v[1], v[2], v[3]);
      } else {
        for (int i = 0; i < min(4, to->n - y_row); ++i) y[i] = v[i];
      }
    }
  }
};

#endif

/// Blocks of kWgmmaThreads, plan.cluster to a cluster: (tile, group), groups first, so that those who read the same
/// weights run together. Shared: WgmmaPlaces, and what aligns them.
template <class T, int kColumns>
__global__ void __launch_bounds__(kWgmmaThreads, 1) wgmma_kernel(const __grid_constant__ WgmmaArguments p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if (!p.has_next) let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Of the whole warp, as the compiler sees: it must not find products where lanes may go different ways.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  std::byte* const memory = aligned_memory();
  const int cluster = static_cast<int>(blockIdx.x) / p.plan.cluster, rank = cluster_rank();
  const int tile = cluster / p.plan.groups, pieces = static_cast<int>(llm::cuda::pieces<T>(p.k));
  const int target = p.target_of(tile);
  const WgmmaBlock<T, kColumns> block{.p = p,
                                      .places = {p.x_stages, p.w_stages},
                                      .memory = memory,
                                      .barriers = {shared_address(memory)},
                                      .to = &p.targets[target],
                                      .tile = tile - p.targets[target].first,
                                      .first_column = cluster % p.plan.groups * kColumns,
                                      .rank = rank,
                                      .first_piece = wgmma_first_piece(pieces, p.plan.cluster, rank),
                                      .end_piece = wgmma_first_piece(pieces, p.plan.cluster, rank + 1),
                                      .lane = lane};
  if (threadIdx.x == 0) block.barriers.init(1, kWgmmaWarps);
  __syncthreads();
  if (warp < kWgmmaWarps) {
    take_registers<kWgmmaRegisters>();
    block.multiply(warp);
    cluster_barrier();
    if (!p.is_beside) wait_for_previous();  // which may read y
    block.finish(static_cast<int>(threadIdx.x));
  } else {
    give_registers<kWgmmaCopyRegisters>();
    if (warp == kWgmmaWeights) block.copy_weights();
    if (warp == kWgmmaPanels && lane == 0) block.copy_panels();
    __syncwarp();
    cluster_barrier();
  }
  cluster_barrier();                     // a block's memory goes when it ends
  if (p.is_beside) wait_for_previous();  // whose end this launch's implies
#endif
}

/// 0 of clusters that the device cannot run.
template <class Kernel>
void find_wgmma_clusters(Kernel kernel, const DeviceLimits& device, WgmmaClusters& clusters) {
  clusters[0] = device.multiprocessors;
  for (int size = 2; size <= kMostWgmmaBlocks; ++size) {
    LaunchAttributes attributes({}, size);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(device.multiprocessors / size * size));
    config.blockDim = dim3(kWgmmaThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(device.block_bytes);
    config.attrs = attributes.list;
    config.numAttrs = attributes.count;
    if (cudaOccupancyMaxActiveClusters(&clusters[size - 1], kernel, &config) == cudaSuccess) continue;
    static_cast<void>(cudaGetLastError());
    clusters[size - 1] = 0;
  }
}

/// Of both rings in so much shared memory.
struct WgmmaStages {
  int x, w;
};
inline WgmmaStages wgmma_stages(int memory, int x_bytes, int w_bytes) {
  constexpr int kEnoughX = 5;
  const int w = memory - kMostWStages * w_bytes >= kEnoughX * x_bytes ? kMostWStages : 2;
  return {std::min((memory - w * w_bytes) / x_bytes, kMostXStages), w};
}

template <class T, int kColumns>
void launch_wgmma_kernel(WgmmaArguments p, const DeviceLimits& device, const Launch& at) {
  using Places = WgmmaPlaces<T, kColumns>;
  const WgmmaStages stages =
      wgmma_stages(device.block_bytes - kWgmmaAlignment - Places::x(0), Places::kXBytes, Places::kWBytes);
  p.x_stages = stages.x;
  p.w_stages = stages.w;
  const Places places{p.x_stages, p.w_stages};
  launch_clusters(p.plan.cluster, wgmma_kernel<T, kColumns>,
                  dim3(static_cast<unsigned>(p.plan.cluster * p.plan.groups * p.tiles)), dim3(kWgmmaThreads),
                  static_cast<std::size_t>(places.bytes() + kWgmmaAlignment), at, p);
}

/// The types of targets that have rows, each once, in their order.
struct TargetTypes {
  DType list[kMaxTargets]{};
  int count = 0;
};
TargetTypes types_of(std::span<const Target>);
/// Sets those of a type.
void set_targets(std::span<const Target>, DType, WgmmaOperands&);

/// Calls launch(type, operands) for each type, `operands` with the targets of it.
template <class Operands, class F>
void for_types(std::span<const Target> targets, Operands operands, F&& launch) {
  const TargetTypes types = types_of(targets);
  for (int i = 0; i < types.count; ++i) {
    set_targets(targets, types.list[i], operands);
    operands.is_beside = i > 0;
    operands.has_next = i + 1 < types.count;
    launch(types.list[i], operands);
  }
}

/// Of one type; `p` without its plan.
template <DType type>
void launch_wgmma_products(WgmmaArguments p, const Launch& at) {
  using T = Tile<type>;
  const DeviceLimits& device = device_limits();
  constexpr int kDevices = 8;  // of which what they said is remembered
  static thread_local struct {
    int device = -1;
    WgmmaClusters clusters;
  } known[kDevices];
  auto& [known_of, clusters] = known[device.id % kDevices];
  if (known_of != device.id) {
    for (const auto kernel : {wgmma_kernel<T, kWgmmaColumns[0]>, wgmma_kernel<T, kWgmmaColumns[1]>})
      check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.block_bytes),
                 "asking for shared memory");
    find_wgmma_clusters(wgmma_kernel<T, kWgmmaColumns[1]>, device, clusters);
    known_of = device.id;
  }
  p.plan = plan_wgmma({.tiles = p.tiles,
                       .pieces = static_cast<int>(pieces<T>(p.k)),
                       .piece_chunks = kPieceChunks<T>,
                       .piece_bytes = kWgmmaWarps * T::kPieceBytes,
                       .columns = p.columns},
                      clusters);
  if (p.plan.columns == kWgmmaColumns[0])
    launch_wgmma_kernel<T, kWgmmaColumns[0]>(p, device, at);
  else
    launch_wgmma_kernel<T, kWgmmaColumns[1]>(p, device, at);
}

}  // namespace llm::cuda
