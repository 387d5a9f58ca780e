#include "backend/cuda/step_threads.h"

#include <string>
#include <system_error>
#include <utility>

#include "backend/cuda/device.h"
#include "base/error.h"

namespace llm::cuda {

StepThreads::StepThreads(std::size_t threads, std::function<void(std::size_t)> work)
    : work_(std::move(work)), device_(current_device()) {
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this, i] { run(i); });
    } catch (const std::system_error& e) {
      if (i == 0)
        throw Error(ErrorKind::Device,
                    std::string("no thread that brings weights or caches can be started: ") + e.what());
      return;
    }
  }
}

StepThreads::~StepThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void StepThreads::begin() {
  const std::lock_guard lock(mutex_);
  ++steps_;
  working_ = threads_.size();
  changed_.notify_all();
}

void StepThreads::end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return working_ == 0; });
}

void StepThreads::run(std::size_t number) {
  cudaSetDevice(device_);  // what fails now fails again where `work` can say so
  for (std::size_t done = 0;; ++done) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || steps_ > done; });
      if (stopped_) return;
    }
    work_(number);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) changed_.notify_all();
  }
}

}  // namespace llm::cuda
