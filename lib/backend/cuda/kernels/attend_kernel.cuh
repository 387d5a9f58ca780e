// Attention of tokens over the paged cache in f32 arithmetic: any type of cache and any width of heads. F16, BF16, E4M3
// and Q8_0 of usual widths have kernels of their own (attend_halves.cuh, attend_wide.cuh).
//
// A CTA of 8 warps takes the query heads of one KV head (at most 8) of one token over chunks of 256 keys (attend.cuh).
// Rows of the cache come through a ring of four stages in shared memory, a stage being up to 64 rows of keys or values
// that lie contiguous in a block; the copies run ahead over the borders of chunks. For a chunk first all keys pass:
// 8, 16 or 32 lanes share a row and multiply it with all heads; then the softmax of the chunk; then the values, lanes
// owning 8 elements of the sums each, or of heads wider than 256, which CTAs take one by one, 16 or 24.
//
// Bytes: keys and values once per head tile. Measured on an H200 with 4 heads of 128 per KV head, at position 32,768,
// when chunks were still folded between reads: 31 % of what reading allows in F32, 7 % in Q4_0.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_results.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"

namespace llm::cuda {
namespace {

constexpr int kStages = kAttendStages;

/// Sums of NV values over groups of kLanes lanes. Afterwards s[0 .. kLeft) of a lane are values
/// first .. first + kLeft, kLeft = max(1, NV / kLanes), complete. Each value is summed as a tree over the lanes, the
/// upper bit of the lane first, whatever NV is.
template <int kLanes, int NV>
__device__ __forceinline__ int reduce_scatter(float (&s)[NV], int lane) {
  int first = 0;
  int n = NV;
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    if (n > 1) {
      n /= 2;
      const bool upper = (lane & offset) != 0;
#pragma unroll
      for (int i = 0; i < NV / 2; ++i) {
        if (i >= n) break;
        const float give = upper ? s[i] : s[i + n];
        const float keep = upper ? s[i + n] : s[i];
        s[i] = keep + __shfl_xor_sync(kAll, give, offset);
      }
      if (upper) first += n;
    } else {
      s[0] += __shfl_xor_sync(kAll, s[0], offset);
    }
  }
  return first;
}

/// `kUnits`: of 8 elements, that a lane has of a row; those of all lanes lie side by side.
template <CacheSource kK, CacheSource kV, int kLanes, int kHeads, int kUnits>
class Attend {
  static constexpr int kDims = 8 * kLanes * kUnits;            ///< of a padded head
  static constexpr int kRowGroups = kWarps * 32 / kLanes;      ///< row r of a block belongs to group r % kRowGroups
  static constexpr int kGroupRows = kCacheBlock / kRowGroups;  ///< rows of a block and group
  static constexpr int kMostScores = kHeads == 8 ? 16 : 32;    ///< that a lane sums at a time
  static constexpr int kBatch = kGroupRows * kHeads <= kMostScores ? kGroupRows : kMostScores / kHeads;  ///< rows
  using Results = AttendResults<kDims, kHeads, 4>;
  using Result = typename Results::Result;
  static constexpr int kSums = Results::kSums, kOwned = Results::kOwned;

 public:
  /// CTA `split` of its heads' work; `skipped_heads` of the head tile are others' work.
  __device__ __forceinline__ Attend(const AttendArgs& args, unsigned char* shared, int token, int position,
                                    int sequence, int split, int skipped_heads)
      : a(args),
        keys(position, args.window, args.stripes),
        table(args.block_table + static_cast<std::int64_t>(sequence) * args.table_stride),
        token(token),
        split(split),
        kv_head(static_cast<int>(blockIdx.y) / args.head_tiles),
        ring(shared),
        queries(reinterpret_cast<float*>(shared + kStages * args.stage_bytes)),
        scores(queries + kSums),
        warp_sums(scores + kChunkKeys * kHeads),
        stats(warp_sums + kWarps * kSums),
        results(args, keys, token, skipped_heads, reinterpret_cast<int*>(stats + 2 * kHeads)),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32) {}

  __device__ __forceinline__ void run() {
    if (split >= keys.stripes()) return;
    start_copies(split);
    load_queries();
    Result stripe;
    for (int c = split; c < keys.chunks; c = keys.chunk_after(c, a.splits)) {
      Result chunk;
      take_chunk(c, chunk);
      if (c < a.stripes) {
        stripe = chunk;
      } else {
        fold(stripe, chunk);
      }
      if (c + a.stripes >= keys.chunks) results.take(keys.stripe_of(c), stripe);
    }
    results.finish(1.0f);
  }

