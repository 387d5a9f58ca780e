#include "runtime/batch_forecast.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>

#include "base/error.h"
#include "runtime/memory_budget.h"
#include "runtime/scheduler.h"

namespace llm {
namespace {

struct Running {
  std::size_t place;
  std::int64_t shared;   ///< of the length
  std::int64_t length;   ///< positions in the cache
  std::int64_t pending;  ///< tokens that are to be computed before it generates the next
  std::int64_t left;     ///< tokens to generate

  std::int64_t own() const { return length - shared; }
  std::int64_t held(std::int64_t more = 0) const {
    return whole_blocks(length + more - shared / kBlockPositions * kBlockPositions) * kBlockPositions;
  }
  bool reads() const { return pending > 1; }
};

/// scheduler.cpp decides in the same order; what follows is named as there.
class Walk {
 public:
  Walk(std::span<const ForecastRow> rows, const ForecastLimits& limits, const StepSpeeds& speeds)
      : rows_(rows), limits_(limits), speeds_(speeds) {}

  Forecast run() {
    while (next_ < rows_.size() || !running_.empty() || !preempted_.empty()) {
      resume_preempted();
      begin_rows();
      if (running_.empty()) continue;
      make_room();
      all_generate() ? generate() : read();
      drop_ended();
    }
    return forecast_;
  }

 private:
  std::int64_t free() const {
    std::int64_t held = 0;
    for (const Running& r : running_) held += r.held();
    return limits_.pool - held;
  }

  bool has_room(std::int64_t tokens, std::int64_t shared) const {
    return positions_to_begin(tokens, shared, std::ssize(running_)) <= free();
  }

  std::size_t drop_ended() {
    return std::erase_if(running_, [](const Running& r) { return r.left == 0; });
  }

  bool all_generate() const {
    return std::ssize(running_) <= limits_.step_tokens &&
           std::none_of(running_.begin(), running_.end(), [](const Running& r) { return r.reads(); });
  }

  bool full() const { return std::ssize(running_) >= limits_.parallel; }

  void resume_preempted() {
    while (!full() && !preempted_.empty()) {
      if (!running_.empty() && !has_room(preempted_.front().pending, 0)) return;
      running_.push_back(preempted_.front());
      preempted_.pop_front();
    }
  }

  void begin_rows() {
    may_begin_ = false;
    if (!preempted_.empty()) return;
    while (!full() && next_ < rows_.size() && begin_next()) {
    }
    may_begin_ = drop_ended() > 0;  // rows that generate nothing have left their places
  }

  /// False if the row has to wait: for memory, or for the row before it to read what they have in common.
  bool begin_next() {
    const ForecastRow& row = rows_[next_];
    if (!running_.empty()) {
      const Running& before = running_.back();
      const bool reads_for_it = before.place + 1 == next_ && before.length < row.shared;
      if (reads_for_it || !has_room(row.prompt, row.shared)) return false;
    }
    running_.push_back({next_++, row.shared, row.shared, row.prompt - row.shared, row.generated});
    return true;
  }

  void make_room() {
    const auto needed = [this] {
      std::int64_t more = 0, room = limits_.step_tokens;
      for (const Running& r : running_) {
        const std::int64_t n = std::min(r.pending, room);
        more += r.held(n) - r.held();
        room -= n;
      }
      return more;
    };
    while (running_.size() > 1 && needed() > free()) {
      Running r = running_.back();
      running_.pop_back();
      r.pending += r.length;
      r.length = r.shared = 0;
      preempted_.push_front(r);
    }
  }

  /// Steps in which every row gets a token, until one of them ends, another may begin, or memory may run out.
  void generate() {
    const auto n = std::ssize(running_);
    std::int64_t steps = std::min_element(running_.begin(), running_.end(), [](const Running& a, const Running& b) {
                           return a.left < b.left;
                         })->left;
    if (may_begin_) steps = 1;
    steps = std::clamp<std::int64_t>(free() / n / kBlockPositions * kBlockPositions, 1, steps);
    const auto k = static_cast<double>(steps);
    forecast_.seconds += k * speeds_.of(n);
    for (Running& r : running_) {
      const double positions = static_cast<double>(r.own()) * k + k * (k - 1) / 2;
      forecast_.seconds += speeds_.own * positions + speeds_.shared * k * static_cast<double>(r.shared);
      r.length += steps;
      r.left -= steps;
    }
    forecast_.steps += steps;
  }

  /// One step: a token of every row that generates, and as much of the prompts as it takes.
  void read() {
    std::int64_t room = limits_.step_tokens;
    for (Running& r : running_) {
      if (r.reads() || room == 0) continue;
      --room;
      forecast_.seconds += speeds_.own * static_cast<double>(r.own()) + speeds_.shared * static_cast<double>(r.shared);
      ++r.length;
      --r.left;
    }
    for (Running& r : running_) {
      if (!r.reads() || room == 0) continue;
      const std::int64_t n = std::min(r.pending, room);
      const auto tokens = static_cast<double>(n);
      forecast_.seconds += speeds_.prompt * tokens * (static_cast<double>(r.length) + tokens / 2);
      room -= n;
      r.length += n;
      r.pending -= n;
      if (r.pending > 0) continue;
      r.pending = 1;
      --r.left;
    }
    forecast_.seconds += speeds_.of(limits_.step_tokens - room);
    ++forecast_.steps;
  }

  std::span<const ForecastRow> rows_;
  const ForecastLimits& limits_;
  const StepSpeeds& speeds_;
  std::size_t next_ = 0;
  bool may_begin_ = false;  ///< at the next step, although no row ends in this one
  std::deque<Running> running_, preempted_;
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
