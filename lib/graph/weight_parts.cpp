#include "graph/weight_parts.h"

#include <variant>

namespace llm {

WeightParts weight_parts(const Graph& g, const Node& node, std::uint32_t weight) {
  const TensorType& type = g.info(weight).type;
  const bool table = std::holds_alternative<Embed>(node.op);
  if (!table && !std::holds_alternative<ExpertLinear>(node.op)) return {.bytes = type.bytes()};
  const Shape& ids = g.info(node.in[1]).type.shape;  // of every token one, or [ids, tokens]
  const std::int64_t n = type.shape[std::max(type.shape.n_dims() - 1, 0)];
  return {.n = n,
          .bytes = type.bytes() / static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1)),
          .uses = ids.n_dims() > 1 ? ids[0] : 1};
}

}  // namespace llm
