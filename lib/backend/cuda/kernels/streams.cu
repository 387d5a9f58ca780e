// Mixing a row's vectors, adding to them, how well they go together, and what lies far out of a row: few operations for
// each element that is read.
#include <cstdint>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/streams.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kThreads = 256;

dim3 grid_of(std::int64_t items) { return dim3(static_cast<unsigned>((items + kThreads - 1) / kThreads)); }

/// A thread per element of the result.
__global__ void __launch_bounds__(kThreads) stream_mix_kernel(const Streams s, const float* x, const float* w,
                                                              const int k, const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t row = i / (std::int64_t{s.n} * k), vector = i / s.n;
  const float* const from = x + row * s.m * s.n + i % s.n;
  float sum = 0;
  for (int j = 0; j < s.m; ++j) sum = fmaf(w[vector * s.m + j], from[std::int64_t{j} * s.n], sum);
  y[i] = sum;
}

/// Of two vectors, by a block, all of whose threads get it.
__device__ __forceinline__ float block_dot(const float* a, const float* b, int n) {
  __shared__ float of_warps[kThreads / kWarp];
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) sum = fmaf(a[i], b[i], sum);
  sum = warp_sum(sum);
  if (lane_id() == 0) of_warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  float all = 0;
  for (const float part : of_warps) all += part;
  return all;
}

/// Of vectors of one element, which are dot products: a block per result.
__global__ void __launch_bounds__(kThreads)
    dot_kernel(const int m, const float* x, const float* w, const int k, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t result = blockIdx.x, row = result / k;
  const float dot = block_dot(w + result * m, x + row * m, m);
  if (threadIdx.x == 0) y[result] = dot;
}

/// A block per pair of vectors.
__global__ void __launch_bounds__(kThreads) match_gate_kernel(const float* a, const float* b, const int n, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t first = std::int64_t{blockIdx.x} * n;
  const float s = block_dot(a + first, b + first, n) / sqrtf(static_cast<float>(n));
  if (threadIdx.x != 0) return;
  const float root = sqrtf(fmaxf(fabsf(s), kLeastMatch));
  y[blockIdx.x] = 1.0f / (1.0f + expf(s > 0 ? -root : s < 0 ? root : -s));  // NaN stays NaN
}

__global__ void __launch_bounds__(kThreads)
    stream_add_kernel(const StreamAdd op, const Streams s, const float* x, const float* added, const float* w,
                      const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t vector = i / s.n, row = vector / s.m;
  if (vector % s.m < op.first) {
    y[i] = x[i];
  } else {
    y[i] = fmaf(w != nullptr ? 1.0f + w[vector] : 1.0f, added[row * s.n + i % s.n], x[i]);
  }
}

/// A thread per element of the result.
__global__ void __launch_bounds__(kThreads)
    stream_mean_kernel(const Streams s, const float* x, const float* gate, const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t first = i / s.n * s.m * s.n + i % s.n;
  float sum = 0;
  for (int j = 0; j < s.m; ++j) {
    const std::int64_t at = first + std::int64_t{j} * s.n;
    sum += x[at] / (1.0f + expf(-gate[at]));
  }
  y[i] = sum / static_cast<float>(s.m);
}

