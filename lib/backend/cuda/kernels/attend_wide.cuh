// Attention of heads of 512 or 576 elements on tensor cores, one CTA of 8 warps to a multiprocessor: the softmax of up
// to 64 rows, a row being a query head of a token, over tiles of 64 keys.
//
// A tile's scores first: each warp has 16 of the rows and some of the keys, since all of a key's elements are needed
// for one. Maxima and weights go through shared memory. Then the values: each warp has 64 of their 512 dimensions of
// all rows, whose sums fill its registers. On compute capability 9.0 products of 64 rows are four warps' (wgmma): the
// scores of prompts, those of the two parts of 32 queries, and the sums of prompts, of which a warp has 16 rows then
// and one half of the dimensions.
//
// Tiles come by asynchronous copies into two slots, one of keys and one of values, which are filled again as soon as
// all warps are done with them. Rows that are no F16 or BF16 numbers are decoded on their way. Where values are the
// first elements of keys (CacheView::values_in_keys) they are not copied. Of selected keys a tile is 64 in the order of
// the selection, from wherever they lie: a row's position is then its place in that order. Keys of a window and
// compressed ones behind them have such an order, too, and lie in two caches. Where there is a mask, tiles are those of
// which any token of the CTA sees a key.
//
// For prompts queries and weights are rounded to F16 or BF16 (one part). For decoding each is the sum of two F16 or
// three BF16 numbers, and what a tile adds is rounded once: as exact as f32 (attend_halves.cuh says how and why). A
// score has two chains of up to 18 products of the first parts and one of the others, or by wgmma one of 36 of each.
//
// Operations of a tile with 64 rows of a prompt, or 32 of decoding: 2,176 products of 576/512, 4,350 cycles at the rate
// of mma.sync and half of that at wgmma's; fragments from shared memory 4,480 cycles, or 2,400. Copies take 2,200 to
// 3,700 cycles of what the second cache gives, and where the cache is read from memory, as in decoding, 4,000 to 7,400.
// Code counts as well: what is unrolled around the tiles is fetched by every CTA (docs/cuda-kernels.md).
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_tiles.cuh"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/key_mask.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/wgmma_shared.cuh"

