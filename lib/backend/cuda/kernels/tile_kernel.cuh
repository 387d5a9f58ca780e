// Products of tiles with quantised columns: the kernel and how its shape is chosen.
//
// A block of threads computes 16 rows (a strip) for up to 8 NB columns. Its warps split k: piece p belongs to part
// p % 16, and a warp takes one part or several, one after the other; what the parts give is added in one order,
// whatever the number of warps. So the bits of a result depend on the row, its column and k alone.
//
// A warp copies its pieces to shared memory by itself, two ahead of the one that it computes (as registers they would
// not do: the compiler gives these loads and those of the activations one scoreboard, and waits for both). 8 warps have
// 38 KB of Q4_K in flight, a multiprocessor with two or three blocks 76 to 114 KB, where 4.5 TB/s at 1 us ask for 34.
// The first copies start before the block waits for its input. Codes of activations come from the L1 or L2 cache as the
// B operand lies there (act_layout.h): 4 lanes of a column read 32 neighbouring bytes. Lanes of columns that do not
// exist read another column's.
//
// Instructions per 16 x 256 at 8 columns or fewer, by the disassembly: 223 for Q4_K, 323 for Q6_K, 340 for Q8_0. Memory
// needs 483, 686 and 888 issue slots of a quarter of a multiprocessor for these (4.9 bytes a cycle).
//
// Float operations are those of the CPU's products (backend/cpu/kernels/quant_linear.h), a block of 256, 32 or 16 at a
// time; where signed codes are multiples of their values, the sum is divided by that power of two at its end.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "backend/cuda/kernels/tile_add.cuh"
#include "backend/cuda/kernels/tile_products.cuh"
#include "backend/cuda/kernels/tiles.cuh"

namespace llm::cuda {

/// Activations, by way of the first cache: they were written by an earlier kernel, so not through the read-only path.
__device__ __forceinline__ uint2 load_codes(const std::byte* from) {
  uint2 v;
#ifdef __CUDA_ARCH__
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
#else
  std::memcpy(&v, from, sizeof v);
#endif
  return v;
}
__device__ __forceinline__ std::uint32_t load_sums(const std::byte* from) {
  std::uint32_t v;
#ifdef __CUDA_ARCH__
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
#else
  std::memcpy(&v, from, sizeof v);
#endif
  return v;
}
__device__ __forceinline__ float load_scale(const std::byte* from) { return bits_to_float(load_sums(from)); }

/// Asks the L2 cache for a strip.
__device__ __forceinline__ void prefetch_strip(const std::byte* from, std::int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(static_cast<std::uint32_t>(bytes)));
#else
  static_cast<void>(from), static_cast<void>(bytes);
#endif
}

/// Where the columns of a lane lie in x, in groups of 8: offsets for block 0.
template <class T, int NB>
struct LaneColumns {
  std::uint32_t codes[NB];      ///< of column g, k = 4t
  std::uint32_t sums[NB];       ///< of column g: its ColumnBlock (Q8x256), 4t further on
  std::uint32_t scales[NB][2];  ///< of columns 2t and 2t + 1

  /// row(c): the row of x that is column c; columns from `columns` on are read as the last one.
  template <class Row>
  __device__ __forceinline__ void find(const Row& row, int columns, std::int64_t k, std::uint32_t x_scales, int lane) {
    constexpr std::uint32_t kScaleBytes = T::kFormat == ActFormat::Q8x256 ? sizeof(ColumnBlock) : sizeof(StepScale);
    constexpr auto kGroupScales = static_cast<std::uint32_t>(scales_bytes(T::kFormat));  // of a (group, block)
    const auto blocks = static_cast<std::uint32_t>(k_blocks(k));
    const auto place = [&](int c) { return static_cast<std::uint32_t>(row(min(c, columns - 1))); };
    const auto scale_at = [&](std::uint32_t at) {
      return x_scales + at / kColumns * blocks * kGroupScales + at % kColumns * kScaleBytes;
    };
#pragma unroll
    for (int nb = 0; nb < NB; ++nb) {
      const std::uint32_t own = place(kColumns * nb + lane / 4);
      codes[nb] = own / kColumns * blocks * kBlockCodes + own % kColumns * kStepK + 8 * (lane % 4);
      sums[nb] = scale_at(own) + 4 * (lane % 4);
      scales[nb][0] = scale_at(place(kColumns * nb + 2 * (lane % 4)));
      scales[nb][1] = scale_at(place(kColumns * nb + 2 * (lane % 4) + 1));
    }
  }
};

/// Steps whose codes (and scales, of Q8x32) are loaded together: as many as fit into the registers.
template <ActFormat format, int NB>
inline constexpr int kStepsAhead = format == ActFormat::Q8x256 ? (NB == 1   ? 8
                                                                  : NB <= 4 ? 2
                                                                            : 1)
                                                               : (NB == 1 ? 4 : 1);

