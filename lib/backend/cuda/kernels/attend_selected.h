// Attention to selected keys alone, those that select_keys() or select_blocks() gives, wherever they lie in the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

struct Selected {
  /// [tokens][selections][top_k]: ascending, all up to the token's own if these are fewer, behind them -1. Some of
  /// those that a token sees may be missing at the end besides, but of latents, which are read where they lie.
  const std::int32_t* positions = nullptr;
  int top_k = 0;
  int selections = 1;  ///< of a token: one, or as many as there are KV heads
  /// Positions come in blocks of so many that begin at a multiple of it, whole but for the token's own. 1 is always
  /// true.
  int block = 1;
};
/// Whether they are whole blocks of the cache: then attend_selected() reads them where they lie.
bool whole_blocks(const Selected&);

/// As for attend(), of any number of tokens up to `tokens`.
AttentionMemory selected_attention_memory(const CacheView&, const AttentionShape&, const Selected&, int tokens);

/// What attend() does, of these keys; there are no windows, sinks or ALiBi. Where a token sees no more keys than are
/// selected its bits are those of attend(), but where each KV head selects more than 4,096.
void attend_selected(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                     const StepView&, int tokens, std::byte* scratch, std::byte* arrivals, const Launch&);

/// The same on tensor cores, rounded as attend_prompt() rounds.
bool attends_prompt_selected(const CacheView&);
void attend_prompt_selected(const float* q, float* y, const CacheView&, const AttentionShape&, const Selected&,
                            const StepView&, int tokens, const Launch&);

}  // namespace llm::cuda
