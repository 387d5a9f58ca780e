// The sampler against published random numbers and against its definitions computed the slow way.
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "support/catch.h"

using namespace llm;

namespace {

std::vector<float> random_logits(std::size_t n, unsigned seed, float spread = 3) {
  std::mt19937 random(seed);
  std::vector<float> logits(n);
  for (float& l : logits) l = (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F) * 2 * spread;
  return logits;
}

std::vector<Token> tokens_of(std::span<const Sampler::Candidate> candidates) {
  std::vector<Token> tokens;
  for (const auto& c : candidates) tokens.push_back(c.token);
  return tokens;
}

/// All tokens, likeliest first, ties by id.
std::vector<Token> ranked(const std::vector<float>& logits) {
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  return order;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p(logits.size());
  const double most = *std::max_element(logits.begin(), logits.end());
  std::transform(logits.begin(), logits.end(), p.begin(), [&](float l) { return std::exp((l - most) / temperature); });
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

SamplerOptions only(float temperature = 1) {
  return {.seed = 0,
          .temperature = temperature,
          .top_k = 0,
          .top_p = 1,
          .min_p = 0,
          .repeat_penalty = 1,
          .repeat_last_n = 64};
}

}  // namespace

TEST_CASE("Philox4x32-10 gives its published numbers") {
  using Counter = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the uniform numbers are the first 53 bits of the counter's block") {
  const std::uint64_t seed = 0x299f31d0a4093822, row = 0x85a308d3243f6a88, index = 0x0370734413198a2e;
  const std::uint64_t bits = 0x94fdcceb'd16cfe09u >> 11;
  CHECK(counter_uniform(seed, row, index) == std::ldexp(static_cast<double>(bits), -53));
}

TEST_CASE("greedy takes the largest logit, of equal ones the lowest id") {
  Sampler greedy(only(0));
  CHECK(greedy.sample(std::vector<float>(100, 0.0F), 0) == 0);
  CHECK(greedy.sample(std::vector<float>{1, 5, 2, 5}, 3) == 1);
  CHECK(greedy.sample(std::vector<float>{-3, -2, -1}, 0) == 2);
}

TEST_CASE("top-k keeps the k likeliest in order") {
  auto logits = random_logits(5000, 1);
  for (std::size_t i = 0; i + 1 < logits.size(); i += 3) logits[i] = logits[i + 1];  // ties
  const auto order = ranked(logits);
  for (const int k : {1, 2, 40, 1000, 4999}) {
    SamplerOptions o = only();
    o.top_k = k;
    Sampler sampler(o);
    CHECK(tokens_of(sampler.candidates(logits)) == std::vector<Token>(order.begin(), order.begin() + k));
  }
  SamplerOptions all = only();
  all.top_k = 5001;
  CHECK(Sampler(all).candidates(logits).size() == logits.size());
}

TEST_CASE("top-p keeps the fewest likeliest that reach p") {
  for (const float spread : {0.01F, 1.0F, 3.0F, 20.0F}) {
    const auto logits = random_logits(3000, 2, spread);
    const auto order = ranked(logits);
    const auto p = softmax(logits, 1);
    for (const float top_p : {0.0F, 0.1F, 0.5F, 0.95F, 0.999F}) {
      double sum = 0;
      std::size_t kept = 0;
      do sum += p[static_cast<std::size_t>(order[kept++])];
      while (sum < static_cast<double>(top_p));
      SamplerOptions o = only();
      o.top_p = top_p;
      Sampler sampler(o);
      CHECK(tokens_of(sampler.candidates(logits)) ==
            std::vector<Token>(order.begin(), order.begin() + static_cast<long>(kept)));
    }
  }
}

TEST_CASE("min-p keeps what is likely enough beside the likeliest") {
  const auto logits = random_logits(2000, 3);
  const auto p = softmax(logits, 1);
  const double most = *std::max_element(p.begin(), p.end());
  SamplerOptions o = only();
  o.min_p = 0.3F;
  std::vector<Token> expected;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] >= 0.3 * most) expected.push_back(static_cast<Token>(i));
  }
  Sampler sampler(o);
  CHECK(tokens_of(sampler.candidates(logits)) == expected);
  CHECK(expected.size() > 10);
}

