// The threads of steps: each has its turn in each step, whoever was asleep before, and the caller waits for all.
#include "backend/cpu/team.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

namespace llm::cpu::test {

TEST_CASE("each thread of a team has one turn in a step") {
  constexpr int kThreads = 7, kSteps = 2000;
  Team team(kThreads);
  std::vector<int> turns(kThreads);  // each written by one thread at a time: the sanitizer sees whether that is so
  std::vector<int> expected(kThreads);
  for (int step = 0; step < kSteps; ++step) {
    const int n = 1 + step * 5 % kThreads;
    std::atomic<int> inside{0};
    team.run(n, [&](int thread) {
      ++turns[static_cast<std::size_t>(thread)];
      ++inside;
    });
    REQUIRE(inside == n);  // none is still at work
    for (int i = 0; i < n; ++i) ++expected[static_cast<std::size_t>(i)];
    if (step % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // all fall asleep
  }
  CHECK(turns == expected);
}

TEST_CASE("the caller waits for a thread that takes longer than it spins") {
  Team team(3);
  for (int step = 0; step < 3; ++step) {
    std::atomic<int> ended{0};
    team.run(3, [&](int thread) {
      std::this_thread::sleep_for(std::chrono::milliseconds(thread));
      ++ended;
    });
    CHECK(ended == 3);
  }
}

TEST_CASE("threads of a step meet at its barriers") {
  constexpr int kThreads = 4, kRounds = 500;
  Team team(kThreads);
  Barrier barrier;
  barrier.set_threads(kThreads);
  std::atomic<int> arrived{0}, early{0};
  team.run(kThreads, [&](int) {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrived;
      barrier.wait();
      if (arrived < round * kThreads) ++early;
      barrier.wait();
    }
  });
  CHECK(early == 0);
}

TEST_CASE("threads take their own shares first, then their neighbours', and every task once") {
  constexpr int kThreads = 6;
  ShareQueues queues(kThreads);
  const auto taken_by = [&](std::uint32_t turn, const Worker& w, std::int64_t tasks, std::int64_t most) {
    ShareQueues::Share share = queues.open(turn, w, tasks);
    std::vector<std::int64_t> taken;
    for (std::int64_t task; std::ssize(taken) < most && (task = share.take()) < tasks;) taken.push_back(task);
    return taken;
  };
  using Tasks = std::vector<std::int64_t>;
  for (std::uint32_t turn = 0; turn < 4; ++turn) {  // thread 1 comes late
    CHECK(taken_by(turn, {.thread = 0, .n_threads = 3}, 9, 4) == Tasks{0, 1, 2, 3});
    CHECK(taken_by(turn, {.thread = 2, .n_threads = 3}, 9, 3) == Tasks{6, 7, 8});
    CHECK(taken_by(turn, {.thread = 1, .n_threads = 3}, 9, 9) == Tasks{4, 5});
  }
  // Of those behind the third nothing is taken: their owners have it.
  CHECK(taken_by(4, {.thread = 0, .n_threads = 6}, 12, 12) == Tasks{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(taken_by(4, {.thread = 5, .n_threads = 6}, 12, 12) == Tasks{10, 11});
  CHECK(taken_by(4, {.thread = 4, .n_threads = 6}, 12, 12) == Tasks{8, 9});
  for (const int thread : {1, 2, 3}) CHECK(taken_by(4, {.thread = thread, .n_threads = 6}, 12, 12).empty());
  CHECK(taken_by(5, {.thread = 0, .n_threads = 1}, 2, 2) == Tasks{0, 1});
}

TEST_CASE("every task of a share is taken once while all threads take") {
  constexpr int kThreads = 4, kTasks = 37;
  Team team(kThreads);
  ShareQueues queues(kThreads);
  std::vector<std::atomic<int>> times(kTasks);
  for (std::uint32_t turn = 0; turn < 500; ++turn) {
    const int n = 1 + static_cast<int>(turn % kThreads);
    team.run(n, [&](int thread) {
      const Worker w{.thread = thread, .n_threads = n};
      ShareQueues::Share share = queues.open(turn, w, kTasks);
      for (std::int64_t task = share.take(); task < kTasks; task = share.take())
        ++times[static_cast<std::size_t>(task)];
    });
    for (std::atomic<int>& t : times) REQUIRE(t.exchange(0) == 1);
  }
}

TEST_CASE("a step has no more threads than its team") {
  Team team(2);
  CHECK_THROWS_AS(team.run(3, [](int) {}), Error);
}

}  // namespace llm::cpu::test
