// --profile: where the time of a run went.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace llm::app {

class Profile final : public Observer {
 public:
  bool wants_timings() override { return true; }
  void timing(const StepTiming&) override;
  /// Timings that follow belong to this part of the run.
  void begin(std::string part) { parts_.emplace_back(std::move(part), Ops{}); }
  /// Per part: one line per op, and below it one per node; equal nodes of all layers count together.
  std::string table() const;

 private:
  struct Sum {
    std::uint64_t calls = 0, bytes = 0, operations = 0;
    double seconds = 0;
    void add(const Sum&);
  };
  using Nodes = std::map<std::string, Sum>;  ///< by name without layer number
  using Ops = std::map<std::string, Nodes>;
  static std::string line(const std::string& name, const Sum&, double total);
  static std::string part_table(const Ops& ops);
  std::vector<std::pair<std::string, Ops>> parts_;  ///< in the order of the run
};

}  // namespace llm::app
