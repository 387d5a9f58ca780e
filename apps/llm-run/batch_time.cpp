#include "batch_time.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/progress.h"
#include "plan.h"
#include "runtime/batch_outlook.h"
#include "runtime/prefix_order.h"
#include "runtime/step_probe.h"

namespace llm::app {
namespace {

enum class Answers : std::uint8_t { Shortest, Longest };

struct Plan {
  std::vector<ForecastRow> rows;
  std::int64_t generated = 0;  ///< tokens of the longest answers
  std::size_t unlimited = 0;   ///< rows that may fill the context
  bool certain = true;         ///< nothing can end a row before it has them all
};

bool may_end_early(const AnswerOptions& a) {
  return a.end_token == AnswerOptions::EndToken::Stops || !a.stop_strings.empty() || a.constraint;
}

Plan plan_of(std::span<const BatchRow> rows, RowOrder order, std::int64_t context) {
  std::vector<std::span<const Token>> prompts;
  for (const BatchRow& row : rows) prompts.emplace_back(*row.prompt);
  Plan plan;
  for (const PrefixStep& step : prefix_order(prompts, order)) {
    const BatchRow& row = rows[step.prompt];
    plan.rows.push_back({.prompt = static_cast<std::int64_t>(row.prompt->size()),
                         .shared = static_cast<std::int64_t>(step.shared),
                         .generated = most_tokens(row, context)});
    plan.generated += plan.rows.back().generated;
    plan.unlimited += row.answer->max_tokens < 0 ? 1 : 0;
    plan.certain = plan.certain && !may_end_early(*row.answer) && row.answer->max_tokens >= 0;
  }
  return plan;
}

/// What a row looks back at while it generates, on average over all tokens.
ProbeOptions probe_of(const Plan& plan, int parallel) {
  double tokens = 0, positions = 0, shared = 0;
  for (const ForecastRow& r : plan.rows) {
    const auto n = static_cast<double>(r.generated);
    tokens += n;
    positions += n * (static_cast<double>(r.prompt) + n / 2);
    shared += n * static_cast<double>(r.shared);
  }
  const auto mean = [&](double sum) { return tokens > 0 ? static_cast<std::int64_t>(sum / tokens) : 0; };
  return {.rows = parallel, .depth = mean(positions), .shared = mean(shared)};
}

double seconds(std::vector<ForecastRow> rows, Answers answers, const ForecastLimits& limits, const StepSpeeds& speeds) {
  if (answers == Answers::Shortest) {
    for (ForecastRow& r : rows) r.generated = std::min<std::int64_t>(r.generated, 1);
  }
  return forecast_batch(rows, limits, speeds).seconds;
}

std::string speeds_text(const StepSpeeds& speeds, int parallel) {
  std::string text;
  for (const StepSpeeds::Point& p : speeds.steps) {
    const bool generates = p.tokens <= parallel;
    text += (text.empty() ? "" : ", ") + number_text(p.tokens) +
            (generates ? (p.tokens == 1 ? " row " : " rows ") : " prompt tokens ") + fixed_text(p.seconds * 1e3, 1) +
            " ms";
  }
  return text;
}

std::string time_text(const Plan& plan, const ForecastLimits& limits, const StepSpeeds& speeds) {
  const std::string most = duration_text(seconds(plan.rows, Answers::Longest, limits, speeds));
  const std::string tokens = number_text(plan.generated) + " tokens";
  if (plan.certain) return "about " + most + ", for all " + tokens + " that the rows generate";
  return duration_text(seconds(plan.rows, Answers::Shortest, limits, speeds)) + " to " + most +
         ": from rows that end with their first token to rows that generate all they may, " + tokens;
}

bool weights_stay(const ContextRequest& request) {
  return std::all_of(request.memories.begin(), request.memories.end(),
                     [](const MemoryNeeds& m) { return m.weight_bytes <= m.available; });
}

std::string estimate(Model& model, const SessionOptions& options, std::span<const BatchRow> rows, RowOrder order,
                     int parallel) {
  if (!weights_stay(memory_request(model, options))) {
    return plan_line("time", "not estimated: it hangs on the disk, which the weights are read from again and again");
  }
  model.load_weights();
  Session session(model, options);
  const Plan plan = plan_of(rows, order, session.context());
  const ForecastLimits limits{.parallel = parallel,
                              .pool = session.free_positions(),
                              .context = session.context(),
                              .step_tokens = session.batch_tokens(),
                              .recurrent = session.recurrent()};
  ProbeOptions probe = probe_of(plan, parallel);
  Progress bar("measuring steps");
  probe.progress = [&](double fraction) { bar.update(fraction); };
  const auto start = Clock::now();
  const StepSpeeds speeds = measure_steps(model, session, rows, probe);
  const double spent = seconds_since(start);
  std::string text = plan_line("time", time_text(plan, limits, speeds)) +
                     plan_line("it rests on", "steps measured here just now, for " + duration_text(spent) + ": " +
                                                  speeds_text(speeds, parallel));
  if (plan.unlimited > 0) {
    text += plan_line("without a limit", number_text(plan.unlimited) + " answers may fill the context of " +
                                             number_text(session.context()) + " tokens: -n and max_tokens set one");
  }
  return text;
}

}  // namespace

void print_time_plan(Model& model, const SessionOptions& options, std::span<const BatchRow> rows, RowOrder order,
                     int parallel) {
  std::string text;
  try {
    text = estimate(model, options, rows, order, parallel);
  } catch (const Error& error) {
    const bool of_the_rows = error.kind() == ErrorKind::Numeric || error.kind() == ErrorKind::Notation;
    if (!of_the_rows) throw;
    text = plan_line("time", std::string("not estimated: ") + error.what());
  }
  write_stdout(text);
}

}  // namespace llm::app
