// A column made by the products' own blocks, each for itself: what a kernel before them would have written, bit for
// bit, as codes in the places of ring_x.cuh or as floats.
//
// Every block reads the whole column: 4 bytes an element from the second cache, 8 of a sum, which for 132 blocks and
// 4,096 elements is 2 or 4 MB where copied codes are 0.7. A norm adds some 600 cycles to the way from those loads to
// the first product. That is less than a kernel of its own, which is 2 us or more with its boundary; of two columns it
// would be as much.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/ring_x.cuh"

namespace llm::cuda {

/// How the blocks of a launch get their columns. Each way is a kernel of its own: code that a block passes over takes
/// the place of what it needs, and a block runs its code once. A digit: blocks of the column that a warp has at most.
enum class ColumnWay : std::uint8_t {
  Copied,  ///< a kernel has made them
  Plain,   ///< the only one, as it is
  Plain1,
  Normed,  ///< its norm
  Normed1,
  Normed2,
};
LLM_HOST_DEVICE constexpr bool norms(ColumnWay way) { return way >= ColumnWay::Normed; }
/// 0: any number.
LLM_HOST_DEVICE constexpr int most_blocks(ColumnWay way) {
  return way == ColumnWay::Plain1 || way == ColumnWay::Normed1 ? 1 : way == ColumnWay::Normed2 ? 2 : 0;
}

/// Of a column of k elements that `warps` warps make. Of few blocks each is a part of the norm.
inline ColumnWay column_way(const ColumnSource& from, std::int64_t k, int warps) {
  if (from.x == nullptr) return ColumnWay::Copied;
  const int blocks = static_cast<int>(k_blocks(k));
  if (from.norm == nullptr) return blocks <= warps ? ColumnWay::Plain1 : ColumnWay::Plain;
  if (row_parts(blocks) != blocks || blocks > 2 * warps) return ColumnWay::Normed;
  return blocks <= warps ? ColumnWay::Normed1 : ColumnWay::Normed2;
}
/// f.operator()<way>().
template <class F>
void with_column_way(ColumnWay way, const F& f) {
  switch (way) {
    case ColumnWay::Copied:
      return f.template operator()<ColumnWay::Copied>();
    case ColumnWay::Plain:
      return f.template operator()<ColumnWay::Plain>();
    case ColumnWay::Plain1:
      return f.template operator()<ColumnWay::Plain1>();
    case ColumnWay::Normed:
      return f.template operator()<ColumnWay::Normed>();
    case ColumnWay::Normed1:
      return f.template operator()<ColumnWay::Normed1>();
    case ColumnWay::Normed2:
      return f.template operator()<ColumnWay::Normed2>();
  }
}

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
  using Codes = std::conditional_t<format == ActFormat::Q8x256, CodesOf256, CodesOf32>;
  std::byte *codes, *scales, *sums;

  __device__ __forceinline__ StoreCodes(std::byte* to, const ColumnsPlaces<format, kSums>& places, int column)
      : codes(to + column * places.codes_stride()),
        scales(to + places.scales() + column * places.scales_stride()),
        sums(to + places.sums() + column * places.sums_stride()) {}

  /// Block block[i] of column to[i] where `exists[i]`: their ways are long, and go side by side.
  template <int N>
  static __device__ __forceinline__ void put(const StoreCodes (&to)[N], const int (&block)[N], const bool (&exists)[N],
                                             const BlockPart (&v)[N]) {
    Codes made[N];
    unsigned word[N];
#pragma unroll
    for (int i = 0; i < N; ++i) made[i] = Codes(v[i]);
    if constexpr (kSums > 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) word[i] = made[i].sums_word();
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (exists[i]) to[i].store(block[i], made[i], kSums > 0 ? word[i] : 0);
  }

