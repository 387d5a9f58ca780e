// Prompts' attention to selected keys by way of all keys: tiles of them go through the tensor cores, and what a token
// did not select is masked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

/// Bytes for the masks of a step: bits of 65,536 positions for each of its tokens. Where a sequence is longer, or KV
/// heads have selections of their own, tokens are taken some at a time.
constexpr std::int64_t key_mask_bytes(std::int64_t tokens) { return tokens * 8192; }

/// What decides between the ways of a prompt's attention, as numbers.
struct MaskedWork {
  int tokens = 0;
  std::int64_t seen = 0;      ///< keys that the tokens see, each by itself
  std::int64_t selected = 0;  ///< keys that they attend to otherwise
  int group = 1, kv_heads = 1;
  int at_once = 1;  ///< tokens whose masks there is memory for
  int multiprocessors = 1;
  /// How selected keys are read otherwise: packed, a copy for each token, or where they lie: latents, or whole blocks
  /// of the cache.
  enum class Otherwise { Packed, InPlace, Blocks } otherwise = Otherwise::Packed;
};

/// A key that a token sees costs as much as the query heads that are multiplied with it; packing a key, and attending
/// to it, as much as 261 of them (docs/cuda-kernels.md), of which 192 are counted, since the last CTAs of a launch
/// leave multiprocessors idle. Of blocks it is 118, of which 110 count. Latents that are read where they lie are
/// multiplied with whole tiles of 64 heads, and take a quarter longer than neighbours. Few tokens have too few CTAs of
/// 64 rows for all multiprocessors.
constexpr bool masks_pay(const MaskedWork& w) {
  constexpr std::int64_t kPacked = 192, kBlocks = 110, kTile = 64, kTileInPlace = 80;
  const std::int64_t in_place = (w.group + kTile - 1) / kTile * kTileInPlace;
  const std::int64_t key = w.otherwise == MaskedWork::Otherwise::Packed   ? kPacked
                           : w.otherwise == MaskedWork::Otherwise::Blocks ? kBlocks
                                                                          : in_place;
  const std::int64_t all = std::int64_t{w.multiprocessors} * kTile;
  const std::int64_t used = std::min(all, std::int64_t{w.at_once} * w.group * w.kv_heads);
  return w.at_once > 0 && w.seen * w.group * all <= w.selected * key * used;
}

/// Whether attend_prompt_masked() takes the step, with `mask_bytes` of memory, and is the fastest way.
bool attends_masked(const CacheView&, const AttentionShape&, const Selected&, std::span<const PromptSpan>,
                    std::size_t mask_bytes);

/// What attend_prompt() does, of the selected keys; there are no windows, sinks or ALiBi. The same bits as
/// attend_prompt() for a token that selects all it sees. `masks` may hold anything.
void attend_prompt_masked(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                          const StepView&, std::span<const PromptSpan>, std::byte* masks, std::size_t mask_bytes,
                          const Launch&);

}  // namespace llm::cuda
