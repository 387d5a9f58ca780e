// --profile: where the time of a run went.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "common/node_sums.h"

namespace llm::app {

class Profile final : public Observer {
 public:
  bool wants_timings() override { return true; }
  void timing(const StepTiming&) override;
  /// Timings that follow belong to this part of the run.
  void begin(std::string part) { parts_.emplace_back(std::move(part), OpSums{}); }
  /// Per part: one line per op, and below it one per node; equal nodes of all layers count together.
  std::string table() const;

 private:
  std::vector<std::pair<std::string, OpSums>> parts_;  ///< in the order of the run
};

}  // namespace llm::app
