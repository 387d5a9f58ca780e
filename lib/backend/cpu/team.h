// The threads of steps, how they wait for each other (they spin, then sleep), and the ways in which work is shared out.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

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

/// A count that other threads raise and one thread waits for.
class alignas(64) Signal {
 public:
  void raise();
  /// Until it has been raised once more; spins so long, then sleeps.
  void wait(std::chrono::microseconds spin);

 private:
  std::atomic<std::uint32_t> raised_{0};
  std::atomic<bool> asleep_{false};
  std::uint32_t seen_ = 0;
};

/// Whether others want the processors: whether the system has lately taken one from a thread of this program that still
/// wanted it.
class Contention {
 public:
  bool now();

 private:
  long taken_ = -1;  ///< so often
  Clock::time_point since_{};
};

/// The threads that steps run on: the caller's and others, which are made when a step first wants them. Between steps
/// they spin for a while, as OpenMP's would, but not where others want the processors; and one that cannot be made is
/// an error, not the process's end. Where OpenMP's variables bind threads to places, these are bound likewise.
class Team {
 public:
  /// `threads`: of the largest step, the caller's among them.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// work(i) on thread i for i = 0 .. n - 1, the caller being thread 0; returns when all have ended. `work` throws
  /// nothing. Error of kind Device where the system grants fewer threads. By one thread at a time.
  void run(int n, const std::function<void(int)>& work);

 private:
  struct Seat {
    Signal call;
    std::thread thread;
  };

  void hire(int n);
  void serve(int thread);
  /// Each member wakes two others, so that all are awake after a few turns.
  void call_next(int thread);

  std::vector<std::unique_ptr<Seat>> seats_;  ///< [0] is the caller's, and stays without a thread
  int hired_ = 1, members_ = 0;
  const std::function<void(int)>* work_ = nullptr;  ///< null: threads end
  Contention contention_;
  std::atomic<bool> patient_{true};  ///< between steps
  alignas(64) std::atomic<int> at_work_{0};
  Signal done_;
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

/// As TaskQueues, but a thread begins with a share of its own, the same one in each run of as many tasks on as many
/// threads: what its tasks write stays in its caches, where another would have to fetch it from. Then it helps those
/// next to it.
class ShareQueues {
  struct alignas(64) Taken {
    std::atomic<std::int64_t> n{0};
  };

 public:
  class Share {
   public:
    Share(Taken* taken, const Worker& worker, std::int64_t tasks) : taken_(taken), worker_(worker), tasks_(tasks) {}
    /// A task that nobody has taken; `tasks` when there is none left for this thread.
    std::int64_t take() {
      for (; helped_ <= std::min(kHelped, worker_.n_threads - 1); ++helped_) {
        Worker owner = worker_;
        owner.thread = (worker_.thread + helped_) % worker_.n_threads;
        const auto [begin, end] = owner.share(tasks_);
        std::atomic<std::int64_t>& taken = taken_[owner.thread].n;
        if (taken.load(std::memory_order_relaxed) >= end - begin) continue;
        const std::int64_t task = begin + taken.fetch_add(1, std::memory_order_relaxed);
        if (task < end) return task;
      }
      return tasks_;
    }

   private:
    static constexpr int kHelped = 3;  ///< others: all of many threads would ask each other
    Taken* taken_;
    const Worker& worker_;
    std::int64_t tasks_;
    int helped_ = 0;
  };

  explicit ShareQueues(int threads) : threads_(threads), taken_(2 * static_cast<std::size_t>(threads)) {}

  Share open(std::uint32_t turn, const Worker& w, std::int64_t tasks) {
    Taken* const next = of(turn + 1);
    next[w.thread].n.store(0, std::memory_order_relaxed);
    for (int i = w.n_threads; w.thread == 0 && i < threads_; ++i) next[i].n.store(0, std::memory_order_relaxed);
    return {of(turn), w, tasks};
  }

 private:
  Taken* of(std::uint32_t turn) { return taken_.data() + (turn & 1) * static_cast<std::size_t>(threads_); }

  int threads_;
  std::vector<Taken> taken_;
};

}  // namespace llm::cpu
