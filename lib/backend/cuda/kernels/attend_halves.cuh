// Attention of tokens over a cache of F16, BF16, E4M3 or Q8_0 by tensor cores, as exact as f32 is: for decoding.
//
// A tensor core multiplies numbers of 16 bits exactly and adds in f32. Keys and values fit into them; a query or weight
// of 24 bits becomes a sum of two F16 numbers (three of BF16), which lie in neighbouring columns of one product:
//   x = x1 + x2 + r, x1 = round(x), x2 = round(x - x1): |r| <= 2^-23 |x| for F16, 2^-24 |x| with a third of BF16.
// Queries are scaled by a power of 2 to below 2^15 and weights by 2^15, so that the second part of whatever matters is
// a normal number. Sums: 16 products at a time, which hardware aligns and truncates to f32, an error below 2^-22 of the
// partial sum; a score of 128 elements has 8 such steps, in two chains, values 2 and then a rounded sum. All of it
// stays an order of magnitude below the bound of the table of operations, (4 sqrt(16 dim) + 16) 2^-23: 197 units at
// 128. E4M3 times 2^-8 is exact in F16: scores get the factor that queries have, results the one of totals. So are
// quants of Q8_0. Scales of keys multiply the sums of their blocks; those of values the weights, by themselves for each
// block of dimensions.
//
// A CTA of 8 warps takes up to 8 query heads of a KV head of one token over stripes of chunks of 256 keys (attend.cuh).
// Each warp takes a strip of 32 keys of every chunk by itself, with a softmax of its own that runs through the stripe
// in registers, and copies its own rows: tiles of 16 rows through a ring in shared memory that runs ahead over the
// borders of chunks and stripes. Warps meet at the end of a stripe, where its strips are folded in their order. Rows
// that no token of this step writes are copied before the previous kernel has ended.
//
// Bytes: keys and values once per head tile. Instructions of a strip with 4 heads of 128, as the compiled loops have
// them: F16 550 to 640, at most 1,280 cycles of issue for 128 KB of a multiprocessor, where memory takes 6,900 (4.54
// TB/s, 132 at 1.83 GHz); Q8_0 1,291, 2,580 cycles where memory takes 3,700; E4M3 by its bits (float8.cuh) 1,228, 2,460
// cycles where memory takes 3,450, and fewer by conversions. The last two have 16 warps in place of 8 to hide what they
// wait for.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_tiles.cuh"

namespace llm::cuda {
namespace {

template <CacheSource kSource, int kDims, int kHeads>
using TilesOf = std::conditional_t<kSource == CacheSource::Q8_0, QuantizedTiles<kDims, kHeads>,
                                   std::conditional_t<kSource == CacheSource::F8, Float8Tiles<kDims, kHeads>,
                                                      PlainTiles<kSource == CacheSource::BF16, kDims, kHeads>>>;

constexpr int kKeyWarp = kWarps - 1, kValueWarp = kWarps - 2;  ///< that bring those of the token into the cache

/// CTAs that a multiprocessor has shared memory for.
template <CacheSource kSource, int kDims, int kHeads, int kTiles>
constexpr int kHalvesPerMultiprocessor = kWarps*(kTiles* TilesOf<kSource, kDims, kHeads>::kTileBytes +
                                                 4 * kHeads * kDims) <= 112 * 1024
                                             ? 2
                                             : 1;

/// What turning heads needs and no kernel of the step writes: asked for first, before the token's position is known.
template <int kDims, bool kRaw>
struct BeforeHeads {
  BlockPart norm_q, norm_k;
  int slot = 0;
  __device__ __forceinline__ BeforeHeads(const RawHeads& raw, int token, bool has_key) : norm_q{}, norm_k{} {
    if (!kRaw) return;
    slot = __ldcg(raw.slots + token);
    if (raw.norm_q == nullptr) return;
    norm_q = load_part(raw.norm_q, 0, kDims, true);
    if (has_key) norm_k = load_part(raw.norm_k, 0, kDims, true);
  }
};

/// `kRaw`: of RawHeads, of the step's only token. Others have kernels of their own: what a CTA passes over is fetched,
/// too.
template <CacheSource kSource, int kDims, int kHeads, int kTiles, bool kRaw>
class AttendHalves {
  static_assert(!kRaw || kSource != CacheSource::Q8_0);
  static constexpr bool kBFloat16 = kSource == CacheSource::BF16;
  using Element = std::conditional_t<kBFloat16, __nv_bfloat16,
                                     std::conditional_t<kSource == CacheSource::F8, __nv_fp8_e4m3, __half>>;
  using Tiles = TilesOf<kSource, kDims, kHeads>;
  using Results = AttendResults<kDims, kHeads, kBFloat16 ? 8 : 16>;
  using Result = typename Results::Result;
  static constexpr int kSums = Results::kSums, kOwned = Results::kOwned;
  static constexpr int kRowBytes = Tiles::kRowBytes, kTileBytes = Tiles::kTileBytes;
  static constexpr int kColumns = Tiles::kColumns, kSteps = Tiles::kSteps;
  static constexpr int kParts = Parts<kBFloat16>::kCount;
  static constexpr int kQueryWords = kDims / 2 + 4;  ///< of a part; columns lie in different banks
  static_assert(kTiles >= 3 && kHeads * kParts * kQueryWords + kWarps * kDims <= kWarps * kSums);

