// What the wide ring needs beside ring_asm.cuh: blocks that form a cluster, and each other's shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace llm::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// Shared memory that the launch gave to the block.
__device__ __forceinline__ std::byte* block_memory() {
  extern __shared__ __align__(128) std::byte wide_shared[];
  return wide_shared;
}

__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
/// Until all threads of all blocks of the cluster are here; what they wrote to shared memory is then seen by all.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
/// From the shared memory of block `rank`, at the place that `address` is in the caller's own.
__device__ __forceinline__ float4 load_remote(std::uint32_t address, int rank) {
  std::uint32_t from;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(address), "r"(rank));
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ std::uint32_t load_remote_word(std::uint32_t address, int rank) {
  std::uint32_t from, v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}

/// Registers of each thread of the caller's four warps from here on, all of which call it: more, when others have given
/// some back, or fewer.
template <int registers>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <int registers>
__device__ __forceinline__ void give_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

/// Like copy_bulk() with a policy, of what other blocks read as well.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const std::byte* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

#endif

}  // namespace llm::cuda
