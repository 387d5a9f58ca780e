#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace llm {
namespace {

/// The first norm with one weight for all rows that reads a node's sum, or kNone. One that is sent somewhere by its
/// weight's name may run elsewhere.
std::size_t norm_of_sum(const Graph& g, const Uses& uses, const Node& add) {
  for (std::size_t i : uses.consumers[add.out[0]]) {
    const Node& n = g.nodes()[i];
    const bool has_weight = std::holds_alternative<RmsNorm>(n.op) && n.in.size() == 2;
    if (has_weight && g.info(n.in[1]).type.shape.n_dims() == 1 && n.tensor_override == add.tensor_override) return i;
  }
  return Uses::kNone;
}

}  // namespace

Graph fuse_add_norm(const Graph& g) {
  const Uses uses(g);
  std::vector<bool> gone(g.nodes().size(), false);
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.nodes()[i];
    if (gone[i]) continue;
    const std::size_t norm_index = std::holds_alternative<Add>(n.op) ? norm_of_sum(g, uses, n) : Uses::kNone;
    if (norm_index == Uses::kNone) {
      nodes.push_back(n);
      continue;
    }
    const Node& norm = g.nodes()[norm_index];
    gone[norm_index] = true;
    Node fused = n;  // the norm's other operand is a weight, so it can move up to the addition
    fused.op = AddRmsNorm{std::get<RmsNorm>(norm.op).eps};
    fused.in.push_back(norm.in[1]);
    fused.out.push_back(norm.out[0]);
    nodes.push_back(std::move(fused));
  }
  return with_nodes(g, std::move(nodes));
}

}  // namespace llm
