// The norms of heads, where there are some, rotary embedding of queries and keys, and keys and values into the cache,
// in one kernel: between two large products these are five launches that take longer to start than to run.
#pragma once

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

struct RopeAppend {
  const float* q = nullptr;      ///< [tokens][heads][head_dim_k]
  const float* k = nullptr;      ///< [tokens][kv_heads][head_dim_k]
  const float* v = nullptr;      ///< [tokens][kv_heads][head_dim_v]
  const float* table = nullptr;  ///< of rope_table()
  float* rotated_q = nullptr;    ///< may be q
  int heads = 0;
  const float *norm_q = nullptr, *norm_k = nullptr;  ///< [head_dim_k]: weights of the norms; null for heads without
  float eps = 0;                                     ///< of both norms
};

/// Whether a cache of this type is written so: those whose rows are elements, not blocks.
bool appends_with_rope(DType k, DType v);

/// What rms_norm(), rope() and append_to_cache() make of the operands, bit for bit.
void rope_append(const Rope&, const RopeAppend&, const CacheView&, const StepView&, int tokens, const Launch&);

/// Both rope_append() and attend() of one token, in attention's launch, with the same bits; rotated_q is not written.
/// q, k, v and norms are aligned to 16 bytes. Possible where attends_with_rope() says so.
bool attends_with_rope(const CacheView&, const AttentionShape&, std::int64_t max_positions);
void rope_append_attend(const Rope&, const RopeAppend&, float* y, const CacheView&, const AttentionShape&,
                        const StepView&, std::int64_t max_positions, std::byte* scratch, std::byte* arrivals,
                        const Launch&);

}  // namespace llm::cuda
