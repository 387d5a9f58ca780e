// How long a batch will take: the scheduler's walk over its rows, with what steps of these sizes took in place of work.
#pragma once

#include <cstdint>
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
  std::int64_t prompt = 0, shared = 0;  ///< tokens; shared: with the row before, and had from it
  std::int64_t generated = 0;
};

struct ForecastLimits {
  int parallel = 1;                ///< rows at once
  std::int64_t pool = 0;           ///< positions of the cache
  std::int64_t step_tokens = 512;  ///< most of one step
};

struct Forecast {
  std::int64_t steps = 0;
  double seconds = 0;
};

Forecast forecast_batch(std::span<const ForecastRow>, const ForecastLimits&, const StepSpeeds&);

}  // namespace llm