namespace llm::cuda {
namespace {

struct WideArgs {
  const float* q;
  float* y;
  const unsigned char *k, *v;
  float* partials;  ///< [pair][stripe]: sums of the rows, their maxima, their totals
  const std::int32_t *positions, *sequence, *block_table;
  DType k_type, v_type;
  int table_stride;
  int heads, kv_heads, group, head_tiles, slot_rows, slot_floats;
  int k_row_bytes, v_row_bytes;
  KeyWindow window;
  KeyMask mask;
  const float* sinks;  ///< [heads]; null: none
  float scale_log2;    ///< the scale, or with a cap this, times log2(e): weights are powers of 2
  float cap_factor;    ///< products times this are what tanh is taken of; 0: no cap
  bool round_query;    ///< to Q8x32
  int stripes, splits;
  const std::int32_t* selected;  ///< [tokens][top_k]; null: all keys are seen
  int top_k;
  const unsigned char* compressed;  ///< a cache of compressed keys, of which the selection is; null: none
  CompressedOrder order;            ///< of both kinds of keys; `window` is none then
};
/// Where a token at a position is among the keys that it sees.
__device__ __forceinline__ int seen_position(const WideArgs& a, int position) {
  if (a.compressed != nullptr) return a.order.keys(position) - 1;
  return a.selected != nullptr ? min(position, a.top_k - 1) : position;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasWarpgroups = true;
#else
constexpr bool kHasWarpgroups = false;
#endif
/// Others have too little shared memory, so that nobody starts these kernels there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
constexpr bool kHasRoom = true;
#else
constexpr bool kHasRoom = false;
#endif
constexpr int kWideDims = 64;  ///< of the values, of a warp

enum class WideKeysSeen {
  All,         ///< of the window
  Selected,    ///< a CTA's rows are one token's, over its selected keys
  Compressed,  ///< or over those of its window and compressed ones
  Masked,      ///< of the window, those that a mask has
};

/// `kParts`: of queries and weights, 1 for prompts. `kInKeys`: values are the first elements of keys. `kDecoded`: rows
/// are decoded to F16.
template <bool kBFloat16_, int kParts_, int kRows_, int kDimK_, bool kInKeys_, bool kDecoded_,
          WideKeysSeen kSeen = WideKeysSeen::All>
struct WideShape {
  static constexpr bool kCompressed = kSeen == WideKeysSeen::Compressed, kMasked = kSeen == WideKeysSeen::Masked;
  static constexpr bool kSelected = kSeen == WideKeysSeen::Selected || kCompressed;  ///< in an order of their own
  static constexpr bool kBFloat16 = kBFloat16_, kInKeys = kInKeys_, kDecoded = kDecoded_, kExact = kParts_ > 1;
  static constexpr int kParts = kParts_, kRows = kRows_, kDimK = kDimK_, kDimV = kWideDims * kWarps;
  static constexpr int kRowTiles = kRows / 16;
  /// Scores by products of four warps, of 64 rows: those of a prompt, or the two parts of 32 queries.
  static constexpr bool kByWarpgroups = kHasWarpgroups && kParts * kRows == 64;
  static constexpr int kGroups = kByWarpgroups ? 2 : kWarps / kRowTiles;  ///< of keys, of a tile's scores
  static constexpr int kKeyTiles = kWideKeys / kGroups / 8;               ///< of 8 keys, of a warp
  /// Sums by products of four warps that have 16 rows each and one half of the dimensions, else of single warps that
  /// have all rows and kWideDims.
  static constexpr bool kSumsByWarpgroups = kByWarpgroups && !kExact;
  static constexpr int kSumRows = kSumsByWarpgroups ? 1 : kRowTiles;      ///< of 16 rows, of a warp's results
  static constexpr int kDimTiles = kWideDims / 8 * kRowTiles / kSumRows;  ///< of 8 elements, of them
  static constexpr int kSlotBytes = kWideKeys * 2 * (kInKeys || kDimK > kDimV ? kDimK : kDimV);
  static constexpr int kQueryBytes = kRows * 2 * kDimK, kWeightBytes = kRows * kWideKeys * 2;  ///< of a part
  static constexpr int kStats = kRows * (2 * kGroups + 8);
  static constexpr int kSharedBytes =
      2 * kSlotBytes + kParts * (kQueryBytes + kWeightBytes) + kStats * static_cast<int>(sizeof(float));
  static_assert(kDimK % 64 == 0 && kRows % 16 == 0 && kKeyTiles >= 1);
  static_assert(!kMasked || (kKeyTiles == 4 && kParts == 1), "a lane's scores of a row are a word's");
};

/// What a CTA has: rows of one KV head of one sequence. Row r is token r / group of a span, head r % group.
struct WideRows {
  int first_token, first_position, sequence;  ///< of the span
  int kv_head, first_row, rows;
  int position = 0;  ///< of the token, where its keys are in an order of their own
};

/// The result of stripes, folded in their order, of one row.
struct WideFold {
  float old_share, share;  ///< of what was before, of the stripe
};
__device__ __forceinline__ WideFold wide_fold(float before, float max) {
  const float until = fmaxf(before, max);
  return {exp2f(before - until), exp2f(max - until)};
}
/// Of a sum or total; the first stripe as it is.
__device__ __forceinline__ float folded(bool begins, float before, float stripe, const WideFold& f) {
  return begins ? stripe : fmaf(before, f.old_share, stripe * f.share);
}
/// What makes results of a head's sums. A sink is one more key, whose value is 0. `one`: what a weight of 1 adds to
/// totals.
__device__ __forceinline__ float wide_result_factor(const float* sink, float one, float max, float total) {
  if (sink == nullptr) return 1.0f / total;
  const float score = *sink * kLog2E, most = fmaxf(max, score), share = exp2f(max - most);
  return share / fmaf(total, share, one * exp2f(score - most));
}

/// Operands of warpgroups begin at multiples of 1,024 bytes.
__device__ __forceinline__ unsigned char* wide_shared() {
  extern __shared__ __align__(1024) unsigned char llm_wide_shared[];
  return llm_wide_shared;
}

template <class Shape>
class Wide {
  static constexpr bool kBFloat16 = Shape::kBFloat16, kExact = Shape::kExact;
  static constexpr int kParts = Shape::kParts, kRows = Shape::kRows, kRowTiles = Shape::kRowTiles;
  static constexpr int kGroups = Shape::kGroups, kKeyTiles = Shape::kKeyTiles, kDimTiles = Shape::kDimTiles;
  static constexpr int kSumRows = Shape::kSumRows;
  static constexpr bool kByWarpgroups = Shape::kByWarpgroups, kSumsByWarpgroups = Shape::kSumsByWarpgroups;
  static constexpr int kDimK = Shape::kDimK, kDimV = Shape::kDimV;
  static constexpr int kChains = kExact ? 3 : 1;
  using Scores = float[kKeyTiles][4];

 public:
  /// What a weight of 1 adds to totals.
  static constexpr float kOne = kExact ? kOneWeight : 1.0f;

  __device__ __forceinline__ Wide(const WideArgs& args, unsigned char* shared, const WideRows& rows, std::int64_t pair)
      : a(args),
        mine(rows),
        last_position(rows.first_position + (rows.first_row + rows.rows - 1) / args.group),
        keys(rows.first_position + rows.first_row / args.group, last_position, args.window, args.stripes),
        table(args.block_table + static_cast<std::int64_t>(rows.sequence) * args.table_stride),
        pair(pair),
        seen(args.mask, rows.kv_head, token_of(0), token_of(rows.rows - 1) - token_of(0) + 1, keys.tiles),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32),
        row_tile(warp % kRowTiles),
        group(kByWarpgroups ? warp / 4 : warp / kRowTiles),
        part(kByWarpgroups ? warp % 4 / kRowTiles : 0),
        slots(shared),
        queries(shared + 2 * Shape::kSlotBytes),
        weights(queries + kParts * Shape::kQueryBytes),
        group_max(reinterpret_cast<float*>(weights + kParts * Shape::kWeightBytes)),
        group_total(group_max + kGroups * kRows),
        factors(group_total + kGroups * kRows),
        shrinks(factors + kRows),
        stripe_max(shrinks + kRows),
        whole_max(stripe_max + kRows),
        whole_total(whole_max + kRows),
        ends_with(whole_total + kRows),
        shares(ends_with + kRows) {}

  /// From the CTA's stripe `first` on. Of keys and values no kernel of the step has written those before position
  /// `first_written`: their copy begins before earlier kernels have ended.
  __device__ __forceinline__ void run(int first, int first_written) {
    if constexpr (Shape::kSelected || Shape::kMasked) wait_for_previous();  // for what says which keys are seen
    const bool early = !Shape::kSelected && (keys.first + first + 1) * kWideKeys <= first_written;
    copied = {first >= keys.stripes() ? keys.tiles : Shape::kMasked ? seen.from(first) : first, 0};
    copied.block = load_block(copied.tile);
    if (early) copy_keys(slots);
    wait_for_previous();
    if (first >= keys.stripes()) return;
    if (!early) copy_keys(slots);
    keys_at = 0;
    load_queries();
#pragma unroll 1
    for (int s = first; s < keys.stripes(); s += a.splits) {
      begin_stripe();
#pragma unroll 1
      for (int u = Shape::kMasked ? copied.tile : s; u < keys.tiles; u = Shape::kMasked ? copied.tile : u + a.stripes)
        take_tile((keys.first + u) * kWideKeys);
      end_stripe(s);
    }
  }

 private:
  // --- keys and values ---

  /// The tile whose keys are on their way or there, and its block of the cache. Of selected keys the block and row
  /// (block * 64 + row) of the key that is row `warp` + 8 (`lane` % 8) of the tile; of a compressed one the complement.
  struct Copied {
    int tile, block;
  };
  __device__ __forceinline__ int load_block(int tile) const {
    if constexpr (Shape::kSelected) {
      const int i = tile * kWideKeys + warp + lane % 8 * kWarps;
      if (i >= keys.end_key) return 0;
      if constexpr (Shape::kCompressed) return place_of(i);
      const int position = __ldcg(a.selected + static_cast<std::int64_t>(mine.first_token) * a.top_k + i);
      return __ldcg(table + position / kCacheBlock) * kCacheBlock + position % kCacheBlock;
    }
    return tile < keys.tiles ? __ldcg(table + keys.first + tile) : 0;
  }
  /// Of key i in the order of both kinds.
  __device__ __forceinline__ int place_of(int i) const {
    const int of_window = a.order.of_window(mine.position);
    const auto row_of = [this](int position, int stride) {
      return __ldcg(table + position / kCacheBlock) * kCacheBlock + position % kCacheBlock / stride;
    };
    if (i < of_window) return row_of(a.order.window.first_key(mine.position) + i, 1);
    int key = i - of_window;
    if (a.selected != nullptr) key = __ldcg(a.selected + static_cast<std::int64_t>(mine.first_token) * a.top_k + key);
    return ~row_of((key + 1) * a.order.stride - 1, a.order.stride);
  }
  /// Of row `row` of the tile, one of the warp's.
  __device__ __forceinline__ const unsigned char* row_at(const unsigned char* cache, int row, int row_bytes) const {
    int block = copied.block, in_block = row;
    if constexpr (Shape::kSelected) {
      int at = __shfl_sync(kAll, copied.block, row / kWarps);
      if (Shape::kCompressed && at < 0) cache = a.compressed, at = ~at;
      block = at / kCacheBlock, in_block = at % kCacheBlock;
    }
    return cache + cache_rows_offset(block, a.kv_heads, mine.kv_head, row_bytes) + in_block * row_bytes;
  }
  /// Where the 16 bytes `unit` of a row lie: in panels of 8 units, the rows of a panel one behind the other, units of
  /// neighbouring rows in different banks.
  static __device__ __forceinline__ int unit_at(int rows, int row, int unit) {
    return (unit / 8 * rows + row) * 128 + ((unit % 8 ^ row % 8) << 4);
  }
  /// Starts a copy into a slot, if there is such a tile. Rows that no token of this CTA sees become zeros: a weight of
  /// 0 does not cover what is not a number.
  __device__ __forceinline__ void copy_keys(unsigned char* slot) const {
    if (copied.tile < keys.tiles) copy<kDimK>(slot, a.k, a.k_type, a.k_row_bytes);
    commit_copies();
  }
  __device__ __forceinline__ void copy_next_keys(unsigned char* slot) {
    copied.tile = Shape::kMasked ? seen.from(copied.tile + 1) : keys.after(copied.tile, a.splits);
    copied.block = load_block(copied.tile);
    copy_keys(slot);
  }
  __device__ __forceinline__ void copy_values(unsigned char* slot) const {
    copy<kDimV>(slot, a.v, a.v_type, a.v_row_bytes);
    commit_copies();
  }
  /// A warp has every eighth row, a lane of it one unit of 16 bytes in 32; of what is left of rows of 72 units 8 lanes
  /// have a row each.
  template <int kDim>
  __device__ __forceinline__ void copy(unsigned char* to, const unsigned char* cache, DType type, int row_bytes) const {
    const int base = (keys.first + copied.tile) * kWideKeys, begin = keys.first_key - base, end = keys.end_key - base;
    const auto there = [=](int row) { return row >= begin && row < end; };
    if constexpr (!Shape::kDecoded) {
      for_each_unit<kDim, 8>(cache, 2 * kDim, [=](const unsigned char* from, int row, int u, int at) {
        copy16_or_zero_async(to + at, from + u * 16, there(row));
      });
    } else if (kExact || type == DType::F8_E4M3) {
      for_each_unit<kDim, 4>(cache, kDim, [=](const unsigned char* from, int row, int u, int at) {
        const auto* const eight = reinterpret_cast<const uint2*>(from) + u;
        *reinterpret_cast<uint4*>(to + at) = there(row) ? f8_eight(__ldcg(eight)) : uint4{};
      });
    } else {
      for_each_unit<kDim, 1>(cache, row_bytes, [=](const unsigned char* from, int row, int u, int at) {
        *reinterpret_cast<uint4*>(to + at) = there(row) ? decoded(type, from, u, kDim) : uint4{};
      });
    }
  }
  /// f(row in the cache, its number, unit of 16 bytes, where it is to lie)
  template <int kDim, int kUnroll, class F>
  __device__ __forceinline__ void for_each_unit(const unsigned char* cache, int row_bytes, const F& f) const {
    constexpr int kUnits = kDim / 8, kRest = kUnits % 32, kFirst = kUnits - kRest;
    static_assert(kRest == 0 || kRest == 8);
#pragma unroll kUnroll
    for (int row = warp; row < kWideKeys; row += kWarps) {
      const unsigned char* const from = row_at(cache, row, row_bytes);
#pragma unroll
      for (int u = 0; u < kFirst; u += 32) f(from, row, u + lane, unit_at(kWideKeys, row, u + lane));
    }
    if constexpr (kRest > 0) {
      const int u = lane % 8;
#pragma unroll
      for (int first = 0; first < kWideKeys; first += 4 * kWarps) {
        const int row = first + lane / 8 * kWarps + warp;
        f(row_at(cache, row, row_bytes), row, kFirst + u, unit_at(kWideKeys, row, kFirst + u));
      }
    }
  }
  /// Unit `u` of a row, which has 8 elements.
  static __device__ __forceinline__ uint4 decoded(DType type, const unsigned char* row, int u, int dim) {
    __builtin_assume(type != DType::F8_E4M3);
    float x[8];
    decode8_in_memory(type, row, u * 8, dim, x);
    return make_uint4(pack<false>(x[0], x[1]), pack<false>(x[2], x[3]), pack<false>(x[4], x[5]),
                      pack<false>(x[6], x[7]));
  }

  // --- queries ---

  __device__ __forceinline__ int head(int row) const {
    return mine.kv_head * a.group + (mine.first_row + row) % a.group;
  }
  __device__ __forceinline__ int token_of(int row) const { return mine.first_token + (mine.first_row + row) / a.group; }
  /// Which of the rows of all tokens and heads.
  __device__ __forceinline__ std::int64_t place(int row) const {
    return static_cast<std::int64_t>(token_of(row)) * a.heads + head(row);
  }
  /// As parts, and the factor that makes scores of a row's products, or with a cap what tanh is taken of. A warp has
  /// every eighth row, some of them at a time, a lane pairs of neighbours.
  __device__ __forceinline__ void load_queries() {
    constexpr int kPairs = kDimK / 64, kAhead = kRows == 64 ? 4 : 2;
#pragma unroll 1
    for (int first = warp; first < kRows; first += kAhead * kWarps) {
      float2 x[kAhead][kPairs];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        const int row = first + r * kWarps;
        const auto* const q = reinterpret_cast<const float2*>(a.q + place(row) * kDimK) + lane;
#pragma unroll
        for (int i = 0; i < kPairs; ++i) x[r][i] = row < mine.rows ? __ldcg(q + i * 32) : float2{};
      }
#pragma unroll
      for (int r = 0; r < kAhead; ++r) put_query(first + r * kWarps, x[r]);
    }
  }
  template <int kPairs>
  __device__ __forceinline__ void put_query(int row, float2 (&x)[kPairs]) {
    float up = 1, down = 1;
    if constexpr (kExact) {
      int bits = 0;
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        bits = max(bits, max(__float_as_int(x[i].x) & 0x7fffffff, __float_as_int(x[i].y) & 0x7fffffff));
      bits = __reduce_max_sync(kAll, bits);
      const int power = bits < 0x7f800000 ? query_power<kBFloat16>(bits >> 23) : 0;
      up = __int_as_float((127 + power) << 23), down = __int_as_float((127 - power) << 23);
    }
    if constexpr (Shape::kDecoded && !kExact) {
      if (a.round_query) round_pairs(x);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = unit_at(kParts * kRows, row, i * 8 + lane / 4) + lane % 4 * 4;
      std::uint32_t parts[kParts];
      divide(x[i].x * up, x[i].y * up, parts);
#pragma unroll
      for (int p = 0; p < kParts; ++p) *reinterpret_cast<std::uint32_t*>(queries + p * kRows * 128 + at) = parts[p];
    }
    // Not zero, or what is masked would not stay infinite.
    if (lane == 0) factors[row] = fmaxf((a.cap_factor != 0 ? a.cap_factor : a.scale_log2) * down, 0x1p-126f);
  }
  /// round_q8x32() of 32 neighbours, which 16 lanes have.
  template <int kPairs>
  static __device__ __forceinline__ void round_pairs(float2 (&x)[kPairs]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      int bits = max(__float_as_int(x[i].x) & 0x7fffffff, __float_as_int(x[i].y) & 0x7fffffff);
#pragma unroll
      for (int offset = 8; offset > 0; offset /= 2) bits = max(bits, __shfl_xor_sync(kAll, bits, offset));
      x[i] = make_float2(rounded_q8x32(x[i].x, bits), rounded_q8x32(x[i].y, bits));
    }
  }
  /// Two neighbours as the parts that operands have.
  static __device__ __forceinline__ void divide(float low, float high, std::uint32_t (&parts)[kParts]) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      parts[p] = pack<kBFloat16>(low, high);
      low -= narrowed<kBFloat16>(low);
      high -= narrowed<kBFloat16>(high);
    }
  }

  // --- one tile ---

  __device__ __forceinline__ void begin_stripe() {
#pragma unroll
    for (int i = 0; i < kSumRows * kDimTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maxima[half] = -INFINITY;
      totals[half] = 0;
    }
  }

  __device__ __forceinline__ void take_tile(int first_key) {
    Scores s;
    [[maybe_unused]] std::uint32_t bits[2];
    if constexpr (Shape::kMasked) load_mask(first_key, bits);
    unsigned char* const k = slots + (Shape::kInKeys ? keys_at * Shape::kSlotBytes : 0);
    unsigned char* const other = slots + (Shape::kInKeys ? (1 - keys_at) * Shape::kSlotBytes : Shape::kSlotBytes);
    wait_for_copies<0>();
    publish();
    __syncthreads();  // and everybody is done with the tile before
    if constexpr (Shape::kInKeys) {
      copy_next_keys(other);
      keys_at = 1 - keys_at;
    } else {
      copy_values(other);
    }
    score(k, s);
    if constexpr (Shape::kMasked) {
      apply_mask(bits, s);
    } else if (first_key + kWideKeys - 1 > mine.first_position + mine.first_row / a.group || first_key < mask_until()) {
      mask(first_key, s);
    }
    publish_maxima(s);
    __syncthreads();
    if constexpr (!Shape::kInKeys) copy_next_keys(k);
    if (part == 0) soften(s);
    if constexpr (!Shape::kInKeys) wait_for_copies<1>();
    publish();
    __syncthreads();
    add(Shape::kInKeys ? k : other);
  }

  /// s = queries times keys, or with a cap the tanh of that: times exponent_factor() exponents of weights.
  __device__ __forceinline__ void score(const unsigned char* k, Scores& s) {
    if constexpr (kByWarpgroups)
      multiply_by_warpgroups(k, s);
    else
      multiply_keys(k, s);
    if (a.cap_factor == 0) return;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[n][j] = tanhf(s[n][j] * factors[row_of(j / 2)]);
    }
  }
  __device__ __forceinline__ void multiply_keys(const unsigned char* k, Scores& s) {
    float sum[kKeyTiles][kChains][4] = {};
    const int matrix = lane / 8, in_matrix = lane % 8;
    const std::uint32_t q_at =
        shared_address(queries) + static_cast<std::uint32_t>((row_tile * 16 + matrix % 2 * 8 + in_matrix) * 128);
    // With one tile of 8 keys a load has two steps' elements of them.
    constexpr bool kTwoSteps = kKeyTiles == 1;
    const int first = group * kKeyTiles * 8 + in_matrix + (kTwoSteps ? 0 : matrix / 2 * 8);
    const std::uint32_t k_at = shared_address(k) + static_cast<std::uint32_t>(first * 128);
    // Units 2 step + n of 8 elements lie at ^ in_matrix: the same in each panel of 4 steps.
    std::uint32_t q_unit[4], k_unit[4];
    [[maybe_unused]] std::uint32_t two_steps[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q_unit[i] = static_cast<std::uint32_t>(((2 * i + matrix / 2) ^ in_matrix) << 4);
      k_unit[i] = static_cast<std::uint32_t>(((2 * i + (kTwoSteps ? matrix : matrix % 2)) ^ in_matrix) << 4);
    }
#pragma unroll 1
    for (std::uint32_t panel = 0; panel < kDimK / 64; ++panel) {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        std::uint32_t q[kParts][4];
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          load_matrices(
              q[p], q_at + panel * kParts * kRows * 128 + q_unit[step] + static_cast<std::uint32_t>(p * kRows * 128));
        const auto multiply = [&](float(&to)[kChains][4], std::uint32_t b0, std::uint32_t b1) {
#pragma unroll
          for (int p = 0; p < kParts; ++p)
            multiply_add<kBFloat16>(to[!kExact ? 0 : p == 0 ? step % 2 : 2], q[p], b0, b1);
        };
        if constexpr (kTwoSteps) {
          if (step % 2 == 0) load_matrices(two_steps, k_at + panel * kWideKeys * 128 + k_unit[step]);
          multiply(sum[0], two_steps[step % 2 * 2], two_steps[step % 2 * 2 + 1]);
        } else {
#pragma unroll
          for (int n = 0; n < kKeyTiles; n += 2) {
            std::uint32_t b[4];
            load_matrices(b, k_at + panel * kWideKeys * 128 + k_unit[step] + static_cast<std::uint32_t>(n * 8 * 128));
            multiply(sum[n], b[0], b[1]);
            multiply(sum[n + 1], b[2], b[3]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[n][j] = sum[n][0][j];
        if constexpr (kExact) s[n][j] = (s[n][j] + sum[n][1][j]) + sum[n][2][j];
      }
    }
  }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ __forceinline__ void multiply_by_warpgroups(const unsigned char* k, Scores& s) {
    const std::uint32_t q_at = shared_address(queries);
    const std::uint32_t k_at = shared_address(k) + static_cast<std::uint32_t>(group * kKeyTiles * 8 * 128);
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[n][j] = zero_here();
    }
    begin_products();
#pragma unroll
    for (std::uint32_t step = 0; step < kDimK / 16; ++step) {
      const std::uint32_t in_panel = step % 4 * 32;
      multiply_lines<kBFloat16>(s, operand_of_lines(q_at + step / 4 * kParts * kRows * 128 + in_panel),
                                operand_of_lines(k_at + step / 4 * kWideKeys * 128 + in_panel));
    }
    commit_products();
    wait_for_products<0>();
    if constexpr (kParts > 1) join_parts(s);
  }
  /// Scores of the second part are added to those of the first, by way of where weights will be.
  __device__ __forceinline__ void join_parts(Scores& s) {
    static_assert(kParts == 2 && 2 * kRowTiles * kKeyTiles * 4 * 32 * sizeof(float) == kParts * Shape::kWeightBytes);
    float* const at = reinterpret_cast<float*>(weights) + (group * kRowTiles + row_tile) * kKeyTiles * 4 * 32 + lane;
#pragma unroll
    for (int i = 0; i < kKeyTiles * 4; ++i) {
      if (part == 1) at[i * 32] = s[i / 4][i % 4];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kKeyTiles * 4; ++i) {
      if (part == 0) s[i / 4][i % 4] += at[i * 32];
    }
  }
  __device__ __forceinline__ void add_by_warpgroups(const unsigned char* v) {
    constexpr std::uint32_t kPanel = kWideKeys * 128;
    const std::uint32_t p_at = shared_address(weights);
    const std::uint32_t v_at = shared_address(v) + static_cast<std::uint32_t>(group) * (kDimV / 128) * kPanel;
    begin_products();
#pragma unroll
    for (std::uint32_t k = 0; k < kWideKeys / 16; ++k)
      multiply_panels<kBFloat16>(sums, operand_of_lines(p_at + k * 32), operand_of_panels(v_at + k * 16 * 128, kPanel));
    commit_products();
    wait_for_products<0>();
  }
#else
  __device__ __forceinline__ void multiply_by_warpgroups(const unsigned char*, Scores&) {}
  __device__ __forceinline__ void add_by_warpgroups(const unsigned char*) {}
#endif
  /// What this thread wrote to shared memory is there for the others behind a barrier.
  static __device__ __forceinline__ void publish() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (kByWarpgroups) publish_operand();
#endif
  }
  /// Row of the CTA that elements 2 half and 2 half + 1 of a lane's scores belong to.
  __device__ __forceinline__ int row_of(int half) const { return row_tile * 16 + half * 8 + lane / 4; }
  /// What scores are multiplied with to be exponents of 2.
  __device__ __forceinline__ float exponent_factor(int half) const {
    return a.cap_factor != 0 ? a.scale_log2 : factors[row_of(half)];
  }

  /// Keys before that are not seen by every row.
  __device__ __forceinline__ int mask_until() const { return a.window.first_key(last_position); }
  /// Keys that a row does not see get minus infinity.
  __device__ __forceinline__ void mask(int first_key, Scores& s) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = mine.first_position + (mine.first_row + row_of(half)) / a.group;
      const int first_seen = a.window.first_key(position);
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int key = first_key + (group * kKeyTiles + n) * 8 + lane % 4 * 2 + j;
          if (key > position || key < first_seen) s[n][2 * half + j] = -INFINITY;
        }
      }
    }
  }

  /// The bits of the lane's keys, from its first on, of the tokens of its rows; rows that the CTA does not have take
  /// its last one's.
  __device__ __forceinline__ void load_mask(int first_key, std::uint32_t (&bits)[2]) const {
    const std::uint32_t* const words =
        reinterpret_cast<const std::uint32_t*>(words_of(a.mask, mine.kv_head) + first_key / kWideKeys) + group;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of(min(row_of(half), mine.rows - 1));
      bits[half] = __ldcg(words + 2 * static_cast<std::int64_t>(token) * a.mask.token_pitch) >> lane % 4 * 2;
    }
  }
  __device__ __forceinline__ void apply_mask(const std::uint32_t (&bits)[2], Scores& s) const {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((bits[j / 2] >> (n * 8 + j % 2) & 1) == 0) s[n][j] = -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void publish_maxima(const Scores& s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float factor = exponent_factor(half);
      float max = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) max = fmaxf(max, fmaxf(s[n][2 * half] * factor, s[n][2 * half + 1] * factor));
      max = fmaxf(max, __shfl_xor_sync(kAll, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kAll, max, 2));
      if (lane % 4 == 0 && part == 0) group_max[group * kRows + row_of(half)] = max;
    }
  }

  /// Scores become weights, times kOne, in shared memory as parts; what was summed under a smaller maximum is to
  /// shrink.
  __device__ __forceinline__ void soften(Scores& s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      const float factor = exponent_factor(half);
      float max = maxima[half];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) max = fmaxf(max, group_max[g * kRows + row]);
      const float base = max == -INFINITY ? 0.0f : max;  // a row that has seen nothing yet
      const float shrink = power_of_2(maxima[half] - base);
      maxima[half] = max;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        const float low = power_of_2(fmaf(s[n][2 * half], factor, -base)) * kOne;
        const float high = power_of_2(fmaf(s[n][2 * half + 1], factor, -base)) * kOne;
        total += low;
        total += high;
        std::uint32_t parts[kParts];
        divide(low, high, parts);
        unsigned char* const to = weights + unit_at(kRows, row, group * kKeyTiles + n) + lane % 4 * 4;
