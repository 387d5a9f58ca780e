// Weights of streams in the reference, against formulas written out here, and what balancing is for.
#include <cmath>
#include <numeric>
#include <vector>

#include "reference_step.h"

namespace llm::test::streams {

TEST_CASE("reference: weights of streams are read, written and balanced, so that what goes out comes in") {
  constexpr std::int64_t kStreams = 3, kWidth = (2 + kStreams) * kStreams;
  constexpr float kEps = 1e-3f;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = input(b, weights, "x", kWidth, 1), r = input(b, weights, "r", kStreams, 2);
  const Weight scales = b.weight("scales", weights.add_random("scales", {DType::F32, {3}}, 3));
  const Weight bases = b.weight("bases", weights.add_random("bases", {DType::F32, {kWidth}}, 4));
  const Weight scale = b.weight("scale", weights.add_random("scale", {DType::F32, {1}}, 5));
  const Weight base = b.weight("base", weights.add_random("base", {DType::F32, {kStreams}}, 6));
  const StreamShares once = b.stream_weights(x, scales, bases, {.eps = kEps, .iterations = 1}, "once");
  const StreamShares often = b.stream_weights(x, scales, bases, {.eps = 1e-9f, .iterations = 500}, "often");
  const Act read = b.stream_read(r, scale, base, {.eps = kEps}, "read");
  const Act both = b.add(b.stream_mix(once.mix, often.mix, "mixed"), once.mix, "both");
  const Act all = b.stream_add(both, b.flatten_heads(read, "read_flat"), &often.write, {.first = 0}, "all");
  const Act added = b.stream_add(all, once.write, nullptr, {.first = 0}, "added");
  const Act sum = b.stream_add(added, b.flatten_heads(once.read, "once_flat"), nullptr, {.first = 0}, "sum");
  const Act y = b.scale(sum, 1, "y");
  const Graph graph = std::move(b).finish(y);
  const Results results = run_once(graph, weights, {"once_read", "once_write", "once_mix", "often_mix", "read"});
  const auto xs = weights.decoded("x"), rs = weights.decoded("r"), ss = weights.decoded("scales"),
             bs = weights.decoded("bases"), s1 = weights.decoded("scale"), b1 = weights.decoded("base");
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  std::vector<double> reads, writes, mixes, reads_alone;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const auto z = [&](std::int64_t of, std::int64_t i) {
      return double{xs[at(t * kWidth + i)]} * double{ss[at(of)]} + double{bs[at(i)]};
    };
    std::vector<std::vector<double>> shares;  // of a stream, to each
    for (std::int64_t i = 0; i < kStreams; ++i) {
      reads.push_back(sigmoid(z(0, i)) + double{kEps});
      reads_alone.push_back(sigmoid(double{rs[at(t * kStreams + i)]} * double{s1[0]} + double{b1[at(i)]}) +
                            double{kEps});
      writes.push_back(2 * sigmoid(z(1, kStreams + i)) - 1);
      double all_shares = 0;
      std::vector<double> row;
      for (std::int64_t to = 0; to < kStreams; ++to) {
        row.push_back(std::exp(z(2, (2 + i) * kStreams + to)));
        all_shares += row.back();
      }
      for (double& share : row) share = share / all_shares + double{kEps};
      shares.push_back(row);
    }
    for (std::size_t to = 0; to < at(kStreams); ++to) {
      double in = double{kEps};
      for (const auto& row : shares) in += row[to];
      for (const auto& row : shares) mixes.push_back(row[to] / in);
    }
  }
  const auto near = [](const std::vector<float>& actual, const std::vector<double>& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) CHECK(std::fabs(actual[i] - expected[i]) <= 1e-7);
  };
  near(results.at("once_read"), reads);
  near(results.at("once_write"), writes);
  near(results.at("once_mix"), mixes);
  near(results.at("read"), reads_alone);
  const std::vector<float>& balanced = results.at("often_mix");
  for (std::size_t first = 0; first < balanced.size(); first += at(kStreams * kStreams)) {
    for (std::size_t i = 0; i < at(kStreams); ++i) {
      double in = 0, out = 0;
      for (std::size_t j = 0; j < at(kStreams); ++j) {
        in += double{balanced[first + i * at(kStreams) + j]};
        out += double{balanced[first + j * at(kStreams) + i]};
      }
      CHECK(std::fabs(in - 1) < 1e-5);
      CHECK(std::fabs(out - 1) < 1e-5);
    }
  }
}

}  // namespace llm::test::streams
