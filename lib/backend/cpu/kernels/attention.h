// Attention over the paged cache.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

void attention(const AttentionArgs&, std::int32_t kv_head, std::int32_t token_begin, std::int32_t token_end,
               std::byte* scratch);
void attention_chunk(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, std::int32_t chunk, float* partial,
                     std::byte* scratch);
void attention_merge(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, std::int32_t n_chunks,
                     const float* partials);
void attention_add(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, std::int32_t chunk, float* states,
                   std::byte* scratch);
void attention_finish(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, const float* states);
void index_scores(const AttentionArgs&, const float* weights, std::int32_t token, std::int32_t chunk, float* scores,
                  std::byte* scratch);

}  // namespace llm::cpu::LLM_ISA
