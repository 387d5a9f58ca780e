#include "graph/passes/rewrite.h"

namespace llm {

Uses::Uses(const Graph& g)
    : producer(g.values().size(), kNone), consumers(g.values().size()), output(g.values().size(), false) {
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    for (std::uint32_t v : g.nodes()[i].out) producer[v] = i;
    for (std::uint32_t v : g.nodes()[i].in) consumers[v].push_back(i);
  }
  for (std::uint32_t v : g.outputs()) output[v] = true;
}

Graph with_nodes(const Graph& g, std::vector<Node> nodes) {
  Graph result = g;
  result.mutable_nodes() = std::move(nodes);
  return result;
}

}  // namespace llm
