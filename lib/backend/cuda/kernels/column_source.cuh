// A column made by the products' own blocks, each for itself: what a kernel before them would have written, bit for
// bit, as codes in the places of ring_x.cuh or as floats.
//
// Every block reads the whole column: 4 bytes an element from the second cache, 8 of a sum, which for 132 blocks and
// 4,096 elements is 2 or 4 MB where copied codes are 0.7. A norm adds some 600 cycles to the way from those loads to
// the first product. That is less than a kernel of its own, which is 2 us or more with its boundary; of two columns it
// would be as much.
#pragma once

#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/ring_x.cuh"

namespace llm::cuda {

/// The step of lane's four codes of a block's low part, and where these lie in the block; those of the high part lie
/// kBlockK / 2 further on. ring_x.cuh has the order.
LLM_HOST_DEVICE int made_code_offset(int lane) {
  const int step = lane / 8, t = lane % 4, half = lane % 8 / 4;
  return step / 2 * 64 + 16 * t + step % 2 * 8 + 4 * half;
}

#ifdef __CUDACC__

/// A block's codes, scales and sums into the places of a column of ring_x.cuh. Called by whole warps.
template <ActFormat format, int kSums>
struct StoreCodes {
  static constexpr int kAhead = 4;  ///< blocks that a warp asks for at once
  std::byte *codes, *scales, *sums;

  __device__ __forceinline__ StoreCodes(std::byte* to, const ColumnsPlaces<format, kSums>& places, int column)
      : codes(to + column * places.codes_stride()),
        scales(to + places.scales() + column * places.scales_stride()),
        sums(to + places.sums() + column * places.sums_stride()) {}

  __device__ __forceinline__ void operator()(int block, const BlockPart& v) const {
    std::byte* const at = codes + block * kBlockK + made_code_offset(lane_id());
    const auto store_codes = [&](unsigned low, unsigned high) {
      *reinterpret_cast<unsigned*>(at) = low;
      *reinterpret_cast<unsigned*>(at + kBlockK / 2) = high;
    };
    if constexpr (format == ActFormat::Q8x256) {
      const CodesOf256 made(v);
      store_codes(made.low, made.high);
      if (lane_id() == 0) *reinterpret_cast<float*>(scales + 4 * block) = made.scale;
      if constexpr (kSums > 0) {
        constexpr int kFirst =
            (kSums == 32 ? offsetof(ColumnBlock, low16) : offsetof(ColumnBlock, low32)) / sizeof(unsigned);
        const unsigned word_of_sums = made.sums_word();
        const int word = lane_id() - kFirst;
        if (word >= 0 && word < kSums / 4) *reinterpret_cast<unsigned*>(sums + kSums * block + 4 * word) = word_of_sums;
      }
    } else {
      const CodesOf32 made(v);
      store_codes(made.low, made.high);
      if (lane_id() % 8 != 0) return;
      auto* const of_steps = reinterpret_cast<float*>(scales) + block * kSteps + lane_id() / 8;
      of_steps[0] = made.low_scale;
      of_steps[kSteps / 2] = made.high_scale;
    }
  }
};

/// A block's elements as they are, or rounded to BF16; behind the row's end 0. `to` has room for whole blocks.
struct StoreFloats {
  static constexpr int kAhead = 4;
  float* to;
  bool rounded;
  __device__ __forceinline__ void operator()(int block, const BlockPart& v) const {
    const int end = (block + 1) * kBlockK;
    if (rounded)
      store_part(to, block, end, true, {map(v.low, round_to_bf16), map(v.high, round_to_bf16)});
    else
      store_part(to, block, end, true, v);
  }
};

/// Gives a column to `store`, block by block, when the previous kernel has ended: the work of `warps` warps, of which
/// the caller is number `warp`.
///
/// Loops are kept as loops, and what is loaded ahead moves through registers: a block runs its code once, and code is
/// fetched anew for nearly every launch.
template <class Store>
struct ColumnMaker {
  const ColumnSource& from;
  int k, warp, warps;
  float4 (&of_parts)[kMaxParts / 4];  ///< shared
  Store store;
  int blocks = static_cast<int>(k_blocks(k)), parts = row_parts(blocks);

