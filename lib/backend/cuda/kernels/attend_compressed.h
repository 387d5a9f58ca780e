// Attention in one softmax to the keys of a window and to compressed ones (graph/op.h: CompressedAttention), wherever
// both lie.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

/// How many keys a token at a position has, and their order: those of its window, behind them the compressed ones.
struct CompressedOrder {
  KeyWindow window = {};
  int stride = 1;      ///< positions that a compressed key stands for
  int most = INT_MAX;  ///< compressed keys that a token has

  LLM_HOST_DEVICE int of_window(int position) const { return position + 1 - window.first_key(position); }
  LLM_HOST_DEVICE int compressed(int position) const {
    const int seen = (position + 1) / stride;
    return seen < most ? seen : most;
  }
  LLM_HOST_DEVICE int keys(int position) const { return of_window(position) + compressed(position); }
};

struct CompressedKeys {
  const std::byte* rows = nullptr;  ///< of a cache of keys alone, of one head, in type and size as those of the window
  int stride = 1;
  /// [tokens][top_k]: numbers of keys, ascending, all that a token sees if these are fewer, behind them -1. Null: all.
  const std::int32_t* chosen = nullptr;
  int top_k = 0;

  CompressedOrder order(const KeyWindow& window) const {
    return {.window = window, .stride = stride, .most = chosen != nullptr ? top_k : INT_MAX};
  }
};

/// As for attend(), of any number of tokens up to `tokens`.
AttentionMemory compressed_attention_memory(const CacheView&, const AttentionShape&, const CompressedKeys&, int tokens,
                                            std::int64_t max_positions);

/// y [tokens][heads][head_dim] of q, over the cache's keys of AttentionShape::window and the compressed ones, as exact
/// as in f32 throughout, for any number of tokens; a token's bits do not depend on the others. There is no cap and no
/// ALiBi. The cache has one head, of up to 512 elements, values as long as keys. Rows of y of tokens without a sequence
/// are left as they are. `max_positions`: most of a sequence. Records the same launches whatever the step holds.
void attend_compressed(const float* q, float* y, const CacheView&, const AttentionShape&, const CompressedKeys&,
                       const StepView&, int tokens, std::int64_t max_positions, std::byte* scratch, std::byte* arrivals,
                       const Launch&);

/// The same on tensor cores, rounded as attend_prompt() rounds.
bool attends_prompt_compressed(const CacheView&);
void attend_prompt_compressed(const float* q, float* y, const CacheView&, const AttentionShape&, const CompressedKeys&,
                              const StepView&, int tokens, const Launch&);

inline constexpr int kMostCompressedDim = 512;

}  // namespace llm::cuda
