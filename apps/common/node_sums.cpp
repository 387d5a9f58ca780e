#include "common/node_sums.h"

namespace llm::app {

void NodeSum::add(const NodeSum& s) {
  calls += s.calls;
  bytes += s.bytes;
  operations += s.operations;
  seconds += s.seconds;
}

std::string without_layer(std::string_view name, int layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  if (layer < 0 || !name.starts_with(prefix)) return std::string(name);
  return "blk.*." + std::string(name.substr(prefix.size()));
}

void add_timing(OpSums& sums, const StepTiming& t) {
  sums[std::string(t.op)][without_layer(t.value, t.layer)].add(
      {.calls = 1, .bytes = t.bytes, .operations = t.operations, .seconds = t.seconds});
}

}  // namespace llm::app
