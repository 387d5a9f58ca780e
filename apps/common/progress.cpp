#include "common/progress.h"

#include <algorithm>
#include <string_view>

#include "base/clock.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/status_line.h"
#include "common/terminal.h"

namespace llm::app {
namespace {

constexpr double kSlowSeconds = 2;  // work that ends sooner shows nothing
constexpr double kRedrawSeconds = 0.1;
constexpr int kBarWidth = 30;

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)) {}

Progress::~Progress() {
  if (bar_on_screen_) clear_status_line();
}

void Progress::update(double fraction) {
  if (verbosity() < Verbosity::Normal) return;
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(start_, now);
  const int tenths = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 10);
  if (stderr_redraws()) {
    if (seconds < kSlowSeconds / 4 || seconds_between(drawn_, now) < kRedrawSeconds) return;
    drawn_ = now;
    draw(fraction, seconds);
  } else if (seconds >= kSlowSeconds && tenths > tenths_) {
    say(what_ + " " + std::to_string(tenths * 10) + "%");
  }
  tenths_ = std::max(tenths_, tenths);
}

void Progress::draw(double fraction, double seconds) {
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
  // What matters most comes first: a narrow terminal shows less of the line.
  std::string line = what_ + " " + fixed_text(fraction * 100, 0) + "%";
  if (seconds > kSlowSeconds && fraction > 0)
    line += " · " + fixed_text(seconds * (1 - fraction) / fraction, 0) + " s left";
  line += " [";
  for (int i = 0; i < kBarWidth; ++i) line += i < filled ? '#' : '.';
  draw_status_line(line + "]");
  bar_on_screen_ = true;
}

}  // namespace llm::app
