// The columns of a step in a block's shared memory, for the ring (tile_ring.cuh): copied once, column by column, as
// many as there are, so that one column takes 18 KB at most (k = 14336) and eight take 124 KB.
//
//   codes   [column][k], columns 64 bytes modulo 128 apart. In 64 of k, two steps, lane t's bytes of both are
//           neighbours at 16 t: a load of 16 bytes is two B operands, and a quarter of a warp reads all banks once.
//   sums    Q8x256 [column][block] of kSums bytes of ColumnBlock: low32, high32 (16), or low16, high16 (32), or none
//   scales  Q8x256 [column][block]; Q8x32 [column][step]
#pragma once

#include "backend/cuda/kernels/tile_add.cuh"
#include "backend/cuda/kernels/tile_products.cuh"

namespace llm::cuda {

/// Bytes of a block's sums that products with a type take.
template <class T>
constexpr int sums_bytes() {
  if constexpr (T::kFormat == ActFormat::Q8x256)
    return T::Scales::kMinimumK == 0 ? 0 : T::Scales::kMinimumK == 32 ? 16 : 32;
  else
    return 0;
}

/// Places from the start of the columns, in bytes.
template <ActFormat format, int kSums>
struct ColumnsPlaces {
  int columns, blocks;
  LLM_HOST_DEVICE int codes_stride() const { return blocks * kBlockK + 64; }
  LLM_HOST_DEVICE int sums() const { return columns * codes_stride(); }
  LLM_HOST_DEVICE int sums_stride() const {  // 16 modulo 128
    const int bytes = blocks * kSums;
    return bytes + ((16 - bytes) & 127);
  }
  LLM_HOST_DEVICE int scales() const { return sums() + (kSums > 0 ? columns * sums_stride() : 0); }
  LLM_HOST_DEVICE int scales_stride() const {  // odd words; of steps: 4 words modulo 16
    if (format == ActFormat::Q8x256) return 4 * (blocks | 1);
    return 4 * (blocks * kSteps + (blocks % 2 != 0 ? 12 : 4));
  }
  LLM_HOST_DEVICE int bytes() const { return scales() + columns * scales_stride(); }
};

/// Where a lane (g, t) finds its columns, from the start of shared memory, for block 0. Columns that do not exist are
/// read as the last one.
template <int NB>
struct LaneRing {
  std::uint32_t codes[NB], sums[NB], scales[NB][2];

  template <class Places>
  __device__ __forceinline__ void find(const Places& places, int start, int lane) {
    const auto place = [&](int at, int column, int stride) {
      return static_cast<std::uint32_t>(start + at + min(column, places.columns - 1) * stride);
    };
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int nb = 0; nb < NB; ++nb) {
      codes[nb] = place(0, kColumns * nb + g, places.codes_stride()) + static_cast<std::uint32_t>(16 * t);
      sums[nb] = place(places.sums(), kColumns * nb + g, places.sums_stride()) + static_cast<std::uint32_t>(4 * t);
#pragma unroll
      for (int c = 0; c < 2; ++c)
        scales[nb][c] = place(places.scales(), kColumns * nb + 2 * t + c, places.scales_stride());
    }
  }
};

/// The columns' side of a piece, from shared memory.
template <class T, int NB>
struct RingColumns {
  static constexpr int kAhead = T::kFormat == ActFormat::Q8x256 ? 8 : 4;
  const std::byte* shared;
  const LaneRing<NB>& at;
  std::uint32_t index;  ///< of the piece

  template <class Value>
  __device__ __forceinline__ Value read(std::uint32_t place) const {
    return *reinterpret_cast<const Value*>(shared + place);
  }
  __device__ __forceinline__ void codes(int first, uint2 (&b)[kAhead][NB]) const {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb) {
      uint4 two_steps[kAhead / 2];
#pragma unroll
      for (int i = 0; i < kAhead / 2; ++i)
        two_steps[i] = read<uint4>(at.codes[nb] + index * static_cast<std::uint32_t>(T::kPieceK) +
                                   static_cast<std::uint32_t>(first * kStepK + 2 * kStepK * i));
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int step = step_of<T>(first + i) - first;
        const uint4 two = two_steps[step / 2];
        b[i][nb] = step % 2 == 0 ? make_uint2(two.x, two.y) : make_uint2(two.z, two.w);
      }
    }
  }
  __device__ __forceinline__ void step_scales(int first, float (&d)[kAhead][NB][2]) const {
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const auto four =
            read<float4>(at.scales[nb][c] +
                         (index * static_cast<std::uint32_t>(T::kSteps) + static_cast<std::uint32_t>(first)) * 4u);
        d[0][nb][c] = four.x, d[1][nb][c] = four.y, d[2][nb][c] = four.z, d[3][nb][c] = four.w;
      }
  }
  __device__ __forceinline__ float scale(int nb, int c) const { return read<float>(at.scales[nb][c] + 4 * index); }
  __device__ __forceinline__ std::uint32_t sums32(int nb) const {
    return read<std::uint32_t>(at.sums[nb] + 16 * index);
  }
  __device__ __forceinline__ std::uint32_t low16(int nb) const { return read<std::uint32_t>(at.sums[nb] + 32 * index); }
  __device__ __forceinline__ std::uint32_t high16(int nb) const {
    return read<std::uint32_t>(at.sums[nb] + 32 * index + 16);
  }
};

