// The time of a batch is told by a walk over its rows: the same steps as the scheduler's, each with its price.
#include "runtime/batch_forecast.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "loaded.h"
#include "runtime/prefix_order.h"
#include "runtime/scheduler.h"
#include "runtime/step_probe.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Every step takes a second, whatever is in it.
const StepSpeeds kAlike{.steps = {{1, 1}, {100'000, 1}}};
/// Every token takes one.
const StepSpeeds kByTokens{.steps = {{1, 1}, {100'000, 100'000}}};

std::vector<BatchRow> many_rows(std::int64_t vocab, std::int64_t times_generated = 1) {
  const auto common = random_tokens(130, vocab, 1);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 40; ++i) {
    std::vector<Token> prompt = i % 3 == 0 ? std::vector<Token>{} : common;
    const auto own = random_tokens(1 + (i * 37) % 90, vocab, 10 + i);
    if (i % 15 != 7) prompt.insert(prompt.end(), own.begin(), own.end());
    AnswerOptions answer;
    answer.max_tokens = i % 13 == 5 ? 0 : times_generated * (1 + (i * 29) % 60);
    answer.end_token = AnswerOptions::EndToken::Ignored;
    rows.push_back({std::move(prompt), answer});
  }
  return rows;
}

std::vector<ForecastRow> in_order(std::span<const BatchRow> rows) {
  std::vector<std::span<const Token>> prompts;
  for (const BatchRow& row : rows) prompts.emplace_back(*row.prompt);
  std::vector<ForecastRow> planned;
  for (const PrefixStep& step : prefix_order(prompts)) {
    planned.push_back({.prompt = static_cast<std::int64_t>(rows[step.prompt].prompt->size()),
                       .shared = static_cast<std::int64_t>(step.shared),
                       .generated = rows[step.prompt].answer->max_tokens});
  }
  return planned;
}

/// What a batch is computed in.
struct Steps {
  std::int64_t steps = 0, tokens = 0;
};

/// Sees tokens by the first value that a step gives, which has a row of each.
class TokenCounter : public Observer {
 public:
  bool wants_value(std::string_view name) override {
    if (first_.empty()) first_ = name;
    return name == first_;
  }
  void value(std::string_view, const TensorView& v) override { tokens += v.type.shape[1]; }
  std::int64_t tokens = 0;

 private:
  std::string first_;
};

Steps steps_of(Model& model, Session& session, std::span<const BatchRow> rows, int parallel) {
  TokenCounter counter;
  session.observer = &counter;
  Steps seen;
  run_batch(model, session, rows, parallel,
            {.finished = [](BatchResult&&) {},
             .progress = [&](const BatchProgress&) {  // also where rows ended as they began, without a step
               seen.steps += counter.tokens > seen.tokens ? 1 : 0;
               seen.tokens = counter.tokens;
               return BatchControl::Continue;
             }});
  session.observer = nullptr;
  seen.tokens -= session.read_again();  // what recurrent states see again is not told
  return seen;
}

ForecastLimits limits_of(const Session& session, int parallel) {
  return {.parallel = parallel,
          .pool = session.free_positions(),
          .context = session.context(),
          .step_tokens = session.batch_tokens(),
          .recurrent = session.recurrent()};
}

Steps forecast_steps(std::span<const BatchRow> rows, const ForecastLimits& limits) {
  const std::vector<ForecastRow> planned = in_order(rows);
  const Forecast alike = forecast_batch(planned, limits, kAlike),
                 by_tokens = forecast_batch(planned, limits, kByTokens);
  CHECK(alike.seconds == Approx(static_cast<double>(alike.steps)));
  return {alike.steps, std::llround(by_tokens.seconds)};
}

}  // namespace

TEST_CASE("each step of a forecast has its price") {
  const std::vector<ForecastRow> rows{{.prompt = 10, .generated = 5}, {.prompt = 10, .generated = 3}};
  const ForecastLimits limits{.parallel = 2, .pool = 100'000};
  // 20 tokens of prompts, two steps of both rows, two of the one that is left.
  StepSpeeds speeds{.steps = {{1, 1}, {2, 1.5}, {20, 10}}};
  CHECK(forecast_batch(rows, limits, speeds).steps == 5);
  CHECK(forecast_batch(rows, limits, speeds).seconds == Approx(10 + 2 * 1.5 + 2 * 1));
  speeds.own = 0.01;  // 10 + 11 positions of each, then 12 + 13
  CHECK(forecast_batch(rows, limits, speeds).seconds == Approx(15 + 0.01 * (2 * 21 + 25)));
  speeds.prompt = 0.001;  // a token of a prompt looks back at 5 on average
  CHECK(forecast_batch(rows, limits, speeds).seconds == Approx(15.67 + 0.001 * 2 * 10 * 5));
  CHECK(speeds.of(11) == Approx(1.5 + 8.5 / 2));
  CHECK(speeds.of(40) == Approx(20));
  // One row at a time; the second has 18 tokens of the first.
  const std::vector<ForecastRow> shared{{.prompt = 20, .generated = 2}, {.prompt = 20, .shared = 18, .generated = 2}};
  const StepSpeeds back{.steps = {{1, 1}, {100, 1}}, .shared = 0.1};
  CHECK(forecast_batch(shared, {.parallel = 1, .pool = 100'000}, back).seconds == Approx(4 + 0.1 * 18));
  CHECK(forecast_batch({}, limits, speeds).steps == 0);
}

TEST_CASE("a forecast takes the scheduler's steps") {
  const TempDir folder;
  const char* const arch = GENERATE("llama", "qwen35");
  const auto model = load_tiny(folder, tiny_model({.arch = arch, .layers = 2, .context = 512}));
  const std::vector<BatchRow> rows = many_rows(model->dims().vocab);
  for (const int parallel : {1, 5, 32}) {
    for (const int step_tokens : {512, 64}) {
      CAPTURE(arch, parallel, step_tokens);
      Session session(*model, {.context = 512, .sequences = batch_sequences(parallel), .batch_tokens = step_tokens});
      REQUIRE(session.recurrent() == (arch == std::string_view("qwen35")));
      const Steps expected = steps_of(*model, session, rows, parallel),
                  found = forecast_steps(rows, limits_of(session, parallel));
      CHECK(found.steps == expected.steps);
      CHECK(found.tokens == expected.tokens);
    }
  }
}

TEST_CASE("a forecast of a cache that is too small is of rows that wait and are read again") {
  const TempDir folder;
  const char* const arch = GENERATE("llama", "qwen35");
  const auto model = load_tiny(folder, tiny_model({.arch = arch, .layers = 2, .context = 512}));
  const std::vector<BatchRow> rows = many_rows(model->dims().vocab, 4);
  std::int64_t preempted = 0;  ///< tokens that were read twice
  for (const std::int64_t pool : {512, 1024, 1536}) {
    for (const int step_tokens : {512, 64}) {
      CAPTURE(arch, pool, step_tokens);
      Session session(*model,
                      {.context = 512, .sequences = batch_sequences(16), .batch_tokens = step_tokens, .pool = pool});
      ForecastLimits limits = limits_of(session, 16);
      CHECK(limits.pool == pool);
      const Steps expected = steps_of(*model, session, rows, 16), found = forecast_steps(rows, limits);
      CHECK(found.steps == expected.steps);
      CHECK(found.tokens == expected.tokens);
      limits.pool = 100'000;
      const Steps roomy = forecast_steps(rows, limits);
      CHECK(found.steps > roomy.steps);
      preempted += found.tokens - roomy.tokens;
    }
  }
  CHECK(preempted > 0);
}

TEST_CASE("a forecast leaves out rows that are too long") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 128}));
  std::vector<BatchRow> rows = many_rows(model->dims().vocab);
  Session session(*model, {.context = 128, .sequences = batch_sequences(5), .pool = 512});
  std::vector<ForecastRow> planned = in_order(rows);
  for (ForecastRow& r : planned) r.generated = std::clamp<std::int64_t>(128 + 1 - r.prompt, 0, r.generated);
  CHECK(std::ranges::any_of(planned, [](const ForecastRow& r) { return r.prompt > 128; }));
  CHECK(forecast_batch(planned, limits_of(session, 5), kAlike).steps == steps_of(*model, session, rows, 5).steps);
}

TEST_CASE("a forecast of many rows that generate much takes no time") {
  const std::vector<ForecastRow> rows(20'000, {.prompt = 1000, .shared = 900, .generated = 4000});
  const auto start = std::chrono::steady_clock::now();
  // The first reads 1,000 tokens in two steps of 512, then all but 31 of 100 new ones fit into each.
  const Forecast f = forecast_batch(rows, {.parallel = 32, .pool = 200'000}, kAlike);
  CHECK(f.steps > std::int64_t{20'000} / 32 * 4000);
  CHECK(f.steps < std::int64_t{20'000} / 32 * 4000 * 5 / 4);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("steps are measured in a session that is left as it was") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 1024}));
  const std::vector<BatchRow> rows = many_rows(model->dims().vocab);
  for (const std::int64_t context : {1024, 128, 8}) {
    INFO("context " << context);
    Session session(*model, {.context = context, .sequences = batch_sequences(6)});
    const std::int64_t free = session.free_positions();
    double last = 0;
    const StepSpeeds speeds = measure_steps(
        *model, session, rows, {.rows = 6, .depth = 300, .shared = 100, .progress = [&](double f) { last = f; }});
    CHECK(session.free_positions() == free);
    CHECK(last > 0);
    CHECK(last <= 1);
    REQUIRE(speeds.steps.size() >= 3);
    for (std::size_t i = 0; i < speeds.steps.size(); ++i) {
      CHECK(speeds.steps[i].seconds > 0);
      if (i > 0) CHECK(speeds.steps[i].tokens > speeds.steps[i - 1].tokens);
    }
    CHECK(speeds.own >= speeds.shared);
    CHECK(speeds.shared >= 0);
    CHECK(speeds.prompt >= 0);
  }
}
