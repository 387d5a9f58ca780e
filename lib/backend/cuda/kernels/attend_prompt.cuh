// How attend_prompt() cuts its work and its shared memory: pure numbers.
//
// The query heads of a KV head and the tokens of a span make rows, head fastest: row r is token r / group, head
// r % group. A CTA takes 128 rows, or 64, of one KV head over all keys that any of them sees, in tiles of 64, the
// blocks of the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/cache.cuh"

namespace llm::cuda {

/// Of a CTA: few where that many leave multiprocessors without one, or where shared memory has room for no more.
inline constexpr int kPromptRows = 128, kFewPromptRows = 64;
inline constexpr int kPromptSpans = 64;  ///< of one launch, since they are passed by value

struct PromptSpans {
  PromptSpan span[kPromptSpans];
  int first_tile[kPromptSpans + 1];  ///< CTAs' tiles of rows before each span
  int n;
};
inline int span_tiles(const PromptSpan& span, int group, int rows) { return (span.n_tokens * group + rows - 1) / rows; }
/// Those of `n` spans that have tokens, in CTAs of `rows`.
inline void take_spans(const PromptSpan* spans, int n, int group, int rows, PromptSpans& to) {
  to.n = 0;
  for (int i = 0; i < n; ++i) {
    if (spans[i].n_tokens <= 0) continue;
    to.span[to.n] = spans[i];
    to.first_tile[to.n + 1] = to.first_tile[to.n] + span_tiles(spans[i], group, rows);
    ++to.n;
  }
}

/// Of rows in shared memory: an odd number of 16-byte words, so that eight neighbouring rows lie in different banks.
LLM_HOST_DEVICE int prompt_pitch(int head_dim) { return head_dim * 2 + 16; }
LLM_HOST_DEVICE int prompt_tile_bytes(int head_dim) { return kCacheBlock * prompt_pitch(head_dim); }
/// Keys or values: two tiles as they are, or one decoded tile and two of raw rows with 16 bytes that a decoder may read
/// beyond them.
LLM_HOST_DEVICE int prompt_raw_bytes(int row_bytes) { return kCacheBlock * row_bytes + 16; }
LLM_HOST_DEVICE int prompt_side_bytes(bool decoded, int head_dim, int row_bytes) {
  return decoded ? prompt_tile_bytes(head_dim) + 2 * prompt_raw_bytes(row_bytes) : 2 * prompt_tile_bytes(head_dim);
}

inline bool all_bfloat16(const CacheView& c) { return c.k_type == DType::BF16 && c.v_type == DType::BF16; }
/// Whether rows of the type, of keys or of values, are not multiplied as they are.
inline bool prompt_decodes(const CacheView& c, DType t) { return t != (all_bfloat16(c) ? DType::BF16 : DType::F16); }
/// Shared memory of a CTA.
inline int prompt_shared_bytes(const CacheView& c, int rows) {
  const auto side = [&](DType t) {
    return prompt_side_bytes(prompt_decodes(c, t), c.head_dim_k, cache_row_bytes(t, c.head_dim_k));
  };
  return rows * prompt_pitch(c.head_dim_k) + side(c.k_type) + side(c.v_type);
}
/// Rows of a CTA where kPromptRows make `ctas`. Each row's bits are the same.
inline int prompt_rows(const CacheView& c, int ctas, const DeviceLimits& device) {
  const bool fits = prompt_shared_bytes(c, kPromptRows) <= device.block_bytes;
  return fits && ctas >= device.multiprocessors ? kPromptRows : kFewPromptRows;
}

}  // namespace llm::cuda
