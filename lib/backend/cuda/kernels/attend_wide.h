// Attention of heads wider than 256 by tensor cores: which caches, and how its work is divided. attention.h's attend()
// and attend_prompt() come here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attend_compressed.h"
#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/cache.cuh"
#include "graph/key_window.h"

namespace llm::cuda {

inline constexpr int kWideKeys = kCacheBlock;  ///< of a tile: one block of the cache

/// A row's keys as tiles, counted from the first that is seen; tile u belongs to stripe u % most_stripes, a stripe's
/// tiles are taken in their order, and so are the stripes. A prompt has one stripe.
struct WideTiles {
  int first_key, end_key, first, tiles, most_stripes;

  /// Of rows at positions `first_position` to `last_position`.
  LLM_HOST_DEVICE WideTiles(int first_position, int last_position, const KeyWindow& window, int most_stripes)
      : first_key(window.first_key(first_position)),
        end_key(last_position + 1),
        first(first_key / kWideKeys),
        tiles(last_position / kWideKeys - first + 1),
        most_stripes(most_stripes) {}
  LLM_HOST_DEVICE int stripes() const { return tiles < most_stripes ? tiles : most_stripes; }
  /// The tile that follows u in the work of one of `splits` CTAs, whose first is its index; `tiles` where none does.
  LLM_HOST_DEVICE int after(int u, int splits) const {
    if (u + most_stripes < tiles) return u + most_stripes;
    const int stripe = u % most_stripes + splits;
    return u < tiles && stripe < stripes() ? stripe : tiles;
  }
};

/// Of one launch of attend().
struct WidePlan {
  int rows = 16;       ///< query heads of a CTA: 16 or 32
  int head_tiles = 1;  ///< CTAs that a KV head's query heads are spread over
  int slot_rows = 1;   ///< of them, with results
  int stripes = 16;    ///< that the tiles of a token are dealt out to, a power of 2; a matter of the model alone
  int splits = 1;      ///< CTAs of one (token, KV head, head tile), which take stripes in turn

  std::int64_t pairs = 0;  ///< (token, KV head, head tile)
  int head_dim_v = 0;
  /// Of a stripe: sums, maxima, totals.
  int slot_floats() const { return slot_rows * head_dim_v + (2 * slot_rows + 3) / 4 * 4; }
  std::size_t scratch_bytes() const {
    return splits == 1 ? 0
                       : static_cast<std::size_t>(pairs) * static_cast<std::size_t>(stripes) *
                             static_cast<std::size_t>(slot_floats()) * sizeof(float);
  }
};

/// More than that a step does not keep between its CTAs: its tokens are divided no more.
inline constexpr std::size_t kMostWideScratch = std::size_t{256} << 20;

inline WidePlan plan_attend_wide(const CacheView& c, int heads, int tokens, std::int64_t max_positions,
                                 int multiprocessors) {
  const int group = heads / c.kv_heads;
  WidePlan p;
  p.rows = c.k_type == DType::BF16 || group <= 16 ? 16 : 32;  // three parts of 32 queries find no room
  p.head_tiles = (group + p.rows - 1) / p.rows;
  p.slot_rows = group < p.rows ? group : p.rows;
  p.head_dim_v = c.head_dim_v;
  p.pairs = std::int64_t{tokens} * c.kv_heads * p.head_tiles;
  while (p.stripes < 128 && p.stripes * c.kv_heads * p.head_tiles < 128) p.stripes *= 2;
  const std::int64_t tiles = (max_positions + kWideKeys - 1) / kWideKeys;
  const std::int64_t most = tiles < p.stripes ? tiles : p.stripes;
  std::int64_t splits = p.pairs > 0 ? multiprocessors / p.pairs : 1;
  if (splits > most) splits = most;
  p.splits = splits > 1 ? static_cast<int>(splits) : 1;
  if (p.scratch_bytes() > kMostWideScratch) p.splits = 1;
  return p;
}

/// Whether attend() takes the cache here: one type of F16, BF16 or E4M3, heads of 512 or 576 with values of 512, and a
/// GPU with the shared memory for them. Otherwise the general kernel does.
bool attends_wide(const CacheView&);
void attend_wide(const float* q, float* y, const CacheView&, const AttentionShape&, const StepView&, int tokens,
                 std::int64_t max_positions, std::byte* scratch, const Launch&);

/// Of attend_selected(): latents in a cache of one such type.
bool attends_wide_selected(const CacheView&);
void attend_wide_selected(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                          const StepView&, int tokens, std::byte* scratch, const Launch&);

/// Of attend_compressed(): heads of 512 that are their own values, in a cache of one such type. `most`: keys of a
/// token.
void attend_wide_compressed(const float* q, float* y, const CacheView&, const AttentionShape&, const CompressedKeys&,
                            const StepView&, int tokens, int most, std::byte* scratch, const Launch&);

/// Of attend_prompt(), any type of cache but F32.
bool has_wide_heads(const CacheView&);
bool has_room_for_wide_prompts(const CacheView&);
bool masks_wide_prompts(const CacheView&);  ///< whether there are kernels with a mask
void attend_wide_prompt(const float* q, float* y, const CacheView&, const AttentionShape&, const StepView&,
                        const PromptSpan* spans, int n_spans, const Launch&);
/// Of latents; where keys and values are of two types they are decoded to F16.
void attend_wide_prompt_selected(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                                 const StepView&, int tokens, const Launch&);
/// Of heads of 512 that are their own values.
void attend_wide_prompt_compressed(const float* q, float* y, const CacheView&, const AttentionShape&,
                                   const CompressedKeys&, const StepView&, int tokens, const Launch&);

}  // namespace llm::cuda
