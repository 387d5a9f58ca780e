// How attend() divides its work: pure numbers, the same on the host and on the device.
//
// A token's keys, from the first that its window shows, lie in chunks of 256 absolute positions, counted from the first
// that is seen; chunk c belongs to stripe c % S, S being a matter of the model (stripes_for()). A stripe's chunks
// are folded into its softmax in their order, the stripes into the result in theirs. A CTA takes whole stripes, and
// whichever CTA of a token finishes last folds all of them. How many CTAs there are is a matter of speed: the
// operations are the same, so the bits are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/cache.cuh"
#include "graph/key_window.h"

namespace llm::cuda {

inline constexpr int kAttendThreads = 256;
inline constexpr int kAttendStages = 4;
inline constexpr int kChunkKeys = 256;
inline constexpr int kStripKeys = 32;  ///< of a chunk that a warp takes, where products are by tensor cores
inline constexpr int kTileKeys = 16;   ///< of a product

/// Which kernel, and its launch.
struct AttendPlan {
  int head_tiles = 1;   ///< CTAs that a KV head's query heads are spread over
  int tile_heads = 1;   ///< query heads of a CTA: 1, 4 or 8
  int lanes = 8;        ///< that share a row of keys or values, `units` times 8 elements each: 8, 16 or 32
  int units = 1;        ///< 2 or 3 for heads wider than 256
  int stage_rows = 64;  ///< positions of one stage of the ring
  int stage_bytes = 0;  ///< with 16 behind the rows, see plan_attend()
  int tile_bytes = 0;   ///< by tensor cores: of a tile
  int tiles = 0;        ///< of 16 rows that each warp of the kernel by tensor cores has room for; 0: the general kernel
  int stripes = 16;     ///< that the chunks of a token are dealt out to, a power of 2; a matter of the model alone
  int splits = 1;       ///< CTAs of one (token, KV head, head tile), which take stripes in turn

