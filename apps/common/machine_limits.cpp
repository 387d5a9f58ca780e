// The measurements run on OpenMP's threads: others would inherit the one core that the first thread is bound to under
// OMP_PROC_BIND.
#include "common/machine_limits.h"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/clock.h"
#include "base/machine.h"
#include "common/parallel.h"
#include "common/peak_loops.h"

namespace llm::app {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLeastBuffer = 256 * kMiB, kMostBuffer = 2048 * kMiB;
constexpr std::size_t kCacheMultiple = 8;  ///< so that what is left of the last pass in the cache does not matter
constexpr std::uint64_t kMemoryShare = 8;  ///< of what is available: the model's pages shall stay where they are
constexpr int kReadPasses = 3, kPeakPasses = 2;
constexpr std::int64_t kPeakIterations = 4'000'000;  ///< 10 ms at 4 GHz and two instructions a cycle
constexpr std::size_t kPage = 4096;

double seconds_now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

std::size_t cache_to_outgrow() {
  if (const std::uint64_t bytes = last_level_cache(); bytes > 0) return bytes;
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = ::sysconf(level); bytes > 0) return static_cast<std::size_t>(bytes);
  }
  return 32 * kMiB;
}

/// 0: a buffer that is large enough would take too much of the memory.
std::size_t wanted_buffer() {
  const std::size_t wanted = std::clamp(kCacheMultiple * cache_to_outgrow(), kLeastBuffer, kMostBuffer);
  return wanted <= available_memory() / kMemoryShare ? wanted : 0;
}

std::span<std::byte> share_of_thread(std::span<std::byte> buffer) {
  const auto n = static_cast<std::size_t>(omp_get_num_threads()), i = static_cast<std::size_t>(omp_get_thread_num());
  const std::size_t each = buffer.size() / n / kPage * kPage;
  return buffer.subspan(i * each, each);
}

/// Sums over 16-byte vectors, which every x86-64 and ARM64 has; eight sums hide the latency of the additions.
std::uint64_t sum(std::span<const std::byte> share) {
  using Vector [[gnu::vector_size(16)]] = std::uint64_t;
  constexpr std::size_t kSums = 8, kStep = kSums * sizeof(Vector);
  const auto* data = reinterpret_cast<const Vector*>(share.data());
  Vector sums[kSums] = {};
  for (std::size_t i = 0; i < share.size() / kStep; ++i) {
    for (std::size_t k = 0; k < kSums; ++k) sums[k] += data[i * kSums + k];
  }
  for (std::size_t k = 1; k < kSums; ++k) sums[0] += sums[k];
  return sums[0][0] + sums[0][1];
}

double peak(const PeakLoop& loop, int threads) {
  double best = 0;
  for (int pass = 0; pass < kPeakPasses; ++pass) {
    int running = 0;
    const double start = seconds_now();
#pragma omp parallel num_threads(threads) reduction(+ : running)
    {
      loop.run(kPeakIterations);
      running += 1;
    }
    best = std::max(best, running / (seconds_now() - start));
  }
  return best * loop.ops_per_iteration * static_cast<double>(kPeakIterations);
}

}  // namespace

LimitMeter::LimitMeter(int threads) : threads_(threads) {
  const std::size_t bytes = wanted_buffer();
  if (bytes == 0) return;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return;
  ::madvise(data, bytes, MADV_HUGEPAGE);  // page walks are not what is measured
  buffer_ = {static_cast<std::byte*>(data), bytes};
#pragma omp parallel num_threads(threads_)
  {
    const std::span<std::byte> share = share_of_thread(buffer_);
    std::memset(share.data(), 1, share.size());  // the first touch puts it near the thread that will read it
  }
}

LimitMeter::~LimitMeter() {
  if (!buffer_.empty()) ::munmap(buffer_.data(), buffer_.size());
}

double LimitMeter::read_bandwidth() const {
  double best = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    std::uint64_t total = 0, read = 0;
    const double start = seconds_now();
#pragma omp parallel num_threads(threads_) reduction(+ : total, read)
    {
      const std::span<const std::byte> share = share_of_thread(buffer_);
      total += sum(share);
      read += share.size();
    }
    const double seconds = seconds_now() - start;
    __asm__ volatile("" : : "r"(total));  // the sum is used
    best = std::max(best, static_cast<double>(read) / seconds);
  }
  return best;
}

std::optional<double> LimitMeter::clock(int threads) {
  const PeakLoop loop = clock_loop();
  if (loop.run == nullptr) return std::nullopt;
  return peak(loop, threads) / threads;
}

Limits LimitMeter::measure() const {
  Limits limits;
  if (!buffer_.empty()) limits.read_bytes = read_bandwidth();
  if (const PeakLoop loop = int8_peak_loop(); loop.run) limits.int8_ops = peak(loop, threads_);
  if (const PeakLoop loop = bf16_peak_loop(); loop.run) limits.bf16_ops = peak(loop, threads_);
  if (const PeakLoop loop = f32_peak_loop(); loop.run) limits.f32_ops = peak(loop, threads_);
  end_parallel();
  return limits;
}

}  // namespace llm::app
