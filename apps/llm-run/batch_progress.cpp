#include "batch_progress.h"

#include <nlohmann/json.hpp>
#include <string>

#include "common/events.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/status_line.h"
#include "common/terminal.h"

namespace llm::app {
namespace {

constexpr double kRedrawSeconds = 0.2;
constexpr double kSlowSeconds = 2;  ///< what is done before says nothing

}  // namespace

std::string BatchProgressLine::text(std::size_t done, std::size_t failed, const BatchProgress& p,
                                    double seconds) const {
  std::string line = std::to_string(done) + "/" + std::to_string(rows_) + " rows";
  if (seconds > 0) line += " · " + fixed_text(static_cast<double>(p.generated_tokens) / seconds, 0) + " tok/s";
  if (failed > 0) line += " · " + std::to_string(failed) + " failed";
  const std::optional<double> left = done < rows_ ? outlook_.seconds_left(p, seconds) : std::nullopt;
  if (left) line += (outlook_.has_ended_rows() ? " · " : " · up to ") + duration_text(*left) + " left";
  return line;
}

void BatchProgressLine::update(std::size_t done, std::size_t failed, const BatchProgress& p) {
  if (rows_ > 0 && pace_.due(done == rows_)) {
    emit_event("batch", {{"done", done}, {"rows", rows_}, {"failed", failed}, {"tokens", p.generated_tokens}});
  }
  if (verbosity() < Verbosity::Normal || rows_ == 0) return;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (stderr_redraws()) {
    if (std::chrono::duration<double>(now - drawn_).count() < kRedrawSeconds) return;
    drawn_ = now;
    draw_status_line(text(done, failed, p, seconds));
    on_screen_ = true;
    return;
  }
  const std::size_t tenths = done * 10 / rows_;
  if (seconds >= kSlowSeconds && tenths > tenths_ && done < rows_) say(text(done, failed, p, seconds));
  tenths_ = std::max(tenths_, tenths);
}

void BatchProgressLine::clear() {
  if (on_screen_) clear_status_line();
  on_screen_ = false;
}

}  // namespace llm::app
