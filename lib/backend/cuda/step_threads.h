// Threads that bring to a step, or take from it, what the device does not keep, while its kernels are launched.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace llm::cuda {

class StepThreads {
 public:
  /// Each thread calls `work` with its own number once in each step, on the device that is current now; it may not
  /// throw. Fewer threads where the system gives no more; throws ErrorKind::Device if it gives none.
  StepThreads(std::size_t threads, std::function<void(std::size_t)> work);
  StepThreads(const StepThreads&) = delete;
  StepThreads& operator=(const StepThreads&) = delete;
  /// Between steps.
  ~StepThreads();

  std::size_t size() const { return threads_.size(); }
  void begin();
  /// When all have ended, those that did not begin included.
  void end();

 private:
  void run(std::size_t number);

  std::function<void(std::size_t)> work_;
  int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t steps_ = 0;    ///< begun so far
  std::size_t working_ = 0;  ///< threads that have not ended this one
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace llm::cuda