#pragma unroll
        for (int p = 0; p < kParts; ++p) *reinterpret_cast<std::uint32_t*>(to + p * Shape::kWeightBytes) = parts[p];
      }
      totals[half] = fmaf(totals[half], shrink, total);  // of this lane's keys
      if (group == 0 && lane % 4 == 0) shrinks[row] = shrink;
    }
  }

  /// sums = sums * shrink + weights times values, of the warp's dimensions.
  __device__ __forceinline__ void add(const unsigned char* v) {
    const int matrix = lane / 8, in_matrix = lane % 8;
    const std::uint32_t p_at =
        shared_address(weights) + static_cast<std::uint32_t>((matrix % 2 * 8 + in_matrix) * kWideKeys * 2);
    const std::uint32_t v_at =
        shared_address(v) + static_cast<std::uint32_t>((warp * kWideKeys + matrix % 2 * 8 + in_matrix) * 128);
    const auto load_weights = [&](std::uint32_t(&to)[4], int part, int m, int k) {
      load_matrices(to, p_at + static_cast<std::uint32_t>(part * Shape::kWeightBytes + m * 16 * kWideKeys * 2 +
                                                          (((2 * k + matrix / 2) ^ in_matrix) << 4)));
    };
    const auto load_values = [&](std::uint32_t(&to)[4], int k, int i) {  // of dimension tiles i and i + 1
      load_matrices_transposed(to,
                               v_at + static_cast<std::uint32_t>(k * 16 * 128 + (((i + matrix / 2) ^ in_matrix) << 4)));
    };
    if constexpr (kSumsByWarpgroups) {
      shrink_sums();
      add_by_warpgroups(v);
    } else if constexpr (kExact) {
      add_exactly(load_weights, load_values);
    } else {
      shrink_sums();
#pragma unroll
      for (int k = 0; k < kWideKeys / 16; ++k) {
        std::uint32_t p[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) load_weights(p[m], 0, m, k);
#pragma unroll
        for (int i = 0; i < kDimTiles; i += 2) {
          std::uint32_t b[4];
          load_values(b, k, i);
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add<kBFloat16>(sums[m * kDimTiles + i], p[m], b[0], b[1]);
            multiply_add<kBFloat16>(sums[m * kDimTiles + i + 1], p[m], b[2], b[3]);
          }
        }
      }
    }
  }
  /// Row of the CTA, and first dimension, that a lane's sums belong to.
  __device__ __forceinline__ int sum_row(int m, int half) const {
    return kSumsByWarpgroups ? row_of(half) : m * 16 + half * 8 + lane / 4;
  }
  __device__ __forceinline__ int first_dimension() const {
    return (kSumsByWarpgroups ? group * kDimV / 2 : warp * kWideDims) + lane % 4 * 2;
  }
  __device__ __forceinline__ void shrink_sums() {
#pragma unroll
    for (int m = 0; m < kSumRows; ++m) {
      const float low = shrinks[sum_row(m, 0)], high = shrinks[sum_row(m, 1)];
      if (__all_sync(kAll, low == 1.0f && high == 1.0f)) continue;  // most tiles bring no larger score
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
        float(&x)[4] = sums[m * kDimTiles + i];
        x[0] *= low, x[1] *= low, x[2] *= high, x[3] *= high;
      }
    }
  }
  /// The tile's products by themselves, which are then added with one rounding.
  template <class P, class V>
  __device__ __forceinline__ void add_exactly(const P& load_weights, const V& load_values) {
    std::uint32_t p[kParts][kRowTiles][kWideKeys / 16][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int k = 0; k < kWideKeys / 16; ++k) load_weights(p[part][m][k], part, m, k);
      }
    }