 private:
  // --- copies ---

  /// Where the copies are: a stage of the keys (side 0) or values (side 1) of a chunk, in units of stage_rows
  /// positions.
  struct Cursor {
    int chunk, side, stage;
  };
  __device__ __forceinline__ int first_stage(int c) const { return keys.chunk_first_key(c) / a.stage_rows; }
  __device__ __forceinline__ int end_stage(int c) const { return (keys.chunk_end_key(c) - 1) / a.stage_rows + 1; }
  /// Physical blocks of a chunk, one in each of four lanes.
  __device__ __forceinline__ int load_blocks(int c) const {
    constexpr int kBlocks = kChunkKeys / kCacheBlock;
    const int block = (keys.first_chunk + c) * kBlocks + lane;
    return c < keys.chunks && lane < kBlocks && block * kCacheBlock < keys.end_key ? __ldcg(table + block) : 0;
  }

  __device__ __forceinline__ void start_copies(int begin) {
    cursor = {begin, 0, first_stage(begin)};
    blocks = load_blocks(begin);
    next_blocks = load_blocks(keys.chunk_after(begin, a.splits));
    filling = 0;
    reading = 0;
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) copy_next();
  }

  /// Starts the copy of one more stage, if there is one.
  __device__ __forceinline__ void copy_next() {
    if (cursor.chunk < keys.chunks) {
      const int position = cursor.stage * a.stage_rows;
      const int block = __shfl_sync(kAll, blocks, position / kCacheBlock % (kChunkKeys / kCacheBlock));
      const int row_bytes = cursor.side == 0 ? a.k_row_bytes : a.v_row_bytes;
      const unsigned char* const from = (cursor.side == 0 ? a.k : a.v) +
                                        cache_rows_offset(block, a.kv_heads, kv_head, row_bytes) +
                                        static_cast<std::size_t>(position % kCacheBlock * row_bytes);
      unsigned char* const to = ring + filling * a.stage_bytes;
      const int bytes = min(a.stage_rows, keys.end_key - position) * row_bytes;  // rounded up to 16 inside the block
      for (int i = thread * 16; i < bytes; i += kThreads * 16) copy16_async(to + i, from + i);
      advance();
    }
    commit_copies();
    filling = (filling + 1) % kStages;
  }
  __device__ __forceinline__ void advance() {
    if (++cursor.stage < end_stage(cursor.chunk)) return;
    if (cursor.side == 0) {
      cursor.side = 1;
    } else {
      cursor.chunk = keys.chunk_after(cursor.chunk, a.splits);
      cursor.side = 0;
      blocks = next_blocks;
      next_blocks = load_blocks(keys.chunk_after(cursor.chunk, a.splits));
    }
    if (cursor.chunk < keys.chunks) cursor.stage = first_stage(cursor.chunk);
  }
  /// The next stage in order, arrived for all threads.
  __device__ __forceinline__ const unsigned char* next_stage() {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // and everybody is done with the stage before, which is filled next
    copy_next();
    const unsigned char* const stage = ring + reading * a.stage_bytes;
    reading = (reading + 1) % kStages;
    return stage;
  }

  // --- one chunk ---

  /// The first of the elements that the lane has of a row's unit.
  __device__ __forceinline__ int element(int unit) const { return (unit * kLanes + lane % kLanes) * 8; }

  __device__ __forceinline__ void load_queries() {
    const float* const q = a.q + (static_cast<std::int64_t>(token) * a.heads + results.first_head()) * a.head_dim_k;
    for (int i = thread; i < kSums; i += kThreads) {
      const int head = i / kDims, d = i % kDims;
      float x = head < results.n_heads() && d < a.head_dim_k ? __ldcg(q + head * a.head_dim_k + d) : 0.0f;
      if (a.round_query) x = round_q8x32(x);  // a warp has 32 neighbours: kSums is a multiple of 32
      queries[i] = x;
    }
    __syncthreads();
  }

  __device__ __forceinline__ void take_chunk(int c, Result& result) {
    const int base = keys.chunk_base(c);
    const int lo = keys.chunk_first_key(c) - base, hi = keys.chunk_end_key(c) - base;
    const int begin = first_stage(c), end = end_stage(c);
    for (int s = begin; s < end; ++s) score_rows(next_stage(), s * a.stage_rows - base, hi);
    __syncthreads();
    if (warp < kHeads) soften(warp, lo, hi, base - (keys.end_key - 1));
    float sums[kHeads][8 * kUnits];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int i = 0; i < 8 * kUnits; ++i) sums[h][i] = 0;
    }
    for (int s = begin; s < end; ++s) add_rows(next_stage(), s * a.stage_rows - base, lo, hi, sums);
    collect(sums, result);
  }

  /// Scores of the rows of a stage that begins at position `first` of its chunk; rows from `hi` on are not there, and
  /// what is written for them is not read.
  __device__ __forceinline__ void score_rows(const unsigned char* stage, int first, int hi) {
    const int group = thread / kLanes;
    float q[kHeads][8 * kUnits];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const float4* const from = reinterpret_cast<const float4*>(queries + h * kDims + element(u));
        const float4 low = from[0], high = from[1];
        float* const to = q[h] + 8 * u;
        to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
        to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
      }
    }
    const int rows = min(a.stage_rows, hi - first);
    for (int r0 = 0; r0 < rows; r0 += kBatch * kRowGroups) {
      float s[kBatch * kHeads];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int r = min(r0 + i * kRowGroups + group, rows - 1);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          const bool idle = element(u) >= a.head_dim_k;
          float x[8];
          decode8<kK>(a.k_type, stage + r * a.k_row_bytes, idle ? 0 : element(u), a.head_dim_k, x);
#pragma unroll
          for (int h = 0; h < kHeads; ++h) {
            float sum = q[h][8 * u] * x[0];
#pragma unroll
            for (int j = 1; j < 8; ++j) sum = fmaf(q[h][8 * u + j], x[j], sum);
            if (u == 0)
              s[i * kHeads + h] = sum;
            else
              s[i * kHeads + h] += idle ? 0.0f : sum;
          }
        }
      }
      if (a.head_dim_k <= 8 * kLanes - 8) {  // then there is one unit, or the others are idle as well
#pragma unroll
        for (int i = 0; i < kBatch * kHeads; ++i) s[i] = element(0) >= a.head_dim_k ? 0.0f : s[i];
      }
      const int value = reduce_scatter<kLanes>(s, lane);
      constexpr int kLeft = kBatch * kHeads > kLanes ? kBatch * kHeads / kLanes : 1;