/// kMost lanes have a row, of which lane i makes what is of vector i, its shares in registers. Those of lanes and
/// places from m on are 0 and stay so.
template <int kMost>
__global__ void __launch_bounds__(kThreads)
    stream_weights_kernel(const StreamWeights op, const int m, const float* x, const float* scales, const float* biases,
                          const int rows, const __grid_constant__ StreamShareRows y) {
  let_next_start();
  const int from = lane_id() % kMost;
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kMost;
  const bool mine = row < rows && from < m;
  const int width = y.write != nullptr ? (2 + m) * m : m;
  wait_for_previous();
  const auto z = [&](int of, int i) { return fmaf(x[row * width + i], scales[of], biases[i]); };
  if (mine) y.read[row * m + from] = sigmoid(z(0, from)) + op.eps;
  if (y.write == nullptr) return;
  if (mine) y.write[row * m + from] = tanhf(0.5f * z(1, m + from));
  float shares[kMost];
  float top = -INFINITY;
#pragma unroll
  for (int to = 0; to < kMost; ++to) {
    shares[to] = mine && to < m ? z(2, 2 * m + from * m + to) : -INFINITY;
    top = fmaxf(top, shares[to]);
  }
  float sum = 0;
#pragma unroll
  for (int to = 0; to < kMost; ++to) {
    shares[to] = mine && to < m ? expf(shares[to] - top) : 0.0f;
    sum += shares[to];
  }
#pragma unroll
  for (int to = 0; to < kMost; ++to) shares[to] = mine && to < m ? shares[to] / sum + op.eps : 0.0f;
#pragma unroll 1
  for (int turn = 0; turn < op.iterations; ++turn) {
    if (turn > 0) {
      float of_vector = op.eps;
#pragma unroll
      for (int to = 0; to < kMost; ++to) of_vector += shares[to];
#pragma unroll
      for (int to = 0; to < kMost; ++to) shares[to] = mine ? shares[to] / of_vector : 0.0f;
    }
#pragma unroll
    for (int to = 0; to < kMost; ++to) {
      float of_place = shares[to];
#pragma unroll
      for (int offset = kMost / 2; offset > 0; offset /= 2) of_place += __shfl_xor_sync(kWholeWarp, of_place, offset);
      shares[to] = mine && to < m ? shares[to] / (of_place + op.eps) : 0.0f;
    }
  }
#pragma unroll
  for (int to = 0; to < kMost; ++to) {
    if (mine && to < m) y.mix[(row * m + to) * m + from] = shares[to];
  }
}

constexpr int kBlendThreads = 512;
static_assert(kMostBlended < kBlendThreads);

/// A row per block: a warp per vector gets its score, a thread has one share, then elements of the result.
__global__ void __launch_bounds__(kBlendThreads)
    stream_blend_kernel(const StreamBlend op, const Streams s, const float* x, const float* last, const float* w,
                        float* y) {
  let_next_start();
  wait_for_previous();
  __shared__ float scores[kMostBlended + 1];
  const std::int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const auto vector = [&](int i) { return i < s.m ? x + (row * s.m + i) * s.n : last + row * s.n; };
  for (int i = thread / kWarp; i <= s.m; i += kBlendThreads / kWarp) {
    const float* const from = vector(i);
    float product = 0, squares = 0;
    for (int e = lane_id(); e < s.n; e += kWarp) {
      const float v = from[e];
      product = fmaf(v, w[e], product);
      squares = fmaf(v, v, squares);
    }
    product = warp_sum(product);
    squares = warp_sum(squares);
    if (lane_id() == 0) scores[i] = product / sqrtf(squares / static_cast<float>(s.n) + op.eps);
  }
  __syncthreads();
  float best = scores[0], total = 0;
  for (int i = 1; i <= s.m; ++i) best = fmaxf(best, scores[i]);
  for (int i = 0; i <= s.m; ++i) total += expf(scores[i] - best);
  const float share = thread <= s.m ? expf(scores[thread] - best) / total : 0.0f;
  __syncthreads();
  if (thread <= s.m) scores[thread] = share;
  __syncthreads();
  for (int e = thread; e < s.n; e += kBlendThreads) {
    float sum = 0;
    for (int i = 0; i <= s.m; ++i) sum = fmaf(scores[i], vector(i)[e], sum);
    y[row * s.n + e] = sum;
  }
}

