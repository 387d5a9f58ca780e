// The time of a batch is told by a walk over its rows: the same steps as the scheduler's, each with its price.
#include "runtime/batch_forecast.h"

#include <algorithm>

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

std::vector<BatchRow> many_rows(std::int64_t vocab) {
  const auto common = random_tokens(130, vocab, 1);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 40; ++i) {
    std::vector<Token> prompt = i % 3 == 0 ? std::vector<Token>{} : common;
    const auto own = random_tokens(1 + (i * 37) % 90, vocab, 10 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    AnswerOptions answer;
    answer.max_tokens = i % 13 == 5 ? 0 : 1 + (i * 29) % 60;
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
    const std::size_t shared = std::min(step.shared, rows[step.prompt].prompt->size() - 1);
    planned.push_back({.prompt = static_cast<std::int64_t>(rows[step.prompt].prompt->size()),
                       .shared = shared < kLeastShared ? 0 : static_cast<std::int64_t>(shared),
                       .generated = rows[step.prompt].answer->max_tokens});
  }
  return planned;
}

/// Of the scheduler: how often it was asked whether to go on and had computed something since.
std::int64_t steps_of(Model& model, Session& session, std::span<const BatchRow> rows, int parallel) {
  std::int64_t steps = 0, before = 0;
  run_batch(model, session, rows, parallel,
            {.finished = [](BatchResult&&) {},
             .progress =
                 [&](const BatchProgress& p) {
                   const std::int64_t now = p.prompt_tokens + p.generated_tokens;
                   steps += now > before ? 1 : 0;
                   before = now;
                   return BatchControl::Continue;
                 }});
  return steps;
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
  // One row at a time; the second has 8 tokens of the first.
  const std::vector<ForecastRow> shared{{.prompt = 10, .generated = 2}, {.prompt = 10, .shared = 8, .generated = 2}};
  const StepSpeeds back{.steps = {{1, 1}, {100, 1}}, .shared = 0.1};
  CHECK(forecast_batch(shared, {.parallel = 1, .pool = 100'000}, back).seconds == Approx(4 + 0.1 * 8));
  CHECK(forecast_batch({}, limits, speeds).steps == 0);
}

TEST_CASE("a forecast takes the scheduler's steps") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 512}));
  const std::vector<BatchRow> rows = many_rows(model->dims().vocab);
  for (const int parallel : {1, 5, 32}) {
    for (const int step_tokens : {512, 64}) {
      INFO(parallel << " at once, steps of " << step_tokens);
      Session session(*model, {.context = 512, .sequences = batch_sequences(parallel), .batch_tokens = step_tokens});
      const Forecast f = forecast_batch(
          in_order(rows),
          {.parallel = parallel, .pool = session.free_positions(), .step_tokens = session.batch_tokens()}, kAlike);
      CHECK(f.steps == steps_of(*model, session, rows, parallel));
      CHECK(f.seconds == Approx(static_cast<double>(f.steps)));
    }
  }
}

TEST_CASE("a forecast of a cache that is too small is of rows that wait and are read again") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 512}));
  const std::vector<BatchRow> rows = many_rows(model->dims().vocab);
  Session session(*model, {.context = 512, .sequences = batch_sequences(16), .pool = 1024});
  const ForecastLimits limits{.parallel = 16, .pool = session.free_positions(), .step_tokens = session.batch_tokens()};
  const std::int64_t expected = steps_of(*model, session, rows, 16);
  const std::int64_t steps = forecast_batch(in_order(rows), limits, kAlike).steps;
  ForecastLimits roomy = limits;
  roomy.pool = 100'000;
  CHECK(2 * steps > 3 * forecast_batch(in_order(rows), roomy, kAlike).steps);
  // Beginnings in common count as the first row's.
  CHECK(static_cast<double>(steps) == Approx(static_cast<double>(expected)).epsilon(0.15));
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
