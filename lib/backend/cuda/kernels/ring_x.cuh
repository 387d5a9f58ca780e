// The columns of a step in a block's shared memory, for the ring (tile_ring.cuh): copied once, column by column, as
// many as there are, so that one column takes 18 KB at most (k = 14336) and eight take 124 KB.
//
//   codes   [column][k], columns 64 bytes modulo 128 apart. In 64 of k, two steps, lane t's bytes of both are
//           neighbours at 16 t: a load of 16 bytes is two B operands, and a quarter of a warp reads all banks once.
//   sums    Q8x256 [column][block] of kSums bytes of ColumnBlock: low32, high32 (16), or low16, high16 (32), or none
//   scales  Q8x256 [column][block]; Q8x32 [column][step]
#pragma once

#include "backend/cuda/kernels/launch.cuh"
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
  __device__ __forceinline__ void begin() const {}
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
    static_assert(kAhead == 4);
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::uint32_t step = index * static_cast<std::uint32_t>(T::kSteps) + static_cast<std::uint32_t>(first);
        const auto four = read<float4>(at.scales[nb][c] + 4 * step);
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

/// A column's scale of one block or step, and sums: where they are copied from and to, and what they are.
template <ActFormat format, int kSums>
struct ScaleItem {
  const std::byte* from;
  int to_scale, to_sums;
  float scale;
  uint4 sums[kSums > 0 ? kSums / 16 : 1];

  __device__ __forceinline__ void find(const TileArguments& p, const ColumnsPlaces<format, kSums>& places, int item) {
    const int c = places.columns == 1 ? 0 : item % places.columns,
              index = places.columns == 1 ? item : item / places.columns;
    const int column = p.first_column + c,
              of_group = format == ActFormat::Q8x256 ? places.blocks : places.blocks * kSteps;
    constexpr int kBytes = format == ActFormat::Q8x256 ? sizeof(ColumnBlock) : sizeof(StepScale);
    from = p.x + p.x_scales +
           ((static_cast<std::int64_t>(column / kColumns) * of_group + index) * kColumns + column % kColumns) * kBytes;
    to_scale = places.scales() + c * places.scales_stride() + 4 * index;
    to_sums = places.sums() + c * places.sums_stride() + kSums * index;
  }
  __device__ __forceinline__ void load() {
    scale = __ldcg(reinterpret_cast<const float*>(from));
    constexpr int kFirst = kSums == 32 ? offsetof(ColumnBlock, low16) : offsetof(ColumnBlock, low32);
#pragma unroll
    for (int i = 0; i < kSums / 16; ++i) sums[i] = __ldcg(reinterpret_cast<const uint4*>(from + kFirst + 16 * i));
  }
  __device__ __forceinline__ void store(std::byte* to) const {
    *reinterpret_cast<float*>(to + to_scale) = scale;
#pragma unroll
    for (int i = 0; i < kSums / 16; ++i) *reinterpret_cast<uint4*>(to + to_sums + 16 * i) = sums[i];
  }
};

/// 16 bytes of codes: those of two t of half `half` of step `step`.
struct CodesUnit {
  int column, block, step, half;
  __device__ __forceinline__ uint4 load(const TileArguments& p) const {
    const int of_step = p.first_column + column;
    return __ldcg(reinterpret_cast<const uint4*>(p.x + codes_offset(of_step / kColumns, block, p.k) +
                                                 (step * kColumns + of_step % kColumns) * kStepK + 16 * half));
  }
  /// `swapped`: the second half first, so that lanes that differ in it write to different banks.
  template <class Places>
  __device__ __forceinline__ void store(std::byte* to, const Places& places, uint4 codes, bool swapped) const {
    std::byte* const at =
        to + column * places.codes_stride() + block * kBlockK + step / 2 * 64 + half * 32 + step % 2 * 8;
    const uint2 first = make_uint2(codes.x, codes.y), second = make_uint2(codes.z, codes.w);
    *reinterpret_cast<uint2*>(at + (swapped ? 16 : 0)) = swapped ? second : first;
    *reinterpret_cast<uint2*>(at + (swapped ? 0 : 16)) = swapped ? first : second;
  }
};

/// The units that a lane copies at once: kCount of one column, of two blocks each time and `stride` pairs apart, or of
/// a group of columns those of one pair of blocks. A warp reads whole lines of the group.
struct UnitsOfOne {
  static constexpr int kCount = 4;
  int first, stride, lane;
  __device__ __forceinline__ CodesUnit operator[](int i) const {
    return {0, (first + i * stride) * 2 + lane / 16, lane % 16 / 2, lane % 2};
  }
  __device__ __forceinline__ bool swaps() const { return false; }
};
struct UnitsOfGroup {
  static constexpr int kCount = 8;
  int pair, first_column, lane;
  __device__ __forceinline__ CodesUnit operator[](int i) const {
    return {first_column + lane / 2 % 4 + lane / 16 * 4, 2 * pair + i / 4, i % 4 * 2 + lane / 8 % 2, lane % 2};
  }
  __device__ __forceinline__ bool swaps() const { return lane / 4 % 2 != 0; }
};

template <class Places, class Units>
__device__ __forceinline__ void copy_units(std::byte* to, const TileArguments& p, const Places& places,
                                           const Units& units) {
  uint4 codes[Units::kCount];
  const auto exists = [&](const CodesUnit& u) { return u.column < places.columns && u.block < places.blocks; };
#pragma unroll
  for (int i = 0; i < Units::kCount; ++i)
    if (exists(units[i])) codes[i] = units[i].load(p);
#pragma unroll
  for (int i = 0; i < Units::kCount; ++i)
    if (exists(units[i])) units[i].store(to, places, codes[i], units.swaps());
}

/// Copies the step's columns, by `threads` threads (whole warps), of which the caller is number `thread`, when the
/// previous kernel has ended; where the first loads of scales go is found before that. Past the first cache, which may
/// hold what an earlier step had in the same place. The first loads of scales go out before those of codes.
template <ActFormat format, int kSums>
__device__ __forceinline__ void copy_columns(std::byte* to, const ColumnsPlaces<format, kSums>& places,
                                             const TileArguments& p, int thread, int threads) {
  const int items = places.columns * (format == ActFormat::Q8x256 ? places.blocks : places.blocks * kSteps);
  const int pairs = (places.blocks + 1) / 2, warps = threads / 32;
  using Item = ScaleItem<format, kSums>;
  constexpr int kHeld = 2;
  Item held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i].find(p, places, thread + i * threads);

  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (thread + i * threads < items) held[i].load();
  if (places.columns == 1) {
#pragma unroll 1
    for (int pair = thread / 32; pair < pairs; pair += UnitsOfOne::kCount * warps)
      copy_units(to, p, places, UnitsOfOne{pair, warps, thread % 32});
  } else {
    const int groups = (places.columns + kColumns - 1) / kColumns;
#pragma unroll 1
    for (int turn = thread / 32; turn < pairs * groups; turn += warps)
      copy_units(to, p, places, UnitsOfGroup{turn / groups, turn % groups * kColumns, thread % 32});
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (thread + i * threads < items) held[i].store(to);
#pragma unroll 4
  for (int item = thread + kHeld * threads; item < items; item += threads) {
    Item one;
    one.find(p, places, item);
    one.load();
    one.store(to);
  }
}

}  // namespace llm::cuda
