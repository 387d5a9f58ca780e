// How every kernel of this folder is launched, and what it says to its neighbours in the stream.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/launch.h"

namespace llm::cuda {

// Every kernel calls let_next_start() first and then wait_for_previous(), but:
//   products by wgmma that share x (WgmmaOperands): one that has a next one beside it lets it start only when it has
//     waited itself. So what the next one reads is there and what it writes is free without its waiting, which it does
//     at its end.
//   experts of one token (expert_ring.cuh): the first block of the first launch lets the second start when it has
//     written, with a fence behind, which experts there are, which the second reads before it waits, past the first
//     cache.
//   attention of tokens (attend_halves.cuh, attend_wide.cuh) and what selects keys for it (select_keys.cu,
//     select_blocks.cu, attend_selected.cu) begin with the step's data, attention with what the cache has of earlier
//     steps, too: no kernel of the step writes these.

/// Before the first access to anything that an earlier kernel of the stream writes or reads. Weights may be read
/// before. Every kernel calls it, in every thread that touches memory: the end of one kernel then implies that of all
/// before.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// From here on blocks of the next kernel may take the place of blocks that ended.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Attributes of a launch; `cluster` blocks in a row share a part of the device (compute capability 9.0 on).
struct LaunchAttributes {
  cudaLaunchAttribute list[2]{};
  unsigned count = 0;
  LaunchAttributes(const Launch& at, int cluster) {
    if (at.overlap) {
      list[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      list[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
      list[count].id = cudaLaunchAttributeClusterDimension;
      list[count++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    }
  }
};

template <class... Parameters, class... Arguments>
void launch_clusters(int cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                     const Launch& at, Arguments&&... arguments) {
  LaunchAttributes attributes(at, cluster);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = at.stream;
  config.attrs = attributes.list;
  config.numAttrs = attributes.count;
  check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...),
             "launching a kernel");
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, const Launch& at,
            Arguments&&... arguments) {
  launch_clusters(1, kernel, grid, block, shared_bytes, at, std::forward<Arguments>(arguments)...);
}

}  // namespace llm::cuda
