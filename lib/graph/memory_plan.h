// Where each result lives in one workspace: values whose lives do not overlap share bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace llm {

struct MemoryPlan {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::vector<std::uint64_t> offset;          ///< per value id; kNone for what does not live in the workspace
  std::vector<std::uint64_t> scratch_offset;  ///< per node; kNone if it asked for none
  std::uint64_t bytes = 0;
};

/// Capacity bytes of every result, best fit by liveness, 64-byte aligned; reshapes share their source's bytes, outputs
/// of the graph are left out (the caller binds them). `node_scratch` (per node, bytes) lives during its node alone.
MemoryPlan plan_memory(const Graph&, const std::vector<std::uint64_t>& node_scratch);

/// Bytes for the plan of this graph and of any smaller bucket of it, which need not be smaller: best fit may pack
/// values less well, for which there is a quarter more, and scratch may be as large beside smaller values, which leave
/// no hole for it. Address space: what is not touched takes no memory.
std::uint64_t workspace_bytes(const Graph& largest, const std::vector<std::uint64_t>& node_scratch);

}  // namespace llm
