// The reference's ops of RWKV beside their definitions written another way.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference_step.h"

namespace llm::test {
namespace {

/// The state is rounded after every token.
void check_beside_largest(const std::vector<float>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  for (const double y : expected) largest = std::max(largest, std::fabs(y));
  for (std::size_t i = 0; i < actual.size(); ++i) CHECK(std::fabs(actual[i] - expected[i]) < 1e-6 * largest);
}

}  // namespace

TEST_CASE(
    "reference: a token shift is the row before, of which there is none first, less the row; a lerp adds a share") {
  constexpr std::int64_t kChannels = 5;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const Act x = input(b, weights, "x", kChannels, 41);
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {kChannels, 2}}, 42));
  const Act d = b.token_shift(x, b.recurrent({0, RecurrentType::Part::Shift, {kChannels, 1}}), "d");
  const std::vector<std::string> names{"y0", "y1"};
  const std::vector<Act> y = b.lerp(x, d, w, nullptr, names);
  const Graph graph = std::move(b).finish(y[1]);
  const std::vector<float> xs = weights.decoded("x"), ws = weights.decoded("w");
  std::vector<double> expected;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const float now = xs[at(t * kChannels + c)], before = t > 0 ? xs[at((t - 1) * kChannels + c)] : 0;
      expected.push_back(double{now} + double{before - now} * double{ws[at(kChannels + c)]});
    }
  }
  check_close(run_once(graph, weights)["y1"], expected);
}

TEST_CASE("reference: wkv6 is attention by products of decays between the tokens") {
  constexpr std::int64_t kN = 3, kHeads = 4, kKvHeads = 2, kWidth = kN * kHeads, kKeys = kN * kKvHeads;
  for (const bool with_first : {true, false}) {
    INFO(with_first);
    GraphBuilder b({kTokens, 1, kTokens});
    MemoryWeights weights;
    const Act r = input(b, weights, "r", kWidth, 51), k = input(b, weights, "k", kKeys, 52),
              v = input(b, weights, "v", kKeys, 53), w = input(b, weights, "w", kWidth, 54);
    const Weight first = b.weight("first", weights.add_random("first", {DType::F32, {kN, kHeads}}, 55));
    const Recurrent state = b.recurrent({0, RecurrentType::Part::Wkv, {kN, kN, kHeads}});
    const Act y = b.wkv6({r, k, v, w, state, with_first ? &first : nullptr}, "y");
    const Graph graph = std::move(b).finish(b.scale(b.flatten_heads(y, "flat"), 1, "all"));
    const std::vector<float> rs = weights.decoded("r"), ks = weights.decoded("k"), vs = weights.decoded("v"),
                             ws = weights.decoded("w"), us = weights.decoded("first");
    std::vector<double> expected(at(kTokens * kWidth));
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t own = h * kN, shared = h / (kHeads / kKvHeads) * kN;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        for (std::int64_t from = 0; from <= t; ++from) {
          double score = 0;
          for (std::int64_t i = 0; i < kN; ++i) {
            const auto decay = [&](std::int64_t u) {
              return std::exp(-std::exp(double{ws[at(u * kWidth + own + i)]}));
            };
            double kept = with_first && from == t ? double{us[at(own + i)]} : with_first ? 1 : 1 - decay(from);
            // Results are read before a token's own decay with `first`, behind it without.
            for (std::int64_t u = from + 1; u < t + (with_first ? 0 : 1); ++u) kept *= decay(u);
            score += kept * double{rs[at(t * kWidth + own + i)]} * double{ks[at(from * kKeys + shared + i)]};
          }
          if (!with_first) score /= std::sqrt(static_cast<double>(kN));
          for (std::int64_t j = 0; j < kN; ++j)
            expected[at(t * kWidth + own + j)] += score * double{vs[at(from * kKeys + shared + j)]};
        }
      }
    }
    check_beside_largest(run_once(graph, weights)["all"], expected);
  }
}

TEST_CASE("reference: wkv7 goes on by a matrix of a diagonal less a product of rank one") {
  constexpr std::int64_t kN = 3, kHeads = 2, kWidth = kN * kHeads;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  std::vector<Act> x;
  const std::vector<std::string> names{"r", "k", "v", "w", "a", "v_first", "mix"};
  for (std::size_t i = 0; i < names.size(); ++i)
    x.push_back(input(b, weights, names[i], kWidth, 61 + static_cast<std::uint32_t>(i)));
  const auto weight = [&](const std::string& name, std::uint32_t seed) {
    return b.weight(name, weights.add_random(name, {DType::F32, {kWidth}}, seed));
  };
  const Weight k_k = weight("k_k", 71), k_a = weight("k_a", 72), r_k = weight("r_k", 73);
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Wkv, {kN, kN, kHeads}});
  const GraphBuilder::FirstValues mixed{x[5], x[6]};
  const WkvResults results = b.wkv7({x[0], x[1], x[2], x[3], x[4], k_k, k_a, r_k, state, &mixed}, "y");
  const Act flat = b.flatten_heads(results.y, "flat"), own = b.flatten_heads(results.own, "own_flat");
  const Graph graph = std::move(b).finish(b.add(flat, own, "all"));
  const auto open = [](double z) { return 1 / (1 + std::exp(-z)); };
  std::vector<double> expected(at(kTokens * kWidth));
  for (std::int64_t h = 0; h < kHeads; ++h) {
    std::vector<double> s(at(kN * kN));  // [value][key]
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto of = [&](const char* name, std::int64_t i) {
        const std::vector<float> all = weights.decoded(name);
        return double{all[at(std::ssize(all) == kWidth ? h * kN + i : t * kWidth + h * kN + i)]};
      };
      double square = 0, counts = 0;
      std::vector<double> unit(at(kN)), key(at(kN)), value(at(kN));
      for (std::int64_t i = 0; i < kN; ++i) square += std::pow(of("k", i) * of("k_k", i), 2);
      for (std::int64_t i = 0; i < kN; ++i) {
        unit[at(i)] = of("k", i) * of("k_k", i) / std::sqrt(square);
        key[at(i)] = of("k", i) * (1 - of("k_a", i)) + of("k", i) * of("k_a", i) * open(of("a", i));
        value[at(i)] = of("v", i) * open(-of("mix", i)) + of("v_first", i) * open(of("mix", i));
        counts += of("r", i) * key[at(i)] * of("r_k", i);
      }
      std::vector<double> next(at(kN * kN));
      for (std::int64_t j = 0; j < kN; ++j) {
        for (std::int64_t i = 0; i < kN; ++i) {
          double& to = next[at(j * kN + i)];
          for (std::int64_t l = 0; l < kN; ++l) {
            const double diagonal = l == i ? std::exp(-std::exp(-0.5) * open(of("w", i))) : 0;
            to += s[at(j * kN + l)] * (diagonal - unit[at(l)] * unit[at(i)] * open(of("a", i)));
          }
          to += value[at(j)] * key[at(i)];
          expected[at(t * kWidth + h * kN + j)] += to * of("r", i);
        }
        expected[at(t * kWidth + h * kN + j)] += counts * value[at(j)];
      }
      s = next;
    }
  }
  check_beside_largest(run_once(graph, weights)["all"], expected);
}

}  // namespace llm::test
