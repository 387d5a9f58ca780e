// Programs that run behind submit(), in a thread of their device, as those of a GPU do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace llm::test {

/// Runs what it is given in its order.
class Queue {
 public:
  Queue() : thread_([this] { run(); }) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    add({});
    thread_.join();
  }
  std::shared_future<void> add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.emplace_back(task ? std::move(task) : [this] { ended_ = true; });
    added_.notify_one();
    return tasks_.back().get_future().share();
  }

 private:
  void run() {
    while (!ended_) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return !tasks_.empty(); });
      std::packaged_task<void()> next = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      next();
    }
  }
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ended_ = false;  ///< the thread's own
  std::thread thread_;
};

class QueuedExecutable final : public Executable {
 public:
  /// Each step takes `delay` longer than it need.
  QueuedExecutable(std::unique_ptr<Executable> inner, Queue& queue, std::chrono::microseconds delay)
      : inner_(std::move(inner)), queue_(queue), delay_(delay) {}
  QueuedExecutable(const QueuedExecutable&) = delete;
  QueuedExecutable& operator=(const QueuedExecutable&) = delete;
  ~QueuedExecutable() override {
    queue_.add([] {}).wait();
  }

  Ticket submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) override {
    auto run = [this, own = std::make_shared<const OwnStep>(step), behind = std::exchange(behind_, {}),
                in = std::vector(in.begin(), in.end()), out = std::vector(out.begin(), out.end()),
                ticket = submitted_ + 1] {
      for (const auto& other : behind) other.wait();
      std::this_thread::sleep_for(delay_);
      const Ticket inner = inner_->submit(own->data, in, out);
      inner_->wait(inner);
      if (own->data.draws.empty()) return;
      const auto drawn = inner_->drawn();
      const std::lock_guard lock(mutex_);
      drawn_[ticket] = {inner_->may_be_non_finite(), {drawn.begin(), drawn.end()}};
    };
    steps_[++submitted_] = queue_.add(std::move(run));
    steps_.erase(submitted_ - kMostStepsAtOnce);
    return {submitted_};
  }
  bool begin_behind(const Executable& other, Ticket ticket) override {
    const auto* const queued = dynamic_cast<const QueuedExecutable*>(&other);
    if (queued == nullptr) return false;
    behind_.push_back(queued->steps_.at(ticket.id));
    return true;
  }
  void wait(Ticket ticket) override {
    steps_.at(ticket.id).get();
    const std::lock_guard lock(mutex_);
    waited_ = drawn_.contains(ticket.id) ? drawn_.at(ticket.id) : Drawn{};
  }
  bool may_be_non_finite() const override { return waited_.may_be_non_finite; }
  std::span<const std::int32_t> drawn() const override { return waited_.tokens; }
  std::string describe() const override { return inner_->describe(); }
  void observe(Observer* observer) override {
    if (observer == std::exchange(observer_, observer)) return;
    queue_.add([this, observer] { inner_->observe(observer); }).wait();
  }

 private:
  struct OwnStep {
    explicit OwnStep(const StepData& step)
        : tokens(step.tokens.begin(), step.tokens.end()),
          positions(step.positions.begin(), step.positions.end()),
          out_rows(step.out_rows.begin(), step.out_rows.end()),
          sequences(step.sequences.begin(), step.sequences.end()),
          groups(step.groups.begin(), step.groups.end()),
          draws(step.draws.begin(), step.draws.end()),
          states(step.states.begin(), step.states.end()) {
      for (StateGroup& group : groups) {
        tables.emplace_back(group.block_table.begin(), group.block_table.end());
        slots.emplace_back(group.slots.begin(), group.slots.end());
        group = {.block_table = tables.back(), .stride = group.stride, .slots = slots.back()};
      }
      for (DrawRule& rule : draws) rule.edits = edits.emplace_back(rule.edits.begin(), rule.edits.end());
      data = {.tokens = tokens,
              .positions = positions,
              .sequences = sequences,
              .groups = groups,
              .out_rows = out_rows,
              .draws = draws,
              .states = states};
    }
    OwnStep(const OwnStep&) = delete;
    OwnStep& operator=(const OwnStep&) = delete;

    std::vector<std::int32_t> tokens, positions, out_rows;
    std::vector<SequenceSpan> sequences;
    std::vector<StateGroup> groups;
    std::deque<std::vector<std::int32_t>> tables, slots;
    std::vector<DrawRule> draws;
    std::deque<std::vector<LogitEdit>> edits;
    std::vector<StateMove> states;
    StepData data;
  };
  struct Drawn {
    bool may_be_non_finite = true;
    std::vector<std::int32_t> tokens;
  };

  std::unique_ptr<Executable> inner_;
  Queue& queue_;
  std::chrono::microseconds delay_;
  Observer* observer_ = nullptr;
  std::vector<std::shared_future<void>> behind_;
  std::map<std::uint64_t, std::shared_future<void>> steps_;  ///< of the last ones
  std::uint64_t submitted_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, Drawn> drawn_;
  Drawn waited_;
};

}  // namespace llm::test