  std::int64_t pairs = 0;  ///< (token, KV head, head tile)
  int sums() const { return tile_heads * lanes * units * 8; }
  int partial_floats() const { return sums() + 2 * tile_heads; }
  std::size_t scratch_bytes() const {
    return splits == 1 ? 0
                       : static_cast<std::size_t>(pairs) * static_cast<std::size_t>(stripes) *
                             static_cast<std::size_t>(partial_floats()) * sizeof(float);
  }
  std::size_t arrivals_bytes() const { return splits == 1 ? 0 : static_cast<std::size_t>(pairs) * sizeof(unsigned); }
  /// By tensor cores: tiles of the warps, sums of the 8 warps (first the queries), maximum and total per
  /// warp and head, a factor per head, a flag, two rows of elements of 16 bits. Otherwise: ring, queries, scores, sums
  /// of the 8 warps, maximum and total per head, a flag.
  std::size_t shared_bytes() const {
    const int warps = kAttendThreads / 32;
    if (tiles > 0) {
      return static_cast<std::size_t>(warps * tiles * tile_bytes) +
             sizeof(float) *
                 static_cast<std::size_t>(warps * sums() + 2 * warps * tile_heads + tile_heads + 4 + lanes * 8);
    }
    return static_cast<std::size_t>(kAttendStages * stage_bytes) +
           sizeof(float) *
               static_cast<std::size_t>(sums() + kChunkKeys * tile_heads + warps * sums() + 2 * tile_heads + 4);
  }
};

/// What a plan depends on. `multiprocessors` and `shared_limit` (bytes that one CTA may have) are the device's.
struct AttendWork {
  int group = 1, kv_heads = 1;  ///< query heads of a KV head
  int k_row_bytes = 0, v_row_bytes = 0, widest_head = 0;
  int tokens = 1;
  std::int64_t max_positions = 0;
  int multiprocessors = 1;
  std::size_t shared_limit = 0;
};

/// Divides the keys of tokens among the CTAs that the device has room for.
inline void divide_keys(AttendPlan& p, const AttendWork& w, std::int64_t slots) {
  const std::int64_t chunks = (w.max_positions + kChunkKeys - 1) / kChunkKeys;
  const std::int64_t most = chunks < p.stripes ? chunks : p.stripes;
  std::int64_t splits = p.pairs > 0 ? slots / p.pairs : 1;
  if (splits > most) splits = most;
  p.splits = splits > 1 ? static_cast<int>(splits) : 1;
}

inline void spread_heads(AttendPlan& p, const AttendWork& w) {
  p.lanes = w.widest_head <= 64 ? 8 : w.widest_head <= 128 ? 16 : 32;
  p.units = (w.widest_head + 255) / 256;
  const int most = p.units > 1 ? 1 : p.lanes == 32 ? 4 : 8;  // 8 heads of 256 do not fit in registers
  p.head_tiles = (w.group + most - 1) / most;
  const int heads = (w.group + p.head_tiles - 1) / p.head_tiles;
  p.tile_heads = heads == 1 ? 1 : heads <= 4 ? 4 : 8;
  p.pairs = std::int64_t{w.tokens} * w.kv_heads * p.head_tiles;
}

/// Stripes of a token with so many (KV head, head tile), a power of 2: as many for each of the `ctas` that a device of
/// 132 multiprocessors has room for; where that does not come out even, so many that it hardly matters. At least 16, so
/// that sums stay short.
inline int stripes_for(int pairs, int ctas) {
  int stripes = 16;
  while (stripes < 128 && stripes * pairs < ctas) stripes *= 2;
  return stripes * pairs % ctas == 0 || stripes > 64 ? stripes : 64;
}

/// The general kernel: any type and dimension.
inline AttendPlan plan_attend(const AttendWork& w) {
  AttendPlan p;
  spread_heads(p, w);
  const int row_bytes = w.k_row_bytes > w.v_row_bytes ? w.k_row_bytes : w.v_row_bytes;
  // Two CTAs to a multiprocessor (227 KB of shared memory on compute capability 9.0), if 64 rows leave room for that.
  const std::size_t wanted = w.shared_limit < 113 * 1024 ? w.shared_limit : 113 * 1024;
  const int least = kAttendThreads / p.lanes;  // rows that the CTA takes at a time
  const auto whole_units = [&](int rows) { return rows * w.k_row_bytes % 16 == 0 && rows * w.v_row_bytes % 16 == 0; };
  // Decoders may read a word past the last row: not one of the next stage, which may be on its way.
  const auto stage_bytes = [=](int rows) { return rows * row_bytes + 16; };
  for (p.stage_rows = 64; p.stage_rows > least && whole_units(p.stage_rows / 2); p.stage_rows /= 2) {
    p.stage_bytes = stage_bytes(p.stage_rows);
    if (p.shared_bytes() <= wanted) break;
  }
  p.stage_bytes = stage_bytes(p.stage_rows);
  p.stripes = stripes_for(w.kv_heads * p.head_tiles, 256);
  divide_keys(p, w, 2 * w.multiprocessors);
  return p;
}

/// Tiles that a warp has room for where a CTA has a multiprocessor to itself; half of them where two share it. `narrow`
/// rows have elements of 8 bits.
LLM_HOST_DEVICE constexpr int most_tiles(bool narrow, int dims) {
  if (narrow) return dims == 256 ? 4 : 10;
  return 24 * 1024 / (kTileKeys * dims * 2);
}

/// A CTA of 8 heads becomes two of 4, of which each reads all keys and values.
inline void halve_heads(AttendPlan& p) {
  p.tile_heads = 4;
  p.head_tiles *= 2;
  p.pairs *= 2;
}

/// Whether no stripe of a context waits for a multiprocessor where CTAs are halved: from its start to its results a CTA
/// has half of the work then, with warps to spare for the token's own key and value.
inline bool halves_find_room(const AttendPlan& p, const AttendWork& w) {
  const std::int64_t chunks = (w.max_positions + kChunkKeys - 1) / kChunkKeys;
  return 2 * p.pairs * (chunks < p.stripes ? chunks : p.stripes) <= w.multiprocessors;
}

/// Sets the tiles of a warp, 0 where the device has too little shared memory; whether two CTAs share a multiprocessor.
/// Of 16 bits: one CTA to a multiprocessor with more than a chunk on its way, or two where that many would leave a
/// fifth of the multiprocessors idle or wait for their turn, and two fit. Rows of 8 bits are more work for their bytes:
/// two wherever they fit.
inline bool choose_tiles(AttendPlan& p, const AttendWork& w, bool narrow) {
  const bool two_fit = p.sums() <= 512;
  const int most = most_tiles(narrow, p.lanes * 8);
  const std::int64_t alone = p.pairs > 0 ? w.multiprocessors / p.pairs * p.pairs : w.multiprocessors;  // at work
  const bool two = two_fit && (narrow || 5 * alone < 4 * w.multiprocessors);
  p.tiles = two ? most / 2 : most;
  if (p.shared_bytes() > w.shared_limit && !narrow) p.tiles = most / 2;
  if (p.tiles < 3 || p.shared_bytes() > w.shared_limit) p.tiles = 0;
  return two;
}

/// By tensor cores: keys and values of one type, of 16 bits or of 8; heads of 64, 128 or 256.
/// AttendPlan::tiles is 0 where the device has too little shared memory: for any number of tokens or for none, since
/// the general kernel has other bits. So 8 heads whose tiles do not fit are halved whatever the step is.
inline AttendPlan plan_attend_by_tensor_cores(const AttendWork& w) {
  AttendPlan p;
  spread_heads(p, w);
  if (p.tile_heads < 4) p.tile_heads = 4;
  const bool narrow = w.k_row_bytes != p.lanes * 16;
  p.stripes = stripes_for(w.kv_heads * p.head_tiles, narrow && p.sums() <= 512 ? 256 : 128);
  p.tile_bytes = kTileKeys * w.k_row_bytes;
  bool two = choose_tiles(p, w, narrow);
  if (p.tile_heads == 8 && (p.tiles == 0 || halves_find_room(p, w))) {
    halve_heads(p);
    two = choose_tiles(p, w, narrow);
  }
  divide_keys(p, w, two ? 2 * w.multiprocessors : w.multiprocessors);
  return p;
}

/// A token's keys as chunks, counted from the first that is seen.
struct TokenChunks {
  int first_key, end_key, first_chunk, chunks, most_stripes;

