#include "graph/needs.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace llm {
namespace {

/// Can `b`, a later node, run at the place of `a` as one node with it? Besides their shared inputs both read weights
/// only.
bool can_merge(const Node& a, const Node& b) {
  if (a.op.index() != b.op.index() || a.layer != b.layer || a.role != b.role || a.in[0] != b.in[0]) return false;
  if (a.tensor_override != b.tensor_override) return false;  // perhaps on another backend
  if (std::holds_alternative<Linear>(a.op)) return true;
  return std::holds_alternative<ExpertLinear>(a.op) && a.in[1] == b.in[1];
}

/// Operands are what is shared, weights, biases, scales: the lists of each are joined.
void merge(Node& a, const Node& b) {
  const auto of_a = product_operands(a.op), of_b = product_operands(b.op);
  std::vector<std::uint32_t> in(a.in.begin(), a.in.begin() + static_cast<std::ptrdiff_t>(of_a[0].weight));
  for (const auto part : {&ProductOperands::weight, &ProductOperands::bias, &ProductOperands::scale}) {
    for (const ProductOperands& p : of_a)
      if (p.*part != 0) in.push_back(a.in[p.*part]);
    for (const ProductOperands& p : of_b)
      if (p.*part != 0) in.push_back(b.in[p.*part]);
  }
  a.in = std::move(in);
  const auto more = products(b.op);
  const auto append = [&](auto& op) { op.products.insert(op.products.end(), more.begin(), more.end()); };
  if (auto* linear = std::get_if<Linear>(&a.op)) append(*linear);
  if (auto* experts = std::get_if<ExpertLinear>(&a.op)) append(*experts);
  a.out.insert(a.out.end(), b.out.begin(), b.out.end());
}

}  // namespace

Graph merge_linears(const Graph& g) {
  const Uses uses(g);
  const std::vector<std::int32_t> needed = needed_from(g);  // what a step may leave out stays apart
  std::vector<bool> gone(g.nodes().size(), false);
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    if (gone[i]) continue;
    Node n = g.nodes()[i];
    if (!products(n.op).empty()) {
      for (std::size_t j : uses.consumers[n.in[0]]) {
        if (j <= i || gone[j] || needed[j] != needed[i] || !can_merge(n, g.nodes()[j])) continue;
        gone[j] = true;
        merge(n, g.nodes()[j]);
      }
    }
    nodes.push_back(std::move(n));
  }
  return with_nodes(g, std::move(nodes));
}

}  // namespace llm
