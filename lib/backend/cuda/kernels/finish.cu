#include "backend/cuda/kernels/finish.h"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr int kThreads = 256;

/// Rows are blockIdx.y and beyond; a block whose row has nothing to do leaves without touching memory.
__global__ void finish(float* y, int n, int rows, const float* unscale, const float* scale, const float* bias) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    const float factor = unscale == nullptr ? 1.0f : unscale[row];
    if (factor == 1.0f && scale == nullptr && bias == nullptr) continue;
    if (i >= n) continue;
    float* const at = y + static_cast<std::size_t>(row) * n + i;
    float value = *at * factor;
    if (scale != nullptr) value *= *scale;
    if (bias != nullptr) value += bias[i];
    *at = value;
  }
}

}  // namespace

void finish_products(float* y, int n, int rows, const float* unscale, const float* scale, const float* bias,
                     const Launch& at) {
  if (rows == 0 || (unscale == nullptr && scale == nullptr && bias == nullptr)) return;
  const dim3 grid(static_cast<unsigned>((n + kThreads - 1) / kThreads), static_cast<unsigned>(rows < 4096 ? rows : 4096));
  launch(finish, grid, dim3(kThreads), 0, at, y, n, rows, unscale, scale, bias);
}

}  // namespace llm::cuda
