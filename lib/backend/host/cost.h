// What a node moves and computes in one step: for timings beside the machine's limits.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/host/step_check.h"
#include "graph/graph.h"

namespace llm::host {

struct NodeCost {
  std::uint64_t bytes = 0;       ///< weights, cache and activations, each counted once
  std::uint64_t operations = 0;  ///< a multiply-add counts twice
};

/// `experts`: the expert ids of an ExpertLinear, so that only weights that were read count; null counts as many as the
/// routes could reach.
NodeCost node_cost(const Graph&, const Node&, const StepData&, const StepRows&, CacheFormat,
                   const std::int32_t* experts);

}  // namespace llm::host
