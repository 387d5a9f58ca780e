#include "backend/host/legalize.h"

#include <utility>
#include <variant>

#include "tensor/dtype.h"

namespace llm::host {

Graph quantize_activations(Graph graph) {
  const auto format = [&](std::uint32_t weight) { return info(graph.info(weight).type.dtype).activation; };
  for (Node& node : graph.mutable_nodes()) {
    if (auto* linear = std::get_if<Linear>(&node.op)) {
      for (std::size_t i = 0; i < linear->products.size(); ++i) linear->products[i].activation = format(node.in[1 + i]);
    } else if (auto* experts = std::get_if<ExpertLinear>(&node.op)) {
      for (std::size_t i = 0; i < experts->activations.size(); ++i) experts->activations[i] = format(node.in[2 + i]);
    }
  }
  return graph;
}

}  // namespace llm::host
