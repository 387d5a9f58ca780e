// Attention of heads of 512 or 576 elements on tensor cores, one CTA of 8 warps to a multiprocessor: the softmax of up
// to 64 rows, a row being a query head of a token, over tiles of 64 keys.
//
// A tile's scores first: each warp has 16 of the rows and some of the keys, since all of a key's elements are needed for
// one. Maxima and weights go through shared memory. Then the values: each warp has 64 of their 512 dimensions of all
// rows, whose sums fill its registers. Tiles come by asynchronous copies into slots in turn, keys, values, keys ...:
// a slot is filled again as soon as all warps are done with it. Rows that are no F16 or BF16 numbers are decoded on
// their way. Where values are the first elements of keys (CacheView::values_in_keys) they are not copied.
//
// For prompts queries and weights are rounded to F16 or BF16 (one part). For decoding each is the sum of two F16 or
// three BF16 numbers, and what a tile adds is rounded once: as exact as f32 (attend_halves.cuh says how and why). A
// score has two chains of up to 18 products of the first parts and one of the others.
//
// Rows are padded to 16. Operations of a tile with 64 rows of a prompt, or 32 of decoding: 2,176 products of 576/512,
// 4,350 cycles at the rate of mma.sync, and 570 KB of fragments from shared memory, 4,480 cycles; copies take 2,200 to
// 3,700 cycles of what the second cache gives, and where the cache is read from memory, as in decoding, 4,000 to 7,400.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_tiles.cuh"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/attention_asm.cuh"

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
  int heads, kv_heads, group, head_tiles, slot_rows;
  int k_row_bytes, v_row_bytes;
  int window;
  const float* sinks;  ///< [heads]; null: none
  float scale_log2;    ///< the scale, or with a cap this, times log2(e): weights are powers of 2
  float cap_factor;    ///< products times this are what tanh is taken of; 0: no cap
  bool round_query;    ///< to Q8x32
  int stripes, splits;
};

constexpr int kWideSlots = 2;
constexpr int kWideDims = 64;  ///< of the values, of a warp

/// `kParts`: of queries and weights, 1 for prompts. `kInKeys`: values are the first elements of keys. `kDecoded`: rows
/// are decoded to F16.
template <bool kBFloat16_, int kParts_, int kRows_, int kDimK_, bool kInKeys_, bool kDecoded_>
struct WideShape {
  static constexpr bool kBFloat16 = kBFloat16_, kInKeys = kInKeys_, kDecoded = kDecoded_, kExact = kParts_ > 1;
  static constexpr int kParts = kParts_, kRows = kRows_, kDimK = kDimK_, kDimV = kWideDims * kWarps;
  static constexpr int kRowTiles = kRows / 16;
  static constexpr int kGroups = kWarps / kRowTiles;          ///< of keys, of a tile's scores
  static constexpr int kKeyTiles = kWideKeys / kGroups / 8;   ///< of 8 keys, of a warp
  static constexpr int kDimTiles = kWideDims / 8;             ///< of 8 elements, of a warp's results
  static constexpr int kPitchK = 2 * kDimK, kPitchV = kInKeys ? kPitchK : 2 * kDimV;
  static constexpr int kSlotBytes = kWideKeys * (kPitchK > kPitchV ? kPitchK : kPitchV);
  static constexpr int kQueryBytes = kRows * kPitchK, kWeightBytes = kRows * kWideKeys * 2;  ///< of a part
  static constexpr int kStats = kRows * (2 * kGroups + 7);
  static constexpr int kSharedBytes =
      kWideSlots * kSlotBytes + kParts * (kQueryBytes + kWeightBytes) + kStats * static_cast<int>(sizeof(float));
  static_assert(kDimK % 64 == 0 && kRows % 16 == 0 && kKeyTiles >= 1);
};

