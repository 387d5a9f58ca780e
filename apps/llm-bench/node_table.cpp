#include "node_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/messages.h"

namespace llm::bench {
namespace {

/// Of the op and of the reading, what takes longest at the limits.
void set_limit(NodeFigures& f, Bound arithmetic, const Limits& limits) {
  double longest = 0;
  const auto add = [&](Bound bound, std::uint64_t amount) {
    const auto limit = limit_of(limits, bound);
    const double seconds = limit ? static_cast<double>(amount) / *limit : 0;
    if (seconds > longest) f.bound = bound;
    longest = std::max(longest, seconds);
  };
  add(Bound::ReadBandwidth, f.sum.bytes);
  add(arithmetic, f.sum.operations);
  if (longest > 0 && f.sum.seconds > 0) f.share_of_limit = longest / f.sum.seconds;
}

double total_seconds(const std::vector<NodeFigures>& all) {
  double seconds = 0;
  for (const NodeFigures& f : all) seconds += f.sum.seconds;
  return seconds;
}

double rate(std::uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds * 1e-9 : 0;
}

}  // namespace

NodeTimes::NodeTimes(const Model& model) {
  const Graph graph = model.graph(Bucket{});
  for (const Node& node : graph.nodes()) {
    for (const ProductOperands& p : product_operands(node.op)) {
      const DType type = graph.info(node.in[p.weight]).type.dtype;
      arithmetic_[app::without_layer(graph.info(node.out[0]).name, node.layer)] =
          arithmetic_of(type, model.backend().name());
    }
  }
}

std::vector<NodeFigures> NodeTimes::figures(const Limits& limits) const {
  const auto seconds_of_op = [](const app::NodeSums& nodes) {
    double seconds = 0;
    for (const auto& [name, sum] : nodes) seconds += sum.seconds;
    return seconds;
  };
  std::vector<NodeFigures> all;
  for (const auto op : app::slowest_first(sums_, seconds_of_op)) {
    for (const auto node : app::slowest_first(op->second, [](const app::NodeSum& s) { return s.seconds; })) {
      NodeFigures& f = all.emplace_back(NodeFigures{.op = op->first, .node = node->first, .sum = node->second});
      const auto found = arithmetic_.find(f.node);
      set_limit(f, found == arithmetic_.end() ? Bound::F32Peak : found->second, limits);
    }
  }
  return all;
}

std::string markdown(const std::string& test, const std::vector<NodeFigures>& all) {
  std::string text = "\n| " + test +
                     ": op | node | calls | ms | % of time | GB/s | GOP/s | % of limit | limit |\n"
                     "|---|---|---:|---:|---:|---:|---:|---:|---|\n";
  const double total = total_seconds(all);
  for (const NodeFigures& f : all) {
    const double seconds = f.sum.seconds;
    text += "| " + f.op + " | " + escaped(f.node) + " | " + std::to_string(f.sum.calls) + " | " +
            fixed_text(seconds * 1e3, 2) + " | " + fixed_text(100 * seconds / std::max(total, 1e-12), 1) + " | " +
            fixed_text(rate(f.sum.bytes, seconds), 1) + " | " + fixed_text(rate(f.sum.operations, seconds), 1) + " | " +
            (f.share_of_limit ? fixed_text(100 * *f.share_of_limit, 1) + " | " + std::string(name(f.bound)) : "- | -") +
            " |\n";
  }
  return text;
}

nlohmann::ordered_json json(const std::vector<NodeFigures>& all) {
  auto list = nlohmann::ordered_json::array();
  for (const NodeFigures& f : all) {
    nlohmann::ordered_json j;
    j["op"] = f.op;
    j["node"] = f.node;
    j["calls"] = f.sum.calls;
    j["seconds"] = f.sum.seconds;
    j["bytes"] = f.sum.bytes;
    j["operations"] = f.sum.operations;
    j["pct_of_limit"] = f.share_of_limit ? nlohmann::ordered_json(100 * *f.share_of_limit) : nlohmann::ordered_json();
    j["limit"] = f.share_of_limit ? nlohmann::ordered_json(name(f.bound)) : nlohmann::ordered_json();
    list.push_back(std::move(j));
  }
  return list;
}

}  // namespace llm::bench