 public:
  __device__ __forceinline__ AttendHalves(const AttendArgs& args, unsigned char* shared, int token, int position,
                                          int sequence, const BeforeHeads<kDims, kRaw>& before)
      : a(args),
        keys(position, args.window, args.stripes),
        table(args.block_table + static_cast<std::int64_t>(sequence) * args.table_stride),
        token(token),
        kv_head(static_cast<int>(blockIdx.y) / args.head_tiles),
        split(static_cast<int>(blockIdx.x)),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        ring(shared + warp * kTiles * kTileBytes),
        sums(reinterpret_cast<float*>(shared + kWarps * kTiles * kTileBytes)),
        stats(sums + kWarps * kSums),
        factors(stats + kWarps * 2 * kHeads),
        fresh(reinterpret_cast<unsigned char*>(factors + kHeads + 4)),
        results(args, keys, token, 0, reinterpret_cast<int*>(factors + kHeads)),
        before(before) {}

  /// Up to the first access to what earlier kernels of the step write: keys and values from position `first_written`,
  /// of RawHeads none.
  __device__ __forceinline__ void prepare(int first_written) {
    if constexpr (kRaw) {
      const int last = keys.stripe_of(keys.chunks - 1);
      appends = (a.splits == 1 ? 0 : last % a.splits) == split;
      first_head = results.first_head();
      n_heads = results.n_heads();
    }
    reading = 0;
    replacing = 0;
    begun = 0;
    cursor.chunk = split < keys.stripes() ? split : keys.chunks;
    cursor.block = load_block(cursor.chunk);
    cursor.next_block = load_block(keys.chunk_after(cursor.chunk, a.splits));
    if (cursor.chunk < keys.chunks && !sees(cursor.chunk)) next_chunk();
#pragma unroll 1
    for (; begun < kTiles && (kRaw || tile_base(begun) + kTileKeys <= first_written); ++begun) begin_copy();
  }

  __device__ __forceinline__ void run() {
    if (split >= keys.stripes()) return;
    float x[kDims / 32];
    if constexpr (kRaw) {
      turn_heads(x);
    } else {
      load_queries(x);
#pragma unroll 1
      for (; begun < kTiles; ++begun) begin_copy();
    }
    divide_queries(x);
    typename Tiles::Queries q;
    take_queries(q);
    for (int s = split; s < keys.stripes(); s += a.splits) {
      Softmax softmax;
      for (int c = s; c < keys.chunks; c += a.stripes) {
        if (sees(c)) take_strip(strip_base(c), q, softmax);
      }
      Result stripe;
      fold_strips(softmax, stripe);
      results.take(s, stripe);
    }
    results.finish(kOneWeight * Tiles::kOne);
  }

