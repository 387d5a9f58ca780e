// The blocks of keys that the heads of each KV head are to attend to (SelectBlocks of graph/op.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/select_keys.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

/// Bytes that select_blocks() wants, for up to `tokens` of them; they may hold anything.
std::size_t block_selection_scratch(const CacheView& index, const SelectBlocks&, int heads, int tokens,
                                    std::int64_t max_positions);

/// positions [tokens][heads][top_k] of q [tokens][heads][head_dim_k]: of each head the blocks with the greatest q .
/// key, of equal ones the first, ascending, -1 behind them. Rows of tokens without a sequence are left as they are.
/// `max_positions`: most of a sequence. With exact scores a row's bits do not depend on the step around it, and the
/// same launches are recorded whatever the step holds.
void select_blocks(const float* q, const CacheView& index, const SelectBlocks&, int heads, const StepView&, int tokens,
                   std::int64_t max_positions, Scores, std::int32_t* positions, std::byte* scratch, const Launch&);

}  // namespace llm::cuda