  template <int count>
  static __device__ __forceinline__ void move_up(BlockPart (&v)[count], const BlockPart& last) {
#pragma unroll
    for (int i = 0; i + 1 < count; ++i) v[i] = v[i + 1];
    v[count - 1] = last;
  }

  __device__ __forceinline__ void make_plain() const {
    constexpr int kAhead = Store::kAhead;
    wait_for_previous();
    BlockPart v[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) v[i] = load_fresh_part(from.x, warp + i * warps, k);
#pragma unroll 1
    for (int block = warp; block < blocks; block += warps) {
      store(block, v[0]);
      move_up(v, load_fresh_part(from.x, block + kAhead * warps, k));
    }
  }

  /// The elements that are normed; the first time the sum is stored too, by one block.
  __device__ __forceinline__ BlockPart value(int block, bool first_time) const {
    BlockPart v = load_fresh_part(from.x, block, k);
    if (from.added == nullptr) return v;
    v = map(v, load_fresh_part(from.added, block, k), [](float a, float b) { return a + b; });
    if (first_time && blockIdx.x == 0) store_part(from.sum, block, k, true, v);
    return v;
  }
  __device__ __forceinline__ void keep(int part, float sum) const {
    sum = warp_sum(sum);
    if (lane_id() == 0 && part < parts) (&of_parts[0].x)[part] = sum;
  }

  /// The first blocks of a warp stay in registers between the sum and the codes; others are read again.
  __device__ __forceinline__ void make_normed() const {
    constexpr int kHeld = 2;
    BlockPart v[kHeld], weight[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) weight[i] = load_part(from.norm, warp + i * warps, k, true);
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < kHeld; ++i) v[i] = value(warp + i * warps, true);
    if (warp == 0 && lane_id() >= parts) (&of_parts[0].x)[lane_id()] = 0;
    if (parts == blocks) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) keep(warp + i * warps, squares(v[i], 0.0f));
#pragma unroll 1
      for (int block = warp + kHeld * warps; block < blocks; block += warps)
        keep(block, squares(value(block, true), 0.0f));
    } else {
#pragma unroll 1
      for (int block = warp + kHeld * warps; block < blocks; block += warps) value(block, true);
#pragma unroll 1
      for (int part = warp; part < parts; part += warps) {
        float sum = 0;
#pragma unroll 1
        for (int block = part; block < blocks; block += parts) sum = squares(value(block, false), sum);
        keep(part, sum);
      }
    }
    asm volatile("barrier.cta.sync 1, %0;" ::"r"(warps * kWarp) : "memory");
    const float factor = norm_factor(sum_of_parts(of_parts), k, from.eps);
#pragma unroll 1
    for (int block = warp; block < blocks; block += warps) {
      const BlockPart y = normed(v[0], weight[0], factor, block, k);
      if (from.normed != nullptr && blockIdx.x == 0) store_part(from.normed, block, k, true, y);
      store(block, y);
      const int next = block + kHeld * warps;
      if (next >= blocks) {
        move_up(v, v[1]);
        move_up(weight, weight[1]);
      } else {
        move_up(v, value(next, false));
        move_up(weight, load_part(from.norm, next, k, true));
      }
    }
  }

  __device__ __forceinline__ void make() const {
    if (from.norm == nullptr)
      make_plain();
    else
      make_normed();
  }
};

template <class Store>
__device__ __forceinline__ void make_column(const ColumnSource& from, int k, int warp, int warps,
                                            float4 (&of_parts)[kMaxParts / 4], const Store& store) {
  ColumnMaker<Store>{from, k, warp, warps, of_parts, store}.make();
}

#endif  // __CUDACC__

}  // namespace llm::cuda