 private:
  /// Of a warp's strips of a stripe, for heads lane % 4 (+ 4): maximum, the lane's share of the total, the lane's sums.
  /// Total and sums are times 2^15.
  struct Softmax {
    float max[kColumns], total[kColumns];
    typename Tiles::Sums sums;
    __device__ __forceinline__ Softmax() {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        max[n] = -INFINITY;
        total[n] = 0;
#pragma unroll
        for (int m = 0; m < kSteps; ++m) sums[n][m][0] = sums[n][m][1] = 0;
      }
    }
  };

  // --- copies ---

  /// Where a warp's copies are: its strip of a chunk, as the offset of its rows in keys and values, and blocks of the
  /// cache of this chunk and the next of the CTA.
  struct Cursor {
    int chunk, block, next_block;
    std::size_t rows;
  };
  __device__ __forceinline__ bool sees(int c) const {
    return keys.strip_first_key(c, warp) < keys.strip_end_key(c, warp);
  }
  __device__ __forceinline__ int strip_base(int c) const { return keys.chunk_base(c) + warp * kStripKeys; }
  __device__ __forceinline__ int load_block(int c) const {
    return c < keys.chunks && strip_base(c) < keys.end_key ? __ldcg(table + strip_base(c) / kCacheBlock) : 0;
  }
  __device__ __forceinline__ void next_chunk() {
    do {
      cursor.chunk = keys.chunk_after(cursor.chunk, a.splits);
      cursor.block = cursor.next_block;
      cursor.next_block = load_block(keys.chunk_after(cursor.chunk, a.splits));
    } while (cursor.chunk < keys.chunks && !sees(cursor.chunk));
  }
  /// Position of the first row of a tile of the cursor's strip. Tiles are counted over all strips of a warp: of each,
  /// two are keys, then two values.
  __device__ __forceinline__ int tile_base(int tile) const {
    return strip_base(cursor.chunk) + tile % kHalves * kTileKeys;
  }
  /// Of RawHeads all but the token's own, which is the last.
  __device__ __forceinline__ int copied_end() const { return kRaw ? keys.end_key - 1 : keys.end_key; }
  /// Starts the copy of one more tile, if there is one.
  __device__ __forceinline__ void copy_tile(unsigned char* to, int tile) {
    if (cursor.chunk < keys.chunks) {
      const int base = tile_base(tile), of_strip = tile % (2 * kHalves);
      if (of_strip == 0) {
        cursor.rows = cache_rows_offset(cursor.block, a.kv_heads, kv_head, kRowBytes) +
                      static_cast<std::size_t>(base % kCacheBlock * kRowBytes);
      }
      Tiles::copy(to, (of_strip < kHalves ? a.k : a.v) + cursor.rows + tile % kHalves * kTileBytes, lane,
                  keys.first_key - base, copied_end() - base);
      if (of_strip == 2 * kHalves - 1) next_chunk();
    }
    commit_copies();
  }
  __device__ __forceinline__ void begin_copy() { copy_tile(ring + begun * kTileBytes, begun); }
  /// The warp's next tile. It has arrived where `kAfter` later ones have not been waited for yet.
  template <int kAfter>
  __device__ __forceinline__ unsigned char* next_tile() {
    wait_for_copies<kTiles - 1 - kAfter>();
    __syncwarp();
    unsigned char* const tile = ring + reading * kTileBytes;
    reading = reading + 1 == kTiles ? 0 : reading + 1;
    return tile;
  }
  /// Everybody is done with the last two tiles, the keys or the values (`which`) of a strip: those that are kTiles
  /// further are copied to their places.
  __device__ __forceinline__ void replace_tiles(int which) {
    __syncwarp();
#pragma unroll 1
    for (int half = 0; half < kHalves; ++half) {
      copy_tile(ring + replacing * kTileBytes, which * kHalves + half + kTiles);
      replacing = replacing + 1 == kTiles ? 0 : replacing + 1;
    }
  }

  // --- queries ---

