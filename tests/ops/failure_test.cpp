// Code that is not ours and throws during a step: the exception arrives, and the next step gives the right bits.
#include <stdexcept>

#include "backends.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

namespace llm::test {
namespace {

constexpr std::int64_t kSide = 64, kRows = 16;

Graph graph_with(std::shared_ptr<const std::function<float(float)>> function) {
  GraphBuilder b({8, 1, 8});
  Act x = b.embed(b.weight("table", {DType::F32, {kSide, kRows}}), b.step_input(StepInput::Tokens), "x");
  for (int i = 0; i < 3; ++i) {  // an odd number of equal layers: their task queues take turns
    const std::string layer = "blk." + std::to_string(i) + ".";
    b.set_place(i, Role::Ffn, layer);
    const Weight w = b.weight(layer + "w", {DType::Q8_0, {kSide, kSide}});
    x = b.linear(x, {.weight = w, .bias = nullptr, .name = "h"});
  }
  b.set_place(-1, Role::Head, "");
  return std::move(b).finish(b.map(x, {.name = "f", .function = std::move(function)}, "y"));
}

MemoryWeights weights() {
  MemoryWeights weights;
  weights.add_random("table", {DType::F32, {kSide, kRows}}, 1);
  for (int i = 0; i < 3; ++i) weights.add_random("blk." + std::to_string(i) + ".w", {DType::Q8_0, {kSide, kSide}}, 2);
  return weights;
}

TestStep six_tokens() {
  TestSequences sequences(1, 8);
  const TestSequences::Part part{0, {1, 5, 9, 2, 3, 7}};
  return sequences.step({&part, 1});
}

struct ThrowingObserver final : Observer {
  bool wants_value(std::string_view name) override { return name == "blk.1.h"; }
  void value(std::string_view, const TensorView&) override { throw std::runtime_error("seen"); }
};

}  // namespace

TEST_CASE("an observer that throws ends its step alone") {
  const auto same = std::make_shared<const std::function<float(float)>>([](float x) { return x; });
  const Graph graph = graph_with(same);
  for (const NamedBackend& named : available_backends()) {
    if (named.duty == NamedBackend::Duty::MayRefuse) continue;  // Map
    INFO(named.name);
    const auto backend = named.make();
    const MemoryWeights memory = weights();
    GraphRunner runner(*backend, graph, memory);
    const TestStep step = six_tokens();
    const auto expected = runner.run(step).at("y");
    ThrowingObserver observer;
    runner.program().observe(&observer);
    CHECK_THROWS_WITH(runner.run(step), "seen");
    runner.program().observe(nullptr);
    CHECK(runner.run(step).at("y") == expected);
  }
}

TEST_CASE("a Map function that throws ends its step alone") {
  const auto calls = std::make_shared<int>(0);
  const auto function = std::make_shared<const std::function<float(float)>>([calls](float x) {
    if (++*calls == 100) throw std::runtime_error("call 100");
    return x;
  });
  const Graph graph = graph_with(function);
  for (const NamedBackend& named : available_backends()) {
    if (named.duty == NamedBackend::Duty::MayRefuse) continue;  // Map
    INFO(named.name);
    *calls = 1000;
    const auto backend = named.make();
    const MemoryWeights memory = weights();
    GraphRunner runner(*backend, graph, memory);
    const TestStep step = six_tokens();
    const auto expected = runner.run(step).at("y");
    *calls = 0;
    CHECK_THROWS_WITH(runner.run(step), "call 100");
    CHECK(runner.run(step).at("y") == expected);
  }
}

}  // namespace llm::test
