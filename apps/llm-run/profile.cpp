#include "profile.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace llm::app {
namespace {

/// "blk.3.ffn_norm" -> "blk.*.ffn_norm"
std::string without_layer(std::string_view name, int layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  if (layer < 0 || !name.starts_with(prefix)) return std::string(name);
  return "blk.*." + std::string(name.substr(prefix.size()));
}

template <class Map, class Seconds>
std::vector<typename Map::const_iterator> slowest_first(const Map& map, Seconds seconds) {
  std::vector<typename Map::const_iterator> order;
  for (auto it = map.begin(); it != map.end(); ++it) order.push_back(it);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return seconds(a->second) > seconds(b->second); });
  return order;
}

}  // namespace

void Profile::Sum::add(const Sum& s) {
  calls += s.calls;
  bytes += s.bytes;
  operations += s.operations;
  seconds += s.seconds;
}

void Profile::timing(const StepTiming& t) {
  parts_.back().second[std::string(t.op)][without_layer(t.value, t.layer)].add(
      {.calls = 1, .bytes = t.bytes, .operations = t.operations, .seconds = t.seconds});
}

std::string Profile::line(const std::string& name, const Sum& s, double total) {
  const double seconds = std::max(s.seconds, 1e-12);
  char text[160];
  std::snprintf(text, sizeof text, "%-34.34s %8llu %10.2f ms %5.1f%% %9.2f GB/s %9.1f GOP/s\n", name.c_str(),
                static_cast<unsigned long long>(s.calls), s.seconds * 1e3, s.seconds / std::max(total, 1e-12) * 100,
                static_cast<double>(s.bytes) / seconds * 1e-9, static_cast<double>(s.operations) / seconds * 1e-9);
  return text;
}

std::string Profile::part_table(const Ops& ops) {
  std::map<std::string, Sum> sums;
  Sum all;
  for (const auto& [op, nodes] : ops) {
    for (const auto& [name, sum] : nodes) sums[op].add(sum);
    all.add(sums[op]);
  }
  const auto seconds = [](const Sum& s) { return s.seconds; };
  std::string text;
  for (const auto op : slowest_first(sums, seconds)) {
    text += line(op->first, op->second, all.seconds);
    const Nodes& nodes = ops.at(op->first);
    for (const auto node : slowest_first(nodes, seconds)) text += line("  " + node->first, node->second, all.seconds);
  }
  return text + line("all", all, all.seconds);
}

std::string Profile::table() const {
  std::string text;
  for (const auto& [part, ops] : parts_)
    text += "profile: " + part + " (calls, time, share, memory traffic, arithmetic)\n" + part_table(ops);
  if (text.ends_with('\n')) text.pop_back();  // it is said as one message
  return text;
}

}  // namespace llm::app
