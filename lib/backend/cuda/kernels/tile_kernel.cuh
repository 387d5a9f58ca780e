// Products of tiles with quantised columns: the kernel and how its shape is chosen.
//
// A block of threads computes 16 rows (a strip) for up to 8 NB columns. Its warps split k: piece p belongs to part
// p % 16, and a warp takes a part or two, one after the other; what the parts give is added in one order, whatever the
// number of warps. So the bits of a result depend on the row, its column and k alone.
//
// A warp keeps the next piece in registers while it computes one: a block of 8 warps has 19 KB of Q4_K in flight, two
// of them on a multiprocessor 38 KB, which at 4.5 TB/s covers 1.1 us. The first pieces are asked for before the block
// waits for its input. Codes of activations come from the L1 or L2 cache as the B operand lies there (act_layout.h):
// 4 lanes of a column read 32 neighbouring bytes. Lanes of columns that do not exist read another column's.
//
// Instructions per 16 x 256 at 8 columns or fewer, counted from the source: Q4_K 180, Q6_K 290, Q8_0 190 (of which
// loads 22, 35, 26). Memory needs 483, 686 and 888 issue slots of a quarter of a multiprocessor for these (4.9 bytes a
// cycle): bound by memory, with a headroom of 2.3 to 4.7.
//
// Float operations are those of the CPU's products (backend/cpu/kernels/quant_linear.h), a block of 256, 32 or 16 at a
// time; where signed codes are multiples of their values, the sum is divided by that power of two at its end.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_mma.cuh"
#include "backend/cuda/kernels/tile_products.cuh"
#include "backend/cuda/kernels/tiles.cuh"

namespace llm::cuda {

inline constexpr int kParts = 16;  ///< of k, of which a block's warps take one or two each
inline constexpr int kSlots = 8;   ///< sums that the parts are brought together in: parts s and s + 8 first

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
  std::uint32_t sums[NB];       ///< of column g: its ColumnBlock (Q8x256)
  std::uint32_t scales[NB][2];  ///< of columns 2t and 2t + 1

