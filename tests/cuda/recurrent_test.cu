// Selective state spaces and the gated delta rule with decays of rows against their scalar meaning: sequences side by
// side, from a state and from none.
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

/// Slot `to` of a run as it is before its first token, of one head.
std::vector<float>::iterator begin_state(const SequenceRun& run, int heads, int head, std::int64_t size,
                                         std::vector<float>& states) {
  const auto at = [&](int slot) { return states.begin() + (std::int64_t{slot} * heads + head) * size; };
  if (run.from < 0)
    std::fill_n(at(run.to), size, 0.0f);
  else if (run.from != run.to)
    std::copy_n(at(run.from), size, at(run.to));
  return at(run.to);
}

/// Of a head: one, or one for each element.
int steps_of(const ScanShape& s) { return s.steps == Steps::OfElements ? s.p : 1; }

/// What the reference makes of a run's tokens; the state of slot `to` is left as the kernel should leave it.
void scan_by_tokens(const ScanShape& s, const SequenceRun& run, const std::vector<float>& xbc,
                    const std::vector<float>& dt, const Weights& w, std::vector<float>& states, std::vector<float>& y) {
  const std::int64_t size = std::int64_t{s.n} * s.p, width = s.heads * s.p + 2 * s.groups * s.n;
  const bool of_elements = s.steps == Steps::OfElements;
  const std::int64_t steps = steps_of(s);
  for (int h = 0; h < s.heads; ++h) {
    float* const state = &*begin_state(run, s.heads, h, size, states);
    for (int t = run.first_token; t < run.first_token + run.n_tokens; ++t) {
      const float* const x = xbc.data() + t * width;
      const float* const b = x + s.heads * s.p + h / (s.heads / s.groups) * s.n;
      host::scan_token<double>({.x = x + h * s.p,
                                .b = b,
                                .c = b + s.groups * s.n,
                                .dt = dt.data() + (std::int64_t{t} * s.heads + h) * steps,
                                .a = w.a.data() + h * (of_elements ? steps * s.n : 1),
                                .d = w.d.data() + h * steps,
                                .bias = w.bias.data() + h * steps,
                                .of_elements = of_elements,
                                .y = y.data() + (std::int64_t{t} * s.heads + h) * s.p},
                               state, s.n, s.p);
    }
  }
}

/// The same of the delta rule, each row with a decay of its own.
void delta_by_tokens(const DeltaShape& s, const SequenceRun& run, const std::vector<float>& qkv,
                     const std::vector<float>& alpha, const std::vector<float>& beta, const Weights& w,
                     std::vector<float>& states, std::vector<float>& y) {
  const std::int64_t keys = std::int64_t{s.op.key_heads} * s.dk, width = 2 * keys + std::int64_t{s.heads} * s.dv;
  std::vector<double> work(static_cast<std::size_t>(3 * s.dk + 2 * s.dv));
  for (int h = 0; h < s.heads; ++h) {
    float* const state = &*begin_state(run, s.heads, h, std::int64_t{s.dk} * s.dv, states);
    for (int t = run.first_token; t < run.first_token + run.n_tokens; ++t) {
      const float* const q = qkv.data() + t * width + h / (s.heads / s.op.key_heads) * s.dk;
      const std::int64_t here = std::int64_t{t} * s.heads + h;
      const double rate = 1 / (1 + std::exp(-double{beta[static_cast<std::size_t>(here)]}));
      host::delta_token<double>({.q = q,
                                 .k = q + keys,
                                 .v = qkv.data() + t * width + 2 * keys + h * s.dv,
                                 .alpha = alpha.data() + here * s.dk,
                                 .bias = w.bias.data() + h * s.dk,
                                 .decays = s.dk,
                                 .a = w.a[static_cast<std::size_t>(h)],
                                 .rate = rate,
                                 .floor = s.op.floor,
                                 .y = y.data() + here * s.dv},
                                state, s.dk, s.dv, s.op.eps, work.data());
    }
  }
}

