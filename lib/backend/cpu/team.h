// The threads of one step: a barrier that spins, then sleeps, and the ways in which work is shared out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace llm::cpu {

class Barrier {
 public:
  /// Before the threads start.
  void set_threads(int threads) { threads_ = threads; }
  void wait();

 private:
  int threads_ = 1;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<int> sleepers_{0};
};

/// A queue of task numbers that threads take from. Reset by one thread while no other uses it.
class TaskQueue {
 public:
  void reset() { next_.store(0, std::memory_order_relaxed); }
  std::int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<std::int64_t> next_{0};
};

/// The queue of an instruction that runs again and again: two that take turns, so that the next one can be made ready
/// while the other is in use, without a barrier of its own. Runs of one instruction are separated by a barrier of the
/// program.
class TaskQueues {
 public:
  TaskQueue& open(std::uint32_t turn, int thread) {
    if (thread == 0) queues_[(turn + 1) & 1].reset();
    return queues_[turn & 1];
  }

 private:
  TaskQueue queues_[2];
};

/// One thread of a running step.
struct Worker {
  int thread = 0;
  int n_threads = 1;
  std::byte* scratch = nullptr;  ///< kScratchBytes, 64-byte aligned
  Barrier* barrier = nullptr;

  /// This thread's contiguous share of n items, in units of `unit`.
  std::pair<std::int64_t, std::int64_t> share(std::int64_t n, std::int64_t unit = 1) const {
    const std::int64_t units = (n + unit - 1) / unit;
    const std::int64_t begin = units * thread / n_threads * unit, end = units * (thread + 1) / n_threads * unit;
    return {begin < n ? begin : n, end < n ? end : n};
  }
  void sync() const {
    if (n_threads > 1) barrier->wait();
  }
};

}  // namespace llm::cpu
