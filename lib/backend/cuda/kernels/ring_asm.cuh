// What a ring of stages in shared memory needs of compute capability 9.0: barriers that count bytes, and copies of bulk
// that report to them. Addresses are of the shared window (shared_address).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/shared_address.cuh"

namespace llm::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// After init_barrier(), by the same thread: copies and, after a barrier of the block, its other threads see them.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives; the phase ends when `bytes` more have been copied as well.
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Until the phase of this parity has ended. The phase before a barrier's first counts as one of parity 1.
__device__ __forceinline__ void wait_barrier(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

/// The L2 cache may drop first what is read with this.
__device__ __forceinline__ std::uint64_t read_once_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Bytes of global memory into shared memory, both aligned to 16 as their number is; `barrier` counts them.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const std::byte* from, std::uint32_t bytes,
                                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

#endif

}  // namespace llm::cuda