  /// row(c): the row of x that is column c; columns from `columns` on are read as the last one.
  template <class Row>
  __device__ __forceinline__ void find(const Row& row, int columns, std::int64_t k, std::uint32_t x_scales, int lane) {
    constexpr std::uint32_t kScaleBytes = T::kFormat == ActFormat::Q8x256 ? sizeof(ColumnBlock) : sizeof(StepScale);
    constexpr std::uint32_t kGroupScales = 512;  // of a (group, block), in either format
    const auto blocks = static_cast<std::uint32_t>(k_blocks(k));
    const auto place = [&](int c) { return static_cast<std::uint32_t>(row(min(c, columns - 1))); };
    const auto scale_at = [&](std::uint32_t at) {
      return x_scales + at / kColumns * blocks * kGroupScales + at % kColumns * kScaleBytes;
    };
#pragma unroll
    for (int nb = 0; nb < NB; ++nb) {
      const std::uint32_t own = place(kColumns * nb + lane / 4);
      codes[nb] = own / kColumns * blocks * kBlockCodes + own % kColumns * kStepK + 8 * (lane % 4);
      sums[nb] = scale_at(own);
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

/// Step number i of a piece in the order in which they are computed: large units last, so that a sum moves on to them
/// by a shift.
template <class T>
__device__ __forceinline__ constexpr int step_of(int i) {
  constexpr int kPasses = T::kFormat == ActFormat::Q8x256 ? T::Codes::kPasses : 1, kPerPass = T::kSteps / kPasses;
  return i % kPerPass * kPasses + (kPasses - 1 - i / kPerPass);
}

template <class T>
__device__ __forceinline__ void step_bytes(const T& piece, int step, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) a[r] = piece.codes.bytes(step, r);
}

/// Adds a piece to acc [NB][4] where a block of 256 has one scale on either side.
template <class T, int NB>
__device__ __forceinline__ void add_piece_256(const T& piece, const std::byte* x, const LaneColumns<T, NB>& at,
                                              std::uint32_t index, int lane, float (&acc)[NB][4]) {
  using Codes = typename T::Codes;
  using Scales = typename T::Scales;
  constexpr int kAhead = kStepsAhead<T::kFormat, NB>;
  const int zero[4] = {0, 0, 0, 0};
  const std::byte* x_codes = x + index * static_cast<std::uint32_t>(kBlockCodes);
  const std::byte* x_scales = x + index * 512u;
  int sum[NB][4];
#pragma unroll
  for (int nb = 0; nb < NB; ++nb)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[nb][i] = 0;

#pragma unroll
  for (int first = 0; first < kSteps; first += kAhead) {
    uint2 b[kAhead][NB];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
#pragma unroll
      for (int nb = 0; nb < NB; ++nb)
        b[i][nb] = load_codes(x_codes + at.codes[nb] + step_of<T>(first + i) * (kColumns * kStepK));
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = step_of<T>(first + i);
      if (Codes::kPasses > 1 && first + i > 0 && (first + i) % (kSteps / Codes::kPasses) == 0) {
#pragma unroll
        for (int nb = 0; nb < NB; ++nb)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[nb][j] >>= Codes::kPassShift;  // exact: all terms are multiples
      }
      std::uint32_t a[4];
      step_bytes(piece, step, a);
      if constexpr (Scales::kScaleK == 16) {
        const int scale[2][2] = {{piece.scales.scale(0, 2 * step), piece.scales.scale(1, 2 * step)},
                                 {piece.scales.scale(0, 2 * step + 1), piece.scales.scale(1, 2 * step + 1)}};
#pragma unroll
        for (int nb = 0; nb < NB; ++nb) {
          int first_half[4], second_half[4];
          mma16<Codes::kSigned>(first_half, a[0], a[1], b[i][nb].x, zero);
          mma16<Codes::kSigned>(second_half, a[2], a[3], b[i][nb].y, zero);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sum[nb][j] += first_half[j] * scale[0][j / 2];
            sum[nb][j] += second_half[j] * scale[1][j / 2];
          }
        }
      } else if constexpr (Scales::kScaleK == 32) {
        const int scale[2] = {piece.scales.scale(0, step), piece.scales.scale(1, step)};
#pragma unroll
        for (int nb = 0; nb < NB; ++nb) {
          int product[4];
          mma32<Codes::kSigned>(product, a, b[i][nb], zero);
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[nb][j] += product[j] * scale[j / 2];
        }
      } else {
#pragma unroll
        for (int nb = 0; nb < NB; ++nb) mma32<Codes::kSigned>(sum[nb], a, b[i][nb], sum[nb]);
      }
    }
  }

  const float d[2] = {piece.scales.d(0), piece.scales.d(1)};
#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const float d_act[2] = {load_scale(x_scales + at.scales[nb][0]), load_scale(x_scales + at.scales[nb][1])};
    if constexpr (Scales::kMinimumK > 0) {
      // sums are low + 128 high: the minimums times the high parts, times 128, plus the minimums times the low parts
      const std::uint32_t m0 = piece.scales.minimum_word(0), m1 = piece.scales.minimum_word(1);
      const std::byte* sums = x_scales + at.sums[nb];
      int msum[4];
      if constexpr (Scales::kMinimumK == 32) {
        // 8 of each: lanes t < 2 hold the low parts, the others the high ones
        const std::uint32_t parts = load_sums(sums + offsetof(ColumnBlock, low32) + 4 * (lane % 4));
        const bool is_high = lane % 4 >= 2;
        mma16<true>(msum, is_high ? m0 : 0, is_high ? m1 : 0, parts, zero);
#pragma unroll
        for (int j = 0; j < 4; ++j) msum[j] <<= 7;
        mma16<true>(msum, is_high ? 0 : m0, is_high ? 0 : m1, parts, msum);
      } else {
        const std::uint32_t low = load_sums(sums + offsetof(ColumnBlock, low16) + 4 * (lane % 4));
        const std::uint32_t high = load_sums(sums + offsetof(ColumnBlock, high16) + 4 * (lane % 4));
        mma16<true>(msum, m0, m1, high, zero);
#pragma unroll
        for (int j = 0; j < 4; ++j) msum[j] <<= 7;
        mma16<true>(msum, m0, m1, low, msum);
      }
      const float dmin[2] = {piece.scales.dmin(0), piece.scales.dmin(1)};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float y = d[j / 2] * static_cast<float>(sum[nb][j]);
        y = fmaf(-dmin[j / 2], static_cast<float>(msum[j]), y);
        acc[nb][j] = fmaf(d_act[j % 2], y, acc[nb][j]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        acc[nb][j] = fmaf(d_act[j % 2], d[j / 2] * static_cast<float>(sum[nb][j]), acc[nb][j]);
    }
  }
}

