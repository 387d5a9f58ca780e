// What a model's steps take on this machine now: a few of each size are run, at the depths that a batch will have.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/batch_forecast.h"
#include "runtime/model.h"
#include "runtime/scheduler.h"
#include "runtime/session.h"

namespace llm {

struct ProbeOptions {
  int rows = 1;             ///< that generate at once
  std::int64_t depth = 0;   ///< positions that a row looks back at, on average
  std::int64_t shared = 0;  ///< of these with others
  /// Gets the share of the measurements that are done; may throw to end them.
  std::function<void(double)> progress = {};
};

/// The rows give the tokens, and how the next ones are chosen. The session has batch_sequences(rows) free sequences,
/// which are free again afterwards.
StepSpeeds measure_steps(Model&, Session&, std::span<const BatchRow>, const ProbeOptions&);

}  // namespace llm
