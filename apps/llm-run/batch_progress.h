// How far a batch is: a line that is redrawn on a terminal, elsewhere a line each 10 %.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "common/events.h"

namespace llm::app {

class BatchProgressLine {
 public:
  explicit BatchProgressLine(std::size_t rows) : rows_(rows) {}
  BatchProgressLine(const BatchProgressLine&) = delete;
  BatchProgressLine& operator=(const BatchProgressLine&) = delete;
  ~BatchProgressLine() { clear(); }

  /// `tokens`: generated so far in this run.
  void update(std::size_t done, std::size_t failed, std::int64_t tokens);
  /// Before anything else is written to the terminal.
  void clear();

 private:
  std::size_t rows_;
  Clock::time_point start_ = Clock::now(), drawn_{};
  std::size_t tenths_ = 0;
  bool on_screen_ = false;
  EventPace pace_;
};

}  // namespace llm::app
