// Means of vectors by a softmax, groups of experts, and silent elements in the reference, against formulas written out
// here.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference_step.h"

namespace llm::test::blend {

TEST_CASE("reference: a mean of vectors, each by its share of a softmax of what it has in common with a weight") {
  constexpr std::int64_t kWidth = 5, kVectors = 3;
  constexpr double kEps = 0.125;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = b.split_heads(input(b, weights, "x", kWidth * kVectors, 1), kVectors, "vectors");
  const Act last = input(b, weights, "last", kWidth, 2);
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {kWidth}}, 3));
  const Act y = b.stream_blend(x, last, w, {.eps = static_cast<float>(kEps)}, "blend");
  const Graph graph = std::move(b).finish(b.scale(y, 1, "y"));
  const std::vector<float> found = run_once(graph, weights, {"blend"}).at("blend");
  const auto xs = weights.decoded("x"), lasts = weights.decoded("last"), ws = weights.decoded("w");
  REQUIRE(found.size() == at(kTokens * kWidth));
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const auto element = [&](std::int64_t i, std::int64_t e) {
      return double{i < kVectors ? xs[at((t * kVectors + i) * kWidth + e)] : lasts[at(t * kWidth + e)]};
    };
    std::vector<double> means(at(kWidth));
    double all = 0;
    for (std::int64_t i = 0; i <= kVectors; ++i) {
      double product = 0, squares = 0;
      for (std::int64_t e = 0; e < kWidth; ++e) {
        product += element(i, e) * double{ws[at(e)]};
        squares += element(i, e) * element(i, e);
      }
      const double share = std::exp(product / std::sqrt(squares / kWidth + kEps));
      all += share;
      for (std::int64_t e = 0; e < kWidth; ++e) means[at(e)] += share * element(i, e);
    }
    for (std::int64_t e = 0; e < kWidth; ++e) CHECK(std::fabs(found[at(t * kWidth + e)] - means[at(e)] / all) <= 1e-6);
  }
}

TEST_CASE("reference: groups of neighbouring experts; silent elements are the lowest, the others as they are") {
  constexpr std::int64_t kWidth = 12;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = input(b, weights, "x", kWidth, 1);
  const Routes routes = b.route(x, {.top_k = 12}, "routes");  // all, in some order
  const llm::Index groups = b.group_ids(routes.expert, 5, "groups");
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {kWidth, kWidth, 3}}, 2));
  const Act silent = b.silence(x, {.begin = 2, .n = 9}, "silent");
  const Act y = b.combine(b.expert_linear(x, groups, {w, nullptr, "product"}), routes.weight, "y");
  const Graph graph = std::move(b).finish(b.add(y, b.soft_cap(silent, 1, "capped"), "sum"));
  const Results found = run_once(graph, weights, {"routes", "groups", "silent"});
  const std::vector<float>&ids = found.at("routes"), &of = found.at("groups"), &quiet = found.at("silent");
  REQUIRE(of.size() == ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK(of[i] == std::floor(ids[i] / 5));
  const auto xs = weights.decoded("x");
  REQUIRE(quiet.size() == xs.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const std::size_t e = i % kWidth;
    CHECK(quiet[i] == (e >= 2 && e < 11 ? std::numeric_limits<float>::lowest() : xs[i]));
  }
}

}  // namespace llm::test::blend
