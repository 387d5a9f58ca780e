// What passes share: who produces and who reads each value.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace llm {

struct Uses {
  static constexpr std::size_t kNone = ~std::size_t{0};
  explicit Uses(const Graph&);
  std::vector<std::size_t> producer;                ///< node of each value, kNone for inputs, weights and caches
  std::vector<std::vector<std::size_t>> consumers;  ///< nodes that read each value, ascending
  std::vector<bool> output;                         ///< value is an output of the graph
};

/// The same values, outputs and bucket, with other nodes.
Graph with_nodes(const Graph&, std::vector<Node>);

}  // namespace llm
