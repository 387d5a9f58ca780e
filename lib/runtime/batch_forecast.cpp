#include "runtime/batch_forecast.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/error.h"
#include "runtime/dry_run_cache.h"
#include "runtime/row_queue.h"
#include "runtime/scheduler.h"

namespace llm {
namespace {

std::vector<PlannedRow> planned(std::span<const ForecastRow> rows) {
  std::vector<PlannedRow> plan;
  for (const ForecastRow& row : rows) plan.push_back({.prompt = row.prompt, .shared = row.shared});
  return plan;
}

class Walk {
 public:
  Walk(std::span<const ForecastRow> rows, const ForecastLimits& limits, const StepSpeeds& speeds)
      : limits_(limits),
        speeds_(speeds),
        cache_({.sequences = batch_sequences(limits.parallel),
                .positions = limits.pool,
                .context = limits.context,
                .recurrent = limits.recurrent}),
        queue_(cache_, planned(rows), limits.parallel) {
    for (const ForecastRow& row : rows) left_.push_back(row.generated);
  }

  Forecast run() {
    for (;;) {
      begin_rows();
      if (!queue_.running().empty()) {
        step();
      } else if (queue_.all_begun()) {
        return forecast_;
      }
    }
  }

 private:
  void begin_rows() {
    const std::size_t first = queue_.next();
    queue_.begin(true);
    for (std::size_t place = first; place < queue_.next(); ++place) {
      if (left_[place] == 0) queue_.end(place);
    }
  }

  /// Several at once, where they are alike: a batch may have millions.
  void step() {
    const std::vector<RowTokens> work = queue_.step(limits_.step_tokens);
    std::int64_t least_left = left_[work.front().place];
    for (const RowTokens& w : work) least_left = std::min(least_left, left_[w.place]);
    const std::int64_t steps = queue_.steps_alike(work, least_left);
    forecast_.steps += steps;
    forecast_.seconds += seconds(work, steps);
    for (const RowTokens& w : work) cache_.append(w.sequence, w.n * steps);
    for (const RowTokens& w : work) {
      if (w.last) add(w.place, steps);
    }
  }

  void add(std::size_t place, std::int64_t tokens) {
    queue_.add(place, tokens);
    left_[place] -= tokens;
    if (left_[place] == 0) queue_.end(place);
  }

  double seconds(std::span<const RowTokens> work, std::int64_t steps) const {
    const auto k = static_cast<double>(steps);
    double looks_back = 0;
    std::int64_t tokens = 0;
    for (const RowTokens& w : work) {
      const auto n = static_cast<double>(w.n), before = static_cast<double>(w.first);
      const bool generates = w.n == 1 && w.last;
      const double shared = static_cast<double>(queue_.find(w.place)->shared);
      looks_back += generates ? speeds_.own * ((before - shared) * k + k * (k - 1) / 2) + speeds_.shared * k * shared
                              : speeds_.prompt * n * (before + n / 2);
      tokens += w.n;
    }
    return k * speeds_.of(tokens) + looks_back;
  }

  const ForecastLimits& limits_;
  const StepSpeeds& speeds_;
  std::vector<std::int64_t> left_;  ///< tokens to generate, by place
  DryRunCache cache_;
  RowQueue<DryRunCache> queue_;
  Forecast forecast_;
};

}  // namespace

/// On straight lines between the points; beyond the last one in its proportion, since arithmetic binds there.
double StepSpeeds::of(std::int64_t tokens) const {
  const auto after = std::find_if(steps.begin(), steps.end(), [tokens](const Point& p) { return p.tokens >= tokens; });
  if (after == steps.end()) {
    return steps.back().seconds * static_cast<double>(tokens) / static_cast<double>(steps.back().tokens);
  }
  if (after == steps.begin()) return after->seconds;
  const Point& before = *std::prev(after);
  const double share = static_cast<double>(tokens - before.tokens) / static_cast<double>(after->tokens - before.tokens);
  return before.seconds + share * (after->seconds - before.seconds);
}

Forecast forecast_batch(std::span<const ForecastRow> rows, const ForecastLimits& limits, const StepSpeeds& speeds) {
  check(limits.parallel >= 1 && limits.step_tokens >= 1 && !speeds.steps.empty(), "the limits of a forecast");
  return Walk(rows, limits, speeds).run();
}

}  // namespace llm
