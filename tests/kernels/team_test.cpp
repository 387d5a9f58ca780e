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

TEST_CASE("a step has no more threads than its team") {
  Team team(2);
  CHECK_THROWS_AS(team.run(3, [](int) {}), Error);
}

}  // namespace llm::cpu::test
