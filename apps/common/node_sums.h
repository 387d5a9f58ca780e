// What the nodes of a run took: those of all layers that do the same, together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace llm::app {

struct NodeSum {
  std::uint64_t calls = 0, bytes = 0, operations = 0;
  double seconds = 0;
  void add(const NodeSum&);
};
using NodeSums = std::map<std::string, NodeSum>;  ///< by the name of the first result, see without_layer()
using OpSums = std::map<std::string, NodeSums>;

/// "blk.3.ffn_norm" -> "blk.*.ffn_norm"
std::string without_layer(std::string_view name, int layer);
void add_timing(OpSums&, const StepTiming&);

/// Entries of a map, those first of which `seconds` says the most.
template <class Map, class Seconds>
std::vector<typename Map::const_iterator> slowest_first(const Map& map, Seconds seconds) {
  std::vector<typename Map::const_iterator> order;
  for (auto it = map.begin(); it != map.end(); ++it) order.push_back(it);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return seconds(a->second) > seconds(b->second); });
  return order;
}

}  // namespace llm::app
