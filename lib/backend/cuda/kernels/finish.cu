#include "backend/cuda/kernels/finish.h"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr int kWarp = 32, kWarps = 8;

/// A warp per row: rows that have nothing to do, which is nearly all of them, cost one load.
__global__ void __launch_bounds__(kWarp* kWarps)
    finish(float* y, int n, int rows, const float* unscale, const float* scale, const float* bias) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= rows) return;
  const float factor = unscale == nullptr ? 1.0f : unscale[row];
  if (factor == 1.0f && scale == nullptr && bias == nullptr) return;
  const float weight_scale = scale == nullptr ? 1.0f : *scale;
  float* const at = y + static_cast<std::size_t>(row) * n;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < n; i += kWarp) {
    float value = at[i] * factor;
    if (scale != nullptr) value *= weight_scale;
    if (bias != nullptr) value += bias[i];
    at[i] = value;
  }
}

}  // namespace

void finish_products(float* y, int n, int rows, const float* unscale, const float* scale, const float* bias,
                     const Launch& at) {
  if (rows == 0 || (unscale == nullptr && scale == nullptr && bias == nullptr)) return;
  launch(finish, dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), dim3(kWarp * kWarps), 0, at, y, n, rows,
         unscale, scale, bias);
}

}  // namespace llm::cuda
