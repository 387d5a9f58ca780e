// What of a graph a step can do without: results that only choices read which not every token has to make.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace llm {

/// Of each node the position from which on a token's results are read: where they go to SelectKeys or SelectBlocks
/// alone, the first one that chooses (chooses_from(); top_k); else 0.
std::vector<std::int32_t> needed_from(const Graph&);

}  // namespace llm
