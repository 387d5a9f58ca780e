#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/screen.h"

namespace llm::cuda {
namespace {

constexpr int kThreads = 256;

/// Block (part, row). Reads every result once: 512 KB for a vocabulary of 128 k.
__global__ void __launch_bounds__(kThreads)
    screen(const float* y, int n, const std::int32_t* used, std::int32_t* found) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  const int length = (n + kScreenParts - 1) / kScreenParts, begin = part * length, end = min(n, begin + length);
  const float* const from = y + static_cast<std::size_t>(row) * n;
  bool bad = false;
  if (row < *used) {
#pragma unroll 8
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads)
      bad |= (__float_as_uint(from[i]) & 0x7f800000u) == 0x7f800000u;
  }
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) found[row * kScreenParts + part] = bad ? 1 : 0;
}

}  // namespace

void screen_rows(const float* y, int n, int rows, const std::int32_t* used, std::int32_t* found, const Launch& at) {
  if (rows == 0) return;
  launch(screen, dim3(kScreenParts, static_cast<unsigned>(rows)), dim3(kThreads), 0, at, y, n, used, found);
}

}  // namespace llm::cuda
