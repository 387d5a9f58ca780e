// Hashes of the last tokens against their scalar meaning: sequences side by side, from a state and from none, of tokens
// that the step brings and of those that were drawn.
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/hash_ids.h"
#include "backend/host/ops.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

constexpr int kSlots = 4, kVocabulary = 50;

HashIds some_hashes(int tokens, int of_each, Random& random) {
  HashIds op;
  for (int i = 0; i < tokens; ++i)
    op.multipliers.push_back((std::uint64_t{1} << 60) * 7 + static_cast<std::uint64_t>(random.below(1 << 30)) * 2 + 1);
  for (int h = 0; h < (tokens - 1) * of_each; ++h) {
    op.sizes.push_back(1 + random.below(100000));
    op.offsets.push_back(h * 100000);
  }
  op.stop = 3;
  return op;
}

}  // namespace

TEST_CASE("hashes of tokens go on from their states, beside other sequences") {
  if (no_device()) return;
  Random random(41);
  struct Case {
    int tokens, of_each;
  };
  for (const Case& k : {Case{2, 1}, {3, 8}, {4, 2}, {16, 3}}) {
    const HashIds op = some_hashes(k.tokens, k.of_each, random);
    const OnDevice<std::uint64_t> multipliers(op.multipliers);
    const OnDevice<std::int32_t> sizes(op.sizes), offsets(op.offsets);
    const auto heads = op.sizes.size(), kept = static_cast<std::size_t>(k.tokens - 1);
    for (const int longest : {1, 2, 300}) {
      const std::vector<SequenceRun> runs = {{0, longest, 1, 1}, {longest, 5, 3, 0}, {longest + 5, 1, -1, 2}, {}};
      const auto n = static_cast<std::size_t>(longest + 6);
      std::vector<std::int32_t> tokens, given;
      const std::vector<std::int32_t> drawn{7, 3, 11};
      for (std::size_t t = 0; t < n; ++t) {
        const bool is_drawn = random.below(4) == 0;
        given.push_back(is_drawn ? ~random.below(3) : random.below(8) == 0 ? op.stop : random.below(kVocabulary));
        tokens.push_back(is_drawn ? drawn[static_cast<std::size_t>(~given.back())] : given.back());
      }
      std::vector<float> states;  // with zeros where sequences were short
      for (std::size_t i = 0; i < kSlots * kept; ++i)
        states.push_back(static_cast<float>(i % kept < kept / 3 ? 0 : 1 + random.below(kVocabulary)));
      const OnDevice<std::int32_t> device_tokens(given), device_drawn(drawn), ids(n * heads);
      const OnDevice<float> device_states(states);
      const OnDevice<SequenceRun> device_runs(runs);
      StepView step;
      step.tokens = device_tokens.data();
      step.drawn = device_drawn.data();
      step.runs = device_runs.data();
      const HashRule rule{.multipliers = multipliers.data(),
                          .sizes = sizes.data(),
                          .offsets = offsets.data(),
                          .tokens = k.tokens,
                          .heads = static_cast<int>(heads),
                          .stop = op.stop};
      hash_ids(rule, step, static_cast<int>(runs.size()), device_states.data(), ids.data(), Launch{});
      std::vector<std::int32_t> expected(n * heads);
      for (const SequenceRun& run : runs) {
        if (run.n_tokens == 0) continue;
        const auto first = static_cast<std::size_t>(run.first_token);
        const auto slot = [&](int i) { return states.data() + static_cast<std::size_t>(i) * kept; };
        host::hash_ids(op, std::span(tokens).subspan(first, static_cast<std::size_t>(run.n_tokens)),
                       run.from < 0 ? nullptr : slot(run.from), slot(run.to), expected.data() + first * heads);
      }
      INFO(k.tokens << " tokens, " << heads << " heads, " << longest << " tokens");
      CHECK(ids.read() == expected);
      CHECK(device_states.read() == states);
    }
  }
}

}  // namespace llm::cuda::test