/// Sums of 32 products start at this number, the bits of 1.5 * 2^23 as a float: as such a float, a sum below 2^22 is
/// that plus the sum, which a subtraction makes the sum's float. Twice as fast as a conversion.
inline constexpr int kShift = 0x4b400000;
__device__ __forceinline__ float shifted_to_float(int sum) {
  return bits_to_float(static_cast<std::uint32_t>(sum)) - 12582912.0f;
}

/// Adds a piece to acc [NB][4] where every 32 or 16 have a scale and every 32 an activation scale.
template <class T, int NB>
__device__ __forceinline__ void add_piece_32(const T& piece, const std::byte* x, const LaneColumns<T, NB>& at,
                                             std::uint32_t index, float (&acc)[NB][4]) {
  using Codes = typename T::Codes;
  using Scales = typename T::Scales;
  constexpr int kAhead = kStepsAhead<T::kFormat, NB>;
  const int shift[4] = {kShift, kShift, kShift, kShift};
  const std::byte* x_codes = x + index * static_cast<std::uint32_t>(T::kSteps * kColumns * kStepK);
  const std::byte* x_scales = x + index * static_cast<std::uint32_t>(T::kSteps * kColumns * sizeof(StepScale));

#pragma unroll
  for (int first = 0; first < T::kSteps; first += kAhead) {
    uint2 b[kAhead][NB];
    float d_act[kAhead][NB][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
#pragma unroll
      for (int nb = 0; nb < NB; ++nb) {
        b[i][nb] = load_codes(x_codes + at.codes[nb] + (first + i) * (kColumns * kStepK));
        constexpr int kStepScales = kColumns * static_cast<int>(sizeof(StepScale));
        d_act[i][nb][0] = load_scale(x_scales + at.scales[nb][0] + (first + i) * kStepScales);
        d_act[i][nb][1] = load_scale(x_scales + at.scales[nb][1] + (first + i) * kStepScales);
      }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = first + i;
      std::uint32_t a[4];
      step_bytes(piece, step, a);
      if constexpr (Scales::kScaleK == 16) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float d[2] = {piece.scales.d(0, 2 * step + h), piece.scales.d(1, 2 * step + h)};
#pragma unroll
          for (int nb = 0; nb < NB; ++nb) {
            int product[4];
            mma16<Codes::kSigned>(product, a[2 * h], a[2 * h + 1], h == 0 ? b[i][nb].x : b[i][nb].y, shift);
#pragma unroll
            for (int j = 0; j < 4; ++j)
              acc[nb][j] = fmaf(d_act[i][nb][j % 2], d[j / 2] * shifted_to_float(product[j]), acc[nb][j]);
          }
        }
      } else {
        float d[2] = {piece.scales.d(0, step), piece.scales.d(1, step)};
        if constexpr (Codes::kPasses > 1) {
          const float unit = 1.0f / static_cast<float>(1 << Codes::kPassShift * (step % Codes::kPasses));
          d[0] *= unit, d[1] *= unit;  // exact
        }
#pragma unroll
        for (int nb = 0; nb < NB; ++nb) {
          int product[4];
          mma32<Codes::kSigned>(product, a, b[i][nb], shift);
          float y[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) y[j] = d[j / 2] * shifted_to_float(product[j]);
          if constexpr (Scales::kOffset) {
            const std::uint32_t ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
            int codes[4];  // sums of the columns' codes, the same in every row
            mma32<true>(codes, ones, b[i][nb], shift);
            const float asum[2] = {shifted_to_float(codes[0]), shifted_to_float(codes[1])};
#pragma unroll
            for (int j = 0; j < 4; ++j) y[j] = fmaf(piece.scales.m(j / 2, step), asum[j % 2], y[j]);
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) acc[nb][j] = fmaf(d_act[i][nb][j % 2], y[j], acc[nb][j]);
        }
      }
    }
  }
}

