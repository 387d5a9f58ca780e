#include "graph/partition.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "graph/passes/rewrite.h"

namespace llm {
namespace {

bool matches(const PlacementRule& rule, const Node& n) {
  if (rule.first_layer && n.layer < *rule.first_layer) return false;
  if (rule.last_layer && n.layer > *rule.last_layer) return false;
  if (rule.role && n.role != *rule.role) return false;
  return !rule.tensor_override || n.tensor_override == *rule.tensor_override;
}

/// The values that say where a node belongs: of a product its matrices, else all weights.
std::vector<std::uint32_t> deciding_weights(const Graph& g, const Node& n) {
  std::vector<std::uint32_t> weights;
  for (const ProductOperands& p : product_operands(n.op)) weights.push_back(n.in[p.weight]);
  if (!weights.empty()) return weights;
  for (const std::uint32_t v : n.in) {
    if (g.info(v).kind == ValueKind::Weight) weights.push_back(v);
  }
  return weights;
}

/// Nodes that take no longer than bringing what they make; another shape takes nothing.
bool is_made_anew(const Node& n) {
  return std::holds_alternative<RopeTable>(n.op) || std::holds_alternative<PositionScale>(n.op) ||
         std::holds_alternative<Reshape>(n.op);
}

/// By a node at `end` or behind it, perhaps through one that is made anew there.
bool is_used_behind(const Graph& g, const Uses& uses, std::uint32_t v, std::size_t end) {
  return uses.output[v] || std::ranges::any_of(uses.consumers[v], [&](std::size_t c) {
           return c >= end || (is_made_anew(g.nodes()[c]) && is_used_behind(g, uses, g.nodes()[c].out[0], end));
         });
}

/// These nodes as a graph of their own; is_output(v, node) says of each of their results whether it is one of its.
template <class IsOutput>
Graph part_of(const Graph& g, const Uses& uses, std::span<const std::size_t> members, const IsOutput& is_output) {
  std::vector<bool> is_member(g.nodes().size(), false);
  for (const std::size_t i : members) is_member[i] = true;
  Graph part;
  part.set_bucket(g.bucket());
  std::vector<std::uint32_t> id(g.values().size(), ~0u);
  const auto local = [&](std::uint32_t v) {
    if (id[v] == ~0u) {
      ValueInfo info = g.info(v);
      if (info.kind == ValueKind::Result && !is_member[uses.producer[v]]) info.kind = ValueKind::Input;
      id[v] = part.add_value(std::move(info));
    }
    return id[v];
  };
  std::vector<std::uint32_t> outputs;
  for (const std::size_t i : members) {
    Node n = g.nodes()[i];
    for (std::uint32_t& v : n.in) v = local(v);
    for (std::uint32_t& v : n.out) {
      const bool handed_over = g.info(v).kind == ValueKind::Result && is_output(v, i);
      v = local(v);
      if (handed_over) outputs.push_back(v);
    }
    part.add_node(std::move(n));
  }
  part.set_outputs(std::move(outputs));
  return part;
}

/// Nodes [begin, end) but those whose results they do not use and anybody can make, and before them those that they use
/// of the nodes before.
std::vector<std::size_t> members_of(const Graph& g, const Uses& uses, std::size_t begin, std::size_t end) {
  std::set<std::size_t> members;
  std::vector<std::size_t> wanted;
  for (std::size_t i = begin; i < end; ++i) {
    if (!is_made_anew(g.nodes()[i]) || uses.output[g.nodes()[i].out[0]]) wanted.push_back(i);
  }
  while (!wanted.empty()) {
    const std::size_t i = wanted.back();
    wanted.pop_back();
    if (!members.insert(i).second) continue;
    for (const std::uint32_t v : g.nodes()[i].in) {
      const std::size_t p = uses.producer[v];
      if (p != Uses::kNone && is_made_anew(g.nodes()[p])) wanted.push_back(p);
    }
  }
  return {members.begin(), members.end()};
}

Segment segment_of(const Graph& g, const Uses& uses, int backend, std::size_t begin, std::size_t end) {
  Segment s{.backend = backend, .graph = {}, .nodes = members_of(g, uses, begin, end)};
  s.graph = part_of(g, uses, s.nodes, [&](std::uint32_t v, std::size_t node) {
    return is_made_anew(g.nodes()[node]) ? uses.output[v] && node >= begin : is_used_behind(g, uses, v, end);
  });
  return s;
}

}  // namespace

void mark_overrides(Graph& g, const OverriddenWeights& overridden) {
  if (overridden.empty()) return;  // every graph of a model comes here
  const Uses uses(g);
  for (Node& n : g.mutable_nodes()) {
    if (std::ranges::any_of(n.in, [&](std::uint32_t v) { return g.info(v).kind == ValueKind::Cache; })) continue;
    const std::vector<std::uint32_t> weights = deciding_weights(g, n);
    for (const std::uint32_t v : weights) {
      const auto found = overridden.find(g.info(v).name);
      if (found != overridden.end()) n.tensor_override = static_cast<std::int16_t>(found->second);
    }
    const bool joins = n.role == Role::Experts || (n.role == Role::Ffn && !std::holds_alternative<Add>(n.op));
    if (!weights.empty() || !joins) continue;
    for (const std::uint32_t v : n.in) {
      const std::size_t before = uses.producer[v];
      if (before != Uses::kNone && g.nodes()[before].tensor_override >= 0)
        n.tensor_override = g.nodes()[before].tensor_override;
    }
  }
}

int backend_of(const Node& n, std::span<const PlacementRule> rules) {
  int backend = 0;
  for (const PlacementRule& rule : rules) {
    if (matches(rule, n)) backend = rule.backend;
  }
  return backend;
}

std::optional<int> earlier_cache(const Graph& g, const Node& n) {
  if (!std::holds_alternative<Attention>(n.op)) return std::nullopt;
  const int layer = g.info(n.in[1]).cache.layer;
  return layer == n.layer ? std::nullopt : std::optional(layer);
}

std::optional<int> cache_elsewhere(const Graph& g, const Node& n, std::span<const PlacementRule> rules) {
  const std::optional<int> layer = earlier_cache(g, n);
  if (!layer) return std::nullopt;
  const auto nodes = g.nodes();
  const auto append = std::ranges::find_if(
      nodes, [&](const Node& a) { return std::holds_alternative<KvAppend>(a.op) && a.out[0] == n.in[1]; });
  return append != nodes.end() && backend_of(*append, rules) != backend_of(n, rules) ? layer : std::nullopt;
}

Graph with_fleeting_caches(const Graph& graph, int layers) {
  Graph g = graph;
  std::set<int> fleeting;
  for (const ValueInfo& v : g.values()) {
    if (v.kind == ValueKind::Cache && v.cache.layer < layers) fleeting.insert(v.cache.layer);
  }
  for (ValueInfo& v : g.mutable_values()) {
    const auto layer = v.kind == ValueKind::Cache ? fleeting.find(v.cache.layer) : fleeting.end();
    if (layer != fleeting.end())
      v.cache.place = static_cast<int>(std::distance(fleeting.begin(), layer) % CacheType::kPlaces);
  }
  return g;
}

Graph cut(const Graph& g, std::size_t begin, std::size_t end) {
  const Uses uses(g);
  std::vector<std::size_t> members(end - begin);
  std::iota(members.begin(), members.end(), begin);
  return part_of(g, uses, members, [&](std::uint32_t v, std::size_t) { return is_used_behind(g, uses, v, end); });
}

std::vector<Segment> partition(const Graph& g, std::span<const PlacementRule> rules) {
  const Uses uses(g);
  std::vector<Segment> segments;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const int backend = backend_of(g.nodes()[i], rules);
    const bool last = i + 1 == g.nodes().size();
    if (last || backend_of(g.nodes()[i + 1], rules) != backend) {
      Segment s = segment_of(g, uses, backend, begin, i + 1);
      if (!s.nodes.empty()) segments.push_back(std::move(s));
      begin = i + 1;
    }
  }
  return segments;
}

}  // namespace llm
