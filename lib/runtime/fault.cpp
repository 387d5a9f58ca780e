#include "runtime/fault.h"

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "runtime/screening.h"

namespace llm {
namespace {

const Node* producer(const Graph& graph, std::string_view value, std::size_t& output) {
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.out.size(); ++i) {
      if (graph.info(node.out[i]).name != value) continue;
      output = i;
      return &node;
    }
  }
  return nullptr;
}

std::vector<std::string> weights_read(const Graph& graph, const Node& node, std::size_t output) {
  std::vector<std::string> names;
  for (const std::uint32_t id : node.in) {
    if (graph.info(id).kind == ValueKind::Weight) names.push_back(graph.info(id).name);
  }
  // Of several products that share their input, the one that failed. Biases follow the weights.
  const bool product = std::holds_alternative<Linear>(node.op) || std::holds_alternative<ExpertLinear>(node.op);
  if (product && output < names.size()) return {names[output]};
  return names;
}

}  // namespace

void FirstBadValue::value(std::string_view name, const TensorView& view) {
  if (!name_.empty() || view.type.dtype != DType::F32) return;
  const auto* values = reinterpret_cast<const float*>(view.data);
  const Shape& shape = view.type.shape;
  const auto bad = first_non_finite({values, static_cast<std::size_t>(shape.elements())});
  if (!bad) return;
  name_ = name;
  rows_ = shape[shape.n_dims() - 1];
  row_ = *bad / static_cast<std::size_t>(shape.elements() / rows_);
}

std::optional<std::size_t> FirstBadValue::row_of(std::int64_t tokens) const {
  return !name_.empty() && rows_ == tokens ? std::optional(row_) : std::nullopt;
}

std::string FirstBadValue::explain(const Graph& graph) const {
  if (name_.empty()) return {};
  std::string text = "first bad value \"" + escaped(name_) + "\"";
  std::size_t output = 0;
  const Node* node = producer(graph, name_, output);
  if (node == nullptr) return text;
  const auto weights = weights_read(graph, *node, output);
  for (std::size_t i = 0; i < weights.size(); ++i)
    text += (i == 0 ? ", computed from " : " and ") + tensor_subject(weights[i]);
  return text;
}

}  // namespace llm
