// Kernels as the driver replays them: a CUDA graph.
#pragma once

#include <cstddef>

#include "backend/cuda/device.h"

namespace llm::cuda {

class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }

  template <class F>
  void record(cudaStream_t stream, F&& launch_all) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording a step");
    cudaGraph_t graph = nullptr;
    try {
      launch_all();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "recording a step");
    cudaGraphGetNodes(graph, nullptr, &kernels_);
    const cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(result, "making a recorded step executable");
    check_cuda(cudaGraphUpload(executable_, stream), "making a recorded step executable");
  }
  bool recorded() const { return executable_ != nullptr; }
  void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(executable_, stream), "launching a step"); }
  std::size_t kernels() const { return kernels_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
  std::size_t kernels_ = 0;
};

}  // namespace llm::cuda