/// The same of a convolution or, without weights, a mean.
void convolve_by_channels(const ConvShape& s, const SequenceRun& run, const std::vector<float>& x,
                          const std::vector<float>& w, const std::vector<float>& bias, std::vector<float>& states,
                          std::vector<float>& y) {
  host::ConvRun c{.activation = s.activation,
                  .w = w.empty() ? nullptr : w.data(),
                  .bias = bias.empty() ? nullptr : bias.data(),
                  .channels = s.channels,
                  .width = s.width,
                  .dilation = s.dilation,
                  .tokens = run.n_tokens};
  c.x = x.data() + run.first_token * s.channels;
  c.y = y.data() + run.first_token * s.channels;
  c.from = run.from < 0 ? nullptr : states.data() + run.from * c.kept() * s.channels;
  c.to = states.data() + run.to * c.kept() * s.channels;
  std::vector<float> line(static_cast<std::size_t>(c.kept() + run.n_tokens));
  for (int channel = 0; channel < s.channels; ++channel) host::convolve_channel<double>(c, channel, line.data());
}

double largest_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  double largest = 0, worst = 0;
  for (const float e : expected) largest = std::max(largest, std::abs(double{e}));
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(double{expected[i]} - double{actual[i]}));
  return worst / largest;
}

}  // namespace

TEST_CASE("convolutions of tokens that are apart, wide ones and means go on from their states") {
  if (no_device()) return;
  Random random(33);
  struct Case {
    int width, dilation;
    Activation activation;
    enum class Taps { None, Some } taps;
  };
  using enum Case::Taps;
  for (const Case& k : {Case{4, 1, Activation::Silu, Some},
                        {4, 3, Activation::Silu, Some},
                        {3, 16, Activation::Identity, Some},
                        {8, 1, Activation::Silu, Some},
                        {9, 1, Activation::Identity, Some},
                        {40, 2, Activation::Identity, Some},
                        {2, 1, Activation::Identity, None},
                        {4, 1, Activation::Identity, None},
                        {64, 1, Activation::Identity, None}}) {
    for (const int longest : {2, 17, 150}) {  // whose state has its own rows, some of them, none
      // In the slot that the state is in, in another one, and from no state.
      const std::vector<SequenceRun> runs = {{0, longest, 1, 1}, {longest, 5, 3, 0}, {longest + 5, 1, -1, 2}};
      const auto tokens = static_cast<std::size_t>(longest + 6);
      const ConvShape s{
          .channels = 141, .width = k.width, .sequences = 4, .activation = k.activation, .dilation = k.dilation};
      const auto channels = static_cast<std::size_t>(s.channels), width = static_cast<std::size_t>(s.width);
      const std::vector<float> x = random.floats(tokens * channels);
      const std::vector<float> w = k.taps == Some ? random.floats(width * channels) : std::vector<float>();
      const std::vector<float> bias = k.taps == Some ? random.floats(channels) : std::vector<float>();
      std::vector<float> states = random.floats(4 * (width - 1) * static_cast<std::size_t>(k.dilation) * channels);
      std::vector<float> expected(tokens * channels);
      const OnDevice<float> device_x(x), device_w(w.empty() ? x : w), device_bias(bias.empty() ? x : bias),
          device_states(states), y(expected.size());
      std::vector<SequenceRun> all = runs;
      all.push_back({});
      const OnDevice<SequenceRun> device_runs(all);
      StepView step;
      step.runs = device_runs.data();
      const ConvOperands operands{.x = device_x.data(),
                                  .w = w.empty() ? nullptr : reinterpret_cast<const std::byte*>(device_w.data()),
                                  .w_type = DType::F32,
                                  .bias = bias.empty() ? nullptr : device_bias.data(),
                                  .states = device_states.data()};
      short_conv(s, operands, step, static_cast<int>(tokens), y.data(), kLaunch);
      for (const SequenceRun& run : runs) convolve_by_channels(s, run, x, w, bias, states, expected);
      INFO("width " << k.width << ", " << k.dilation << " apart, " << longest << " tokens");
      CHECK(largest_error(expected, y.read()) < 1e-5);
      CHECK(states == device_states.read());
    }
  }
}

