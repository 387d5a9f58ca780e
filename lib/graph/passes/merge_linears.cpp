#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace llm {
namespace {

/// Can `b`, a later node, run at the place of `a` as one node with it? Besides their shared inputs both read weights
/// only.
bool can_merge(const Node& a, const Node& b) {
  if (a.op.index() != b.op.index() || a.layer != b.layer || a.role != b.role || a.in[0] != b.in[0]) return false;
  if (std::holds_alternative<Linear>(a.op)) return true;
  return std::holds_alternative<ExpertLinear>(a.op) && a.in[1] == b.in[1];
}

/// Operands are x, weights, biases: both lists of weights and both lists of biases are joined.
void merge_linear(Node& a, const Node& b) {
  auto& products = std::get<Linear>(a.op).products;
  const auto& more = std::get<Linear>(b.op).products;
  const auto n = static_cast<std::ptrdiff_t>(products.size()), m = static_cast<std::ptrdiff_t>(more.size());
  a.in.insert(a.in.begin() + 1 + n, b.in.begin() + 1, b.in.begin() + 1 + m);
  a.in.insert(a.in.end(), b.in.begin() + 1 + m, b.in.end());
  products.insert(products.end(), more.begin(), more.end());
}

void merge_expert_linear(Node& a, const Node& b) {
  auto& activations = std::get<ExpertLinear>(a.op).activations;
  const auto& more = std::get<ExpertLinear>(b.op).activations;
  a.in.insert(a.in.end(), b.in.begin() + 2, b.in.end());
  activations.insert(activations.end(), more.begin(), more.end());
}

}  // namespace

Graph merge_linears(const Graph& g) {
  const Uses uses(g);
  std::vector<bool> gone(g.nodes().size(), false);
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    if (gone[i]) continue;
    Node n = g.nodes()[i];
    const bool linear = std::holds_alternative<Linear>(n.op);
    if (linear || std::holds_alternative<ExpertLinear>(n.op)) {
      for (std::size_t j : uses.consumers[n.in[0]]) {
        if (j <= i || gone[j] || !can_merge(n, g.nodes()[j])) continue;
        gone[j] = true;
        linear ? merge_linear(n, g.nodes()[j]) : merge_expert_linear(n, g.nodes()[j]);
        n.out.insert(n.out.end(), g.nodes()[j].out.begin(), g.nodes()[j].out.end());
      }
    }
    nodes.push_back(std::move(n));
  }
  return with_nodes(g, std::move(nodes));
}

}  // namespace llm
