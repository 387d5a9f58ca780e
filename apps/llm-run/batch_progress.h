// How far a batch is: a line that is redrawn on a terminal, elsewhere a line each 10 %.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/clock.h"
#include "common/events.h"
#include "runtime/batch_outlook.h"

namespace llm::app {

class BatchProgressLine {
 public:
  BatchProgressLine(std::size_t rows, BatchOutlook outlook) : rows_(rows), outlook_(std::move(outlook)) {}
  BatchProgressLine(const BatchProgressLine&) = delete;
  BatchProgressLine& operator=(const BatchProgressLine&) = delete;
  ~BatchProgressLine() { clear(); }

  void row_ended(const BatchResult& r) { outlook_.ended(r); }
  /// No more rows begin.
  void drain() { outlook_.drain(); }
  void update(std::size_t done, std::size_t failed, const BatchProgress&);
  /// Before anything else is written to the terminal.
  void clear();

 private:
  std::string text(std::size_t done, std::size_t failed, const BatchProgress&, double seconds) const;

  std::size_t rows_;
  BatchOutlook outlook_;
  Clock::time_point start_ = Clock::now(), drawn_{};
  std::size_t tenths_ = 0;
  bool on_screen_ = false;
  EventPace pace_;
};

}  // namespace llm::app