/// The columns' side of a piece, from the caches.
template <class T, int NB>
struct CachedColumns {
  static constexpr int kAhead = kStepsAhead<T::kFormat, NB>;
  /// What a block of 256 has beside its codes is asked for at the start, else at its use.
  static constexpr bool kHeld = NB <= 2;
  static constexpr auto kBlockScales = static_cast<std::uint32_t>(scales_bytes(T::kFormat));  ///< of 8 columns
  const std::byte *of_codes, *of_scales;                                                      ///< of the piece
  const LaneColumns<T, NB>& at;
  float d[NB][2];
  std::uint32_t words[NB][2];  ///< sums32; low16, high16

  __device__ __forceinline__ CachedColumns(const std::byte* x, const LaneColumns<T, NB>& at, std::uint32_t index)
      : of_codes(x + index * static_cast<std::uint32_t>(T::kSteps * kColumns * kStepK)),
        of_scales(x + index * (kBlockScales / kSteps * static_cast<std::uint32_t>(T::kSteps))),
        at(at) {}

  __device__ __forceinline__ float ask_scale(int nb, int c) const { return load_scale(of_scales + at.scales[nb][c]); }
  __device__ __forceinline__ std::uint32_t ask_word(int nb, std::size_t offset) const {
    return load_sums(of_scales + at.sums[nb] + offset);
  }
  __device__ __forceinline__ void begin() {
    if constexpr (kHeld) {
#pragma unroll
      for (int nb = 0; nb < NB; ++nb) {
        d[nb][0] = ask_scale(nb, 0);
        d[nb][1] = ask_scale(nb, 1);
        if constexpr (T::Scales::kMinimumK == 32) words[nb][0] = ask_word(nb, offsetof(ColumnBlock, low32));
        if constexpr (T::Scales::kMinimumK == 16) {
          words[nb][0] = ask_word(nb, offsetof(ColumnBlock, low16));
          words[nb][1] = ask_word(nb, offsetof(ColumnBlock, high16));
        }
      }
    }
  }
  __device__ __forceinline__ void codes(int first, uint2 (&b)[kAhead][NB]) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
#pragma unroll
      for (int nb = 0; nb < NB; ++nb)
        b[i][nb] = load_codes(of_codes + at.codes[nb] + step_of<T>(first + i) * (kColumns * kStepK));
  }
  __device__ __forceinline__ void step_scales(int first, float (&scales)[kAhead][NB][2]) const {
    constexpr int kStepScales = kColumns * static_cast<int>(sizeof(StepScale));
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
#pragma unroll
      for (int nb = 0; nb < NB; ++nb)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          scales[i][nb][c] = load_scale(of_scales + at.scales[nb][c] + (first + i) * kStepScales);
  }
  __device__ __forceinline__ float scale(int nb, int c) const { return kHeld ? d[nb][c] : ask_scale(nb, c); }
  __device__ __forceinline__ std::uint32_t sums32(int nb) const {
    return kHeld ? words[nb][0] : ask_word(nb, offsetof(ColumnBlock, low32));
  }
  __device__ __forceinline__ std::uint32_t low16(int nb) const {
    return kHeld ? words[nb][0] : ask_word(nb, offsetof(ColumnBlock, low16));
  }
  __device__ __forceinline__ std::uint32_t high16(int nb) const {
    return kHeld ? words[nb][1] : ask_word(nb, offsetof(ColumnBlock, high16));
  }
};

/// A warp's walk over its pieces. Part number j of a warp, of kParts / warps: in pairs s and s + 8, which share a slot.
struct Walk {
  int warp, warps, pieces, part = 0, piece;

  __device__ __forceinline__ Walk(int warp, int warps, int pieces)
      : warp(warp), warps(warps), pieces(pieces), piece(warp) {
    skip_empty();
  }
  __device__ __forceinline__ int first_piece(int j) const { return warp + j / 2 * warps + j % 2 * kSlots; }
  __device__ __forceinline__ bool at_end() const { return part * warps >= kParts; }
  __device__ __forceinline__ void skip_empty() {
    while (piece >= pieces && !at_end()) piece = first_piece(++part);
  }
  __device__ __forceinline__ void advance() {
    piece += kParts;
    skip_empty();
  }
};

inline constexpr int kStages = 3;  ///< pieces of a warp in shared memory

/// The pieces of a warp on their way through shared memory.
template <class T>
struct Ring {
  const std::byte *codes, *scales;  ///< of the strip's first piece
  std::byte* stages;                ///< kStages of T::kPieceBytes
  int lane;
  Walk ahead;
  int fill = 0, take = 0;  ///< stages