/// The pieces of a warp: those of part `warp`, then, where 8 warps do all, those of part warp + 8.
struct PieceSequence {
  int warp, first, count;  ///< pieces of the first part, and of both

  __device__ __forceinline__ PieceSequence(int warp, int warps, int pieces) : warp(warp) {
    first = pieces > warp ? (pieces - warp + kParts - 1) / kParts : 0;
    const int other = warp + kSlots;
    count = first + (warps == kSlots && pieces > other ? (pieces - other + kParts - 1) / kParts : 0);
  }
  __device__ __forceinline__ int operator[](int i) const {
    return i < first ? warp + kParts * i : warp + kSlots + kParts * (i - first);
  }
};

template <class T, int NB>
struct WarpSums {
  const TileArguments& p;
  const LaneColumns<T, NB>& at;
  int lane;
  float* slot;  ///< of the warp's first part: [NB][4][32]
  float acc[NB][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[nb][j] = 0;
  }
  __device__ __forceinline__ void add(const T& piece, int index) {
    if constexpr (T::kFormat == ActFormat::Q8x256)
      add_piece_256<T, NB>(piece, p.x, at, static_cast<std::uint32_t>(index), lane, acc);
    else
      add_piece_32<T, NB>(piece, p.x, at, static_cast<std::uint32_t>(index), acc);
  }
  __device__ __forceinline__ void store() {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) slot[(nb * 4 + j) * 32 + lane] = acc[nb][j];
  }
  /// acc + what `slot` holds, into `slot`.
  __device__ __forceinline__ void store_sum() {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) slot[(nb * 4 + j) * 32 + lane] += acc[nb][j];
  }
};

