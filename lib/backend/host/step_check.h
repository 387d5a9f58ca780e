// What must hold of a step before a program runs it: every index that it brings is inside what was allocated.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "graph/graph.h"

namespace llm::host {

/// Rows that a step brings in each row space.
struct StepRows {
  std::int64_t tokens = 0, outputs = 0;
  std::int64_t count(RowSpace s) const { return s == RowSpace::Tokens ? tokens : s == RowSpace::Outputs ? outputs : 1; }
};

class StepCheck {
 public:
  /// Of steps of a program of the graph, over a cache of `n_blocks` blocks and recurrent states in `n_slots` slots.
  StepCheck(const Graph&, std::int32_t n_blocks, std::int32_t n_slots);
  /// Throws ErrorKind::Internal.
  StepRows operator()(const StepData&) const;

 private:
  Bucket bucket_;
  std::int32_t n_blocks_, n_slots_;
  bool uses_cache_ = false, uses_states_ = false;
};

}  // namespace llm::host
