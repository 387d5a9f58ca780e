// Attention of tokens over a cache of F16, BF16 or Q8_0 by tensor cores, as exact as f32 is: for decoding.
//
// A tensor core multiplies numbers of 16 bits exactly and adds in f32. Keys and values have 16 bits; a query or weight
// of 24 bits becomes a sum of two F16 numbers (three of BF16), which lie in neighbouring columns of one product:
//   x = x1 + x2 + r, x1 = round(x), x2 = round(x - x1): |r| <= 2^-23 |x| for F16, 2^-24 |x| with a third of BF16.
// Queries are scaled by a power of 2 to below 2^15 and weights by 2^15, so that the second part of whatever matters is
// a normal number. Sums: 16 products at a time, which hardware aligns and truncates to f32, an error below 2^-22 of the
// partial sum; a score of 128 elements has 8 such steps, in two chains. All of it stays an order of magnitude below the
// bound of the table of operations, (4 sqrt(16 dim) + 16) 2^-23: 197 units at 128.
// Quants of Q8_0 are exact in F16. Scales of keys multiply the sums of their blocks; those of values the weights, by
// themselves for each block of dimensions.
//
// A CTA of 8 warps takes up to 8 query heads of a KV head of one token over chunks of 256 keys (attend.cuh); each warp
// takes a strip of 32 keys of the chunk by itself, with a softmax of its own, and copies its own rows: tiles of 16 rows
// through a ring in shared memory that runs ahead over the borders of chunks. The strips meet once per chunk, in their
// order. A product has 16 keys (or 16 dimensions of the values) as rows, 4 heads with 2 parts each as columns.
//
// Bytes: as the general kernel's. Instructions of a chunk with 4 heads of 128, F16: about 450 per warp, 3,600 per
// multiprocessor and 128 KB: 900 cycles of issue where memory takes 6,600; the tensor cores take a quarter of that.
// What is left is latency, which 190 KB under way per multiprocessor cover. Q8_0: about 1,200 per warp and 70 KB, 2,400
// cycles of issue where memory takes 3,500, with 8 warps to hide what they wait for: predicted 55 %.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/attend_results.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"

namespace llm::cuda {
namespace {

/// Two neighbouring elements of a fragment.
template <bool kBFloat16>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (kBFloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.x)) |
           static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return static_cast<std::uint32_t>(__half_as_ushort(__low2half(pair))) |
           static_cast<std::uint32_t>(__half_as_ushort(__high2half(pair))) << 16;
  }
}
template <bool kBFloat16>
__device__ __forceinline__ float narrowed(float x) {
  if constexpr (kBFloat16) {
    return __bfloat162float(__float2bfloat16_rn(x));
  } else {
    return __half2float(__float2half_rn(x));
  }
}

/// x as a sum of numbers of 16 bits; the third only where it is needed.
template <bool kBFloat16>
struct Parts {
  float first, second, third;
  __device__ __forceinline__ explicit Parts(float x)
      : first(narrowed<kBFloat16>(x)),
        second(narrowed<kBFloat16>(x - first)),
        third(kBFloat16 ? narrowed<kBFloat16>(x - first - second) : 0.0f) {}
};

/// CTAs that a multiprocessor has shared memory for.
constexpr int halves_per_multiprocessor(CacheSource source, int dims, int heads, int tiles) {
  if (source == CacheSource::Q8_0) return 1;
  return kWarps * (tiles * kTileKeys * 2 * dims + 4 * heads * dims) <= 112 * 1024 ? 2 : 1;
}

template <CacheSource kSource, int kDims, int kHeads, int kTiles>
class AttendHalves {
  static constexpr bool kBFloat16 = kSource == CacheSource::BF16, kQuantized = kSource == CacheSource::Q8_0;
  static constexpr int kAhead = halves_per_multiprocessor(kSource, kDims, kHeads, kTiles) == 1 ? 8 : 4;
  using Results = AttendResults<kDims, kHeads, kAhead>;
  using Result = typename Results::Result;
  static constexpr int kSums = Results::kSums, kOwned = Results::kOwned;
  static constexpr int kBlocks = kDims / 32, kBlockBytes = 34;  ///< of a quantised row
  static constexpr int kRowBytes = kQuantized ? kBlocks * kBlockBytes : 2 * kDims, kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kPitch = 2 * kDims, kPlainBytes = kTileKeys * kPitch;  ///< of rows of 16-bit numbers
  static constexpr int kUnits = kDims / 8;                                    ///< of 16 bytes in a row
  static constexpr int kColumns = kHeads / 4;        ///< groups of 8 columns: 4 heads, 2 parts each
  static constexpr int kSteps = kDims / 16;          ///< products along a head's elements
  static constexpr int kLayers = kBFloat16 ? 2 : 1;  ///< of columns: first and second parts, third parts
  static constexpr int kHalves = kStripKeys / kTileKeys;
  static_assert(kDims % 64 == 0 && kHalves == 2 && kTiles >= 3 && kHeads % 4 == 0);
  static_assert(kWarps * kStripKeys == kChunkKeys && kCacheBlock % kStripKeys == 0);

