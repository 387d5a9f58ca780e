// Log probabilities, and the passes over a vocabulary that they are made of, against long double.
#include "runtime/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/logit_scan.h"
#include "support/catch.h"

using namespace llm;

namespace {

std::vector<float> random_logits(std::size_t n, unsigned seed, float spread, float center = 0) {
  std::mt19937 random(seed);
  std::vector<float> logits(n);
  for (float& l : logits) l = center + (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F) * 2 * spread;
  return logits;
}

long double log_sum(const std::vector<float>& logits) {
  long double most = -1e30L, sum = 0;
  for (const float l : logits) most = std::max(most, static_cast<long double>(l));
  for (const float l : logits) sum += std::exp(static_cast<long double>(l) - most);
  return most + std::log(sum);
}

}  // namespace

TEST_CASE("log probabilities are those of the softmax of the raw logits") {
  for (const std::size_t n : {1U, 7U, 64U, 1001U, 50257U}) {
    for (const float spread : {0.001F, 2.0F, 15.0F, 100.0F}) {
      for (const float center : {0.0F, 3000.0F, -3000.0F}) {
        const auto logits = random_logits(n, 3, spread, center);
        const long double total = log_sum(logits);
        const auto chosen = static_cast<Token>(n / 2);
        const Logprobs found = logprobs(logits, chosen, 10);
        const auto expected = [&](Token t) {
          return static_cast<double>(static_cast<long double>(logits[static_cast<std::size_t>(t)]) - total);
        };
        INFO(n << " tokens, spread " << spread << ", center " << center);
        CHECK(found.chosen.token == chosen);
        CHECK(std::abs(found.chosen.logprob - expected(chosen)) < 3e-7);
        std::vector<Token> order(n);
        for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<Token>(i);
        std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) {
          return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
        });
        REQUIRE(found.best.size() == std::min<std::size_t>(n, 10));
        for (std::size_t i = 0; i < found.best.size(); ++i) {
          CHECK(found.best[i].token == order[i]);
          CHECK(std::abs(found.best[i].logprob - expected(order[i])) < 3e-7);
        }
      }
    }
  }
}

TEST_CASE("log probabilities of what may not be, and of what is certain") {
  const std::vector<float> logits{kNever, 1, kNever};
  const Logprobs found = logprobs(logits, 0, 5);
  CHECK(found.chosen.logprob == -std::numeric_limits<double>::infinity());
  REQUIRE(found.best.size() == 1);
  CHECK(found.best[0].token == 1);
  CHECK(found.best[0].logprob == 0);
  CHECK(logprobs(std::vector<float>{3e38F, -3e38F}, 0, 1).chosen.logprob == 0);
  CHECK(logprobs(logits, 1, 0).best.empty());
}

TEST_CASE("sums over a vocabulary are exact to a few parts in ten million") {
  for (const std::size_t n : {1U, 2U, 3U, 5U, 1000U, 32003U}) {
    auto logits = random_logits(n, 8, 40);
    for (std::size_t i = 1; i < n; i += 5) logits[i] = kNever;
    const float most = largest(logits);
    CHECK(most == *std::max_element(logits.begin(), logits.end()));
    CHECK(best_of(logits).token == std::max_element(logits.begin(), logits.end()) - logits.begin());
    long double total = 0, moment = 0, sum = 0, squares = 0;
    std::size_t count = 0;
    for (const float l : logits) {
      if (l == kNever) continue;
      const auto d = static_cast<long double>(l) - static_cast<long double>(most);
      total += std::exp(d);
      moment += d * std::exp(d);
      sum += static_cast<long double>(l);
      ++count;
    }
    const long double mean = sum / static_cast<long double>(count);
    for (const float l : logits) {
      if (l != kNever) squares += (static_cast<long double>(l) - mean) * (static_cast<long double>(l) - mean);
    }
    const ExpSums e = exp_sums(logits, most);
    CHECK(e.total == Approx(static_cast<double>(total)).epsilon(3e-7));
    CHECK(e.moment == Approx(static_cast<double>(moment)).epsilon(3e-7));
    const Moments m = moments(logits);
    CHECK(m.count == count);
    CHECK(m.mean == Approx(static_cast<double>(mean)).margin(1e-9));
    CHECK(m.deviation ==
          Approx(static_cast<double>(std::sqrt(squares / static_cast<long double>(count)))).epsilon(1e-6));
  }
}
