// Neighbouring positions that become one row, against their scalar meaning: sequences side by side, from a state and
// from none, at any place among their neighbours; the bits of a prompt that is cut.
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/compress.h"
#include "backend/host/ops.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

constexpr int kSlots = 4;

/// A step, and what slots and results are before it.
struct CompressScene {
  CompressShape shape;
  std::vector<SequenceRun> runs;
  std::vector<std::int32_t> positions;
  std::vector<float> x, scores, places, states;

  CompressScene(const CompressShape& s, const std::vector<SequenceRun>& of, const std::vector<int>& first_positions,
                Random& random)
      : shape(s), runs(of) {
    shape.sequences = static_cast<int>(runs.size());
    for (std::size_t r = 0; r < runs.size(); ++r)
      for (int t = 0; t < runs[r].n_tokens; ++t) positions.push_back(first_positions[r] + t);
    const auto width = static_cast<std::size_t>(s.parts * s.n);
    x = random.floats(positions.size() * width);
    scores = random.floats(positions.size() * width, 3);
    places = random.floats(static_cast<std::size_t>(s.stride) * width);
    states = random.floats(kSlots * 3 * width);
    // Sums of weights are positive; some have none yet.
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (i / static_cast<std::size_t>(s.n) % 3 == 1) states[i] = i % 5 == 0 ? 0.0f : 0.5f + std::fabs(states[i]);
    }
  }
  std::size_t slot_size() const { return static_cast<std::size_t>(3 * shape.parts * shape.n); }

  struct Result {
    std::vector<float> y, states;
  };
  Result expected() const {
    Result r{std::vector<float>(positions.size() * static_cast<std::size_t>(shape.n)), states};
    for (const SequenceRun& run : runs) {
      if (run.n_tokens == 0) continue;
      float* const state = r.states.data() + static_cast<std::size_t>(run.to) * slot_size();
      if (run.from < 0)
        std::fill_n(state, slot_size(), 0.0f);
      else if (run.from != run.to)
        std::copy_n(r.states.data() + static_cast<std::size_t>(run.from) * slot_size(), slot_size(), state);
      const std::int64_t first = run.first_token, width = std::int64_t{shape.parts} * shape.n;
      const host::CompressRun c{.x = x.data() + first * width,
                                .scores = scores.data() + first * width,
                                .places = places.data(),
                                .positions = positions.data() + first,
                                .state = state,
                                .y = r.y.data() + first * shape.n,
                                .n = shape.n,
                                .parts = shape.parts,
                                .stride = shape.stride,
                                .tokens = run.n_tokens};
      for (int i = 0; i < shape.n; ++i) host::compress_element<double>(c, i);
    }
    return r;
  }
  /// In steps of at most `at_once` tokens of a run.
  Result run(int at_once) const {
    const OnDevice<float> device_x(x), device_scores(scores), device_places(places), device_states(states),
        y(positions.size() * static_cast<std::size_t>(shape.n));
    const OnDevice<std::int32_t> device_positions(positions);
    int longest = 0;
    for (const SequenceRun& r : runs) longest = std::max(longest, r.n_tokens);
    for (int begin = 0; begin < longest; begin += at_once) {
      std::vector<SequenceRun> now = runs;
      for (SequenceRun& r : now) {
        const int n = std::clamp(r.n_tokens - begin, 0, at_once);
        r = n == 0 ? SequenceRun{} : SequenceRun{r.first_token + begin, n, begin == 0 ? r.from : r.to, r.to};
      }
      const OnDevice<SequenceRun> device_runs(now);
      StepView step;
      step.runs = device_runs.data();
      const CompressOperands operands{.x = device_x.data(),
                                      .scores = device_scores.data(),
                                      .places = device_places.data(),
                                      .positions = device_positions.data(),
                                      .states = device_states.data()};
      compress(shape, operands, step, std::min(at_once, longest), y.data(), Launch{});
      check_cuda(cudaDeviceSynchronize(), "running a step");
    }
    return {y.read(), device_states.read()};
  }
};

}  // namespace

TEST_CASE("neighbours become one row, beside other sequences and however their prompts are cut") {
  if (no_device()) return;
  Random random(43);
  for (const int parts : {1, 2}) {
    for (const int stride : {2, 4, 5, 128}) {
      for (const int longest : {1, 3, 40, 300}) {
        const std::vector<SequenceRun> runs = {{0, longest, 1, 1}, {longest, 5, 3, 0}, {longest + 5, 2, -1, 2}, {}};
        const CompressScene scene({.n = 150, .parts = parts, .stride = stride}, runs, {131, 2, 0, 0}, random);
        INFO(parts << " parts, stride " << stride << ", " << longest << " tokens");
        const CompressScene::Result e = scene.expected(), whole = scene.run(1000);
        CHECK(worst(e.y, whole.y, 8 * stride) <= 1);
        CHECK(worst(e.states, whole.states, 8 * stride) <= 1);
        for (const int at_once : {1, 7}) {
          const CompressScene::Result cut = scene.run(at_once);
          CHECK(first_difference(cut.y, whole.y) == -1);
          CHECK(first_difference(cut.states, whole.states) == -1);
        }
      }
    }
  }
}

}  // namespace llm::cuda::test
