// Attention of wide heads for decoding: a CTA has up to 32 query heads of one KV head of one token over stripes of its
// tiles; where a token's stripes are several CTAs' work, a second kernel folds them. A stripe's operations and their
// order are the same however many CTAs there are, so the bits are. Keys and values are read once for each head tile.
#include "backend/cuda/kernels/attend_wide.h"

#include "backend/cuda/kernels/attend_wide.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr int kFoldThreads = 128;

template <class Shape>
__global__ void __launch_bounds__(kThreads, 1) attend_wide_kernel(const __grid_constant__ WideArgs a) {
  let_next_start();
  unsigned char* const shared = dynamic_shared();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.z), of_token = static_cast<int>(blockIdx.y);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  if (sequence < 0) return;
  const int first_row = of_token % a.head_tiles * Shape::kRows;
  const WideRows rows{token, position, sequence, of_token / a.head_tiles, first_row,
                      min(Shape::kRows, a.group - first_row)};
  Wide<Shape>(a, shared, rows, static_cast<std::int64_t>(token) * gridDim.y + of_token)
      .run(static_cast<int>(blockIdx.x));
}

/// Published stripes, in their order, of one head's 128 elements: as Wide::fold() does it.
__global__ void __launch_bounds__(kFoldThreads) fold_wide_kernel(const __grid_constant__ WideArgs a, int tile_rows) {
  constexpr int kAhead = 16, kDims = 512;
  let_next_start();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  if (sequence < 0) return;
  const WideTiles keys(position, position, a.window, a.stripes);
  const int n = keys.stripes();
  if (n == 1) return;  // its CTA has written y
  __shared__ float old_shares[kFoldThreads], stripe_shares[kFoldThreads], totals[kFoldThreads];
  __shared__ float warp_max[kFoldThreads / 32];
  const int row = head % a.group % tile_rows;
  const std::int64_t pair =
      static_cast<std::int64_t>(token * a.kv_heads + head / a.group) * a.head_tiles + head % a.group / tile_rows;
  const int slot_floats = a.slot_rows * (kDims + 2);
  const float* const first = a.partials + pair * a.stripes * slot_floats;
  const float* const stats = first + std::int64_t{min(thread, n - 1)} * slot_floats + a.slot_rows * kDims + row;
  const float max = __ldcg(stats);
  float until = max;  // the maximum up to the thread's stripe
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const float other = __shfl_up_sync(kAll, until, offset);
    if (lane >= offset) until = fmaxf(other, until);
  }
  if (lane == 31) warp_max[warp] = until;
  __syncthreads();
  float before = __shfl_up_sync(kAll, until, 1);
  if (lane == 0) before = -INFINITY;
  for (int w = 0; w < warp; ++w) before = fmaxf(warp_max[w], before);
  const WideFold f = wide_fold(before, max);
  old_shares[thread] = f.old_share;
  stripe_shares[thread] = f.share;
  totals[thread] = __ldcg(stats + a.slot_rows);
  __syncthreads();
  const int d = static_cast<int>(blockIdx.x) * kFoldThreads + thread;
  const float* const from = first + row * kDims + d;
  float sum = 0, total = 0;
#pragma unroll 1
  for (int begin = 0; begin < n; begin += kAhead) {
    float next[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) next[i] = begin + i < n ? __ldcg(from + std::int64_t{begin + i} * slot_floats) : 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int s = begin + i;
      if (s >= n) break;
      const WideFold of_stripe{old_shares[s], stripe_shares[s]};
      sum = folded(s == 0, sum, next[i], of_stripe);
      total = folded(s == 0, total, totals[s], of_stripe);
    }
  }
  if (a.sinks != nullptr) {
    float whole_max = warp_max[0];
    for (int w = 1; w < kFoldThreads / 32; ++w) whole_max = fmaxf(whole_max, warp_max[w]);
    const WideSink sink = with_wide_sink(a.sinks[head], kOneWeight, whole_max, total);
    total = sink.total;
    sum *= sink.share;
  }
  a.y[(static_cast<std::int64_t>(token) * a.heads + head) * kDims + d] = quotient(sum, total);
}

using WideKernel = void (*)(WideArgs);
struct WideChoice {
  WideKernel kernel;
  int shared_bytes;
};
template <bool kBFloat16, int kParts, int kRows, int kDimK, bool kInKeys, bool kDecoded>
WideChoice wide_choice() {
  using Shape = WideShape<kBFloat16, kParts, kRows, kDimK, kInKeys, kDecoded>;
  return {attend_wide_kernel<Shape>, Shape::kSharedBytes};
}
template <int kDimK, bool kInKeys>
WideChoice wide_choice(DType type, int rows) {
  if (type == DType::BF16) return wide_choice<true, 3, 16, kDimK, kInKeys, false>();
  if (type == DType::F8_E4M3)
    return rows == 16 ? wide_choice<false, 2, 16, kDimK, kInKeys, true>()
                      : wide_choice<false, 2, 32, kDimK, kInKeys, true>();
  return rows == 16 ? wide_choice<false, 2, 16, kDimK, kInKeys, false>()
                    : wide_choice<false, 2, 32, kDimK, kInKeys, false>();
}
WideChoice wide_choice(const CacheView& c, int rows) {
  if (c.head_dim_k == 512) return wide_choice<512, false>(c.k_type, rows);
  return c.values_in_keys ? wide_choice<576, true>(c.k_type, rows) : wide_choice<576, false>(c.k_type, rows);
}

}  // namespace

bool has_wide_heads(const CacheView& c) { return (c.head_dim_k == 512 || c.head_dim_k == 576) && c.head_dim_v == 512; }

bool attends_wide(const CacheView& c) {
  const bool type = c.k_type == DType::F16 || c.k_type == DType::BF16 || c.k_type == DType::F8_E4M3;
  if (!has_wide_heads(c) || !type || c.k_type != c.v_type) return false;
  const int rows = c.k_type == DType::BF16 ? 16 : 32;  // the most, so that a group's size does not matter
  return wide_choice(c, rows).shared_bytes <= device_limits().block_bytes;
}

void attend_wide(const float* q, float* y, const CacheView& c, const AttentionShape& s, const StepView& step, int tokens,
                 std::int64_t max_positions, std::byte* scratch, const Launch& at) {
  const WidePlan p = plan_attend_wide(c, s.heads, tokens, max_positions, device_limits().multiprocessors);
  WideArgs a = wide_arguments(q, y, c, s, step);
  a.partials = reinterpret_cast<float*>(scratch);
  a.head_tiles = p.head_tiles;
  a.slot_rows = p.slot_rows;
  a.stripes = p.stripes;
  a.splits = p.splits;
  const WideChoice chosen = wide_choice(c, p.rows);
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(chosen.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, chosen.shared_bytes),
             "giving attention its shared memory");
  launch(chosen.kernel,
         dim3(static_cast<unsigned>(p.splits), static_cast<unsigned>(c.kv_heads * p.head_tiles),
              static_cast<unsigned>(tokens)),
         dim3(kThreads), static_cast<std::size_t>(chosen.shared_bytes), at, a);
  if (p.splits == 1) return;
  launch(fold_wide_kernel,
         dim3(static_cast<unsigned>(c.head_dim_v / kFoldThreads), static_cast<unsigned>(s.heads),
              static_cast<unsigned>(tokens)),
         dim3(kFoldThreads), 0, at, a, p.rows);
}

}  // namespace llm::cuda
