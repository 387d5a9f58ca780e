#include "backend/cpu/team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#include "base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llm::cpu {
namespace {

/// What the threads of a step are usually apart, and less than waking one takes. Longer spinning gains nothing on a
/// quiet machine, and on a busy one keeps the core from whoever is waited for.
constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr int kSpins = 16;  ///< between two looks at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Whether `word` is another value within kSpinTime.
bool spin_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const auto end = Clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kSpins; ++i) {
      if (word.load(std::memory_order_acquire) != value) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

// Not std::atomic's own wait, which yields the core first: on Linux 6.18 a thread that yields gave up its turn for
// milliseconds wherever another one wants the core, whoever that is.
long futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value) {
  static_assert(sizeof word == sizeof value && std::atomic<std::uint32_t>::is_always_lock_free);
  return ::syscall(SYS_futex, &word, op, value, nullptr, nullptr, 0);
}

}  // namespace

void Barrier::wait() {
  const std::uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1);
    if (sleepers_.load() > 0) futex(round_, FUTEX_WAKE_PRIVATE, INT_MAX);
    return;
  }
  if (spin_while(round_, round)) return;
  // In one order with the two above: either the last to arrive sees the sleeper, or the sleeper sees the new round.
  sleepers_.fetch_add(1);
  while (round_.load() == round) futex(round_, FUTEX_WAIT_PRIVATE, round);
  sleepers_.fetch_sub(1);
}

}  // namespace llm::cpu