 public:
  __device__ __forceinline__ AttendHalves(const AttendArgs& args, unsigned char* shared, int token, int position,
                                          int sequence)
      : a(args),
        keys(position, args.window),
        table(args.block_table + static_cast<std::int64_t>(sequence) * args.table_stride),
        token(token),
        kv_head(static_cast<int>(blockIdx.y) / args.head_tiles),
        split(static_cast<int>(blockIdx.x)),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        ring(shared + warp * kTiles * kTileBytes),
        plain(shared + kWarps * kTiles * kTileBytes + warp * kHalves * kPlainBytes),
        sums(reinterpret_cast<float*>(shared +
                                      kWarps * (kTiles * kTileBytes + (kQuantized ? kHalves * kPlainBytes : 0)))),
        stats(sums + kWarps * kSums),
        factors(stats + kWarps * 2 * kHeads),
        results(args, keys, token, 0, reinterpret_cast<int*>(factors + kHeads)) {}

  /// Up to the first access to what earlier kernels of the step wrote.
  __device__ __forceinline__ bool prepare() {
    const int begin = first_chunk_of(split, a.unit);
    if (begin >= keys.chunks) return false;
    cursor = {begin, 0, 0, 0};
    cursor.block = load_block(begin);
    cursor.next_block = load_block(chunk_after(begin, a.splits, a.unit));
    if (sees(begin)) prefetch_strip(begin);
    return true;
  }