/// A row per block.
__global__ void __launch_bounds__(kThreads)
    gaussian_top_kernel(const float* x, const float deviations, const int n, float* y) {
  let_next_start();
  wait_for_previous();
  __shared__ float of_warps[2][kThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  const float* const from = x + static_cast<std::int64_t>(blockIdx.x) * n;
  const auto sum_of = [&](float(&parts)[kThreads / kWarp], const auto& f) {
    float sum = 0;
    for (int i = thread; i < n; i += kThreads) sum += f(from[i]);
    sum = warp_sum(sum);
    if (lane_id() == 0) parts[thread / kWarp] = sum;
    __syncthreads();
    float all = 0;
    for (const float part : parts) all += part;
    return all;
  };
  const float mean = sum_of(of_warps[0], [](float v) { return v; }) / static_cast<float>(n);
  const float squares = sum_of(of_warps[1], [=](float v) { return (v - mean) * (v - mean); });
  const float cut = mean + deviations * sqrtf(squares / static_cast<float>(n - 1));
  float* const to = y + static_cast<std::int64_t>(blockIdx.x) * n;
  for (int i = thread; i < n; i += kThreads) to[i] = from[i] < cut ? 0.0f : from[i] - cut;  // NaN stays NaN
}

}  // namespace

void stream_mix(const Streams& s, const float* x, const float* w, int k, int rows, float* y, const Launch& at) {
  if (rows == 0) return;
  if (s.n == 1) {
    launch(dot_kernel, dim3(static_cast<unsigned>(rows * k)), dim3(kThreads), 0, at, s.m, x, w, k, y);
    return;
  }
  const std::int64_t elements = std::int64_t{rows} * k * s.n;
  launch(stream_mix_kernel, grid_of(elements), dim3(kThreads), 0, at, s, x, w, k, elements, y);
}

void stream_add(const StreamAdd& op, const Streams& s, const float* x, const float* added, const float* w, int rows,
                float* y, const Launch& at) {
  if (rows == 0) return;
  const std::int64_t elements = std::int64_t{rows} * s.m * s.n;
  launch(stream_add_kernel, grid_of(elements), dim3(kThreads), 0, at, op, s, x, added, w, elements, y);
}

void stream_weights(const StreamWeights& op, int m, const float* x, const float* scales, const float* biases, int rows,
                    const StreamShareRows& y, const Launch& at) {
  check(m >= 1 && m <= kMostStreams, "rows of more vectors have no weights");
  if (rows == 0) return;
  const auto run = [&](auto kernel, int lanes) {
    launch(kernel, grid_of(std::int64_t{rows} * lanes), dim3(kThreads), 0, at, op, m, x, scales, biases, rows, y);
  };
  if (m <= 4) return run(stream_weights_kernel<4>, 4);
  if (m <= 8) return run(stream_weights_kernel<8>, 8);
  run(stream_weights_kernel<kMostStreams>, static_cast<int>(kMostStreams));
}

void stream_mean(const Streams& s, const float* x, const float* gate, int rows, float* y, const Launch& at) {
  if (rows == 0) return;
  const std::int64_t elements = std::int64_t{rows} * s.n;
  launch(stream_mean_kernel, grid_of(elements), dim3(kThreads), 0, at, s, x, gate, elements, y);
}

void stream_blend(const StreamBlend& op, const Streams& s, const float* x, const float* last, const float* w, int rows,
                  float* y, const Launch& at) {
  if (rows == 0) return;
  launch(stream_blend_kernel, dim3(static_cast<unsigned>(rows)), dim3(kBlendThreads), 0, at, op, s, x, last, w, y);
}

void match_gate(const float* a, const float* b, int n, std::int64_t vectors, float* y, const Launch& at) {
  if (vectors == 0) return;
  launch(match_gate_kernel, dim3(static_cast<unsigned>(vectors)), dim3(kThreads), 0, at, a, b, n, y);
}

void gaussian_top(const float* x, float deviations, int n, int rows, float* y, const Launch& at) {
  if (rows == 0) return;
  launch(gaussian_top_kernel, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, at, x, deviations, n, y);
}

}  // namespace llm::cuda