/// What a CTA has: rows of one KV head of one sequence. Row r is token r / group of a span, head r % group.
struct WideRows {
  int first_token, first_position, sequence;  ///< of the span
  int kv_head, first_row, rows;
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
/// One more key, whose value is 0: the total with it, and what sums are to be multiplied with.
struct WideSink {
  float total, share;
};
__device__ __forceinline__ WideSink with_wide_sink(float sink, float one, float max, float total) {
  const float score = sink * kLog2E, most = fmaxf(max, score), share = exp2f(max - most);
  return {fmaf(total, share, one * exp2f(score - most)), share};
}

template <class Shape>
class Wide {
  static constexpr bool kBFloat16 = Shape::kBFloat16, kExact = Shape::kExact;
  static constexpr int kParts = Shape::kParts, kRows = Shape::kRows, kRowTiles = Shape::kRowTiles;
  static constexpr int kGroups = Shape::kGroups, kKeyTiles = Shape::kKeyTiles, kDimTiles = Shape::kDimTiles;
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
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32),
        row_tile(warp % kRowTiles),
        group(warp / kRowTiles),
        slots(shared),
        queries(shared + kWideSlots * Shape::kSlotBytes),
        weights(queries + kParts * Shape::kQueryBytes),
        group_max(reinterpret_cast<float*>(weights + kParts * Shape::kWeightBytes)),
        group_total(group_max + kGroups * kRows),
        factors(group_total + kGroups * kRows),
        shrinks(factors + kRows),
        stripe_max(shrinks + kRows),
        whole_max(stripe_max + kRows),
        whole_total(whole_max + kRows),
        shares(whole_total + kRows) {}

  __device__ __forceinline__ void run(int first) {
    if (first >= keys.stripes()) return;
    reading = filling = 0;
    cursor = {first, 0, load_block(first)};
    for (int i = 0; i < kWideSlots - 1; ++i) copy_next();
    load_queries();
#pragma unroll 1
    for (int s = first; s < keys.stripes(); s += a.splits) {
      begin_stripe();
#pragma unroll 1
      for (int u = s; u < keys.tiles; u += a.stripes) take_tile((keys.first + u) * kWideKeys);
      end_stripe(s);
    }
  }

 private:
  // --- keys and values ---

