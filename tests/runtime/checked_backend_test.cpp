// The backend that compares every node with the reference: silent where a backend is right, and naming the value where
// not.
#include "runtime/checked_backend.h"

#include <limits>
#include <numeric>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr std::int64_t kEmbd = 64, kVocab = 16;

/// Two products with a function between them.
Graph graph_with(std::function<float(float)> function) {
  GraphBuilder b({4, 1, 4});
  const Act x = b.embed(b.weight("table", {DType::F32, {kEmbd, kVocab}}), b.step_input(StepInput::Tokens), "x");
  const Act h = b.linear(x, {.weight = b.weight("w", {DType::Q8_0, {kEmbd, kEmbd}}), .bias = nullptr, .name = "h"});
  const Act m = b.map(
      h, {.name = "f", .function = std::make_shared<const std::function<float(float)>>(std::move(function))}, "mapped");
  return std::move(b).finish(
      b.linear(m, {.weight = b.weight("w2", {DType::Q4_0, {kEmbd, kVocab}}), .bias = nullptr, .name = "y"}));
}

Results run(const Graph& graph, Backend& backend) {
  MemoryWeights weights;
  weights.add_random("table", {DType::F32, {kEmbd, kVocab}}, 1);
  weights.add_random("w", {DType::Q8_0, {kEmbd, kEmbd}}, 2);
  weights.add_random("w2", {DType::Q4_0, {kEmbd, kVocab}}, 3);
  GraphRunner runner(backend, graph, weights);
  TestSequences sequences(1, 8);
  const TestSequences::Part part{0, {1, 5, 9}};
  return runner.run(sequences.step({&part, 1}));
}

std::unique_ptr<Backend> cpu() { return make_cpu_backend({.threads = 1, .isa = {}}); }

}  // namespace

TEST_CASE("a checked run of a right backend gives that backend's bits") {
  const Graph graph = graph_with([](float x) { return 2 * x; });
  const auto plain = cpu();
  const auto checked = make_checked_backend(cpu(), make_reference_backend());
  CHECK(run(graph, *plain).at("y") == run(graph, *checked).at("y"));
}

TEST_CASE("a node that computes something else than the reference is named") {
  // The tested backend calls the function first: from the reference's calls on it gives other values.
  const auto calls = std::make_shared<int>(0);
  const Graph graph = graph_with([calls](float x) { return ++*calls > 3 * kEmbd ? 1.01F * x : x; });
  const auto checked = make_checked_backend(cpu(), make_reference_backend());
  try {
    run(graph, *checked);
    FAIL("a divergence of 1 % was not found");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Internal);
    CHECK(std::string(e.what()).find("value \"mapped\" diverges") != std::string::npos);
  }
}

TEST_CASE("infinities that the reference has as well are no divergence, others are") {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto mapped = [](std::function<float(float)> function) {
    GraphBuilder b({4, 1, 4});
    const Act x = b.embed(b.weight("table", {DType::F32, {kEmbd, kVocab}}), b.step_input(StepInput::Tokens), "x");
    const auto shared = std::make_shared<const std::function<float(float)>>(std::move(function));
    return std::move(b).finish(b.map(x, {.name = "f", .function = shared}, "y"));
  };
  const auto checked = make_checked_backend(cpu(), make_reference_backend());
  CHECK_NOTHROW(run(mapped([&](float x) { return x > 0 ? infinity : x; }), *checked));
  const auto calls = std::make_shared<int>(0);
  const auto first_only = [=](float x) { return ++*calls == 1 ? infinity : x; };
  CHECK_THROWS_AS(run(mapped(first_only), *checked), Error);
  *calls = 0;
  const auto later_only = [=](float x) { return ++*calls > 3 * kEmbd ? infinity : x; };
  CHECK_THROWS_AS(run(mapped(later_only), *checked), Error);
}

TEST_CASE("what the weights of quantised values lose among many keys is no divergence") {
  constexpr int kTokens = 512, kDim = 64;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const auto heads = [&](const std::string& name, std::uint32_t seed, float deviation) {
    const TensorType type{DType::F32, {kDim, kTokens}};
    weights.add_random(name, type, seed, deviation);
    return b.split_heads(b.embed(b.weight(name, type), b.step_input(StepInput::Tokens), name + "x"), 1, name + "h");
  };
  const Act q = heads("q", 1, 4), k = heads("k", 2, 1), v = heads("v", 3, 1);
  const Cache stored = b.kv_append(k, v, b.cache({0, 1, kDim, kDim}), "stored");
  const Act seen = b.attention(q, stored, {.scale = 0.125F}, "seen");
  const Graph graph = std::move(b).finish(b.scale(b.flatten_heads(seen, "flat"), 1, "y"));
  const auto checked = make_checked_backend(cpu(), make_reference_backend());
  TestSequences sequences(1, kTokens);
  GraphRunner runner(*checked, graph, weights, sequences.n_blocks(), {DType::Q8_0, DType::Q8_0});
  TestSequences::Part part{0, std::vector<std::int32_t>(kTokens)};
  std::iota(part.tokens.begin(), part.tokens.end(), 0);
  CHECK_NOTHROW(runner.run(sequences.step({&part, 1})));
}

TEST_CASE("the memory of a checked run is that of both backends") {
  const Graph graph = graph_with([](float x) { return x; });
  const auto workspace = [&](const Backend& backend) { return backend.memory({&graph, 1}).front().workspace; };
  const auto plain = cpu(), reference = make_reference_backend();
  const auto checked = make_checked_backend(cpu(), make_reference_backend());
  CHECK(checked->memory({&graph, 1}).size() == 1);
  CHECK(workspace(*checked) == workspace(*plain) + workspace(*reference));
}
