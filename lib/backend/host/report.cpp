#include "backend/host/report.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "backend/host/cost.h"

namespace llm::host {
namespace {

TensorType type_in_step(const ValueInfo& v, const StepRows& rows) {
  if (v.rows == RowSpace::None) return v.type;
  TensorType type{v.type.dtype, {}};
  for (int d = 0; d + 1 < v.type.shape.n_dims(); ++d) type.shape.push_back(v.type.shape[d]);
  type.shape.push_back(rows.count(v.rows));
  return type;
}

}  // namespace

void report(Observer& observer, const Graph& g, const Node& n, const StepData& step, const StepRows& rows,
            CacheFormat format, double seconds, const DataOf& data) {
  if (observer.wants_timings()) {
    const auto* const experts =
        std::holds_alternative<ExpertLinear>(n.op) ? reinterpret_cast<const std::int32_t*>(data(n.in[1])) : nullptr;
    const NodeCost cost = node_cost(g, n, step, rows, format, experts);
    observer.timing({name(n.op), g.info(n.out[0]).name, n.layer, seconds, cost.bytes, cost.operations});
  }
  for (const std::uint32_t id : n.out) {
    const ValueInfo& v = g.info(id);
    if (outlives_step(v.kind) || !observer.wants_value(v.name)) continue;
    observer.value(v.name, {type_in_step(v, rows), data(id)});
  }
}

std::string counted_lines(std::span<const std::string> lines) {
  std::vector<std::pair<std::string_view, int>> counts;
  for (const std::string& line : lines) {
    const auto found = std::ranges::find(counts, line, &std::pair<std::string_view, int>::first);
    if (found == counts.end())
      counts.emplace_back(line, 1);
    else
      ++found->second;
  }
  std::string text;
  for (const auto& [line, count] : counts) text += std::to_string(count) + " x " + std::string(line) + "\n";
  return text;
}

}  // namespace llm::host
