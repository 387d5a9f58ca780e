// What norms are made of, element by element and in which order, for every kernel that has one in it.
#pragma once

#include <cmath>

#include "backend/cuda/kernels/forms.cuh"

namespace llm::cuda {

/// A row's sum of squares is the sum over its parts of theirs, a part being the blocks part, + parts, ... of 256 in
/// this order, which a warp adds up lane by lane. How many parts there are, the row's length alone decides.
inline constexpr int kMaxParts = 32;
LLM_HOST_DEVICE int row_parts(int blocks) {
  if (blocks <= 2) return 1;
  if (blocks <= kMaxParts) return blocks;
  return blocks <= 2 * kMaxParts ? (blocks + 1) / 2 : kMaxParts;
}

#ifdef __CUDACC__

/// The same in every lane.
__device__ __forceinline__ float warp_sum(float x) {
  for (int width = kWarp / 2; width > 0; width /= 2) x += __shfl_xor_sync(kWholeWarp, x, width);
  return x;
}

__device__ __forceinline__ float squares(float4 v, float sum) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}
/// A lane's part of a block added to what it has of those before.
__device__ __forceinline__ float squares(const BlockPart& v, float sum) { return squares(v.high, squares(v.low, sum)); }

/// Of all parts, those that a row has not being 0. Each lane adds up four, which leaves three shuffles of five.
__device__ __forceinline__ float sum_of_parts(const float4 (&parts)[kMaxParts / 4]) {
  const float4 four = parts[lane_id() % (kMaxParts / 4)];
  float sum = (four.x + four.y) + (four.z + four.w);
  for (int width = kMaxParts / 8; width > 0; width /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, width);
  return sum;
}

/// 1 / sqrt(sum / n + eps) to a unit in the last place, without the branches of IEEE's root and division.
__device__ __forceinline__ float norm_factor(float sum, int n, float eps) {
  const float mean = (sum < INFINITY ? quotient(sum, static_cast<float>(n)) : sum) + eps;
  const float r = rsqrtf(mean);
  const float better = fmaf(0.5f * r, fmaf(-mean * r, r, 1.0f), r);
  return mean > 0 && mean < INFINITY ? better : r;
}
/// Beyond the row's end 0, also where the factor is NaN.
__device__ __forceinline__ float4 normed(float4 v, float4 w, float factor, int k, int n) {
  const float4 y = map(v, w, [=](float a, float b) { return a * factor * b; });
  return make_float4(k < n ? y.x : 0.0f, k + 1 < n ? y.y : 0.0f, k + 2 < n ? y.z : 0.0f, k + 3 < n ? y.w : 0.0f);
}
__device__ __forceinline__ BlockPart normed(const BlockPart& v, const BlockPart& w, float factor, int block, int n) {
  const int k = block * kBlockK + 4 * lane_id();
  return {normed(v.low, w.low, factor, k, n), normed(v.high, w.high, factor, k + kBlockK / 2, n)};
}

#endif  // __CUDACC__

}  // namespace llm::cuda