 private:
  __device__ __forceinline__ void store(int block, const Codes& made, unsigned word_of_sums) const {
    std::byte* const at = codes + block * kBlockK + made_code_offset(lane_id());
    *reinterpret_cast<unsigned*>(at) = made.low;
    *reinterpret_cast<unsigned*>(at + kBlockK / 2) = made.high;
    if constexpr (format == ActFormat::Q8x256) {
      if (lane_id() == 0) *reinterpret_cast<float*>(scales + 4 * block) = made.scale;
      if constexpr (kSums > 0) {
        constexpr int kFirst =
            (kSums == 32 ? offsetof(ColumnBlock, low16) : offsetof(ColumnBlock, low32)) / sizeof(unsigned);
        const int word = lane_id() - kFirst;
        if (word >= 0 && word < kSums / 4) *reinterpret_cast<unsigned*>(sums + kSums * block + 4 * word) = word_of_sums;
      }
    } else {
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
  template <int N>
  static __device__ __forceinline__ void put(const StoreFloats (&to)[N], const int (&block)[N], const bool (&exists)[N],
                                             const BlockPart (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (!exists[i]) continue;
      const int end = (block[i] + 1) * kBlockK;
      if (to[i].rounded)
        store_part(to[i].to, block[i], end, true, {map(v[i].low, round_to_bf16), map(v[i].high, round_to_bf16)});
      else
        store_part(to[i].to, block[i], end, true, v[i]);
    }
  }
};

/// Gives a column to `store` when the previous kernel has ended: the work of `warps` warps, of which the caller is
/// number `warp`.
///
/// Loops are kept as loops: a block of threads runs its code once, and code is fetched anew for nearly every launch.
template <ColumnWay way, class Store>
struct ColumnMaker {
  static constexpr int kTogether = most_blocks(way) == 1 ? 1 : 2;  ///< blocks that a warp has in hand
  static constexpr bool kLoops = most_blocks(way) == 0;            ///< a warp may have more
  using Blocks = BlockPart[kTogether];
  const ColumnSource& from;
  int k, warp, warps;
  float4 (&of_parts)[kMaxParts / 4];  ///< shared
  Store store;
  int blocks = static_cast<int>(k_blocks(k)), parts = row_parts(blocks);

  __device__ __forceinline__ void load(const float* row, int first, Blocks& v) const {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) v[i] = load_fresh_part(row, first + i * warps, k);
  }
  __device__ __forceinline__ void load_weights(int first, Blocks& w) const {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) w[i] = load_part(from.norm, first + i * warps, k, true);
  }
  /// The elements that are normed, of a block and of a warp's blocks from `first` on.
  __device__ __forceinline__ BlockPart value(int block) const {
    const BlockPart v = load_fresh_part(from.x, block, k);
    if (from.added == nullptr) return v;
    return map(v, load_fresh_part(from.added, block, k), [](float a, float b) { return a + b; });
  }
  __device__ __forceinline__ void load_values(int first, Blocks& v) const {
    load(from.x, first, v);
    if (!norms(way) || from.added == nullptr) return;
    Blocks added;
    load(from.added, first, added);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) v[i] = map(v[i], added[i], [](float a, float b) { return a + b; });
  }
  __device__ __forceinline__ void keep(int part, float sum) const {
    sum = warp_sum(sum);
    if (lane_id() == 0 && part < parts) (&of_parts[0].x)[part] = sum;
  }

  /// Of a row whose first blocks a warp has in v.
  __device__ __forceinline__ void store_sum(const Blocks& v) const {
    if (from.added == nullptr || blockIdx.x != 0) return;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) store_part(from.sum, warp + i * warps, k, true, v[i]);
    if constexpr (kLoops) {
#pragma unroll 1
      for (int block = warp + kTogether * warps; block < blocks; block += warps)
        store_part(from.sum, block, k, true, value(block));
    }
  }
  __device__ __forceinline__ void keep_first(const Blocks& v) const {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) keep(warp + i * warps, squares(v[i], 0.0f));
  }
  __device__ __forceinline__ void keep_squares(const Blocks& v) const {
    if constexpr (!kLoops) {
      keep_first(v);
    } else if (parts == blocks) {
      keep_first(v);
#pragma unroll 1
      for (int block = warp + kTogether * warps; block < blocks; block += warps)
        keep(block, squares(value(block), 0.0f));
    } else {
#pragma unroll 1
      for (int part = warp; part < parts; part += warps) {
        float sum = 0;
#pragma unroll 1
        for (int block = part; block < blocks; block += parts) sum = squares(value(block), sum);
        keep(part, sum);
      }
    }
  }
  __device__ __forceinline__ float factor(const Blocks& v) const {
    store_sum(v);
    if (warp == 0 && lane_id() >= parts) (&of_parts[0].x)[lane_id()] = 0;
    keep_squares(v);
    asm volatile("barrier.cta.sync 1, %0;" ::"r"(warps * kWarp) : "memory");
    return norm_factor(sum_of_parts(of_parts), k, from.eps);
  }

  /// A warp's blocks from `first` on, normed where that is asked for.
  __device__ __forceinline__ void give(int first, const Blocks& v, const Blocks& weight, float by) const {
    Blocks y;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) y[i] = norms(way) ? normed(v[i], weight[i], by, first + i * warps, k) : v[i];
    if (norms(way) && from.normed != nullptr && blockIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) store_part(from.normed, first + i * warps, k, true, y[i]);
    }
    if constexpr (kTogether == 1)
      Store::template put<1>({store}, {first}, {true}, y);
    else
      Store::template put<2>({store, store}, {first, first + warps}, {true, first + warps < blocks}, y);
  }

  __device__ __forceinline__ void make() const {
    Blocks v, weight{};
    if constexpr (norms(way)) load_weights(warp, weight);
    wait_for_previous();
    load_values(warp, v);
    const float by = norms(way) ? factor(v) : 0.0f;
    if constexpr (!kLoops) {
      if (warp < blocks) give(warp, v, weight, by);
    } else {
#pragma unroll 1
      for (int block = warp; block < blocks;) {
        give(block, v, weight, by);
        block += kTogether * warps;
        if (block >= blocks) break;
        load_values(block, v);
        if constexpr (norms(way)) load_weights(block, weight);
      }
    }
  }
};

template <ColumnWay way, class Store>
__device__ __forceinline__ void make_column(const ColumnSource& from, int k, int warp, int warps,
                                            float4 (&of_parts)[kMaxParts / 4], const Store& store) {
  ColumnMaker<way, Store>{from, k, warp, warps, of_parts, store}.make();
}

#endif  // __CUDACC__

}  // namespace llm::cuda
