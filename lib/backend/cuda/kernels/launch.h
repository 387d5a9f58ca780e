// Where kernels run. Every function of this folder that takes a Launch enqueues work and returns; all pointers it takes
// are to device memory unless it says otherwise.
#pragma once

#include <cuda_runtime_api.h>

namespace llm::cuda {

struct Launch {
  cudaStream_t stream = nullptr;
  /// Blocks of a kernel may start before the previous kernel of the stream has ended; each waits itself where it first
  /// touches what that one wrote (programmatic dependent launch, compute capability 9.0 on).
  bool overlap = false;
};

}  // namespace llm::cuda
