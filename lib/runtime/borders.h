// Where values lie on their way from one segment of a model in parts to the next: in memory of this machine, or of a
// device that all of their segments reach.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/memory_plan.h"
#include "graph/partition.h"

namespace llm {

/// Index of a device, or kHostMemory.
inline constexpr int kHostMemory = -1;
inline constexpr std::size_t kBorderAlign = 64;

/// The segments as nodes of a graph whose values are those that cross: its memory plan is where they lie, one for each
/// memory. Of a cut graph the segments name devices by index.
class Borders {
 public:
  Borders(std::span<const Segment>, const Graph& whole, std::span<const std::unique_ptr<Backend>> devices);

  struct Place {
    int memory = kHostMemory;
    std::uint64_t offset = 0;  ///< MemoryPlan::kNone for what the caller binds
  };
  Place place(const std::string& value) const;
  /// That the values take, by memory.
  const std::map<int, std::uint64_t>& bytes() const { return bytes_; }

 private:
  void choose_memories(std::span<const Segment>, const Graph& whole, std::span<const std::unique_ptr<Backend>>);
  void plan(int memory, std::span<const Segment>, const Graph& whole);

  std::map<std::string, Place> places_;
  std::map<int, std::uint64_t> bytes_;
};

/// Whether a value of a segment comes from another one.
bool is_handed_over(const ValueInfo&);

/// That can be on their way at once, each with places of its own for what crosses: one for each device that computes a
/// part of the graph, if none of them computes while steps are submitted, as the host does.
int steps_at_once(const Graph&, const StepRules& rules, std::span<const std::unique_ptr<Backend>> devices);

/// What one step of every bucket up to these takes, by memory.
std::map<int, std::uint64_t> border_bytes(std::span<const Graph> largest, const StepRules& rules,
                                          std::span<const std::unique_ptr<Backend>> devices);

}  // namespace llm