TEST_CASE("top-k comes before top-p, and both before the temperature") {
  const std::vector<float> logits{std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  SamplerOptions o = only(100);  // so hot that all are alike, if it came first
  o.top_k = 3;
  o.top_p = 0.5F;  // of 0.9: 0.45 is reached by the first two
  Sampler sampler(o);
  CHECK(tokens_of(sampler.candidates(logits)) == std::vector<Token>{0, 1});
  o.top_p = 0.42F;  // the first has 0.4 of all, 0.44 of the three
  CHECK(tokens_of(Sampler(o).candidates(logits)) == std::vector<Token>{0});
}

TEST_CASE("the repetition penalty weakens each recent token once") {
  SamplerOptions o = only(0);
  o.repeat_penalty = 2;
  o.repeat_last_n = 3;
  Sampler sampler(o);
  const std::vector<float> logits{4, 3, -1, -1.5F};
  CHECK(sampler.sample(logits, 0) == 0);
  sampler.accept(0);
  sampler.accept(0);  // still divided by 2 only: 2 < 3
  CHECK(sampler.sample(logits, 1) == 1);
  sampler.accept(1);
  CHECK(sampler.sample(logits, 2) == 0);  // 2 against 1.5
  for (const Token t : {2, 2, 2}) sampler.accept(t);
  CHECK(sampler.sample(logits, 3) == 0);  // 0 has left the window
  sampler.rewind(2);
  CHECK(sampler.accepted() == 2);
  CHECK(sampler.sample(logits, 1) == 1);

  Sampler negative(o);
  for (const Token t : {0, 1, 2}) negative.accept(t);
  CHECK(negative.sample(std::vector<float>{-1, -1, -1, -1.5F}, 0) == 3);  // multiplied where it is negative
}

TEST_CASE("what is forbidden is not sampled unless nothing else is left") {
  Sampler greedy(only(0));
  greedy.forbid({1, 3});
  CHECK(greedy.sample(std::vector<float>{0, 9, 1, 8}, 0) == 2);
  SamplerOptions o = only();
  o.top_k = 2;
  Sampler sampler(o);
  sampler.forbid({1, 3});
  CHECK(tokens_of(sampler.candidates(std::vector<float>{0, 9, 1, 8})) == std::vector<Token>{2, 0});
  sampler.forbid({0, 1, 2, 3});
  CHECK(sampler.sample(std::vector<float>{0, 9, 1, 8}, 0) == 1);
}

TEST_CASE("a draw depends on seed, row and index alone") {
  const auto logits = random_logits(500, 4);
  SamplerOptions o = only();
  o.seed = 42;
  Sampler a(o, 3), b(o, 3), other_row(o, 4);
  o.seed = 43;
  Sampler other_seed(o, 3);
  int rows_differ = 0, seeds_differ = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Token t = a.sample(logits, i);
    rows_differ += other_row.sample(logits, i) != t ? 1 : 0;
    seeds_differ += other_seed.sample(logits, i) != t ? 1 : 0;
  }
  CHECK(rows_differ > 25);
  CHECK(seeds_differ > 25);
  std::vector<Token> forward, backward;
  for (std::uint64_t i = 0; i < 50; ++i) forward.push_back(a.sample(logits, i));
  for (std::uint64_t i = 50; i-- > 0;) backward.insert(backward.begin(), b.sample(logits, i));
  CHECK(forward == backward);
}

TEST_CASE("draws have the probabilities of the softmax at their temperature") {
  const std::vector<float> logits{2, 1, 0, -1, -2};
  constexpr double kTemperature = 0.7;
  constexpr int kDraws = 40000;
  Sampler sampler(only(static_cast<float>(kTemperature)));
  std::vector<int> count(logits.size());
  for (int i = 0; i < kDraws; ++i)
    ++count[static_cast<std::size_t>(sampler.sample(logits, static_cast<std::uint64_t>(i)))];
  const auto p = softmax(logits, kTemperature);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double deviation = std::sqrt(kDraws * p[i] * (1 - p[i]));
    CHECK(std::abs(count[i] - kDraws * p[i]) < 5 * deviation);
  }
}

TEST_CASE("huge and tiny logits do not overflow a draw") {
  Sampler sampler(only(0.001F));
  CHECK(sampler.sample(std::vector<float>{3e38F, -3e38F, 0}, 0) == 0);
  CHECK(sampler.sample(std::vector<float>{-3e38F, -3e38F, -3.1e38F}, 0) < 2);
}
