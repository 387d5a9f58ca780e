// Attention to selected keys alone, those that select_keys() gives, wherever they lie in the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

struct Selected {
  /// [tokens][top_k]: ascending, all up to the token's own if these are fewer, behind them -1. Fewer than 64 of those
  /// that a token sees may be missing besides, but of latents, which are read where they lie.
  const std::int32_t* positions = nullptr;
  int top_k = 0;
};

/// As for attend(), of any number of tokens up to `tokens`.
AttentionMemory selected_attention_memory(const CacheView&, const AttentionShape&, int top_k, int tokens);

/// What attend() does, of these keys; there are no windows, sinks or ALiBi. Where a token sees no more keys than are
/// selected its bits are those of attend().
void attend_selected(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                     const StepView&, int tokens, std::byte* scratch, std::byte* arrivals, const Launch&);

/// The same on tensor cores, rounded as attend_prompt() rounds.
bool attends_prompt_selected(const CacheView&);
void attend_prompt_selected(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                            const StepView&, int tokens, const Launch&);

}  // namespace llm::cuda
