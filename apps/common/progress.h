// Progress of long work on stderr: a bar on a terminal; elsewhere a line each 10 %, once it has shown to be slow.
#pragma once

#include <string>

#include "base/clock.h"

namespace llm::app {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  ///< removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(double fraction);

 private:
  void draw(double fraction, double seconds);
  std::string what_;
  Clock::time_point start_ = Clock::now(), drawn_{};
  int tenths_ = 0;
  bool bar_on_screen_ = false;
};

}  // namespace llm::app
