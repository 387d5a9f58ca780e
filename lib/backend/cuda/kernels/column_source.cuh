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
template <class Store>
struct ColumnMaker {
  const ColumnSource& from;
  int k, warp, warps;
  float4 (&of_parts)[kMaxParts / 4];  ///< shared
  Store store;
  int blocks = static_cast<int>(k_blocks(k));

  /// f(i, block) for `count` of the warp's blocks from `first` on, as many as there are.
  template <int count, class F>
  __device__ __forceinline__ void for_blocks(int first, const F& f) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int block = first + i * warps;
      if (block < blocks) f(i, block);
    }
  }

  __device__ __forceinline__ void make_plain() const {
    constexpr int kAtOnce = 4;
    wait_for_previous();
#pragma unroll 1
    for (int first = warp; first < blocks; first += kAtOnce * warps) {
      BlockPart v[kAtOnce];
      for_blocks<kAtOnce>(first, [&](int i, int block) { v[i] = load_fresh_part(from.x, block, k); });
      for_blocks<kAtOnce>(first, [&](int i, int block) { store(block, v[i]); });
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
    if (lane_id() == 0) (&of_parts[0].x)[part] = sum;
  }
  __device__ __forceinline__ void give(int block, const BlockPart& v) const {
    if (from.normed != nullptr && blockIdx.x == 0) store_part(from.normed, block, k, true, v);
    store(block, v);
  }

  /// The first blocks of a warp stay in registers between the sum and the codes; others are read again.
  __device__ __forceinline__ void make_normed() const {
    constexpr int kHeld = 2;
    BlockPart v[kHeld], weight[kHeld];
    for_blocks<kHeld>(warp, [&](int i, int block) { weight[i] = load_part(from.norm, block, k, true); });
    const int parts = row_parts(blocks), next = warp + kHeld * warps;
    if (warp == 0 && lane_id() >= parts) (&of_parts[0].x)[lane_id()] = 0;

    wait_for_previous();
    for_blocks<kHeld>(warp, [&](int i, int block) { v[i] = value(block, true); });
    if (parts == blocks) {
      for_blocks<kHeld>(warp, [&](int i, int block) { keep(block, squares(v[i], 0.0f)); });
#pragma unroll 1
      for (int block = next; block < blocks; block += warps) keep(block, squares(value(block, true), 0.0f));
    } else {
#pragma unroll 1
      for (int block = next; block < blocks; block += warps) value(block, true);
#pragma unroll 1
      for (int part = warp; part < parts; part += warps) {
        float sum = 0;
        for (int block = part; block < blocks; block += parts) sum = squares(value(block, false), sum);
        keep(part, sum);
      }
    }
    asm volatile("barrier.cta.sync 1, %0;" ::"r"(warps * kWarp) : "memory");
    const float factor = norm_factor(sum_of_parts(of_parts), k, from.eps);
    for_blocks<kHeld>(warp, [&](int i, int block) { give(block, normed(v[i], weight[i], factor, block, k)); });
#pragma unroll 1
    for (int block = next; block < blocks; block += warps)
      give(block, normed(value(block, false), load_part(from.norm, block, k, true), factor, block, k));
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