  /// Words of part `part` of a head's query: pairs of neighbouring elements.
  __device__ __forceinline__ std::uint32_t* query(int head, int part) const {
    return reinterpret_cast<std::uint32_t*>(sums) + (head * kParts + part) * kQueryWords;
  }
  /// Of a warp's head.
  __device__ __forceinline__ void load_queries(float (&x)[kDims / 32]) const {
    const float* const q =
        a.q + (static_cast<std::int64_t>(token) * a.heads + results.first_head() + warp) * kDims + lane;
#pragma unroll
    for (int i = 0; i < kDims / 32; ++i) x[i] = warp < results.n_heads() ? __ldcg(q + i * 32) : 0.0f;
  }
  /// Of a warp's head; and the token's key and value, by the CTA that they are the last of. Whoever has a query and the
  /// key turns both by the same code, which has to be fetched.
  __device__ __forceinline__ void turn_heads(float (&x)[kDims / 32]) {
    const RawHeads& raw = a.raw;
    const bool has_query = warp < n_heads, has_key = appends && warp == kKeyWarp;
    const int of_token = (token * a.kv_heads + kv_head) * kDims;
    BlockPart next, query{};
    if (has_key) next = load_fresh_part(raw.k + of_token, 0, kDims);
    if (has_query) query = load_fresh_part(a.q + (token * a.heads + first_head + warp) * kDims, 0, kDims);
    const Angles<kDims> angles(raw.table + static_cast<std::int64_t>(token) * raw.turn.n_rot, raw.turn);
#pragma unroll
    for (int i = 0; i < kDims / 32; ++i) x[i] = 0;
    if (appends && warp == kValueWarp) {
      float value[kDims / 32];
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) value[i] = __ldcg(raw.v + of_token + lane + 32 * i);
      append_head(value, reinterpret_cast<Element*>(fresh) + kDims, raw.values);
    }
    BlockPart norm = before.norm_k;
    float* const row = raw_row();
#pragma unroll 1
    for (int head = has_key ? 0 : 1; head < (has_query ? 2 : 1); ++head) {
      if (head == 1) next = query, norm = before.norm_q;
      turn(next, norm, angles);
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) x[i] = row[i * 32 + lane];
      if (head == 0) append_head(x, reinterpret_cast<Element*>(fresh), raw.keys);
    }
    if (!has_query) {
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) x[i] = 0;
    }
  }
  /// A lane's elements of the token's key or value into its place in a tile and into the cache.
  __device__ __forceinline__ void append_head(const float (&x)[kDims / 32], Element* in_tile,
                                              unsigned char* cache) const {
    const int slot = before.slot;
    auto* const in_cache =
        reinterpret_cast<Element*>(cache) +
        ((std::int64_t{slot / kCacheBlock} * a.kv_heads + kv_head) * kCacheBlock + slot % kCacheBlock) * kDims;
#pragma unroll
    for (int i = 0; i < kDims / 32; ++i) {
      store(in_tile + lane + 32 * i, x[i]);
      if (slot >= 0) store(in_cache + lane + 32 * i, x[i]);
    }
  }
  /// The token's own row, into a strip's tiles of keys (0) or values (1) that end with it.
  __device__ __forceinline__ void put_fresh(unsigned char* const (&tile)[kHalves], int base, int which) const {
    if constexpr (kRaw) {
      const int row = keys.end_key - 1 - base;
      if (row < 0 || row >= kStripKeys) return;
      const auto* const from = reinterpret_cast<const uint4*>(fresh) + which * Tiles::kUnits;
      unsigned char* const to = row < kTileKeys ? tile[0] : tile[1];
      if (lane < Tiles::kUnits) *reinterpret_cast<uint4*>(to + Tiles::unit_at(row % kTileKeys, lane)) = from[lane];
      __syncwarp();
    }
  }
  /// A warp's place for a head, behind the queries.
  __device__ __forceinline__ float* raw_row() const { return sums + kHeads * kParts * kQueryWords + warp * kDims; }
  /// Into the warp's row.
  __device__ __forceinline__ void turn(const BlockPart& head, const BlockPart& norm,
                                       const Angles<kDims>& angles) const {
    const BlockPart x = a.raw.norm_k == nullptr ? head : normed_head(head, norm, kDims, a.raw.eps);
    float* const row = raw_row();
    __syncwarp();  // the row has been read
    rotate(x, kDims, angles, a.raw.turn, row, [=](int i, float y) { row[i] = y; });
    __syncwarp();
  }
  /// Parts of the heads' queries times a power of 2 each, and the scale that makes scores of them, or with a cap what
  /// tanh is taken of. What is neither a number nor finite stays so.
  __device__ __forceinline__ void divide_queries(float (&x)[kDims / 32]) {
    if (warp < kHeads) {
      int bits = 0;
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) {
        if (kSource == CacheSource::Q8_0 && a.round_query) x[i] = round_q8x32(x[i]);
        bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
      }
      bits = __reduce_max_sync(kAll, bits);
      const int power = bits < 0x7f800000 ? query_power<kBFloat16>(bits >> 23) : 0;
      const float up = __int_as_float((127 + power) << 23), down = __int_as_float((127 - power) << 23);
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) {
        const Parts<kBFloat16> parts(x[i] * up);
        const auto store = [&](int part, std::uint32_t word) {
          reinterpret_cast<std::uint16_t*>(query(warp, part))[i * 32 + lane] = static_cast<std::uint16_t>(word);
        };
        store(0, parts.two);
        store(1, parts.two >> 16);
        if constexpr (kBFloat16) store(2, parts.third);
      }
      if (lane == 0) factors[warp] = (a.cap_factor != 0 ? a.cap_factor : a.scale_log2) / Tiles::kOne * down;
    }
    __syncthreads();
  }
  /// Fragments b of the products with keys: rows are elements of a head, column 2 h + p is part p of head h.
  __device__ __forceinline__ void take_queries(typename Tiles::Queries& q) const {
    const int column = lane / 4, part = column % 2;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int head = n * 4 + column / 2;
#pragma unroll
      for (int i = 0; i < kSteps * 2; ++i) {
        const int word = Tiles::query_word(lane, i / 2, i % 2);
        q[0][n][i / 2][i % 2] = query(head, part)[word];
        if constexpr (kBFloat16) q[1][n][i / 2][i % 2] = part == 0 ? query(head, 2)[word] : 0u;
      }
    }
  }

  // --- one strip ---

  __device__ __forceinline__ void take_strip(int base, const typename Tiles::Queries& q, Softmax& softmax) {
    typename Tiles::Scores s;
    unsigned char* tile[kHalves] = {next_tile<0>(), next_tile<1>()};
    put_fresh(tile, base, 0);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float dots[kColumns][2];
      Tiles::dots(tile[half], lane, q, dots);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        s[n][2 * half] = dots[n][0];
        s[n][2 * half + 1] = dots[n][1];
      }
    }
    replace_tiles(0);
    const int first = keys.first_key - base, end = keys.end_key - base;
    float rescale[kColumns];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      rescale[n] = soften(first, end, factors[n * 4 + lane % 4], s[n], softmax.max[n], softmax.total[n]);
    }
    const typename Tiles::Weights weights(s);
    tile[0] = next_tile<0>();
    tile[1] = next_tile<1>();
    put_fresh(tile, base, 1);
    Tiles::add(tile, lane, first, end, weights, rescale, softmax.sums);
    replace_tiles(1);
  }

  /// A head's scores become weights times 2^15, 0 where a key of the strip is not in [first, end). Returns what weights
  /// before are to be multiplied with.
  __device__ __forceinline__ float soften(int first, int end, float factor, float (&s)[2 * kHalves], float& max,
                                          float& total) const {
    if (a.cap_factor != 0) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) s[i] = tanhf(s[i] * factor);
      factor = a.scale_log2;
    }
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const int key = Tiles::key(lane, i);
      if (key >= first && key < end) most = fmaxf(most, s[i] * factor);
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) most = fmaxf(most, __shfl_xor_sync(kAll, most, offset));
    most = fmaxf(most, max);
    const float rescale = power_of_2(max - most);
    max = most;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const int key = Tiles::key(lane, i);
      s[i] = key >= first && key < end ? power_of_2(fmaf(s[i], factor, -most)) * kOneWeight : 0.0f;
      sum += s[i];
    }
    total = fmaf(total, rescale, sum);
    return rescale;
  }

  // --- strips together ---

  /// Element d of a head's sums of a warp; the four heads of a group lie in different banks.
  static __device__ __forceinline__ int sum_at(int head, int d) { return head * kDims + (d ^ (head % 4 * 8)); }

  /// The strips of a stripe, in their order. One that has seen nothing has no weight.
  __device__ __forceinline__ void fold_strips(Softmax& softmax, Result& stripe) const {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        softmax.total[n] += __shfl_xor_sync(kAll, softmax.total[n], offset);
      }
    }
    __syncthreads();  // everybody is done with the sums before, or the queries
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int head = n * 4 + lane % 4;
      float* const to = sums + warp * kSums;
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
        to[sum_at(head, Tiles::dimension(lane, m, 0))] = softmax.sums[n][m][0];
        to[sum_at(head, Tiles::dimension(lane, m, 1))] = softmax.sums[n][m][1];
      }
      if (lane < 4) {
        stats[warp * 2 * kHeads + head] = softmax.max[n];
        stats[warp * 2 * kHeads + kHeads + head] = softmax.total[n] * Tiles::kOne;
      }
    }
    __syncthreads();
    const int head = results.owned() / kDims, at = sum_at(head, results.owned() % kDims);
    float max = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) max = fmaxf(max, stats[w * 2 * kHeads + head]);
    stripe.max = max;
    stripe.total = 0;
