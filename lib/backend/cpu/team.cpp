#include "backend/cpu/team.h"

#include <linux/futex.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <string>
#include <system_error>

#include "base/clock.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llm::cpu {
namespace {

/// What the threads of a step are usually apart, and less than waking one takes. Longer spinning gains nothing on a
/// quiet machine, and on a busy one keeps the core from whoever is waited for.
constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr int kSpins = 16;  ///< between two looks at the clock
/// Between steps, which a caller or a GPU takes this long for as a rule: waking a thread takes up to a tenth of a
/// millisecond on a virtual machine, and a processor that was idle is slower at first.
constexpr auto kPatience = std::chrono::milliseconds(5);
/// How long others are taken to want a processor after they had one.
constexpr auto kContentionLasts = std::chrono::milliseconds(200);

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Whether `word` is another value within that time.
bool spin_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::microseconds time) {
  const auto end = Clock::now() + time;
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
  if (spin_while(round_, round, kSpinTime)) return;
  // In one order with the two above: either the last to arrive sees the sleeper, or the sleeper sees the new round.
  sleepers_.fetch_add(1);
  while (round_.load() == round) futex(round_, FUTEX_WAIT_PRIVATE, round);
  sleepers_.fetch_sub(1);
}

void Signal::raise() {
  raised_.fetch_add(1);
  // In one order with wait(): either this sees the sleeper, or the sleeper sees the new count.
  if (asleep_.load()) futex(raised_, FUTEX_WAKE_PRIVATE, 1);
}

void Signal::wait(std::chrono::microseconds spin) {
  if (!spin_while(raised_, seen_, spin)) {
    asleep_.store(true);
    while (raised_.load() == seen_) futex(raised_, FUTEX_WAIT_PRIVATE, seen_);
    asleep_.store(false);
  }
  ++seen_;
}

bool Contention::now() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto time = Clock::now();
  if (taken_ >= 0 && used.ru_nivcsw != taken_) since_ = time;
  taken_ = used.ru_nivcsw;
  return time - since_ < kContentionLasts;
}

namespace {

/// The CPUs of the place that OpenMP gives thread i of n by OMP_PROC_BIND and OMP_PLACES; none where it binds none.
std::vector<int> place_of(int thread, int n) {
  const int places = omp_get_num_places();
  const omp_proc_bind_t bind = omp_get_proc_bind();
  if (places == 0 || bind == omp_proc_bind_false) return {};
  const int first = std::max(0, omp_get_place_num());
  const auto step = [&] {
    if (bind == omp_proc_bind_master) return 0;
    const bool spaced = bind == omp_proc_bind_spread && n < places;
    return static_cast<int>(spaced || n > places ? std::int64_t{thread} * places / n : thread);
  };
  const int place = (first + step()) % places;
  std::vector<int> cpus(static_cast<std::size_t>(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, cpus.data());
  return cpus;
}

/// Of the calling thread. Where that fails it runs elsewhere, which is slower at worst.
void bind_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  const int most = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* const set = CPU_ALLOC(most);
  if (set == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  ::sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

}  // namespace

Team::Team(int threads) {
  for (int i = 0; i < threads; ++i) seats_.push_back(std::make_unique<Seat>());
}

Team::~Team() {
  work_ = nullptr;
  members_ = hired_;
  call_next(0);
  for (int i = 1; i < hired_; ++i) seats_[static_cast<std::size_t>(i)]->thread.join();
}

void Team::run(int n, const std::function<void(int)>& work) {
  if (n == 1) return work(0);
  hire(n);
  patient_.store(!contention_.now(), std::memory_order_relaxed);
  work_ = &work;
  members_ = n;
  at_work_.store(n, std::memory_order_relaxed);
  call_next(0);
  work(0);
  if (at_work_.fetch_sub(1, std::memory_order_acq_rel) > 1) done_.wait(kSpinTime);
}

void Team::hire(int n) {
  const int all = static_cast<int>(seats_.size());
  check(n <= all, "steps have at most as many threads as their team");
  for (; hired_ < n; ++hired_) {
    const int thread = hired_;
    try {
      seats_[static_cast<std::size_t>(thread)]->thread = std::thread([this, thread, place = place_of(thread, all)] {
        bind_to(place);
        serve(thread);
      });
    } catch (const std::system_error& e) {
      throw Error(ErrorKind::Device, "the system gives this program " + std::to_string(thread) + " of " +
                                         std::to_string(n) + " threads (" + e.code().message() + "); pass -t " +
                                         std::to_string(thread));
    }
  }
}

void Team::serve(int thread) {
  Signal& call = seats_[static_cast<std::size_t>(thread)]->call;
  for (;;) {
    call.wait(patient_.load(std::memory_order_relaxed) ? kPatience : kSpinTime);
    call_next(thread);
    if (work_ == nullptr) return;
    (*work_)(thread);
    if (at_work_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_.raise();
  }
}

void Team::call_next(int thread) {
  for (int next = 2 * thread + 1; next <= 2 * thread + 2 && next < members_; ++next)
    seats_[static_cast<std::size_t>(next)]->call.raise();
}

}  // namespace llm::cpu
