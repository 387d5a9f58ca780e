#include "graph/partition.h"

#include <fnmatch.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "graph/passes/rewrite.h"

namespace llm {
namespace {

/// From the split into heads to attention: of Role::Attention alone, experts' results have three dimensions, too.
bool is_of_heads(const Graph& g, const Node& n) {
  return n.role == Role::Attention && std::all_of(n.out.begin(), n.out.end(), [&](std::uint32_t v) {
           return g.info(v).kind == ValueKind::State || g.info(v).type.shape.n_dims() == 3;
         });
}

bool writes_kept_cache(const Graph& g, const Node& n) {
  return std::any_of(n.out.begin(), n.out.end(),
                     [&](std::uint32_t v) { return g.info(v).kind == ValueKind::State && !g.info(v).cache.fleeting; });
}

/// A second value like a state, for a fleeting cache.
std::uint32_t add_fleeting(Graph& g, std::uint32_t state) {
  ValueInfo info = g.info(state);
  info.name += ".fleeting";
  info.cache.fleeting = true;
  return g.add_value(std::move(info));
}

bool matches(const PlacementRule& rule, const Graph& g, const Node& n) {
  if (rule.first_layer && n.layer < *rule.first_layer) return false;
  if (rule.last_layer && n.layer > *rule.last_layer) return false;
  if (rule.role && n.role != *rule.role) return false;
  if (rule.only == PlacementRule::Only::Heads && !is_of_heads(g, n)) return false;
  if (rule.only == PlacementRule::Only::Kept && !writes_kept_cache(g, n)) return false;
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
  std::vector<Node> nodes;
  std::unordered_set<std::uint32_t> reshaped;
  std::unordered_map<std::uint32_t, std::uint32_t> fleeting;  // by the state that attention would read
  const auto append_twice = [&](Node append) {
    Node kept = append;
    // What crosses to another segment has bytes of its own, which a reshape has not.
    for (const std::size_t i : {0u, 1u}) {
      if (!reshaped.contains(kept.in[i])) continue;
      ValueInfo copy = g.info(kept.in[i]);
      copy.name += ".kept";
      const std::uint32_t id = g.add_value(std::move(copy));
      nodes.push_back({.op = Scale{1}, .in = {kept.in[i]}, .out = {id}, .layer = kept.layer, .role = kept.role});
      kept.in[i] = id;
    }
    append.in[2] = add_fleeting(g, append.in[2]);
    append.out[0] = fleeting[append.out[0]] = add_fleeting(g, append.out[0]);
    nodes.push_back(std::move(append));
    nodes.push_back(std::move(kept));
  };
  for (Node node : graph.nodes()) {
    const bool wanted = node.layer >= 0 && node.layer < layers;
    if (std::holds_alternative<Reshape>(node.op)) reshaped.insert(node.out[0]);
    if (wanted && std::holds_alternative<KvAppend>(node.op)) {
      append_twice(std::move(node));
      continue;
    }
    if (wanted && std::holds_alternative<Attention>(node.op)) node.in[1] = fleeting.at(node.in[1]);
    nodes.push_back(std::move(node));
  }
  g.mutable_nodes() = std::move(nodes);
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