  struct Cursor {
    int tile, side, block;  ///< side 0: keys
  };
  __device__ __forceinline__ int load_block(int tile) const {
    return tile < keys.tiles ? __ldcg(table + keys.first + tile) : 0;
  }
  static __device__ __forceinline__ int unit_at(int pitch, int row, int unit) {
    return row * pitch + ((unit ^ (row & 7)) << 4);
  }
  /// Starts the copy of one more tile of keys or values, if there is one, into the slot that is next. Rows that no
  /// token of this CTA sees become zeros: a weight of 0 does not cover what is not a number.
  __device__ __forceinline__ void copy_next() {
    if (cursor.tile < keys.tiles) {
      const int base = (keys.first + cursor.tile) * kWideKeys, begin = keys.first_key - base;
      unsigned char* const to = slots + filling * Shape::kSlotBytes;
      if (cursor.side == 0)
        copy<kDimK>(to, a.k, a.k_type, a.k_row_bytes, begin, keys.end_key - base);
      else
        copy<kDimV>(to, a.v, a.v_type, a.v_row_bytes, begin, keys.end_key - base);
      if (Shape::kInKeys || cursor.side == 1) {
        cursor.tile = keys.after(cursor.tile, a.splits);
        cursor.side = 0;
        cursor.block = load_block(cursor.tile);
      } else {
        cursor.side = 1;
      }
    }
    commit_copies();
    filling = filling + 1 == kWideSlots ? 0 : filling + 1;
  }
  template <int kDim>
  __device__ __forceinline__ void copy(unsigned char* to, const unsigned char* cache, DType type, int row_bytes,
                                       int begin, int end) const {
    constexpr int kUnits = kDim / 8, kCount = kWideKeys * kUnits;
    const unsigned char* const from = cache + cache_rows_offset(cursor.block, a.kv_heads, mine.kv_head, row_bytes);
    const auto place = [=](int row, int unit) { return to + unit_at(2 * kDim, row, unit); };
    if constexpr (!Shape::kDecoded) {
#pragma unroll 6
      for (int i = 0; i < kCount; i += kThreads) {
        const int at = i + thread, row = at / kUnits;
        copy16_or_zero_async(place(row, at % kUnits), from + at * 16, row >= begin && row < end);
      }
    } else if (type == DType::F8_E4M3) {
#pragma unroll 6
      for (int i = 0; i < kCount; i += kThreads) {
        const int at = i + thread, row = at / kUnits;
        uint4 eight{};
        if (row >= begin && row < end) eight = f8_eight(__ldcg(reinterpret_cast<const uint2*>(from) + at));
        *reinterpret_cast<uint4*>(place(row, at % kUnits)) = eight;
      }
    } else {
      __builtin_assume(type != DType::F8_E4M3);
#pragma unroll 2
      for (int i = 0; i < kCount; i += kThreads) {
        const int at = i + thread, row = at / kUnits, unit = at % kUnits;
        uint4 eight{};
        if (row >= begin && row < end) {
          float x[8];
          decode(type, from + row * row_bytes, unit * 8, kDim, x);
          eight = make_uint4(pack<false>(x[0], x[1]), pack<false>(x[2], x[3]), pack<false>(x[4], x[5]),
                             pack<false>(x[6], x[7]));
        }
        *reinterpret_cast<uint4*>(place(row, unit)) = eight;
      }
    }
  }
  /// As decode8() does, but reads of a row in memory nothing beyond it.
  static __device__ __forceinline__ void decode(DType type, const unsigned char* row, int e0, int dim, float (&x)[8]) {
    if (type != DType::Q8_0) return decode8<CacheSource::Any>(type, row, e0, dim, x);
    const unsigned char* const block = row + e0 / 32 * 34;
    const unsigned char* const quants = block + 2 + e0 % 32;
    const float d = half_to_float(bytes2(block));
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const std::uint32_t word = (bytes2(quants + i) | bytes2(quants + i + 2) << 16) ^ 0x80808080u;
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i + j] = d * signed_byte(word, j);
    }
  }
  __device__ __forceinline__ const unsigned char* next_slot() {
    const unsigned char* const slot = slots + reading * Shape::kSlotBytes;
    reading = reading + 1 == kWideSlots ? 0 : reading + 1;
    return slot;
  }

  // --- queries ---

  __device__ __forceinline__ int head(int row) const {
    return mine.kv_head * a.group + (mine.first_row + row) % a.group;
  }
  /// Which of the rows of all tokens and heads.
  __device__ __forceinline__ std::int64_t place(int row) const {
    return static_cast<std::int64_t>(mine.first_token + (mine.first_row + row) / a.group) * a.heads + head(row);
  }
  /// As parts, and the factor that makes scores of a row's products, or with a cap what tanh is taken of.
  __device__ __forceinline__ void load_queries() {
#pragma unroll 1
    for (int row = warp; row < kRows; row += kWarps) {
      const float* const q = a.q + place(row) * kDimK + lane;
      float x[kDimK / 32];
      int bits = 0;
#pragma unroll
      for (int i = 0; i < kDimK / 32; ++i) {
        x[i] = row < mine.rows ? __ldcg(q + i * 32) : 0.0f;
        if (a.round_query) x[i] = round_q8x32(x[i]);
        bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
      }
      float up = 1, down = 1;
      if constexpr (kExact) {
        bits = __reduce_max_sync(kAll, bits);
        const int power = bits < 0x7f800000 ? query_power<kBFloat16>(bits >> 23) : 0;
        up = __int_as_float((127 + power) << 23), down = __int_as_float((127 - power) << 23);
      }
#pragma unroll
      for (int i = 0; i < kDimK / 32; ++i) {
        const int at = unit_at(Shape::kPitchK, row, i * 4 + lane / 8) + lane % 8 * 2;
        std::uint32_t parts[kParts];
        divide(x[i] * up, 0.0f, parts);
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          *reinterpret_cast<std::uint16_t*>(queries + p * Shape::kQueryBytes + at) =
              static_cast<std::uint16_t>(parts[p]);
      }
      // Not zero, or what is masked would not stay infinite.
      if (lane == 0) factors[row] = fmaxf((a.cap_factor != 0 ? a.cap_factor : a.scale_log2) * down, 0x1p-126f);
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
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[m][i][j] = 0;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maxima[half] = -INFINITY;
      totals[half] = 0;
    }
  }

  __device__ __forceinline__ void take_tile(int first_key) {
    Scores s;
    wait_for_copies<kWideSlots - 2>();
    __syncthreads();  // and everybody is done with the tile before
    copy_next();
    const unsigned char* const k = next_slot();
    score(k, s);
    if (first_key + kWideKeys - 1 > mine.first_position + mine.first_row / a.group || first_key < mask_until()) {
      mask(first_key, s);
    }
    publish_maxima(s);
    __syncthreads();
    if constexpr (!Shape::kInKeys) copy_next();  // where the keys were
    soften(s);
    if constexpr (!Shape::kInKeys) wait_for_copies<kWideSlots - 1>();
    __syncthreads();
    add(Shape::kInKeys ? k : next_slot());
  }

  /// s = queries times keys, times what makes scores of them but for what weights() multiplies with.
  __device__ __forceinline__ void score(const unsigned char* k, Scores& s) {
    float sum[kKeyTiles][kChains][4] = {};
    const int matrix = lane / 8, in_matrix = lane % 8;
    const std::uint32_t q_at = shared_address(queries) +
                               static_cast<std::uint32_t>((row_tile * 16 + matrix % 2 * 8 + in_matrix) * Shape::kPitchK);
    // With one tile of 8 keys a load has two steps' elements of them.
    constexpr bool kTwoSteps = kKeyTiles == 1;
    const int first = group * kKeyTiles * 8 + in_matrix + (kTwoSteps ? 0 : matrix / 2 * 8);
    const std::uint32_t k_at = shared_address(k) + static_cast<std::uint32_t>(first * Shape::kPitchK);
    // Units 2 step + n of 8 elements lie at ^ in_matrix: the same every 4 steps.
    std::uint32_t q_unit[4], k_unit[4];
    [[maybe_unused]] std::uint32_t two_steps[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q_unit[i] = static_cast<std::uint32_t>(((2 * i + matrix / 2) ^ in_matrix) << 4);
      k_unit[i] = static_cast<std::uint32_t>(((2 * i + (kTwoSteps ? matrix : matrix % 2)) ^ in_matrix) << 4);
    }
#pragma unroll
    for (int step = 0; step < kDimK / 16; ++step) {
      std::uint32_t q[kParts][4];
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        load_matrices(q[p], q_at + q_unit[step % 4] + static_cast<std::uint32_t>(p * Shape::kQueryBytes + step / 4 * 128));
      const auto multiply = [&](float(&to)[kChains][4], std::uint32_t b0, std::uint32_t b1) {
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          multiply_add<kBFloat16>(to[!kExact ? 0 : p == 0 ? step % 2 : 2], q[p], b0, b1);
      };
      if constexpr (kTwoSteps) {
        if (step % 2 == 0) load_matrices(two_steps, k_at + k_unit[step % 4] + static_cast<std::uint32_t>(step / 4 * 128));
        multiply(sum[0], two_steps[step % 2 * 2], two_steps[step % 2 * 2 + 1]);
      } else {
#pragma unroll
        for (int n = 0; n < kKeyTiles; n += 2) {
          std::uint32_t b[4];
          load_matrices(b, k_at + k_unit[step % 4] +
                               static_cast<std::uint32_t>(n * 8 * Shape::kPitchK + step / 4 * 128));
          multiply(sum[n], b[0], b[1]);
          multiply(sum[n + 1], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[n][j] = sum[n][0][j];
        if constexpr (kExact) s[n][j] = (s[n][j] + sum[n][1][j]) + sum[n][2][j];
        if (a.cap_factor != 0) s[n][j] = tanhf(s[n][j] * factors[row_of(j / 2)]);
      }
    }
  }
  /// Row of the CTA that elements 2 half and 2 half + 1 of a lane's scores belong to.
  __device__ __forceinline__ int row_of(int half) const { return row_tile * 16 + half * 8 + lane / 4; }
  /// What scores are multiplied with to be exponents of 2.
  __device__ __forceinline__ float exponent_factor(int half) const {
    return a.cap_factor != 0 ? a.scale_log2 : factors[row_of(half)];
  }

  /// Keys before that are not seen by every row.
  __device__ __forceinline__ int mask_until() const { return a.window > 0 ? last_position - a.window + 1 : 0; }
  /// Keys that a row does not see get minus infinity.
  __device__ __forceinline__ void mask(int first_key, Scores& s) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = mine.first_position + (mine.first_row + row_of(half)) / a.group;
      const int least = a.window > 0 ? position - a.window : -1;  // the first key is behind it
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int key = first_key + (group * kKeyTiles + n) * 8 + lane % 4 * 2 + j;
          if (key > position || key <= least) s[n][2 * half + j] = -INFINITY;
        }
      }
    }
  }

  __device__ __forceinline__ void publish_maxima(const Scores& s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float factor = exponent_factor(half);
      float max = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
        max = fmaxf(max, fmaxf(s[n][2 * half] * factor, s[n][2 * half + 1] * factor));
      max = fmaxf(max, __shfl_xor_sync(kAll, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kAll, max, 2));
      if (lane % 4 == 0) group_max[group * kRows + row_of(half)] = max;
    }
  }

  /// Scores become weights, times kOne, in shared memory as parts; what was summed under a smaller maximum is to shrink.
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
        unsigned char* const to =
            weights + unit_at(kWideKeys * 2, row, group * kKeyTiles + n) + lane % 4 * 4;
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          *reinterpret_cast<std::uint32_t*>(to + p * Shape::kWeightBytes) = parts[p];
      }
      totals[half] = fmaf(totals[half], shrink, total);  // of this lane's keys
      if (group == 0 && lane % 4 == 0) shrinks[row] = shrink;
    }
  }

  /// sums = sums * shrink + weights times values, of the warp's dimensions.
  __device__ __forceinline__ void add(const unsigned char* v) {
    const int matrix = lane / 8, in_matrix = lane % 8;
    const std::uint32_t p_at = shared_address(weights) +
                               static_cast<std::uint32_t>((matrix % 2 * 8 + in_matrix) * kWideKeys * 2);
    const std::uint32_t v_at = shared_address(v) +
                               static_cast<std::uint32_t>((matrix % 2 * 8 + in_matrix) * Shape::kPitchV + warp * 128);
    const auto load_weights = [&](std::uint32_t(&to)[4], int part, int m, int k) {
      load_matrices(to, p_at + static_cast<std::uint32_t>(part * Shape::kWeightBytes + m * 16 * kWideKeys * 2 +
                                                          (((2 * k + matrix / 2) ^ in_matrix) << 4)));
    };
    const auto load_values = [&](std::uint32_t(&to)[4], int k, int i) {  // of dimension tiles i and i + 1
      load_matrices_transposed(to, v_at + static_cast<std::uint32_t>(k * 16 * Shape::kPitchV +
                                                                     (((i + matrix / 2) ^ in_matrix) << 4)));
    };
    if constexpr (kExact) {
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
            multiply_add<kBFloat16>(sums[m][i], p[m], b[0], b[1]);
            multiply_add<kBFloat16>(sums[m][i + 1], p[m], b[2], b[3]);
          }
        }
      }
    }
  }
  __device__ __forceinline__ void shrink_sums() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const float low = shrinks[m * 16 + lane / 4], high = shrinks[m * 16 + 8 + lane / 4];
      if (__all_sync(kAll, low == 1.0f && high == 1.0f)) continue;  // most tiles bring no larger score
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
        sums[m][i][0] *= low;
        sums[m][i][1] *= low;
        sums[m][i][2] *= high;
        sums[m][i][3] *= high;
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
          const float shrink = shrinks[m * 16 + j / 2 * 8 + lane / 4];
          sums[m][i][j] = fmaf(sums[m][i][j], shrink, sum[m][0][j]);
          sums[m][i + 1][j] = fmaf(sums[m][i + 1][j], shrink, sum[m][1][j]);
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
      if (lane % 4 != 0) continue;
      group_total[group * kRows + row_of(half)] = total;
      if (group == 0) stripe_max[row_of(half)] = maxima[half];
    }
    __syncthreads();
    if (kExact && divided())
      publish(s);
    else
      fold(s == 0, s + 1 == keys.stripes());
  }
  __device__ __forceinline__ float stripe_total(int row) const {
    float total = group_total[row];
#pragma unroll
    for (int g = 1; g < kGroups; ++g) total += group_total[g * kRows + row];
    return total;
  }
  /// f(row, dimension, pair of neighbouring sums)
  template <class F>
  __device__ __forceinline__ void for_each_pair(const F& f) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        if (row >= mine.rows) continue;
