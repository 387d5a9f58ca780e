#include "graph/partition.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "graph/passes/rewrite.h"

namespace llm {
namespace {

bool matches(const PlacementRule& rule, const Graph& g, const Node& n) {
  if (rule.first_layer && n.layer < *rule.first_layer) return false;
  if (rule.last_layer && n.layer > *rule.last_layer) return false;
  if (rule.role && n.role != *rule.role) return false;
  if (rule.tensor_pattern.empty()) return true;
  return std::any_of(n.in.begin(), n.in.end(), [&](std::uint32_t v) {
    return g.info(v).kind == ValueKind::Weight && fnmatch(rule.tensor_pattern.c_str(), g.info(v).name.c_str(), 0) == 0;
  });
}

}  // namespace

int backend_of(const Graph& g, const Node& n, std::span<const PlacementRule> rules) {
  int backend = 0;
  for (const PlacementRule& rule : rules) {
    if (matches(rule, g, n)) backend = rule.backend;
  }
  return backend;
}

Graph with_fleeting_caches(const Graph& graph, int layers) {
  Graph g = graph;
  for (ValueInfo& v : g.mutable_values()) {
    if (v.kind == ValueKind::State) v.cache.fleeting = v.cache.layer < layers;
  }
  return g;
}

Graph cut(const Graph& g, std::size_t begin, std::size_t end) {
  const Uses uses(g);
  Graph part;
  part.set_bucket(g.bucket());
  std::vector<std::uint32_t> id(g.values().size(), ~0u);
  auto local = [&](std::uint32_t v) {
    if (id[v] == ~0u) {
      ValueInfo info = g.info(v);
      const std::size_t p = uses.producer[v];
      const bool from_outside = info.kind == ValueKind::Result && (p < begin || p >= end);
      if (from_outside) info.kind = ValueKind::Input;
      id[v] = part.add_value(std::move(info));
    }
    return id[v];
  };
  std::vector<std::uint32_t> outputs;
  for (std::size_t i = begin; i < end; ++i) {
    Node n = g.nodes()[i];
    for (std::uint32_t& v : n.in) v = local(v);
    for (std::uint32_t& v : n.out) {
      const bool needed = g.info(v).kind == ValueKind::Result &&
                          (uses.output[v] || (!uses.consumers[v].empty() && uses.consumers[v].back() >= end));
      v = local(v);
      if (needed) outputs.push_back(v);
    }
    part.add_node(std::move(n));
  }
  part.set_outputs(std::move(outputs));
  return part;
}

std::vector<Segment> partition(const Graph& g, std::span<const PlacementRule> rules) {
  std::vector<Segment> segments;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const int backend = backend_of(g, g.nodes()[i], rules);
    const bool last = i + 1 == g.nodes().size();
    if (last || backend_of(g, g.nodes()[i + 1], rules) != backend) {
      segments.push_back({backend, cut(g, begin, i + 1)});
      begin = i + 1;
    }
  }
  return segments;
}

}  // namespace llm
