#include "backend/cpu/team.h"

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llm::cpu {
namespace {

/// A few microseconds: what the threads of a step are usually apart.
constexpr int kSpins = 200;
/// Then the core is offered to whoever waits for it, which may be the very thread that is waited for: a thread that
/// only spun would keep it off the core for as long as it spins. Where nobody waits, these are spins too, of half a
/// microsecond.
constexpr int kYields = 200;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

void Barrier::wait() {
  const std::uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
    return;
  }
  for (int i = 0; i < kSpins; ++i) {
    if (round_.load(std::memory_order_acquire) != round) return;
    pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (round_.load(std::memory_order_acquire) != round) return;
    sched_yield();
  }
  round_.wait(round, std::memory_order_acquire);
}

}  // namespace llm::cpu
