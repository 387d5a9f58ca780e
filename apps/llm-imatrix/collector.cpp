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

Collector::Collector(const Graph& graph, const TensorIndex& tensors, LastProduct last) {
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Linear>(node.op)) watch_linear(graph, node, last);
    if (std::holds_alternative<ExpertLinear>(node.op)) watch_experts(graph, tensors, node);
  }
}

Collector::Sums& Collector::sums_of(const ValueInfo& weight, std::int64_t matrices) {
  const std::string tensor(tensor_of(weight.name));
  const auto [found, is_new] = sums_.try_emplace(tensor);
  Sums& s = found->second;
  if (is_new) {
    s.width = weight.type.shape[0];
    s.sums.resize(static_cast<std::size_t>(s.width * matrices));
    s.counts.resize(static_cast<std::size_t>(matrices));
  }
  check(s.width == weight.type.shape[0] && std::ssize(s.counts) == matrices, "products with a tensor see it alike");
  return s;
}

void Collector::watch_linear(const Graph& graph, const Node& node, LastProduct last) {
  for (const ProductOperands& operands : product_operands(node.op)) {
    const ValueInfo& weight = graph.info(node.in[operands.weight]);
    if (!is_of_a_layer(weight.name) && last == LastProduct::Leave) continue;
    std::vector<Sums*>& add = seen_[graph.info(node.in[0]).name].add;
    Sums& sums = sums_of(weight, 1);
    if (std::ranges::find(add, &sums) == add.end()) add.push_back(&sums);  // rows of one tensor: once
  }
}

void Collector::watch_experts(const Graph& graph, const TensorIndex& tensors, const Node& node) {
  Routed routed{.x = graph.info(node.in[0]).name, .ids = graph.info(node.in[1]).name};
  for (const ProductOperands& operands : product_operands(node.op)) {
    const ValueInfo& weight = graph.info(node.in[operands.weight]);
    // Groups of the rows of what is one matrix in the file share its sums.
    routed.sums.push_back(&sums_of(weight, tensors.find(tensor_of(weight.name))->type.shape[2]));
  }
  seen_[routed.x].keep = true;
  seen_[routed.ids].keep = true;
  seen_[graph.info(node.out[0]).name].routed.push_back(std::move(routed));
}

void Collector::value(std::string_view value_name, const TensorView& view) {
  const std::string name(value_name);
  const Seen& seen = seen_.at(name);
  for (Sums* const sums : seen.add)
    add_rows(*sums, reinterpret_cast<const float*>(view.data), view.type.shape.elements() / sums->width);
  if (seen.keep) kept_[name] = {view.type, {view.data, view.data + view.type.bytes()}};
  for (const Routed& routed : seen.routed) {
    for (Sums* const sums : routed.sums) add_routed(*sums, kept_.at(routed.x), kept_.at(routed.ids));
  }
}

void Collector::add_rows(Sums& s, const float* x, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row) add_squares(x + row * s.width, s.width, s.sums.data());
  s.counts[0] += rows;
}

/// x is [k, tokens], the same for all experts of a token, or [k, top_k, tokens].
void Collector::add_routed(Sums& s, const Kept& x, const Kept& ids) {
  const std::int64_t top_k = ids.type.shape[0], tokens = ids.type.shape[1];
  const bool one_each = x.type.shape.elements() == s.width * top_k * tokens;
  check(one_each || x.type.shape.elements() == s.width * tokens,
        "a row of the input for each token, or for each route");
  const auto* rows = reinterpret_cast<const float*>(x.data.data());
  const auto* chosen = reinterpret_cast<const std::int32_t*>(ids.data.data());
  for (std::int64_t route = 0; route < top_k * tokens; ++route) {
    const std::int64_t expert = s.counts.size() == 1 ? 0 : chosen[route];
    check(0 <= expert && expert < std::ssize(s.counts), "an expert that there is");
    const std::int64_t row = one_each ? route : route / top_k;
    add_squares(rows + row * s.width, s.width, s.sums.data() + expert * s.width);
    s.counts[static_cast<std::size_t>(expert)] += 1;
  }
}

std::vector<ImportanceEntry> Collector::entries() const {
  std::vector<ImportanceEntry> entries;
  for (const auto& [tensor, s] : sums_) {
    ImportanceEntry e{.tensor = tensor, .sums = {}, .counts = s.counts};
    for (const double sum : s.sums) e.sums.push_back(static_cast<float>(sum));
    if (!std::ranges::all_of(e.sums, [](float v) { return std::isfinite(v); }))
      throw Error(ErrorKind::Numeric,
                  ErrorParts{.file = {},
                             .subject = tensor_subject(tensor),
                             .problem = "the squares of what enters it do not add up to a finite number"});
    entries.push_back(std::move(e));
  }
  return entries;
}

}  // namespace llm::importance