#pragma unroll
      for (int i = 0; i < kLeft; ++i) {
        const int r = r0 + (value + i) / kHeads * kRowGroups + group;
        if (r < rows) scores[(first + r) * kHeads + (value + i) % kHeads] = s[i];
      }
    }
  }

  /// Scores of a head become weights, 0 outside [lo, hi); their maximum and sum. `ahead`: of the chunk's first key
  /// before the token, 0 or less.
  __device__ __forceinline__ void soften(int head, int lo, int hi, int ahead) {
    const float slope = a.alibi.slope(results.first_head() + head);
    float dots[kChunkKeys / 32];
    float max = -INFINITY;
#pragma unroll
    for (int i = 0; i < kChunkKeys / 32; ++i) {
      const int p = i * 32 + lane;
      const bool seen = p >= lo && p < hi;
      dots[i] = seen ? scores[p * kHeads + head] : 0.0f;
      if (a.cap_factor != 0) dots[i] = tanhf(dots[i] * a.cap_factor);
      if (slope != 0) dots[i] = fmaf(slope, static_cast<float>(ahead + p), dots[i]);
      if (seen) max = fmaxf(max, dots[i] * a.scale_log2);
    }
    for (int offset = 16; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(kAll, max, offset));
    float total = 0;
#pragma unroll
    for (int i = 0; i < kChunkKeys / 32; ++i) {
      const int p = i * 32 + lane;
      const bool seen = p >= lo && p < hi;
      const float weight = seen ? exp2f(fmaf(dots[i], a.scale_log2, -max)) : 0.0f;
      scores[p * kHeads + head] = weight;
      total += weight;
    }
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(kAll, total, offset);
    if (lane == 0) {
      stats[head] = max;
      stats[kHeads + head] = total;
    }
  }

  __device__ __forceinline__ void add_row(const unsigned char* row, const float* weights,
                                          float (&sums)[kHeads][8 * kUnits]) {
    float w[kHeads];
    if constexpr (kHeads == 1) {
      w[0] = weights[0];
    } else {
#pragma unroll
      for (int h = 0; h < kHeads; h += 4) {
        const float4 four = *reinterpret_cast<const float4*>(weights + h);
        w[h] = four.x, w[h + 1] = four.y, w[h + 2] = four.z, w[h + 3] = four.w;
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      float x[8];
      decode8<kV>(a.v_type, row, element(u) < a.head_dim_v ? element(u) : 0, a.head_dim_v, x);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[h][8 * u + j] = fmaf(w[h], x[j], sums[h][8 * u + j]);
      }
    }
  }

  __device__ __forceinline__ void add_rows(const unsigned char* stage, int first, int lo, int hi,
                                           float (&sums)[kHeads][8 * kUnits]) {
    const int group = thread / kLanes;
    const unsigned char* const row = stage + group * a.v_row_bytes;
    const float* const weights = scores + (first + group) * kHeads;
    if (a.stage_rows == kCacheBlock && first >= lo && first + kCacheBlock <= hi) {
#pragma unroll
      for (int i = 0; i < kGroupRows; ++i) {
        add_row(row + i * kRowGroups * a.v_row_bytes, weights + i * kRowGroups * kHeads, sums);
      }
      return;
    }
    for (int r = group; r < a.stage_rows; r += kRowGroups) {
      if (first + r < lo || first + r >= hi) continue;  // not there, or not seen: its values must not count, NaN or not
      add_row(stage + r * a.v_row_bytes, scores + (first + r) * kHeads, sums);
    }
  }

  /// Sums over the groups of rows: inside a warp as a tree, then over the warps in their order.
  __device__ __forceinline__ void collect(float (&sums)[kHeads][8 * kUnits], Result& result) {
#pragma unroll
    for (int offset = kLanes; offset < 32; offset *= 2) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int i = 0; i < 8 * kUnits; ++i) sums[h][i] += __shfl_xor_sync(kAll, sums[h][i], offset);
      }
    }
    if (lane < kLanes) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          const float* const of_unit = sums[h] + 8 * u;
          float4* const to = reinterpret_cast<float4*>(warp_sums + warp * kSums + h * kDims + element(u));
          to[0] = make_float4(of_unit[0], of_unit[1], of_unit[2], of_unit[3]);
          to[1] = make_float4(of_unit[4], of_unit[5], of_unit[6], of_unit[7]);
        }
      }
    }
    __syncthreads();
    const int o = results.owned();
    result.max = stats[o / kDims];
    result.total = stats[kHeads + o / kDims];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      float sum = warp_sums[o + i];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum += warp_sums[w * kSums + o + i];
      result.sums[i] = sum;
    }
  }

  const AttendArgs& a;
  const TokenChunks keys;
  const std::int32_t* const table;
  const int token, split, kv_head;
  unsigned char* const ring;
  float* const queries;    ///< [kHeads][kDims]
  float* const scores;     ///< [kChunkKeys][kHeads]: q k, then weights
  float* const warp_sums;  ///< [kWarps][kHeads][kDims]
  float* const stats;      ///< [2][kHeads]: maximum and total of the chunk
  Results results;
  const int thread, lane, warp;
  Cursor cursor;
  int blocks, next_blocks, filling, reading;
};

template <CacheSource kK, CacheSource kV, int kLanes, int kHeads, int kUnits = 1>
__global__ void __launch_bounds__(kThreads, 2) attend_kernel(const __grid_constant__ AttendArgs a) {
  let_next_start();
  unsigned char* const shared = dynamic_shared();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.z);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  if (sequence < 0) return;
  const int split = static_cast<int>(blockIdx.x);
  if constexpr (kHeads == 4) {  // with 8 the registers of both would not fit
    // A short cache leaves all but one CTA of a pair idle: each takes one head instead, reading the same rows from L2.
    // What is done for a head does not depend on those beside it, so the bits are the same.
    if (gridDim.x >= kHeads && TokenChunks(position, a.window, a.stripes).chunks == 1) {
      if (split < kHeads) Attend<kK, kV, kLanes, 1, kUnits>(a, shared, token, position, sequence, 0, split).run();
      return;
    }
  }
  Attend<kK, kV, kLanes, kHeads, kUnits>(a, shared, token, position, sequence, split, 0).run();
}

}  // namespace
}  // namespace llm::cuda