TEST_CASE("a selective state space goes on from its state, beside other sequences") {
  if (no_device()) return;
  Random random(31);
  for (const ScanShape s :
       {ScanShape{1, 1, 1, 1, 2}, ScanShape{4, 128, 64, 1, 2}, ScanShape{6, 67, 33, 3, 2}, ScanShape{2, 256, 80, 2, 2},
        ScanShape{1, 16, 96, 1, 2, Steps::OfElements}, ScanShape{2, 9, 45, 2, 2, Steps::OfElements},
        ScanShape{1, 70, 33, 1, 2, Steps::OfElements}, ScanShape{1, 200, 40, 1, 2, Steps::OfElements}}) {
    constexpr int kTokens = 45;
    const std::vector<SequenceRun> runs = {{0, 40, 1, 2}, {40, 5, -1, 0}};
    const auto heads = static_cast<std::size_t>(s.heads);
    const auto width = static_cast<std::size_t>(s.heads * s.p + 2 * s.groups * s.n);
    const std::size_t steps = heads * static_cast<std::size_t>(steps_of(s));
    const std::size_t decays = s.steps == Steps::OfElements ? steps * static_cast<std::size_t>(s.n) : heads;
    const std::vector<float> xbc = random.floats(kTokens * width), dt = random.floats(kTokens * steps);
    Weights w{random.floats(decays), random.floats(steps), random.floats(steps)};
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

TEST_CASE("a gated delta rule with decays of rows goes on from its state, beside other sequences") {
  if (no_device()) return;
  Random random(32);
  for (const DeltaShape s :
       {DeltaShape{1, 1, 1, 2, {1, HeadSharing::Grouped, 1e-6f}, Decays::OfRows},
        DeltaShape{4, 128, 128, 2, {4, HeadSharing::Grouped, 1e-6f}, Decays::OfRows},
        DeltaShape{4, 67, 33, 2, {2, HeadSharing::Grouped, 1e-6f}, Decays::OfRows},
        DeltaShape{2, 256, 40, 2, {1, HeadSharing::Grouped, 1e-6f}, Decays::OfRows},
        DeltaShape{4, 67, 33, 2, {2, HeadSharing::Grouped, 1e-6f, /*floor=*/-5}, Decays::OfRows}}) {
    constexpr int kTokens = 45;
    const std::vector<SequenceRun> runs = {{0, 40, 1, 2}, {40, 5, -1, 0}};
    const auto heads = static_cast<std::size_t>(s.heads), rows = heads * static_cast<std::size_t>(s.dk);
    const auto width = static_cast<std::size_t>(2 * s.op.key_heads * s.dk + s.heads * s.dv);
    const std::vector<float> qkv = random.floats(kTokens * width), alpha = random.floats(kTokens * rows),
                             beta = random.floats(kTokens * heads);
    Weights w{random.floats(heads), {}, random.floats(rows)};
    for (float& a : w.a) a = -std::exp(a);
    std::vector<float> states = random.floats(kSlots * rows * static_cast<std::size_t>(s.dv));
    std::vector<float> expected(kTokens * heads * static_cast<std::size_t>(s.dv));
    const OnDevice<float> device_qkv(qkv), device_alpha(alpha), device_beta(beta), a(w.a), bias(w.bias),
        device_states(states), y(expected.size());
    const OnDevice<SequenceRun> device_runs(runs);
    StepView step;
    step.runs = device_runs.data();
    gated_delta(
        s, {device_qkv.data(), device_alpha.data(), device_beta.data(), a.data(), bias.data(), device_states.data()},
        step, kTokens, y.data(), kLaunch);
    for (const SequenceRun& run : runs) delta_by_tokens(s, run, qkv, alpha, beta, w, states, expected);
    INFO("keys of " << s.dk << ", values of " << s.dv);
    CHECK(largest_error(expected, y.read()) < 1e-5);
    CHECK(largest_error(states, device_states.read()) < 1e-5);
  }
}

}  // namespace llm::cuda::test
