#include <algorithm>

#include "graph/passes/passes.h"

namespace llm {

namespace {

/// Whether a step leaves something behind by it.
bool leaves_state(const Graph& g, const Node& n) {
  const auto any = [&](const std::vector<std::uint32_t>& values, ValueKind kind) {
    return std::any_of(values.begin(), values.end(), [&](std::uint32_t v) { return g.info(v).kind == kind; });
  };
  return any(n.out, ValueKind::Cache) || any(n.in, ValueKind::Recurrent);
}

}  // namespace

Graph remove_dead(const Graph& g) {
  std::vector<bool> needed(g.values().size(), false);
  for (std::uint32_t v : g.outputs()) needed[v] = true;
  std::vector<Node> kept;
  for (auto n = g.nodes().rbegin(); n != g.nodes().rend(); ++n) {
    const auto is_needed = [&](std::uint32_t v) { return needed[v]; };
    if (!leaves_state(g, *n) && std::none_of(n->out.begin(), n->out.end(), is_needed)) continue;
    for (std::uint32_t v : n->in) needed[v] = true;
    for (std::uint32_t v : n->out) needed[v] = true;
    kept.push_back(*n);
  }
  std::reverse(kept.begin(), kept.end());

  // Values that nothing mentions any more go too: ids are renumbered in their old order.
  Graph result;
  result.set_bucket(g.bucket());
  std::vector<std::uint32_t> id(g.values().size(), 0);
  for (std::uint32_t v = 0; v < id.size(); ++v) {
    if (needed[v]) id[v] = result.add_value(g.info(v));
  }
  for (Node& n : kept) {
    for (std::uint32_t& v : n.in) v = id[v];
    for (std::uint32_t& v : n.out) v = id[v];
    result.add_node(std::move(n));
  }
  std::vector<std::uint32_t> outputs;
  for (std::uint32_t v : g.outputs()) outputs.push_back(id[v]);
  result.set_outputs(std::move(outputs));
  return result;
}

}  // namespace llm
