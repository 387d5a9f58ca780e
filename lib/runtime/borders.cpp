#include "runtime/borders.h"

#include <algorithm>
#include <set>
#include <utility>

namespace llm {
namespace {

/// The writer's device, if all readers reach it: so what a device keeps does not depend on the devices before it, which
/// get their layers later (layer_plan.h).
int memory_of(const std::vector<int>& users, std::span<const std::unique_ptr<Backend>> devices) {
  const int writer = users.front();
  const Backend& there = *devices[static_cast<std::size_t>(writer)];
  const bool reached = std::all_of(users.begin(), users.end(),
                                   [&](int d) { return devices[static_cast<std::size_t>(d)]->reaches(there); });
  return reached ? writer : kHostMemory;
}

}  // namespace

bool is_handed_over(const ValueInfo& v) { return v.kind == ValueKind::Input && v.input == StepInput::None; }

Borders::Borders(std::span<const Segment> segments, const Graph& whole,
                 std::span<const std::unique_ptr<Backend>> devices) {
  choose_memories(segments, whole, devices);
  std::set<int> memories;
  for (const auto& [name, place] : places_) memories.insert(place.memory);
  for (const int memory : memories) plan(memory, segments, whole);
}

void Borders::choose_memories(std::span<const Segment> segments, const Graph& whole,
                              std::span<const std::unique_ptr<Backend>> devices) {
  std::map<std::string, std::vector<int>> users;  // what writes it, then those that read it
  for (const Segment& s : segments) {
    for (const ValueInfo& v : s.graph.values()) {
      if (is_handed_over(v)) users[v.name].push_back(s.backend);
    }
    for (const std::uint32_t id : s.graph.outputs()) users[s.graph.info(id).name].push_back(s.backend);
  }
  for (const auto& [name, list] : users)
    places_[name].memory = list.size() > 1 ? memory_of(list, devices) : kHostMemory;
  // The caller's memory is the host's.
  for (const std::uint32_t id : whole.outputs()) places_.at(whole.info(id).name).memory = kHostMemory;
}

void Borders::plan(int memory, std::span<const Segment> segments, const Graph& whole) {
  Graph graph;
  std::map<std::string, std::uint32_t> ids;
  const auto local = [&](const ValueInfo& v) {
    const auto [at, is_new] = ids.emplace(v.name, 0);
    if (is_new) {
      ValueInfo crossing = v;
      crossing.kind = ValueKind::Result;
      at->second = graph.add_value(std::move(crossing));
    }
    return at->second;
  };
  const auto is_here = [&](const ValueInfo& v) { return places_.at(v.name).memory == memory; };
  for (const Segment& s : segments) {
    Node node{.op = Add{}};
    for (const ValueInfo& v : s.graph.values()) {
      if (is_handed_over(v) && is_here(v)) node.in.push_back(local(v));
    }
    for (const std::uint32_t id : s.graph.outputs()) {
      const ValueInfo& v = s.graph.info(id);
      if (is_here(v)) node.out.push_back(local(v));
    }
    graph.add_node(std::move(node));
  }
  std::vector<std::uint32_t> outputs;
  for (const std::uint32_t id : whole.outputs()) {
    if (is_here(whole.info(id))) outputs.push_back(ids.at(whole.info(id).name));
  }
  graph.set_outputs(std::move(outputs));
  const MemoryPlan made = plan_memory(graph, std::vector<std::uint64_t>(segments.size(), 0));
  for (const auto& [name, id] : ids) places_.at(name).offset = made.offset[id];
  bytes_[memory] = made.bytes;
}

Borders::Place Borders::place(const std::string& value) const { return places_.at(value); }

int steps_at_once(const Graph& graph, const StepRules& rules, std::span<const std::unique_ptr<Backend>> devices) {
  std::set<int> used;
  for (const Segment& s : partition(graph, rules.rules)) used.insert(s.backend);
  const bool all = std::all_of(used.begin(), used.end(),
                               [&](int d) { return devices[static_cast<std::size_t>(d)]->steps_at_once() > 1; });
  return all ? std::clamp(static_cast<int>(used.size()), 2, kMostStepsAtOnce) : 1;
}

std::map<int, std::uint64_t> border_bytes(std::span<const Graph> largest, const StepRules& rules,
                                          std::span<const std::unique_ptr<Backend>> devices) {
  std::map<int, std::uint64_t> all;
  const auto add = [&](const Graph& graph, std::span<const PlacementRule> cut) {
    const std::vector<Segment> segments = partition(graph, cut);
    const Borders borders(segments, graph, devices);
    for (const auto& [memory, bytes] : borders.bytes()) all[memory] = std::max(all[memory], bytes);
  };
  for (const Graph& graph : largest) {
    add(graph, rules.rules);
    if (rules.streams(graph.bucket())) add(graph, rules.streaming);
  }
  for (auto& [memory, bytes] : all)  // a best fit may pack a smaller bucket's values less well
    bytes = (bytes + bytes / 8 + kBorderAlign - 1) / kBorderAlign * kBorderAlign;
  return all;
}

}  // namespace llm