#pragma unroll
    for (int i = 0; i < kDimTiles; i += 2) {
      float sum[kRowTiles][2][4] = {};
#pragma unroll
      for (int k = 0; k < kWideKeys / 16; ++k) {
        std::uint32_t b[4];
        load_values(b, k, i);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add<kBFloat16>(sum[m][0], p[part][m][k], b[0], b[1]);
            multiply_add<kBFloat16>(sum[m][1], p[part][m][k], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float shrink = shrinks[sum_row(m, j / 2)];
          float(*const x)[4] = sums + m * kDimTiles + i;
          x[0][j] = fmaf(x[0][j], shrink, sum[m][0][j]);
          x[1][j] = fmaf(x[1][j], shrink, sum[m][1][j]);
        }
      }
    }
  }

  // --- stripes ---

  __device__ __forceinline__ bool divided() const { return a.splits > 1 && keys.stripes() > 1; }

  __device__ __forceinline__ void end_stripe(int s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = totals[half];
      total += __shfl_xor_sync(kAll, total, 1);
      total += __shfl_xor_sync(kAll, total, 2);
      if (lane % 4 != 0 || part != 0) continue;
      group_total[group * kRows + row_of(half)] = total;
      if (group == 0) stripe_max[row_of(half)] = maxima[half];
    }
    __syncthreads();
    if (kExact && divided())
      keep_stripe(s);
    else
      fold(s == 0, s + 1 == keys.stripes());
  }
  __device__ __forceinline__ float stripe_total(int row) const {
    float total = group_total[row];
#pragma unroll
    for (int g = 1; g < kGroups; ++g) total += group_total[g * kRows + row];
    return total;
  }
  __device__ __forceinline__ void keep_stripe(int s) {
    float* const slot = a.partials + (pair * a.stripes + s) * a.slot_floats;
    for_each_pair([=](int row) { return slot + row * kDimV; }, [](int, float2* to, float2 x) { __stcg(to, x); });
    if (thread >= mine.rows) return;
    float* const stats = slot + a.slot_rows * kDimV;
    __stcg(stats + thread, stripe_max[thread]);
    __stcg(stats + a.slot_rows + thread, stripe_total(thread));
  }
  /// Into y, which has the sums of the stripes before.
  __device__ __forceinline__ void fold(bool begins, bool ends) {
    if (thread < mine.rows) {
      const float max = stripe_max[thread], before = begins ? max : whole_max[thread];
      const WideFold f = wide_fold(before, max);
      const float total = folded(begins, whole_total[thread], stripe_total(thread), f);
      whole_max[thread] = fmaxf(before, max);
      whole_total[thread] = total;
      shares[2 * thread] = f.old_share;
      shares[2 * thread + 1] = f.share;
      const float* const sink = a.sinks != nullptr ? a.sinks + head(thread) : nullptr;
      if (ends) ends_with[thread] = wide_result_factor(sink, kOne, fmaxf(before, max), total);
    }
    __syncthreads();
    const auto in_y = [&](int row) { return a.y + place(row) * kDimV; };
    if (!kExact || (begins && ends)) {
      for_each_pair(in_y, [&](int row, float2* to, float2 x) {
        const float factor = ends_with[row];
        *to = make_float2(x.x * factor, x.y * factor);
      });
      return;
    }
    for_each_pair(in_y, [&](int row, float2* to, float2 x) {
      const WideFold f{shares[2 * row], shares[2 * row + 1]};
      const float2 before = begins ? x : *to;
      const float factor = ends ? ends_with[row] : 1.0f;
      *to = make_float2(folded(begins, before.x, x.x, f) * factor, folded(begins, before.y, x.y, f) * factor);
    });
  }
  /// f(row, where in what of(row) gives, pair of neighbouring sums)
  template <class Of, class F>
  __device__ __forceinline__ void for_each_pair(const Of& of, const F& f) {
#pragma unroll
    for (int m = 0; m < kSumRows; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = sum_row(m, half);
        if (row >= mine.rows) continue;
        float2* const to = reinterpret_cast<float2*>(of(row) + first_dimension());
#pragma unroll
        for (int i = 0; i < kDimTiles; ++i) {
          const float(&x)[4] = sums[m * kDimTiles + i];
          f(row, to + i * 4, make_float2(x[2 * half], x[2 * half + 1]));
        }
      }
    }
  }

  const WideArgs& a;
  const WideRows mine;
  const int last_position;
  const WideTiles keys;
  const std::int32_t* const table;
  const std::int64_t pair;
  SeenTiles seen;  ///< where there is a mask
  const int thread, lane, warp;
  const int row_tile, group;  ///< of the warp's scores
  const int part;             ///< of the queries that it multiplies; the warps of the first have the scores
  unsigned char* const slots;
  unsigned char* const queries;  ///< [kParts][kRows][kDimK], units of 16 bytes at ^ row % 8, as in all tiles
  unsigned char* const weights;  ///< [kParts][kRows][kWideKeys]
  float *const group_max, *const group_total;  ///< [kGroups][kRows]
  float* const factors;
  float* const shrinks;
  float *const stripe_max, *const whole_max, *const whole_total, *const ends_with, *const shares;
  Copied copied;
  int keys_at;  ///< slot of the tile's keys, where values are in them
  float sums[kSumRows * kDimTiles][4];
  float maxima[2], totals[2];
};

