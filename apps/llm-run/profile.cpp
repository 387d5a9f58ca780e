#include "profile.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace llm::app {
namespace {

std::string line(const std::string& name, const NodeSum& s, double total) {
  const double seconds = std::max(s.seconds, 1e-12);
  char text[160];
  std::snprintf(text, sizeof text, "%-34.34s %8llu %10.2f ms %5.1f%% %9.2f GB/s %9.1f GOP/s\n", name.c_str(),
                static_cast<unsigned long long>(s.calls), s.seconds * 1e3, s.seconds / std::max(total, 1e-12) * 100,
                static_cast<double>(s.bytes) / seconds * 1e-9, static_cast<double>(s.operations) / seconds * 1e-9);
  return text;
}

std::string part_table(const OpSums& ops) {
  NodeSums sums;
  NodeSum all;
  for (const auto& [op, nodes] : ops) {
    for (const auto& [name, sum] : nodes) sums[op].add(sum);
    all.add(sums[op]);
  }
  const auto seconds = [](const NodeSum& s) { return s.seconds; };
  std::string text;
  for (const auto op : slowest_first(sums, seconds)) {
    text += line(op->first, op->second, all.seconds);
    const NodeSums& nodes = ops.at(op->first);
    for (const auto node : slowest_first(nodes, seconds)) text += line("  " + node->first, node->second, all.seconds);
  }
  return text + line("all", all, all.seconds);
}

}  // namespace

void Profile::timing(const StepTiming& t) { add_timing(parts_.back().second, t); }

std::string Profile::table() const {
  std::string text;
  for (const auto& [part, ops] : parts_)
    text += "profile: " + part + " (calls, time, share, memory traffic, arithmetic)\n" + part_table(ops);
  if (text.ends_with('\n')) text.pop_back();  // it is said as one message
  return text;
}

}  // namespace llm::app
