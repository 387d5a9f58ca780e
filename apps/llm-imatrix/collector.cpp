#include "collector.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "base/error.h"
#include "model/stored_weight.h"

namespace llm::importance {
namespace {

/// Matrices of the layers; of the others only the last is multiplied with.
bool is_of_a_layer(std::string_view weight) { return weight.starts_with("blk."); }

void add_squares(const float* x, std::int64_t n, double* sums) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
}

}  // namespace

Collector::Collector(const Graph& graph, LastProduct last) {
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Linear>(node.op)) watch_linear(graph, node, last);
    if (std::holds_alternative<ExpertLinear>(node.op)) watch_experts(graph, node);
  }
}

void Collector::watch_linear(const Graph& graph, const Node& node, LastProduct last) {
  Product p{.x = graph.info(node.in[0]).name};
  for (const ProductOperands& operands : product_operands(node.op)) {
    const ValueInfo& weight = graph.info(node.in[operands.weight]);
    if (!is_of_a_layer(weight.name) && last == LastProduct::Leave) continue;
    const std::string tensor(tensor_of(weight.name));
    if (std::ranges::find(p.weights, tensor) == p.weights.end()) p.weights.push_back(tensor);  // rows of one: once
    p.width = weight.type.shape[0];
  }
  if (p.weights.empty()) return;
  p.sums.resize(static_cast<std::size_t>(p.width));
  p.counts.resize(1);
  seen_[p.x].add.push_back(products_.size());
  products_.push_back(std::move(p));
}

void Collector::watch_experts(const Graph& graph, const Node& node) {
  Product p{.x = graph.info(node.in[0]).name, .ids = graph.info(node.in[1]).name};
  for (const ProductOperands& operands : product_operands(node.op)) {
    const ValueInfo& weight = graph.info(node.in[operands.weight]);
    p.weights.push_back(weight.name);
    p.width = weight.type.shape[0];
    p.experts = weight.type.shape[2];
  }
  p.sums.resize(static_cast<std::size_t>(p.width * p.experts));
  p.counts.resize(static_cast<std::size_t>(p.experts));
  seen_[p.x].keep = true;
  seen_[p.ids].keep = true;
  seen_[graph.info(node.out[0]).name].routed.push_back(products_.size());
  products_.push_back(std::move(p));
}

void Collector::value(std::string_view value_name, const TensorView& view) {
  const std::string name(value_name);
  const Seen& seen = seen_.at(name);
  for (const std::size_t i : seen.add) {
    Product& p = products_[i];
    add_rows(p, reinterpret_cast<const float*>(view.data), view.type.shape.elements() / p.width);
  }
  if (seen.keep) kept_[name] = {view.type, {view.data, view.data + view.type.bytes()}};
  for (const std::size_t i : seen.routed) add_routed(products_[i]);
}

void Collector::add_rows(Product& p, const float* x, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row) add_squares(x + row * p.width, p.width, p.sums.data());
  p.counts[0] += rows;
}

/// x is [k, tokens], the same for all experts of a token, or [k, top_k, tokens].
void Collector::add_routed(Product& p) {
  const Kept& x = kept_.at(p.x);
  const Kept& ids = kept_.at(p.ids);
  const std::int64_t top_k = ids.type.shape[0], tokens = ids.type.shape[1];
  const bool one_each = x.type.shape.elements() == p.width * top_k * tokens;
  check(one_each || x.type.shape.elements() == p.width * tokens,
        "a row of the input for each token, or for each route");
  const auto* rows = reinterpret_cast<const float*>(x.data.data());
  const auto* chosen = reinterpret_cast<const std::int32_t*>(ids.data.data());
  for (std::int64_t route = 0; route < top_k * tokens; ++route) {
    const std::int64_t expert = chosen[route];
    check(0 <= expert && expert < p.experts, "an expert that there is");
    const std::int64_t row = one_each ? route : route / top_k;
    add_squares(rows + row * p.width, p.width, p.sums.data() + expert * p.width);
    p.counts[static_cast<std::size_t>(expert)] += 1;
  }
}

std::vector<ImportanceEntry> Collector::entries() const {
  std::vector<ImportanceEntry> entries;
  for (const Product& p : products_) {
    ImportanceEntry e{.tensor = {}, .sums = {}, .counts = p.counts};
    for (const double sum : p.sums) e.sums.push_back(static_cast<float>(sum));
    const bool finite = std::ranges::all_of(e.sums, [](float v) { return std::isfinite(v); });
    for (const std::string& weight : p.weights) {
      if (!finite)
        throw Error(ErrorKind::Numeric,
                    ErrorParts{.file = {},
                               .subject = tensor_subject(weight),
                               .problem = "the squares of what enters it do not add up to a finite number"});
      e.tensor = weight;
      entries.push_back(e);
    }
  }
  return entries;
}

}  // namespace llm::importance