inline WideArgs wide_arguments(const float* q, float* y, const CacheView& c, const AttentionShape& s,
                               const StepView& step) {
  WideArgs a{};
  a.q = q;
  a.y = y;
  a.k = reinterpret_cast<const unsigned char*>(c.k);
  a.v = reinterpret_cast<const unsigned char*>(c.v);
  a.positions = step.positions;
  a.sequence = step.sequence;
  a.block_table = step.block_table;
  a.k_type = c.k_type;
  a.v_type = c.v_type;
  a.table_stride = step.table_stride;
  a.heads = s.heads;
  a.kv_heads = c.kv_heads;
  a.group = s.heads / c.kv_heads;
  a.head_tiles = 1;
  a.k_row_bytes = cache_row_bytes(c.k_type, c.head_dim_k);
  a.v_row_bytes = cache_row_bytes(c.v_type, c.head_dim_v);
  a.window = s.window;
  a.mask = s.mask;
  a.sinks = s.sinks;
  a.scale_log2 = score_factor(s);
  a.cap_factor = cap_factor(s);
  a.round_query = s.query == ActFormat::Q8x32 && cache_block_bytes(c.k_type) != 0;
  a.stripes = a.splits = 1;
  return a;
}

inline void see_compressed(WideArgs& a, const AttentionShape& s, const CompressedKeys& keys) {
  a.window = {};
  a.selected = keys.chosen;
  a.top_k = keys.top_k;
  a.compressed = reinterpret_cast<const unsigned char*>(keys.rows);
  a.order = keys.order(s.window);
}

}  // namespace
}  // namespace llm::cuda
