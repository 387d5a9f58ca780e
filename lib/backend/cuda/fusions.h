// Neighbouring nodes that one kernel serves. Found once per program; an observed step runs node by node instead, since
// it has to show what lies between.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"

namespace llm::cuda {

/// Rope of queries and of keys, and KvAppend: nothing else uses the rotated keys, and nothing but reshapes runs
/// between.
struct RopeAppendNodes {
  std::size_t rope_q, rope_k, append;
};
std::vector<RopeAppendNodes> find_rope_appends(const Graph&, CacheFormat);

}  // namespace llm::cuda