/// Block (strip, group) of blockDim.x = 128, 256 or 512 threads; the last for NB <= 2 only. Shared: min(warps, 8) slots
/// of 512 NB bytes.
template <class T, int NB>
__global__ void __launch_bounds__(NB <= 2 ? 512 : 256, 1) tile_kernel(const __grid_constant__ TileArguments p) {
  extern __shared__ float partial[];
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  int target = 0;
  while (target + 1 < p.n_targets && static_cast<int>(blockIdx.x) >= p.targets[target + 1].first_strip) ++target;
  const TileTarget& to = p.targets[target];
  const int strip = static_cast<int>(blockIdx.x) - to.first_strip;
  const std::byte* matrix = to.matrix + strip * strip_bytes<T>(p.k);
  const PieceSequence sequence(warp, warps, static_cast<int>(pieces<T>(p.k)));
  const auto load = [&](T& piece, int i) {
    const int index = sequence[i];
    piece.load(matrix + codes_at<T>(index), matrix + scales_at<T>(index, p.k), lane);
  };

  T piece;
  int columns = p.columns, expert = 0;
  const std::int32_t* routes = nullptr;
  LaneColumns<T, NB> at;
  if (p.groups.n_groups == nullptr) {
    if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) < p.prefetched) prefetch_strip(matrix, strip_bytes<T>(p.k));
    if (sequence.count > 0) load(piece, 0);
    wait_for_previous();
    at.find([&](int c) { return p.first_column + c; }, columns, p.k, p.x_scales, lane);
  } else {
    const int group = static_cast<int>(blockIdx.y);
    wait_for_previous();
    const int n_groups = *p.groups.n_groups, first = p.groups.first[group];
    expert = p.groups.expert[group];
    columns = p.groups.count[group];
    if (group >= n_groups) return;
    matrix += expert * to.matrix_bytes;
    if (sequence.count > 0) load(piece, 0);
    routes = p.groups.routes + first;
    at.find([&](int c) { return routes[c] / p.groups.routes_per_row; }, columns, p.k, p.x_scales, lane);
  }

  constexpr int kSlotFloats = NB * 4 * 32;
  WarpSums<T, NB> sums{p, at, lane, partial + (warp % kSlots) * kSlotFloats, {}};
  sums.clear();
  const auto end_part = [&](int i) {
    if (i + 1 == sequence.first && sequence.count > sequence.first) {
      sums.store();
      sums.clear();
    }
  };
  if constexpr (NB <= 2) {  // two pieces by turns, so that none is moved between registers
    T other;
    for (int i = 0; i < sequence.count; i += 2) {
      if (i + 1 < sequence.count) load(other, i + 1);
      sums.add(piece, sequence[i]);
      end_part(i);
      if (i + 1 >= sequence.count) break;
      if (i + 2 < sequence.count) load(piece, i + 2);
      sums.add(other, sequence[i + 1]);
      end_part(i + 1);
    }
  } else {
    T next;
    for (int i = 0; i < sequence.count; ++i) {
      if (i + 1 < sequence.count) load(next, i + 1);
      sums.add(piece, sequence[i]);
      end_part(i);
      piece = next;
    }
  }

  // Parts s and s + 8, then the slots in order. An absent part is zero.
  if (warps > kSlots) {
    if (warp >= kSlots) sums.store();
    __syncthreads();
    if (warp < kSlots) sums.store_sum();
  } else if (sequence.count > sequence.first) {
    sums.store_sum();
  } else {
    sums.store();
  }
  __syncthreads();

  const int slots = min(warps, kSlots);
  const float scale = to.scale != nullptr ? to.scale[expert] : 1.0f;
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kColumns * NB; e += static_cast<int>(blockDim.x)) {
    const int row = e % kTileRows, column = e / kTileRows;
    const int owner = row % 8 * 4 + column % kColumns / 2, register_ = row / 8 * 2 + column % 2;
    const float* from = partial + (column / kColumns * 4 + register_) * 32 + owner;
    float total = 0;
    for (int s = 0; s < slots; ++s) total += from[s * kSlotFloats];
    const int i = strip * kTileRows + row;
    if (i >= to.n || column >= columns) continue;
    if constexpr (T::Codes::kPasses == 1) total *= T::Codes::kUnit;
    if (to.scale != nullptr) total *= scale;
    if (to.bias != nullptr) total += to.bias[static_cast<std::int64_t>(expert) * to.n + i];
    const std::int64_t y_row = routes != nullptr ? routes[column] : p.first_column + column;
    to.y[y_row * to.n + i] = total;
  }
}

inline int multiprocessors() {
  static thread_local int device = -1, count = 0;  // asked once, and again where the device changes
  int now = 0;
  check_cuda(cudaGetDevice(&now), "asking for the device");
  if (now != device) {
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, now), "asking for multiprocessors");
    device = now;
  }
  return count;
}

/// 16 warps a block where that many are needed to fill the device, 4 where k has no more pieces, else 8.
template <class T, int NB>
void launch_tile_kernel(TileArguments p, const Launch& at) {
  const std::int64_t n_pieces = pieces<T>(p.k);
  const bool grouped = p.groups.n_groups != nullptr;
  const int groups = grouped ? p.groups.max_groups : 1;
  int warps = n_pieces <= 4 ? 4 : kSlots;
  if (NB <= 2 && n_pieces >= kParts && static_cast<std::int64_t>(p.strips) * groups <= multiprocessors())
    warps = kParts;
  p.prefetched = at.overlap ? 2 * multiprocessors() : 0;
  const std::size_t shared = static_cast<std::size_t>(std::min(warps, kSlots)) * NB * 4 * 32 * sizeof(float);
  launch(tile_kernel<T, NB>, dim3(static_cast<unsigned>(p.strips), static_cast<unsigned>(groups)),
         dim3(static_cast<unsigned>(32 * warps)), shared, at, p);
}

template <DType type>
void launch_tile_products(const TileArguments& p, const Launch& at) {
  using T = Tile<type>;
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