#pragma unroll
    for (int i = 0; i < kOwned; ++i) stripe.sums[i] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float share = exp2f(stats[w * 2 * kHeads + head] - max);
      stripe.total = fmaf(stats[w * 2 * kHeads + kHeads + head], share, stripe.total);
#pragma unroll
      for (int i = 0; i < kOwned; ++i) stripe.sums[i] = fmaf(sums[w * kSums + at + i], share, stripe.sums[i]);
    }
  }

  const AttendArgs& a;
  const TokenChunks keys;
  const std::int32_t* const table;
  const int token, kv_head, split, lane, warp;
  unsigned char* const ring;
  float* const sums;     ///< [kWarps][kHeads][kDims], of the strips; before them the queries, [kHeads][kParts][words]
  float* const stats;    ///< [kWarps][2][kHeads]: maximum and total of the strips
  float* const factors;  ///< [kHeads]: scores of products with scaled queries
  unsigned char* const fresh;  ///< of RawHeads: the token's key and value as the cache has them
  Results results;
  Cursor cursor;
  int reading, replacing, begun;  ///< tiles of the ring
  const BeforeHeads<kDims, kRaw>& before;
  // Of RawHeads.
  int first_head, n_heads;
  bool appends;  ///< the token's key and value are this CTA's last
};