  __device__ __forceinline__ void run() {
    if (cursor.chunk < keys.chunks && !sees(cursor.chunk)) next_chunk();
    filling = 0;
    reading = 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) copy_next();
    load_queries();
    std::uint32_t q[kLayers][kColumns][kSteps][2];
    take_queries(q);
    for (int c = first_chunk_of(split, a.unit); c < keys.chunks; c = chunk_after(c, a.splits, a.unit)) {
      Weights weights;
      const bool seen = sees(c);
      if (seen) score_strip(c, q, weights);
      __syncthreads();  // everybody is done with the sums before
      if (seen) add_values(c, weights);
      __syncthreads();
      Result chunk;
      merge_strips(c, chunk);
      results.take(c, chunk);
    }
  }

 private:
  /// Of a strip, as fragments b of the products with values: rows are keys, column 2 h + p is part p of head h's. The
  /// maximum and the sum are of heads lane % 4 (+ 4).
  struct Weights {
    std::uint32_t parts[kLayers][kColumns][kHalves][2];
    float whole[kColumns][2 * kHalves];  ///< of keys lane / 4 + 8 i: where values have scales still to be multiplied
    float max[kColumns], total[kColumns];
  };

  // --- copies ---

  /// Where a warp's copies are: its strip of a chunk, which of its 4 tiles (keys, then values), blocks of the cache of
  /// this chunk and the next of the CTA.
  struct Cursor {
    int chunk, tile, block, next_block;
  };
  __device__ __forceinline__ bool sees(int c) const {
    return keys.strip_first_key(c, warp) < keys.strip_end_key(c, warp);
  }
  __device__ __forceinline__ int strip_base(int c) const { return keys.chunk_base(c) + warp * kStripKeys; }
  __device__ __forceinline__ int load_block(int c) const {
    return c < keys.chunks && strip_base(c) < keys.end_key ? __ldcg(table + strip_base(c) / kCacheBlock) : 0;
  }
  /// Byte of the cache (keys or values) where the row of a position begins.
  __device__ __forceinline__ std::size_t row_offset(int block, int position) const {
    return cache_rows_offset(block, a.kv_heads, kv_head, kRowBytes) +
           static_cast<std::size_t>(position % kCacheBlock * kRowBytes);
  }
  __device__ __forceinline__ void prefetch_strip(int c) const {
    const std::size_t from = row_offset(cursor.block, strip_base(c));
    for (int byte = lane * 128; byte < kStripKeys * kRowBytes; byte += 32 * 128) {
      prefetch_line(a.k + from + byte);
      prefetch_line(a.v + from + byte);
    }
  }
  __device__ __forceinline__ void next_chunk() {
    do {
      cursor.chunk = chunk_after(cursor.chunk, a.splits, a.unit);
      cursor.block = cursor.next_block;
      cursor.next_block = load_block(chunk_after(cursor.chunk, a.splits, a.unit));
    } while (cursor.chunk < keys.chunks && !sees(cursor.chunk));
  }

  /// Unit u of row r of a tile; neighbouring rows have it in different banks.
  static __device__ __forceinline__ int unit_at(int r, int u) { return r * kPitch + (u ^ (r & 7)) * 16; }

  /// Starts the copy of one more tile, if there is one. Rows of 16-bit numbers that are not seen are zeros: what lies
  /// there may not be a number.
  __device__ __forceinline__ void copy_next() {
    if (cursor.chunk < keys.chunks) {
      const int base = strip_base(cursor.chunk) + cursor.tile % kHalves * kTileKeys;
      const unsigned char* const from =
          (cursor.tile < kHalves ? a.k : a.v) + row_offset(cursor.block, base) + lane * 16;
      unsigned char* const to = ring + filling * kTileBytes;
      if constexpr (kQuantized) {
        for (int at = lane * 16; at < kTileBytes; at += 512) copy16_async(to + at, from + at - lane * 16);
      } else {
#pragma unroll
        for (int i = 0; i < kTileKeys * kUnits / 32; ++i) {
          const int r = (i * 32 + lane) / kUnits, u = (i * 32 + lane) % kUnits;
          const bool seen = base + r >= keys.first_key && base + r < keys.end_key;
          copy16_or_zero_async(to + unit_at(r, u), from + i * 512, seen);
        }
      }
      if (++cursor.tile == 2 * kHalves) {
        cursor.tile = 0;
        next_chunk();
      }
    }
    commit_copies();
    filling = filling + 1 == kTiles ? 0 : filling + 1;
  }
  /// The warp's next tile. It has arrived where `kAfter` later ones have not been waited for yet.
  template <int kAfter>
  __device__ __forceinline__ const unsigned char* next_tile() {
    wait_for_copies<kTiles - 1 - kAfter>();
    __syncwarp();
    const unsigned char* const tile = ring + reading * kTileBytes;
    reading = reading + 1 == kTiles ? 0 : reading + 1;
    return tile;
  }
  /// Everybody is done with a tile: another is copied to where it was.
  __device__ __forceinline__ void release_tile() {
    __syncwarp();
    copy_next();
  }

  // --- quantised tiles ---

  /// The quants of a tile as F16, in tile `half` of `plain`.
  __device__ __forceinline__ std::uint32_t expand(const unsigned char* tile, int half) const {
    unsigned char* const to = plain + half * kPlainBytes;
    __syncwarp();  // everybody is done with what was there
#pragma unroll
    for (int i = 0; i < kTileKeys * kUnits / 32; ++i) {
      const int r = (i * 32 + lane) / kUnits, u = (i * 32 + lane) % kUnits;
      const unsigned char* const quants = tile + r * kRowBytes + u / 4 * kBlockBytes + 2 + u % 4 * 8;
      const std::uint32_t beyond = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(quants)) & 3u;
      const auto* const words = reinterpret_cast<const std::uint32_t*>(quants - beyond);
      const std::uint32_t low = __funnelshift_r(words[0], words[1], beyond * 8) ^ 0x80808080u;  // q + 128
      const std::uint32_t high = __funnelshift_r(words[1], words[2], beyond * 8) ^ 0x80808080u;
      // 0x6400 + n is 1024 + n in F16, 0x6480 1152.
      uint4 x;
      x.x = subtract_halves(__byte_perm(low, 0x64646464u, 0x4140u), 0x64806480u);
      x.y = subtract_halves(__byte_perm(low, 0x64646464u, 0x4342u), 0x64806480u);
      x.z = subtract_halves(__byte_perm(high, 0x64646464u, 0x4140u), 0x64806480u);
      x.w = subtract_halves(__byte_perm(high, 0x64646464u, 0x4342u), 0x64806480u);
      *reinterpret_cast<uint4*>(to + unit_at(r, u)) = x;
    }
    __syncwarp();
    return shared_address(to);
  }
  /// Bits of the scale of a row's block.
  static __device__ __forceinline__ std::uint32_t scale_bits(const unsigned char* tile, int row, int block) {
    return bytes2(tile + row * kRowBytes + block * kBlockBytes);
  }

  // --- queries ---

  /// Exponent of the power of 2 that brings a query, by the biased exponent of its largest element, to where its parts
  /// lose nothing: F16 to 2^14, within what f32 allows; BF16, whose range is that of f32, away from its smallest
  /// numbers.
  static __device__ __forceinline__ int query_power(int biased) {
    if constexpr (kBFloat16) {
      return biased < 127 - 60 ? 60 : 0;
    } else {
      return min(14 + 127 - biased, 126);
    }
  }
  /// Queries of the heads times a power of 2 each, and the scale that makes scores of them. What is neither a number
  /// nor finite stays so.
  __device__ __forceinline__ void load_queries() {
    if (warp < kHeads) {
      float x[kDims / 32];
      int bits = 0;
      const float* const q =
          a.q + (static_cast<std::int64_t>(token) * a.heads + results.first_head() + warp) * kDims + lane;
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) {
        x[i] = warp < results.n_heads() ? __ldcg(q + i * 32) : 0.0f;
        if (a.round_query) x[i] = round_q8x32(x[i]);
        bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
      }
      for (int offset = 16; offset > 0; offset /= 2) bits = max(bits, __shfl_xor_sync(kAll, bits, offset));
      const int power = bits < 0x7f800000 ? query_power(bits >> 23) : 0;
      const float up = __int_as_float((127 + power) << 23), down = __int_as_float((127 - power) << 23);
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) sums[warp * kDims + i * 32 + lane] = x[i] * up;
      if (lane == 0) factors[warp] = a.scale_log2 * down;
    }
    __syncthreads();
  }
  /// Fragments b of the products with keys: rows are elements of a head, column 2 h + p is part p of head h.
  __device__ __forceinline__ void take_queries(std::uint32_t (&q)[kLayers][kColumns][kSteps][2]) const {
    const int column = lane / 4, part = column % 2;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const float* const from = sums + (n * 4 + column / 2) * kDims + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kSteps * 2; ++i) {
        const Parts<kBFloat16> x(from[i * 8]), y(from[i * 8 + 1]);
        q[0][n][i / 2][i % 2] = part == 0 ? pack<kBFloat16>(x.first, y.first) : pack<kBFloat16>(x.second, y.second);
        if constexpr (kBFloat16) q[1][n][i / 2][i % 2] = part == 0 ? pack<kBFloat16>(x.third, y.third) : 0u;
      }
    }
  }

  // --- one strip ---

  /// Weights of the warp's strip of chunk c. A lane has the scores of heads lane % 4 (+ 4), keys lane / 4 + 8 i.
  __device__ __forceinline__ void score_strip(int c, const std::uint32_t (&q)[kLayers][kColumns][kSteps][2],
                                              Weights& weights) {
    float s[kColumns][2 * kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float dots[kColumns][2];
      const unsigned char* const tile = next_tile<0>();
      if constexpr (kQuantized) {
        multiply_blocks(tile, q, dots);
      } else {
        multiply_keys(shared_address(tile), q, dots);
      }
      release_tile();
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        s[n][2 * half] = dots[n][0];
        s[n][2 * half + 1] = dots[n][1];
      }
    }
    const int base = strip_base(c) + lane / 4;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      soften(base, factors[n * 4 + lane % 4], s[n], weights.max[n], weights.total[n]);
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        if constexpr (kQuantized) {
          weights.whole[n][i] = s[n][i];
        } else {
          const Parts<kBFloat16> w(s[n][i]);
          weights.parts[0][n][i / 2][i % 2] = transposed(pack<kBFloat16>(w.first, w.second));
          if constexpr (kBFloat16) weights.parts[1][n][i / 2][i % 2] = transposed(pack<kBFloat16>(w.third, 0.0f));
        }
      }
    }
  }

  /// Products of a tile's keys with the heads: a lane's are of keys lane / 4 and 8 more.
  __device__ __forceinline__ void multiply_keys(std::uint32_t tile,
                                                const std::uint32_t (&q)[kLayers][kColumns][kSteps][2],
                                                float (&dots)[kColumns][2]) const {
    float sum[kColumns][2][4] = {};
    const int row = lane % 16, unit = lane / 16;  // lanes 8 .. 15 have rows 8 .. 15, the upper half elements 8 .. 15
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t k[4];
      load_matrices(k, tile + static_cast<std::uint32_t>(unit_at(row, 2 * step + unit)));
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int layer = 0; layer < kLayers; ++layer) {
          multiply_add<kBFloat16>(sum[n][step % 2], k, q[layer][n][step][0], q[layer][n][step][1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const auto& x = sum[n][0];
      const auto& y = sum[n][1];
      dots[n][0] = (x[0] + y[0]) + (x[1] + y[1]);
      dots[n][1] = (x[2] + y[2]) + (x[3] + y[3]);
    }
  }

  /// The same of a quantised tile, a block of 32 elements at a time.
  __device__ __forceinline__ void multiply_blocks(const unsigned char* tile,
                                                  const std::uint32_t (&q)[kLayers][kColumns][kSteps][2],
                                                  float (&dots)[kColumns][2]) const {
    const std::uint32_t from = expand(tile, 0);
    const int row = lane % 16, unit = lane / 16;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) dots[n][0] = dots[n][1] = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float sum[kColumns][4] = {};
#pragma unroll
      for (int step = 2 * block; step < 2 * block + 2; ++step) {
        std::uint32_t k[4];
        load_matrices(k, from + static_cast<std::uint32_t>(unit_at(row, 2 * step + unit)));
#pragma unroll
        for (int n = 0; n < kColumns; ++n) multiply_add<false>(sum[n], k, q[0][n][step][0], q[0][n][step][1]);
      }
      const float d0 = half_bits_to_float(scale_bits(tile, lane / 4, block));
      const float d1 = half_bits_to_float(scale_bits(tile, lane / 4 + 8, block));
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        dots[n][0] = fmaf(d0, sum[n][0] + sum[n][1], dots[n][0]);
        dots[n][1] = fmaf(d1, sum[n][2] + sum[n][3], dots[n][1]);
      }
    }
  }

  /// A head's scores of keys base + 8 i become weights times 2^15, 0 where a key is not seen.
  __device__ __forceinline__ void soften(int base, float factor, float (&s)[2 * kHalves], float& max,
                                         float& total) const {
    max = -INFINITY;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      if (is_seen(base + 8 * i)) max = fmaxf(max, s[i] * factor);
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) max = fmaxf(max, __shfl_xor_sync(kAll, max, offset));
    total = 0;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      s[i] = is_seen(base + 8 * i) ? exp2f(fmaf(s[i], factor, -max)) * 32768.0f : 0.0f;
      total += s[i];
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) total += __shfl_xor_sync(kAll, total, offset);
  }
  __device__ __forceinline__ bool is_seen(int position) const {
    return position >= keys.first_key && position < keys.end_key;
  }

  /// Element d of a head's sums of a warp; the four heads of a group lie in different banks.
  static __device__ __forceinline__ int sum_at(int head, int d) { return head * kDims + (d ^ (head % 4 * 8)); }

  /// The strip's values times their weights, into the warp's sums.
  __device__ __forceinline__ void add_values(int c, const Weights& weights) {
    const unsigned char* tile[kHalves];
    tile[0] = next_tile<0>();
    tile[1] = next_tile<1>();
    if (lane < 4) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        stats[warp * 2 * kHeads + n * 4 + lane] = weights.max[n];
        stats[warp * 2 * kHeads + kHeads + n * 4 + lane] = weights.total[n];
      }
    }
    if constexpr (kQuantized) {
      const std::uint32_t from[kHalves] = {expand(tile[0], 0), expand(tile[1], 1)};
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        std::uint32_t parts[kLayers][kColumns][kHalves][2];
        const float down = scale_weights(c, tile, block, weights, parts);
        add_dimensions(from, 2 * block, parts, down);
        add_dimensions(from, 2 * block + 1, parts, down);
      }
    } else {
      const std::uint32_t from[kHalves] = {shared_address(tile[0]), shared_address(tile[1])};
#pragma unroll
      for (int m = 0; m < kDims / 16; ++m) add_dimensions(from, m, weights.parts, 1.0f);
    }
    release_tile();
    release_tile();
  }

  /// Weights times the scales of a block of the values, times a power of 2 that keeps the second part of F16 in range.
  /// Returns what the sums are to be multiplied with in turn.
  __device__ __forceinline__ float scale_weights(int c, const unsigned char* const (&tile)[kHalves], int block,
                                                 const Weights& weights,
                                                 std::uint32_t (&parts)[kLayers][kColumns][kHalves][2]) const {
    const int base = strip_base(c) + lane / 4;
    std::uint32_t d[2 * kHalves];
    int most = 0;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      d[i] = is_seen(base + 8 * i) ? scale_bits(tile[i / 2], lane / 4 + i % 2 * 8, block) : 0u;
      most = max(most, static_cast<int>(d[i] & 0x7fffu));
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) most = max(most, __shfl_xor_sync(kAll, most, offset));
    const int power = 14 - (most >> 10);  // scales to below 1, weights being up to 2^15
    const float up = __int_as_float((127 + power) << 23);
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const float scale = half_bits_to_float(d[i]) * up;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const Parts<false> w(weights.whole[n][i] * scale);
        parts[0][n][i / 2][i % 2] = transposed(pack<false>(w.first, w.second));
      }
    }
    return __int_as_float((127 - power) << 23);
  }

  /// Dimensions 16 m .. 16 m + 15. Rows of a product are dimensions: the lower half of the lanes has keys 0 .. 7 of a
  /// tile, every other 8 lanes dimensions 8 .. 15.
  __device__ __forceinline__ void add_dimensions(const std::uint32_t (&tile)[kHalves], int m,
                                                 const std::uint32_t (&parts)[kLayers][kColumns][kHalves][2],
                                                 float factor) {
    const int row = lane % 8 + lane / 16 * 8, unit = lane / 8 % 2;
    float sum[kColumns][4] = {};
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      std::uint32_t v[4];
      load_matrices_transposed(v, tile[half] + static_cast<std::uint32_t>(unit_at(row, 2 * m + unit)));
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int layer = 0; layer < kLayers; ++layer) {
          multiply_add<kBFloat16>(sum[n], v, parts[layer][n][half][0], parts[layer][n][half][1]);
        }
      }
    }
    float* const to = sums + warp * kSums;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int head = n * 4 + lane % 4, d = m * 16 + lane / 4;
      const float low = sum[n][0] + sum[n][1], high = sum[n][2] + sum[n][3];
      to[sum_at(head, d)] = kQuantized ? low * factor : low;
      to[sum_at(head, d + 8)] = kQuantized ? high * factor : high;
    }
  }

  // --- strips together ---

  /// The strips of chunk c that see anything, in their order.
  __device__ __forceinline__ void merge_strips(int c, Result& result) const {
    const int base = keys.chunk_base(c);
    const int begin = (keys.chunk_first_key(c) - base) / kStripKeys;
    const int end = (keys.chunk_end_key(c) - 1 - base) / kStripKeys + 1;
    const int head = results.owned() / kDims, at = sum_at(head, results.owned() % kDims);
    float max = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w >= begin && w < end) max = fmaxf(max, stats[w * 2 * kHeads + head]);
    }
    result.max = max;
    result.total = 0;