#pragma unroll
        for (int i = 0; i < kDimTiles; ++i)
          f(row, warp * kWideDims + i * 8 + lane % 4 * 2, make_float2(sums[m][i][2 * half], sums[m][i][2 * half + 1]));
      }
    }
  }
  __device__ __forceinline__ void publish(int s) {
    float* const slot = a.partials + (pair * a.stripes + s) * (a.slot_rows * (kDimV + 2));
    for_each_pair([=](int row, int d, float2 x) { __stcg(reinterpret_cast<float2*>(slot + row * kDimV + d), x); });
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
      whole_max[thread] = fmaxf(before, max);
      whole_total[thread] = folded(begins, whole_total[thread], stripe_total(thread), f);
      shares[2 * thread] = f.old_share;
      shares[2 * thread + 1] = f.share;
    }
    __syncthreads();
    for_each_pair([&](int row, int d, float2 x) {
      float2* const to = reinterpret_cast<float2*>(a.y + place(row) * kDimV + d);
      const WideFold f{shares[2 * row], shares[2 * row + 1]};
      const float2 before = begins ? x : *to;
      x.x = folded(begins, before.x, x.x, f);
      x.y = folded(begins, before.y, x.y, f);
      if (ends) {
        float total = whole_total[row];
        if (a.sinks != nullptr) {
          const WideSink sink = with_wide_sink(a.sinks[head(row)], kOne, whole_max[row], total);
          total = sink.total;
          x.x *= sink.share;
          x.y *= sink.share;
        }
        x.x = quotient(x.x, total);
        x.y = quotient(x.y, total);
      }
      *to = x;
    });
  }

  const WideArgs& a;
  const WideRows mine;
  const int last_position;
  const WideTiles keys;
  const std::int32_t* const table;
  const std::int64_t pair;
  const int thread, lane, warp;
  const int row_tile, group;  ///< of the warp's scores
  unsigned char* const slots;
  unsigned char* const queries;  ///< [kParts][kRows][kDimK], units of 16 bytes at ^ row % 8, as in all tiles
  unsigned char* const weights;  ///< [kParts][kRows][kWideKeys]
  float *const group_max, *const group_total;  ///< [kGroups][kRows]
  float* const factors;
  float* const shrinks;
  float *const stripe_max, *const whole_max, *const whole_total, *const shares;
  Cursor cursor;
  int reading, filling;
  float sums[kRowTiles][kDimTiles][4];
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
  a.sinks = s.sinks;
  a.scale_log2 = score_factor(s);
  a.cap_factor = cap_factor(s);
  a.round_query = s.query == ActFormat::Q8x32 && cache_block_bytes(c.k_type) != 0;
  a.stripes = a.splits = 1;
  return a;
}

}  // namespace
}  // namespace llm::cuda
