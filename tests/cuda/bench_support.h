// What the programs that measure kernels have in common: random bits, and times of recorded launches.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "backend/cuda/device.h"

namespace llm::cuda {

static __global__ void fill_kernel(std::uint32_t* to, std::size_t n, std::uint32_t mask) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    to[i] = (x ^ (x >> 13)) & mask;
  }
}
/// Pseudo-random words, of which only the bits of `mask` may be set.
inline void fill_with_bits(const DeviceBuffer& buffer, std::uint32_t mask) {
  fill_kernel<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(buffer.data()), buffer.bytes() / 4, mask);
  check_cuda(cudaDeviceSynchronize(), "filling memory");
}

/// What a stream takes from start() on.
class Clock {
 public:
  explicit Clock(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t* e : {&begin_, &end_}) check_cuda(cudaEventCreate(e), "timing");
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  ~Clock() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  void start() const { check_cuda(cudaEventRecord(begin_, stream_), "timing"); }
  double microseconds() const {
    check_cuda(cudaEventRecord(end_, stream_), "timing");
    check_cuda(cudaEventSynchronize(end_), "timing");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "timing");
    return 1000.0 * static_cast<double>(ms);
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Microseconds of one call, of a graph of `calls`, the best of some runs.
inline double microseconds(cudaStream_t stream, int calls, const std::function<void(int)>& call) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
  for (int i = 0; i < calls; ++i) call(i);
  check_cuda(cudaStreamEndCapture(stream, &graph), "recording");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiating");
  const Clock clock(stream);
  double best = 1e30;
  for (int run = 0; run < 6; ++run) {
    clock.start();
    check_cuda(cudaGraphLaunch(exec, stream), "replaying");
    const double taken = clock.microseconds() / calls;
    if (run > 0) best = std::min(best, taken);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return best;
}

}  // namespace llm::cuda