/// The first position of a sequence that is copied and whose key and value this step writes: its tokens' lowest. 0
/// where there are too many tokens to look at.
__device__ __forceinline__ int first_written_position(const AttendArgs& a, int position, int sequence) {
  const int tokens = static_cast<int>(gridDim.z), lane = static_cast<int>(threadIdx.x) % 32;
  if (tokens == 1) return position;
  if (tokens > 64) return 0;
  int first = position;
#pragma unroll 1
  for (int t = lane; t < tokens; t += 32) {
    const int other = __ldcg(a.positions + t);
    if (__ldcg(a.sequence + t) == sequence) first = min(first, other);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) first = min(first, __shfl_xor_sync(kAll, first, offset));
  return first;
}

template <CacheSource kSource, int kDims, int kHeads, int kTiles, bool kRaw>
__global__ void __launch_bounds__(kThreads, (kHalvesPerMultiprocessor<kSource, kDims, kHeads, kTiles>))
    attend_halves_kernel(const __grid_constant__ AttendArgs a) {
  let_next_start();
  // The step's data was copied before its first kernel, and so was all of the cache but the rows of its own tokens.
  const int token = kRaw ? 0 : static_cast<int>(blockIdx.z);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  const BeforeHeads<kDims, kRaw> before(a.raw, token, threadIdx.x / 32 == kKeyWarp);
  if (sequence < 0) {
    wait_for_previous();
    return;
  }
  AttendHalves<kSource, kDims, kHeads, kTiles, kRaw> attend(a, dynamic_shared(), token, position, sequence, before);
  attend.prepare(kRaw ? 0 : first_written_position(a, position, sequence));
  wait_for_previous();
  attend.run();
}

}  // namespace
}  // namespace llm::cuda