/// What is copied of column c of a step's columns beside its codes: item `index`, a block or a step.
template <ActFormat format, int kSums>
struct ScaleItem {
  float scale;
  uint4 sums[kSums > 0 ? kSums / 16 : 1];

  __device__ __forceinline__ void load(const TileArguments& p, int blocks, int c, int index) {
    const int column = p.first_column + c;
    const std::int64_t group = column / kColumns;
    const std::byte* from = p.x + p.x_scales;
    if constexpr (format == ActFormat::Q8x256) {
      from += ((group * blocks + index) * kColumns + column % kColumns) * static_cast<int>(sizeof(ColumnBlock));
      constexpr int kFirst = kSums == 32 ? offsetof(ColumnBlock, low16) : offsetof(ColumnBlock, low32);
#pragma unroll
      for (int i = 0; i < kSums / 16; ++i) sums[i] = __ldcg(reinterpret_cast<const uint4*>(from + kFirst + 16 * i));
    } else {
      from += ((group * blocks * kSteps + index) * kColumns + column % kColumns) * static_cast<int>(sizeof(StepScale));
    }
    scale = __ldcg(reinterpret_cast<const float*>(from));
  }
  __device__ __forceinline__ void store(std::byte* to, const ColumnsPlaces<format, kSums>& places, int c,
                                        int index) const {
    *reinterpret_cast<float*>(to + places.scales() + c * places.scales_stride() + 4 * index) = scale;
#pragma unroll
    for (int i = 0; i < kSums / 16; ++i)
      *reinterpret_cast<uint4*>(to + places.sums() + c * places.sums_stride() + kSums * index + 16 * i) = sums[i];
  }
};

/// Copies the step's columns, by `threads` threads (whole warps), of which the caller is number `thread`. Past the
/// first cache, which may hold what an earlier step had in the same place. The first loads of scales go out before
/// those of codes.
template <ActFormat format, int kSums>
__device__ __forceinline__ void copy_columns(std::byte* to, const ColumnsPlaces<format, kSums>& places,
                                             const TileArguments& p, int thread, int threads) {
  const int blocks = places.blocks, columns = places.columns;
  const int items = columns * (format == ActFormat::Q8x256 ? blocks : blocks * kSteps);
  using Item = ScaleItem<format, kSums>;
  constexpr int kHeld = 2;
  Item held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int item = thread + i * threads;
    if (item < items) held[i].load(p, blocks, item % columns, item / columns);
  }

  // A warp copies two blocks of a column: lane 16 b + 2 s + h half h of step s, the bytes of two t.
  const int pairs = (blocks + 1) / 2, units = columns * pairs, lane = thread % 32;
  const int step = lane % 16 / 2, half = lane % 2;
  constexpr int kLoads = 4;
  for (int first = thread / 32; first < units; first += kLoads * (threads / 32)) {
    uint4 codes[kLoads];
    int target[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int unit = first + i * (threads / 32), c = unit / pairs, block = unit % pairs * 2 + lane / 16;
      target[i] = -1;
      if (unit >= units || block >= blocks) continue;
      const int column = p.first_column + c;
      const std::byte* from = p.x + codes_offset(column / kColumns, block, p.k) +
                              (step * kColumns + column % kColumns) * kStepK + 16 * half;
      codes[i] = __ldcg(reinterpret_cast<const uint4*>(from));
      target[i] = c * places.codes_stride() + block * kBlockK + step / 2 * 64 + half * 32 + step % 2 * 8;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (target[i] < 0) continue;
      *reinterpret_cast<uint2*>(to + target[i]) = make_uint2(codes[i].x, codes[i].y);
      *reinterpret_cast<uint2*>(to + target[i] + 16) = make_uint2(codes[i].z, codes[i].w);
    }
  }

#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int item = thread + i * threads;
    if (item < items) held[i].store(to, places, item % columns, item / columns);
  }
#pragma unroll 4
  for (int item = thread + kHeld * threads; item < items; item += threads) {
    Item one;
    one.load(p, blocks, item % columns, item / columns);
    one.store(to, places, item % columns, item / columns);
  }
}

}  // namespace llm::cuda
