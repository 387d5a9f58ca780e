// Asynchronous copies into shared memory by the threads that ask for them (compute capability 8.0 on).
#pragma once

#include "backend/cuda/kernels/shared_address.cuh"

namespace llm::cuda {

/// 16 bytes, both addresses multiples of 16. Not kept in L1: nobody else of the multiprocessor reads them.
__device__ __forceinline__ void copy16_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
/// 4 bytes, both addresses multiples of 4.
__device__ __forceinline__ void copy4_async(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
/// 16 bytes as above where `wanted`, otherwise 16 zeros.
__device__ __forceinline__ void copy16_or_zero_async(void* shared, const void* global, bool wanted) {
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most `kPending` of the thread's committed groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace llm::cuda
