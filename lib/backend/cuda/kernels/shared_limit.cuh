// How much shared memory a kernel may be launched with, which the driver is told once for each kernel and device.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "backend/cuda/device.h"
#include "base/error.h"

namespace llm::cuda {

/// Calls what it is given the first time on each device; several threads may be the first.
class OncePerDevice {
 public:
  template <class F>
  void operator()(const F& tell) {
    const int device = device_limits().id;
    check(device >= 0 && device < 64, "a device of a mask");
    const std::uint64_t bit = std::uint64_t{1} << device;
    if ((told_.load(std::memory_order_acquire) & bit) != 0) return;
    tell();
    told_.fetch_or(bit, std::memory_order_release);
  }

 private:
  std::atomic<std::uint64_t> told_ = 0;
};

/// `bytes`: the most that any launch of the kernel on this device takes.
template <auto kKernel>
void allow_shared(int bytes) {
  static OncePerDevice once;
  once([=] {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kKernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    bytes),
               "allowing a kernel its shared memory");
  });
}
/// The same, with all of a multiprocessor's for the kernel's blocks in place of a first cache.
template <auto kKernel>
void allow_all_shared(int bytes) {
  static OncePerDevice once;
  once([=] {
    const auto* const kernel = reinterpret_cast<const void*>(kKernel);
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "allowing a kernel its shared memory");
    check_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "allowing a kernel its shared memory");
  });
}

}  // namespace llm::cuda
