// Rows of a table by hashes of the tokens that sequences end with (HashIds of graph/op.h).
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"

namespace llm::cuda {

/// What a HashIds has, in device memory.
struct HashRule {
  const std::uint64_t* multipliers = nullptr;               ///< [tokens]
  const std::int32_t *sizes = nullptr, *offsets = nullptr;  ///< [heads]
  int tokens = 0, heads = 0;
  std::int32_t stop = 0;
};

/// ids [tokens][heads] of the step's tokens; a slot of `states` has [rule.tokens - 1]. Rows of tokens without a
/// sequence are left as they are. `sequences`: most of a step.
void hash_ids(const HashRule&, const StepView&, int sequences, float* states, std::int32_t* ids, const Launch&);

}  // namespace llm::cuda
