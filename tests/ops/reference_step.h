// What tests of the reference's ops share: graphs of one step, and how close results are.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "backend/reference/reference.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

namespace llm::test {

inline constexpr int kTokens = 7;

inline std::vector<std::int32_t> all_tokens(int n = kTokens) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// One step of tokens 0 to n - 1, all rows wanted.
inline Results run_once(const Graph& graph, const MemoryWeights& weights, std::set<std::string> observed = {},
                        CacheFormat format = {}) {
  const auto backend = make_reference_backend();
  TestSequences sequences(1, graph.bucket().tokens);
  GraphRunner runner(*backend, graph, weights, sequences.n_blocks(), format, std::move(observed), sequences.n_slots());
  const std::vector<TestSequences::Part> parts{{0, all_tokens(graph.bucket().tokens)}};
  return runner.run(sequences.step(parts));
}

/// The input of token t is row t of the table.
inline Act input(GraphBuilder& b, MemoryWeights& weights, const std::string& name, std::int64_t width,
                 std::uint32_t seed, int tokens = kTokens) {
  const TensorType& type = weights.add_random(name, {DType::F32, {width, tokens}}, seed);
  return b.embed(b.weight(name, type), b.step_input(StepInput::Tokens), name + "_in");
}

/// Half a unit in the last place of f32 is all that storing a double costs.
inline void check_close(const std::vector<float>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    INFO("element " << i);
    CHECK(std::fabs(actual[i] - expected[i]) <= std::fabs(expected[i]) * 6.1e-8 + 1e-44);
  }
}

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace llm::test
