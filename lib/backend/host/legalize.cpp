#include "backend/host/legalize.h"

#include <utility>
#include <variant>

#include "tensor/dtype.h"

namespace llm::host {

Graph quantize_activations(Graph graph) {
  const auto format = [&](std::uint32_t weight) { return info(graph.info(weight).type.dtype).activation; };
  for (Node& node : graph.mutable_nodes()) {
    const auto operands = product_operands(node.op);
    for (std::size_t i = 0; i < operands.size(); ++i)
      products(node.op)[i].activation = format(node.in[operands[i].weight]);
    if (auto* attention = std::get_if<Attention>(&node.op)) attention->query = ActFormat::Q8x32;
    if (auto* attention = std::get_if<CompressedAttention>(&node.op)) attention->query = ActFormat::Q8x32;
    if (auto* selection = std::get_if<SelectKeys>(&node.op)) selection->query = ActFormat::Q8x32;
    if (auto* selection = std::get_if<SelectBlocks>(&node.op)) selection->query = ActFormat::Q8x32;
  }
  return graph;
}

}  // namespace llm::host