  LLM_HOST_DEVICE TokenChunks(int position, const KeyWindow& window, int most_stripes)
      : first_key(window.first_key(position)),
        end_key(position + 1),
        first_chunk(first_key / kChunkKeys),
        chunks(position / kChunkKeys - first_chunk + 1),
        most_stripes(most_stripes) {}
  LLM_HOST_DEVICE int stripes() const { return chunks < most_stripes ? chunks : most_stripes; }
  LLM_HOST_DEVICE int stripe_of(int c) const { return c & (most_stripes - 1); }
  /// The chunk that follows c in the work of one of `splits` CTAs, whose first is its index; `chunks` where none does.
  LLM_HOST_DEVICE int chunk_after(int c, int splits) const {
    if (c + most_stripes < chunks) return c + most_stripes;
    const int stripe = stripe_of(c) + splits;
    return c < chunks && stripe < stripes() ? stripe : chunks;
  }
  /// Of chunk c, as positions.
  LLM_HOST_DEVICE int chunk_base(int c) const { return (first_chunk + c) * kChunkKeys; }
  LLM_HOST_DEVICE int chunk_first_key(int c) const { return first_key > chunk_base(c) ? first_key : chunk_base(c); }
  LLM_HOST_DEVICE int chunk_end_key(int c) const {
    return end_key < chunk_base(c) + kChunkKeys ? end_key : chunk_base(c) + kChunkKeys;
  }
  /// Of the strip `strip` of chunk c; none are seen where the first is not before the end.
  LLM_HOST_DEVICE int strip_first_key(int c, int strip) const {
    const int begin = chunk_base(c) + strip * kStripKeys;
    return first_key > begin ? first_key : begin;
  }
  LLM_HOST_DEVICE int strip_end_key(int c, int strip) const {
    const int end = chunk_base(c) + (strip + 1) * kStripKeys;
    return end_key < end ? end_key : end;
  }
};

}  // namespace llm::cuda