  /// Asks for the next piece, if there is one.
  __device__ __forceinline__ void copy_next() {
    if (!ahead.at_end()) {
      std::byte* to = stages + fill * T::kPieceBytes + 16 * lane;
      const std::byte* from_codes = codes + codes_at<T>(ahead.piece) + 16 * lane;
      const std::byte* from_scales = scales + static_cast<std::int64_t>(ahead.piece) * T::Scales::kBytes + 16 * lane;
#pragma unroll
      for (int i = 0; i < T::Codes::kBytes; i += kQuadBytes) copy16_async(to + i, from_codes + i);
#pragma unroll
      for (int i = 0; i < T::Scales::kBytes; i += kQuadBytes)
        if (i + 16 * lane < T::Scales::kBytes) copy16_async(to + T::Codes::kBytes + i, from_scales + i);
      ahead.advance();
    }
    fill = fill + 1 == kStages ? 0 : fill + 1;
    commit_copies();
  }
  /// The next piece, and asks for one more.
  __device__ __forceinline__ void take_next(T& piece) {
    wait_for_copies<kStages - 2>();
    __syncwarp();  // the copies of all lanes are there, and all have done with the stage that is filled next
    const std::byte* from = stages + take * T::kPieceBytes;
    piece.template load<FromMemory>(from, from + T::Codes::kBytes, lane);
    take = take + 1 == kStages ? 0 : take + 1;
    copy_next();
  }
};

template <class T, int NB>
struct WarpSums {
  const std::byte* x;
  const LaneColumns<T, NB>& at;
  int lane;
  float acc[NB][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[nb][j] = 0;
  }
  template <class Take>
  __device__ __forceinline__ void add(const Take& take, int index) {
    CachedColumns<T, NB> columns(x, at, static_cast<std::uint32_t>(index));
    add_piece<T>(take, columns, lane, acc);
  }
  /// Into `slot` [NB][4][32].
  __device__ __forceinline__ void store(float* slot) const {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) slot[(nb * 4 + j) * 32 + lane] = acc[nb][j];
  }
  __device__ __forceinline__ void add_to(float* slot) const {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) slot[(nb * 4 + j) * 32 + lane] += acc[nb][j];
  }
};

template <class T, int NB>
constexpr std::size_t shared_bytes(int warps) {
  return kSlots * NB * 4 * 32 * sizeof(float) + static_cast<std::size_t>(warps * kStages) * T::kPieceBytes;
}

/// Blocks that share a multiprocessor of an H100 (227 KB, of which each takes 1 KB more): registers are limited so that
/// they fit. Three want 80 registers, which is too few for a scale and an activation scale per step.
template <class T, int NB, int kMostWarps>
constexpr int blocks_together() {
  if (kMostWarps > kSlots || NB > 2) return 1;
  const int fit = static_cast<int>(std::size_t{227 * 1024} / (shared_bytes<T, NB>(kSlots) + 1024));
  return NB == 1 && fit >= 3 && (T::kFormat == ActFormat::Q8x256 || T::kSteps < 8) ? 3 : 2;
}

