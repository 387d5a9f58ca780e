// The selective state space against its scalar meaning: sequences side by side, from a state and from none.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/recurrent.h"
#include "backend/host/ops.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

const Launch kLaunch{};
constexpr int kSlots = 3;

struct Weights {
  std::vector<float> a, d, bias;
};

/// What the reference makes of a run's tokens; the state of slot `to` is left as the kernel should leave it.
void scan_by_tokens(const ScanShape& s, const SequenceRun& run, const std::vector<float>& xbc,
                    const std::vector<float>& dt, const Weights& w, std::vector<float>& states, std::vector<float>& y) {
  const std::int64_t size = std::int64_t{s.n} * s.p, width = s.heads * s.p + 2 * s.groups * s.n;
  for (int h = 0; h < s.heads; ++h) {
    const auto at = [&](int slot) { return states.begin() + (std::int64_t{slot} * s.heads + h) * size; };
    if (run.from < 0)
      std::fill_n(at(run.to), size, 0.0f);
    else if (run.from != run.to)
      std::copy_n(at(run.from), size, at(run.to));
    for (int t = run.first_token; t < run.first_token + run.n_tokens; ++t) {
      const float* const x = xbc.data() + t * width;
      const float* const b = x + s.heads * s.p + h / (s.heads / s.groups) * s.n;
      host::scan_token<double>({.x = x + h * s.p,
                                .b = b,
                                .c = b + s.groups * s.n,
                                .dt = dt.data() + t * s.heads + h,
                                .a = w.a.data() + h,
                                .d = w.d.data() + h,
                                .bias = w.bias.data() + h,
                                .y = y.data() + (std::int64_t{t} * s.heads + h) * s.p},
                               &*at(run.to), s.n, s.p);
    }
  }
}

double largest_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  double largest = 0, worst = 0;
  for (const float e : expected) largest = std::max(largest, std::abs(double{e}));
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(double{expected[i]} - double{actual[i]}));
  return worst / largest;
}

}  // namespace

TEST_CASE("a selective state space goes on from its state, beside other sequences") {
  if (no_device()) return;
  Random random(31);
  for (const ScanShape s : {ScanShape{1, 1, 1, 1, 2}, ScanShape{4, 128, 64, 1, 2}, ScanShape{6, 67, 33, 3, 2},
                            ScanShape{2, 256, 80, 2, 2}}) {
    constexpr int kTokens = 45;
    const std::vector<SequenceRun> runs = {{0, 40, 1, 2}, {40, 5, -1, 0}};
    const auto heads = static_cast<std::size_t>(s.heads);
    const auto width = static_cast<std::size_t>(s.heads * s.p + 2 * s.groups * s.n);
    const std::vector<float> xbc = random.floats(kTokens * width), dt = random.floats(kTokens * heads);
    Weights w{random.floats(heads), random.floats(heads), random.floats(heads)};
    for (float& a : w.a) a = -std::exp(a);
    std::vector<float> states = random.floats(kSlots * heads * static_cast<std::size_t>(s.n * s.p));
    std::vector<float> expected(kTokens * heads * static_cast<std::size_t>(s.p));
    const OnDevice<float> device_xbc(xbc), device_dt(dt), a(w.a), d(w.d), bias(w.bias), device_states(states),
        y(expected.size());
    const OnDevice<SequenceRun> device_runs(runs);
    StepView step;
    step.runs = device_runs.data();
    selective_scan(s, {device_xbc.data(), device_dt.data(), a.data(), d.data(), bias.data(), device_states.data()},
                   step, kTokens, y.data(), kLaunch);
    for (const SequenceRun& run : runs) scan_by_tokens(s, run, xbc, dt, w, states, expected);
    INFO("states of " << s.n << " x " << s.p);
    CHECK(largest_error(expected, y.read()) < 1e-5);
    CHECK(largest_error(states, device_states.read()) < 1e-5);
  }
}

}  // namespace llm::cuda::test