#pragma unroll
    for (int i = 0; i < kOwned; ++i) result.sums[i] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < begin || w >= end) continue;
      const float share = exp2f(stats[w * 2 * kHeads + head] - max);
      result.total = fmaf(stats[w * 2 * kHeads + kHeads + head], share, result.total);
#pragma unroll
      for (int i = 0; i < kOwned; ++i) result.sums[i] = fmaf(sums[w * kSums + at + i], share, result.sums[i]);
    }
  }

  const AttendArgs& a;
  const TokenChunks keys;
  const std::int32_t* const table;
  const int token, kv_head, split, lane, warp;
  unsigned char* const ring;
  unsigned char* const plain;  ///< of quantised types: two tiles of quants as F16
  float* const sums;           ///< [kWarps][kHeads][kDims], of the strips; before them the queries, [kHeads][kDims]
  float* const stats;          ///< [kWarps][2][kHeads]: maximum and total of the strips
  float* const factors;        ///< [kHeads]: scores of products with scaled queries
  Results results;
  Cursor cursor;
  int filling, reading;
};

template <CacheSource kSource, int kDims, int kHeads, int kTiles>
__global__ void __launch_bounds__(kThreads, halves_per_multiprocessor(kSource, kDims, kHeads, kTiles))
    attend_halves_kernel(const __grid_constant__ AttendArgs a) {
  let_next_start();
  // The step's data was copied before its first kernel. What kernels of the step appended to the cache is only read
  // ahead into L2, where they write.
  const int token = static_cast<int>(blockIdx.z);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  if (sequence < 0) {
    wait_for_previous();
    return;
  }
  AttendHalves<kSource, kDims, kHeads, kTiles> attend(a, dynamic_shared(), token, position, sequence);
  const bool has_work = attend.prepare();
  wait_for_previous();
  if (has_work) attend.run();
}

}  // namespace
}  // namespace llm::cuda
