// The table of op cases: small graphs around one op, in odd sizes, with every type and attribute that matters.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/graph_runner.h"

namespace llm::test {

/// A graph with its weights, the steps to run and the values to look at.
struct OpScene {
  Graph graph;
  MemoryWeights weights;
  std::set<std::string> observed;  ///< beside the graph's output
  int n_sequences = 1;
  CacheFormat format;
  std::vector<std::vector<TestSequences::Part>> steps;
  TestSequences::Outputs outputs = TestSequences::Outputs::All;
  /// Terms of the longest sum behind a result; 0 where every backend must agree bit for bit.
  std::int64_t terms = 1;
  /// Size of what is summed: roundings are measured at it where the results happen to cancel.
  double magnitude = 0;
};

struct OpCase {
  std::string name;
  std::function<OpScene()> make;
};

std::vector<OpCase> op_cases();

/// Activations that a scene starts with: the rows of an F32 table "x", so that token t's input is row t.
constexpr int kInputRows = 61;

}  // namespace llm::test
