// What a program says of results that are NaN or infinite, without the caller's reading them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "backend/reference/reference.h"
#include "backends.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

namespace llm::test {
namespace {

constexpr std::int64_t kEmbd = 64, kOutputs = 300, kVocab = 8;
constexpr int kNan = 2, kInfinite = 3;  // tokens whose results are

/// The head's results are outputs as they are, or scaled first.
Graph graph_of(DType type, bool scaled) {
  GraphBuilder b({kVocab, 1, kVocab});
  const Act x = b.embed(b.weight("table", {DType::F32, {kEmbd, kVocab}}), b.step_input(StepInput::Tokens), "x");
  b.set_place(-1, Role::Head, "");
  const Weight w = b.weight("w", {type, {kEmbd, kOutputs}});
  const Act y = b.linear(x, {.weight = w, .bias = nullptr, .name = "h"});
  return std::move(b).finish(scaled ? b.scale(y, 0.5F, "y") : y);
}

MemoryWeights weights(DType type) {
  std::vector<float> table = random_values(kEmbd * kVocab, 1);
  table[kNan * kEmbd + 5] = std::numeric_limits<float>::quiet_NaN();
  table[kInfinite * kEmbd + 5] = std::numeric_limits<float>::infinity();
  MemoryWeights weights;
  weights.add("table", {DType::F32, {kEmbd, kVocab}}, table);
  weights.add_random("w", {type, {kEmbd, kOutputs}}, 2);
  return weights;
}

std::vector<NamedBackend> with_reference(std::vector<NamedBackend> backends) {
  backends.push_back(
      {"reference", Activations::Plain, NamedBackend::Duty::Everything, [] { return make_reference_backend(); }});
  return backends;
}

TestStep step_of(std::vector<std::int32_t> tokens) {
  TestSequences sequences(1, kVocab);
  const TestSequences::Part part{0, std::move(tokens)};
  return sequences.step({&part, 1});
}

}  // namespace

TEST_CASE("results that are not finite are never said to be, and products of the cpu backend know theirs") {
  for (const NamedBackend& named : available_backends()) {
    for (const DType type : {DType::F32, DType::Q8_0}) {
      for (const bool scaled : {false, true}) {
        INFO(named.name << " " << name(type) << (scaled ? " scaled" : ""));
        const auto backend = named.make();
        const MemoryWeights memory = weights(type);
        GraphRunner runner(*backend, graph_of(type, scaled), memory);
        const bool looks = named.name.starts_with("cpu") && !scaled;
        for (const std::vector<std::int32_t>& tokens : {std::vector<std::int32_t>{1}, {1, 4, 5, 6, 7, 0, 1, 4}}) {
          for (const int bad : {0, kNan, kInfinite}) {
            std::vector<std::int32_t> some = tokens;
            if (bad != 0) some.back() = bad;
            INFO(some.size() << " tokens, the last is " << some.back());
            const auto rows = runner.run(step_of(some)).at(scaled ? "y" : "h");
            const bool finite = std::ranges::all_of(rows, [](float f) { return std::isfinite(f); });
            CHECK(finite == (bad == 0));
            if (!finite) CHECK(runner.program().may_be_non_finite());
            if (finite && looks) CHECK_FALSE(runner.program().may_be_non_finite());
          }
        }
      }
    }
  }
}

TEST_CASE("a NaN among a token's logits of the router makes all of its weights NaN, the experts stay valid") {
  constexpr int kExperts = 12, kTop = 3;
  std::vector<float> logits = random_values(kExperts * kVocab, 3);
  logits[kNan * kExperts + 7] = std::numeric_limits<float>::quiet_NaN();
  for (const NamedBackend& named : with_reference(available_backends())) {
    for (const Gating gating : {Gating::Softmax, Gating::Sigmoid}) {
      for (const RouteWeights mode : {RouteWeights::AsGated, RouteWeights::Renormalized}) {
        for (const int groups : {1, 4}) {
          INFO(named.name << ", " << name(gating) << ", " << groups << " groups");
          MemoryWeights memory;
          memory.add("table", {DType::F32, {kExperts, kVocab}}, logits);
          GraphBuilder b({kVocab, 1, kVocab});
          const Act x =
              b.embed(b.weight("table", {DType::F32, {kExperts, kVocab}}), b.step_input(StepInput::Tokens), "x");
          const Route op{
              .top_k = kTop, .gating = gating, .weights = mode, .groups = groups, .groups_used = (groups + 1) / 2};
          const Routes routes = b.route(x, op, "routes");
          const auto backend = named.make();
          GraphRunner runner(*backend, std::move(b).finish(routes.weight), memory, 1, {}, {"routes"});
          const Results results = runner.run(step_of({1, kNan}));
          const std::vector<float>&weights = results.at("routes_weights"), &ids = results.at("routes");
          for (int slot = 0; slot < kTop; ++slot) {
            CHECK(std::isfinite(weights[static_cast<std::size_t>(slot)]));
            CHECK(std::isnan(weights[static_cast<std::size_t>(kTop + slot)]));
          }
          const std::set<float> distinct(ids.begin() + kTop, ids.end());
          CHECK(distinct.size() == kTop);
          CHECK((*distinct.begin() >= 0 && *distinct.rbegin() < kExperts));
        }
      }
    }
  }
}

TEST_CASE("experts that a bias of -inf forbids come behind the others of the groups used, which are the best") {
  constexpr int kExperts = 8, kTop = 2;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  struct Case {
    std::vector<float> bias;
    int groups_used;
    std::vector<float> ids;
  };
  // The gates are all the same; a group is as good as its best expert.
  const Case cases[] = {{{0, 0, 0, 1, 0, 2, kNever, 3}, 2, {7, 5}},
                        {{kNever, 0, kNever, 1, kNever, 2, kNever, 3}, 2, {7, 5}},
                        {{3, kNever, kNever, 1, kNever, 0, kNever, 2}, 2, {0, 7}},
                        {{kNever, kNever, kNever, kNever, kNever, 2, kNever, 3}, 2, {7, 5}},
                        {{kNever, kNever, kNever, kNever, kNever, kNever, kNever, 3}, 1, {7, 6}}};
  for (const NamedBackend& named : with_reference(available_backends())) {
    for (const Case& c : cases) {
      INFO(named.name << ", case " << &c - cases);
      MemoryWeights memory;
      memory.add("table", {DType::F32, {kExperts, kVocab}}, std::vector<float>(kExperts * kVocab, 0));
      memory.add("bias", {DType::F32, {kExperts}}, c.bias);
      GraphBuilder b({kVocab, 1, kVocab});
      const Act x = b.embed(b.weight("table", {DType::F32, {kExperts, kVocab}}), b.step_input(StepInput::Tokens), "x");
      const Weight bias = b.weight("bias", {DType::F32, {kExperts}});
      const Route op{
          .top_k = kTop, .gating = Gating::Sigmoid, .groups = 4, .groups_used = c.groups_used, .group_best = 1};
      const Routes routes = b.route(x, op, "routes", &bias);
      const auto backend = named.make();
      GraphRunner runner(*backend, std::move(b).finish(routes.weight), memory, 1, {}, {"routes"});
      CHECK(runner.run(step_of({1})).at("routes") == c.ids);
    }
  }
}

TEST_CASE("experts that a bias alone chose have weights of nothing where their gates are nothing") {
  constexpr std::int64_t kExperts = 8, kVocab = 4;
  const std::vector<float> logits{300, 0, 0, 0, 0, 0, 0, 0};
  std::vector<float> bias(kExperts, 0);
  bias[3] = 5, bias[6] = 4;
  for (const NamedBackend& named : with_reference(available_backends())) {
    INFO(named.name);
    MemoryWeights memory;
    std::vector<float> table;
    for (int i = 0; i < kVocab; ++i) table.insert(table.end(), logits.begin(), logits.end());
    memory.add("table", {DType::F32, {kExperts, kVocab}}, table);
    memory.add("bias", {DType::F32, {kExperts}}, bias);
    GraphBuilder b({kVocab, 1, kVocab});
    const Act x = b.embed(b.weight("table", {DType::F32, {kExperts, kVocab}}), b.step_input(StepInput::Tokens), "x");
    const Weight w = b.weight("bias", {DType::F32, {kExperts}});
    const Routes routes = b.route(x, {.top_k = 2, .weights = RouteWeights::Renormalized}, "routes", &w);
    const auto backend = named.make();
    GraphRunner runner(*backend, std::move(b).finish(routes.weight), memory, 1, {}, {"routes", "routes_weights"});
    const auto results = runner.run(step_of({1}));
    CHECK(results.at("routes") == std::vector<float>{3, 6});
    for (const float weight : results.at("routes_weights")) CHECK((weight >= 0 && weight <= 1));
  }
}

}  // namespace llm::test