/// Block (strip, group) of 128, 256 or 512 threads. Shared: the slots [8][NB][4][32], then the warps' stages.
template <class T, int NB, int kMostWarps>
__global__ void __launch_bounds__(32 * kMostWarps, (blocks_together<T, NB, kMostWarps>()))
    tile_kernel(const __grid_constant__ TileArguments p) {
  extern __shared__ uint4 tile_shared[];
  constexpr int kSlotFloats = NB * 4 * 32;
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32), n_pieces = static_cast<int>(pieces<T>(p.k));
  auto* partial = reinterpret_cast<float*>(tile_shared);
  std::byte* stages = reinterpret_cast<std::byte*>(partial + kSlots * kSlotFloats) + warp * (kStages * T::kPieceBytes);
  int target = 0;
  while (target + 1 < p.n_targets && static_cast<int>(blockIdx.x) >= p.targets[target + 1].first) ++target;
  const KernelTarget& to = p.targets[target];
  const int strip = static_cast<int>(blockIdx.x) - to.first;

  const bool is_grouped = p.groups.n_groups != nullptr;
  const std::byte* matrix = to.matrix + strip * strip_bytes<T>(p.k);
  int columns = p.columns, expert = 0;
  const std::int32_t* routes = nullptr;
  if (is_grouped) {
    const int group = static_cast<int>(blockIdx.y);
    wait_for_previous();
    if (group >= *p.groups.n_groups) return;
    expert = p.groups.expert[group];
    columns = p.groups.count[group];
    routes = p.groups.routes + p.groups.first[group];
    matrix += expert * to.matrix_bytes;
  } else if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) < p.prefetched) {
    prefetch_strip(matrix, strip_bytes<T>(p.k));
  }
  Ring<T> ring{matrix, matrix + scales_at<T>(0, p.k), stages, lane, Walk(warp, warps, n_pieces)};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) ring.copy_next();
  if (!is_grouped) wait_for_previous();

  LaneColumns<T, NB> at;
  const auto x_row = [&](int c) { return is_grouped ? routes[c] / p.groups.routes_per_row : p.first_column + c; };
  at.find(x_row, columns, p.k, p.x_scales, lane);
  WarpSums<T, NB> sums{p.x, at, lane, {}};
  for (int part = 0; part * warps < kParts; ++part) {
    const int slot = (warp + part / 2 * warps) % kSlots;
    sums.clear();
    for (int index = warp + part / 2 * warps + part % 2 * kSlots; index < n_pieces; index += kParts)
      sums.add([&](T& piece) { ring.take_next(piece); }, index);
    if (part % 2 == 1)
      sums.add_to(partial + slot * kSlotFloats);
    else if (warp < kSlots)
      sums.store(partial + slot * kSlotFloats);
  }
  if (warps > kSlots) {  // part s + 8 is another warp's
    __syncthreads();
    if (warp >= kSlots) sums.add_to(partial + (warp - kSlots) * kSlotFloats);
  }
  __syncthreads();

  // The slots in order.
  const float scale = to.scale != nullptr ? to.scale[expert] : 1.0f;
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kColumns * NB; e += static_cast<int>(blockDim.x)) {
    const int row = e % kTileRows, column = e / kTileRows;
    const int owner = row % 8 * 4 + column % kColumns / 2, register_ = row / 8 * 2 + column % 2;
    const float* from = partial + (column / kColumns * 4 + register_) * 32 + owner;
    float total = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) total += from[s * kSlotFloats];
    const int i = strip * kTileRows + row;
    if (i >= to.n || column >= columns) continue;
    if constexpr (T::Codes::kPasses == 1) total *= T::Codes::kUnit;
    if (to.scale != nullptr) total *= scale;
    if (to.bias != nullptr) total += to.bias[static_cast<std::int64_t>(expert) * to.n + i];
    const std::int64_t y_row = is_grouped ? routes[column] : p.first_column + column;
    to.y[y_row * to.n + i] = total;
  }
}

template <class T, int NB, int kMostWarps>
void launch_tile_kernel(const TileArguments& p, int warps, unsigned groups, const DeviceLimits& limits,
                        const Launch& at) {
  constexpr auto kKernel = tile_kernel<T, NB, kMostWarps>;
  const auto most =
      std::min<std::size_t>(shared_bytes<T, NB>(kMostWarps), static_cast<std::size_t>(limits.block_bytes));
  allow_shared<kKernel>(static_cast<int>(most));
  launch(kKernel, dim3(static_cast<unsigned>(p.strips), groups), dim3(static_cast<unsigned>(32 * warps)),
         shared_bytes<T, NB>(warps), at, p);
}

/// 16 warps a block where a multiprocessor gets one block at most, 4 where k has no more pieces or shared memory no
/// more room, else 8.
template <class T, int NB>
void launch_tile_kernel(TileArguments p, const Launch& at) {
  const DeviceLimits& limits = device_limits();
  const auto fits = [&](int warps) {
    return shared_bytes<T, NB>(warps) <= static_cast<std::size_t>(limits.block_bytes);
  };
  const std::int64_t n_pieces = pieces<T>(p.k);
  const int groups = p.groups.n_groups != nullptr ? p.groups.max_groups : 1;
  p.prefetched = at.overlap ? 2 * limits.multiprocessors : 0;
  if constexpr (NB == 1) {
    const bool is_small = std::int64_t{p.strips} * groups <= limits.multiprocessors;
    if (is_small && n_pieces >= kParts && fits(16))
      return launch_tile_kernel<T, NB, 16>(p, 16, static_cast<unsigned>(groups), limits, at);
  }
  const int warps = n_pieces <= 4 || !fits(kSlots) ? 4 : kSlots;
  launch_tile_kernel<T, NB, kSlots>(p, warps, static_cast<unsigned>(groups), limits, at);
}

template <DType type>
void launch_tile_products(const TileArguments& p, const Launch& at) {
  using T = Tile<kReadAs<type>>;
  const int columns = p.groups.n_groups != nullptr ? p.groups.columns : p.columns;
  if (columns <= 8)
    launch_tile_kernel<T, 1>(p, at);
  else if (columns <= 16)
    launch_tile_kernel<T, 2>(p, at);
  else if (columns <= 32)
    launch_tile_kernel<T, 4>(p, at);
  else
    launch_tile_kernel<T, 8>(p, at);
}

}  // namespace llm::cuda
