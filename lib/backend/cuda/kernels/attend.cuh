// How attend() divides its work: pure numbers, the same on the host and on the device.
//
// A token's keys, from the first that its window shows, lie in chunks of 256 absolute positions; 16 chunks make a
// group. A chunk's softmax is whole; a group is its chunks folded together in their order, the result the groups in
// theirs. Who folds is a matter of speed: one CTA in registers, or whichever CTA finishes last, from memory. The
// operations are the same, so the bits are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/cache.cuh"

namespace llm::cuda {

inline constexpr int kAttendThreads = 256;
inline constexpr int kAttendStages = 4;
inline constexpr int kChunkKeys = 256;
inline constexpr int kGroupChunks = 16;
inline constexpr int kWholeToken = 1 << 30;  ///< chunks of a unit that is everything

/// Which kernel, and its launch.
struct AttendPlan {
  int head_tiles = 1;   ///< CTAs that a KV head's query heads are spread over
  int tile_heads = 1;   ///< query heads of a CTA: 1, 4 or 8
  int lanes = 8;        ///< that share a row of keys or values, 8 elements each: 8, 16 or 32
  int stage_rows = 64;  ///< positions of one stage of the ring
  int stage_bytes = 0;
  int splits = 1;          ///< CTAs of one (token, KV head, head tile)
  int unit = kWholeToken;  ///< chunks that a CTA takes at a time: 1, kGroupChunks or kWholeToken
  int max_chunks = 1, max_groups = 1;

  std::int64_t pairs = 0;  ///< (token, KV head, head tile)
  int sums() const { return tile_heads * lanes * 8; }
  int partial_floats() const { return sums() + 2 * tile_heads; }
  int partials() const { return splits == 1 ? 0 : max_groups + (unit == 1 ? max_chunks : 0); }  ///< of a pair
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(pairs) * static_cast<std::size_t>(partials()) *
           static_cast<std::size_t>(partial_floats()) * sizeof(float);
  }
  std::size_t arrivals_bytes() const {
    return splits == 1 ? 0 : static_cast<std::size_t>(pairs) * static_cast<std::size_t>(max_groups + 1) * 4;
  }
  /// Ring, 16 bytes that decoders may read beyond it, queries, scores, sums of the 8 warps, maximum and total per head,
  /// a flag.
  std::size_t shared_bytes() const {
    return static_cast<std::size_t>(kAttendStages * stage_bytes + 16) +
           sizeof(float) * static_cast<std::size_t>(sums() + kChunkKeys * tile_heads + 8 * sums() + 2 * tile_heads + 4);
  }
};

/// `multiprocessors` and `shared_limit` (bytes that one CTA may have) are the device's.
inline AttendPlan plan_attend(int group, int kv_heads, int k_row_bytes, int v_row_bytes, int widest_head, int tokens,
                              std::int64_t max_positions, int multiprocessors, std::size_t shared_limit) {
  AttendPlan p;
  p.lanes = widest_head <= 64 ? 8 : widest_head <= 128 ? 16 : 32;
  const int most = p.lanes == 32 ? 4 : 8;  // 8 heads of 256 do not fit in registers
  p.head_tiles = (group + most - 1) / most;
  const int heads = (group + p.head_tiles - 1) / p.head_tiles;
  p.tile_heads = heads == 1 ? 1 : heads <= 4 ? 4 : 8;

  const int row_bytes = k_row_bytes > v_row_bytes ? k_row_bytes : v_row_bytes;
  // Two CTAs to a multiprocessor (227 KB of shared memory on compute capability 9.0), if 64 rows leave room for that.
  const std::size_t wanted = shared_limit < 113 * 1024 ? shared_limit : 113 * 1024;
  const int least = kAttendThreads / p.lanes;  // rows that the CTA takes at a time
  for (p.stage_rows = 64; p.stage_rows > least; p.stage_rows /= 2) {
    p.stage_bytes = p.stage_rows * row_bytes;
    if (p.shared_bytes() <= wanted) break;
  }
  p.stage_bytes = p.stage_rows * row_bytes;

  p.pairs = std::int64_t{tokens} * kv_heads * p.head_tiles;
  p.max_chunks = static_cast<int>((max_positions + kChunkKeys - 1) / kChunkKeys);
  p.max_groups = (p.max_chunks + kGroupChunks - 1) / kGroupChunks;
  const std::int64_t slots = 2 * multiprocessors;
  const std::int64_t splits = p.pairs > 0 ? slots / p.pairs : 1;
  if (splits < 2 || p.max_chunks == 1) return p;
  // Partial results of chunks take memory for the longest sequence possible; those of groups a sixteenth of it.
  constexpr std::int64_t kMostPartialBytes = 96 << 20;
  const std::int64_t chunk_bytes =
      p.pairs * (p.max_chunks + p.max_groups) * p.partial_floats() * static_cast<std::int64_t>(sizeof(float));
  p.unit = chunk_bytes <= kMostPartialBytes ? 1 : kGroupChunks;
  const int units = p.unit == 1 ? p.max_chunks : p.max_groups;
  p.splits = static_cast<int>(splits < units ? splits : units);
  if (p.splits == 1) p.unit = kWholeToken;
  return p;
}

/// A token's keys as chunks; chunks and groups are counted from the first that is seen.
struct TokenChunks {
  int first_key, end_key, first_chunk, chunks;

  LLM_HOST_DEVICE TokenChunks(int position, int window)
      : first_key(window > 0 && position - window + 1 > 0 ? position - window + 1 : 0),
        end_key(position + 1),
        first_chunk(first_key / kChunkKeys),
        chunks(position / kChunkKeys - first_chunk + 1) {}
  LLM_HOST_DEVICE int groups() const { return (chunks + kGroupChunks - 1) / kGroupChunks; }
  /// Of chunk c, as positions.
  LLM_HOST_DEVICE int chunk_base(int c) const { return (first_chunk + c) * kChunkKeys; }
  LLM_HOST_DEVICE int chunk_first_key(int c) const { return first_key > chunk_base(c) ? first_key : chunk_base(c); }
  LLM_HOST_DEVICE int chunk_end_key(int c) const {
    return end_key < chunk_base(c) + kChunkKeys ? end_key : chunk_base(c) + kChunkKeys;
  }
  LLM_HOST_DEVICE int chunks_of_group(int g) const {
    return chunks - g * kGroupChunks < kGroupChunks ? chunks - g * kGroupChunks : kGroupChunks;
  }
};

/// The first chunk of CTA `split`, and the one that follows c in its work; TokenChunks::chunks or more is the end.
LLM_HOST_DEVICE int first_chunk_of(int split, int unit) { return split == 0 ? 0 : split * unit; }
LLM_HOST_DEVICE int chunk_after(int c, int splits, int unit) {
  return (c + 1) % unit != 0 ? c + 1 : c + 1 + (splits - 1) * unit;
}

}  // namespace llm::cuda
