// Shared memory as instructions address it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace llm::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

}  // namespace llm::cuda
