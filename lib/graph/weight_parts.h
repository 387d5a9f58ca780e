// Which part of a weight a node reads: rows of a table, matrices of a stack, or all of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/graph.h"

namespace llm {

struct WeightParts {
  std::int64_t n = 1;       ///< equal parts, of which each is read whole or not at all
  std::uint64_t bytes = 0;  ///< of one
  std::int64_t uses = 1;    ///< of parts by one token, which may be of the same part

  /// Parts that one token reads at most.
  std::int64_t per_token() const { return std::min(n, uses); }
  std::uint64_t bytes_per_token() const { return bytes * static_cast<std::uint64_t>(per_token()); }
};

/// Of a weight among the node's operands: the rows of an Embed's table, the experts of an ExpertLinear.
WeightParts weight_parts(const Graph&, const Node&, std::uint32_t weight);

}  // namespace llm
