// A target as kernels of products get it that have several in a launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/products.h"

namespace llm::cuda {

struct KernelTarget {
  const std::byte* matrix = nullptr;
  std::int64_t matrix_bytes = 0;  ///< from one expert to the next
  const float* bias = nullptr;
  const float* scale = nullptr;
  float* y = nullptr;
  int n = 0;
  int first = 0;  ///< of all targets' strips, tiles or blocks of rows
};

inline KernelTarget kernel_target(const Target& t, int first) {
  return {.matrix = t.matrix,
          .matrix_bytes = static_cast<std::int64_t>(matrix_bytes(t.type)),
          .bias = t.bias,
          .scale = t.scale,
          .y = t.y,
          .n = static_cast<int>(t.type.n),
          .first = first};
}

}  // namespace llm::cuda
