// What the nodes of a test take, and how near that is to what the machine can do.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/node_sums.h"
#include "runtime/model.h"
#include "workload.h"

namespace llm::bench {

struct NodeFigures {
  std::string op, node;  ///< node: "blk.*.ffn_norm", all layers together
  app::NodeSum sum;
  /// The time at the limit that allows least, of what was measured, over the time taken. What stays in the caches can
  /// be read faster than memory is.
  std::optional<double> share_of_limit = {};
  Bound bound = Bound::ReadBandwidth;
};

/// Watches one run.
class NodeTimes final : public Observer {
 public:
  explicit NodeTimes(const Model&);
  bool wants_timings() override { return true; }
  void timing(const StepTiming& t) override { app::add_timing(sums_, t); }
  /// The slowest ops first, of each the slowest nodes.
  std::vector<NodeFigures> figures(const Limits&) const;

 private:
  std::map<std::string, Bound> arithmetic_;  ///< of nodes that multiply with weights
  app::OpSums sums_;
};

/// Cells of Markdown.
std::string markdown(const std::string& test, const std::vector<NodeFigures>&);
nlohmann::ordered_json json(const std::vector<NodeFigures>&);

}  // namespace llm::bench
