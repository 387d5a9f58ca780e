// What a graph is made of, for tests that say what a family's graph must have.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "graph/graph.h"

namespace llm::test {

template <class T>
std::vector<T> all(const Graph& graph) {
  std::vector<T> out;
  for (const Node& n : graph.nodes())
    if (const T* op = std::get_if<T>(&n.op)) out.push_back(*op);
  return out;
}

inline std::vector<std::string> producers(const Graph& graph, const std::string& value) {
  for (const Node& n : graph.nodes()) {
    if (graph.info(n.out[0]).name != value) continue;
    std::vector<std::string> in;
    for (const std::uint32_t id : n.in) in.push_back(graph.info(id).name);
    return in;
  }
  return {};
}

inline std::set<std::string> weights(const Graph& graph) {
  std::set<std::string> out;
  for (const ValueInfo& v : graph.values())
    if (v.kind == ValueKind::Weight) out.insert(v.name);
  return out;
}

}  // namespace llm::test
