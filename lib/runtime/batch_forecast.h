// How long a batch will take: a queue of its rows as the scheduler's, with what steps of these sizes took in place of
// work.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace llm {

/// Seconds of steps on the machine that is to run them.
struct StepSpeeds {
  struct Point {
    std::int64_t tokens;
    double seconds;  ///< of a step of so many tokens that look back at nothing
  };
  std::vector<Point> steps;  ///< ascending, at least one
  /// More for every position that a generating row looks back at: the row's own, and those it shares with others.
  double own = 0, shared = 0;
  double prompt = 0;  ///< more for every position that a token of a prompt looks back at

  double of(std::int64_t tokens) const;
};

/// A row in the order in which they run.
struct ForecastRow {
  std::int64_t prompt = 0;  ///< tokens
  std::int64_t shared = 0;  ///< with the row before, as PrefixStep says
  std::int64_t generated = 0;
};

struct ForecastLimits {
  int parallel = 1;                                                 ///< rows at once
  std::int64_t pool = 0;                                            ///< positions of the cache, at least one context
  std::int64_t context = std::numeric_limits<std::int64_t>::max();  ///< most positions of one row
  std::int64_t step_tokens = 512;                                   ///< most of one step
  bool recurrent = false;                                           ///< steps end where a next row parts from one
};

struct Forecast {
  std::int64_t steps = 0;
  double seconds = 0;
};

Forecast forecast_batch(std::span<const ForecastRow>, const ForecastLimits&, const StepSpeeds&);

}  // namespace llm
