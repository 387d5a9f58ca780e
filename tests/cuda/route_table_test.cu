// Experts that a table names: of tokens that the step brings and of those that were drawn, twice the same, and none.
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/rows.h"
#include "backend/host/ops.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {

TEST_CASE("a table names each token's experts") {
  if (no_device()) return;
  constexpr int kExperts = 70, kVocab = 9, kTokens = 13;
  Random random(47);
  for (const Gating gating : {Gating::Softmax, Gating::Sigmoid, Gating::RootSoftplus}) {
    for (const RouteWeights weights : {RouteWeights::AsGated, RouteWeights::Renormalized}) {
      for (const int top_k : {1, 6, 33}) {
        const Route op{.top_k = top_k, .gating = gating, .weights = weights, .scale = 1.5f};
        const auto k = static_cast<std::size_t>(top_k);
        std::vector<std::int32_t> table, given, tokens;
        for (std::size_t i = 0; i < kVocab * k; ++i) table.push_back(static_cast<std::int32_t>(9 * i) % kExperts);
        if (top_k > 1) table[1] = table[0];  // of the first token twice the same
        const std::vector<std::int32_t> drawn{4, 0};
        for (int t = 0; t < kTokens; ++t) {
          given.push_back(t % 4 == 3 ? ~(t % 2) : t % kVocab);
          tokens.push_back(given.back() < 0 ? drawn[static_cast<std::size_t>(~given.back())] : given.back());
        }
        std::vector<float> logits = random.floats(kTokens * kExperts, 2);
        logits[5 * kExperts + 69] = std::nanf("");
        const OnDevice<std::int32_t> device_table(table), device_tokens(given), device_drawn(drawn), ids(kTokens * k);
        const OnDevice<float> device_logits(logits), device_weights(kTokens * k);
        Router router{.op = op};
        router.table = device_table.data();
        router.tokens = device_tokens.data();
        router.drawn = device_drawn.data();
        router.vocab = kVocab;
        route(router, device_logits.data(), kExperts, kTokens, ids.data(), device_weights.data(), Launch{});
        std::vector<std::int32_t> expected_ids;
        std::vector<float> expected(kTokens * k);
        for (std::size_t t = 0; t < kTokens; ++t) {
          const auto named = table.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(tokens[t]) * k);
          expected_ids.insert(expected_ids.end(), named, named + top_k);
          const float* const row = logits.data() + t * kExperts;
          host::weigh_experts<double>(op, host::TokenGates<double>(op, row, kExperts), expected_ids.data() + t * k,
                                      expected.data() + t * k);
        }
        INFO(name(gating) << ", " << top_k << " experts, weights " << static_cast<int>(weights));
        CHECK(ids.read() == expected_ids);
        CHECK(worst(expected, device_weights.read(), kExperts) <= 1);
      }
    }
  }
}

TEST_CASE("what is no expert in a table, and a token that it lacks, make weights that are no numbers") {
  if (no_device()) return;
  const OnDevice<std::int32_t> table(std::vector<std::int32_t>{0, 8, -1, 3, 1, 2}),
      tokens(std::vector<std::int32_t>{0, 1, 2, 3}), ids(8);
  const OnDevice<float> logits(std::vector<float>(32, 0.5f)), weights(8);
  Router router{.op = {.top_k = 2, .gating = Gating::RootSoftplus}};
  router.table = table.data();
  router.tokens = tokens.data();
  router.vocab = 3;
  route(router, logits.data(), 8, 4, ids.data(), weights.data(), Launch{});
  const std::vector<std::int32_t> chosen = ids.read();
  const std::vector<float> w = weights.read();
  const auto gate = static_cast<float>(std::sqrt(std::log1p(std::exp(0.5))));
  for (std::size_t i = 0; i < 8; ++i) {
    INFO("slot " << i);
    const bool is_one = i == 0 || i == 3 || i == 4 || i == 5;
    CHECK((chosen[i] >= 0 && chosen[i] < 8));
    if (is_one)
      CHECK(std::fabs(w[i] - gate) <= 4e-7f);
    else
      CHECK(std::isnan(w[i]));
  }
}

}  // namespace llm::cuda::test
