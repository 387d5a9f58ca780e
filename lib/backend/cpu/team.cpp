#include "backend/cpu/team.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llm::cpu {
namespace {

/// About 50 us: longer than any phase of a small model's step, short against the cost of a stolen core.
constexpr int kSpins = 4000;

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
  round_.wait(round, std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
}

}  // namespace llm::cpu
