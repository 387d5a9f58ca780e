// Attention of wide heads for decoding: a CTA has up to 32 query heads of one KV head of one token over stripes of its
// tiles; where a token's stripes are several CTAs' work, a second kernel folds them. A stripe's operations and their
// order are the same however many CTAs there are, so the bits are. Keys and values are read once for each head tile.
#include "backend/cuda/kernels/attend_wide.cuh"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/shared_limit.cuh"

namespace llm::cuda {
namespace {

constexpr int kFoldThreads = 128;

template <class Shape>
__global__ void __launch_bounds__(kThreads, 1) attend_wide_kernel(const __grid_constant__ WideArgs a) {
  let_next_start();
  // The step's data was copied before its first kernel.
  const int token = static_cast<int>(blockIdx.z), of_token = static_cast<int>(blockIdx.y);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  if (sequence < 0) return wait_for_previous();
  const int first_row = of_token % a.head_tiles * Shape::kRows;
  const WideRows rows{token,     seen_position(a, position),
                      sequence,  of_token / a.head_tiles,
                      first_row, min(Shape::kRows, a.group - first_row)};
  const std::int64_t pair = static_cast<std::int64_t>(token) * gridDim.y + of_token;
  if constexpr (kHasRoom)
    Wide<Shape>(a, wide_shared(), rows, pair).run(static_cast<int>(blockIdx.x), gridDim.z == 1 ? position : 0);
}

/// Published stripes, in their order, of 128 elements of a head: as Wide::fold() does it.
class FoldedStripes {
  static constexpr int kDims = 512, kWarps = kFoldThreads / 32;

 public:
  static constexpr int kMostStripes = kFoldThreads;
  static constexpr int kSharedBytes = kMostStripes * kFoldThreads * static_cast<int>(sizeof(float));

  __device__ __forceinline__ FoldedStripes(const WideArgs& args, float* sums, int token, int head, int tile_rows)
      : a(args),
        sums(sums),
        head(head),
        row(head % args.group % tile_rows),
        slot_floats(args.slot_floats),
        first(args.partials + (static_cast<std::int64_t>(token * args.kv_heads + head / args.group) * args.head_tiles +
                               head % args.group / tile_rows) *
                                  args.stripes * slot_floats),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32) {}

  /// Of element d, which is the thread's.
  __device__ __forceinline__ float result(int n, int d) {
    __shared__ float old_shares[kMostStripes], stripe_shares[kMostStripes], totals[kMostStripes], warp_max[kWarps];
    copy_sums(n, d - thread);
    const float* const stats = first + std::int64_t{min(thread, n - 1)} * slot_floats + a.slot_rows * kDims + row;
    const float max = __ldcg(stats);
    totals[thread] = __ldcg(stats + a.slot_rows);
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
    float whole_max = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) before = fmaxf(whole_max, before);
      whole_max = fmaxf(whole_max, warp_max[w]);
    }
    const WideFold f = wide_fold(before, max);
    old_shares[thread] = f.old_share;
    stripe_shares[thread] = f.share;
    wait_for_copies<0>();
    __syncthreads();
    float sum = sums[thread], total = totals[0];
#pragma unroll 8
    for (int s = 1; s < n; ++s) {
      const WideFold of_stripe{old_shares[s], stripe_shares[s]};
      sum = folded(false, sum, sums[s * kFoldThreads + thread], of_stripe);
      total = folded(false, total, totals[s], of_stripe);
    }
    return sum * wide_result_factor(a.sinks != nullptr ? a.sinks + head : nullptr, kOneWeight, whole_max, total);
  }

 private:
  /// All on their way at once: a warp has every fourth stripe.
  __device__ __forceinline__ void copy_sums(int n, int d) {
    const float* const from = first + row * kDims + d + lane * 4;
#pragma unroll 4
    for (int s = warp; s < n; s += kWarps)
      copy16_async(sums + s * kFoldThreads + lane * 4, from + std::int64_t{s} * slot_floats);
    commit_copies();
  }

  const WideArgs& a;
  float* const sums;  ///< [stripes][kFoldThreads]
  const int head, row, slot_floats;
  const float* const first;  ///< of the head tile's slots
  const int thread, lane, warp;
};

__global__ void __launch_bounds__(kFoldThreads) fold_wide_kernel(const __grid_constant__ WideArgs a, int tile_rows) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  const int last = seen_position(a, position), n = WideTiles(last, last, a.window, a.stripes).stripes();
  wait_for_previous();
  if (sequence < 0 || n == 1) return;  // where there is one stripe its CTA has written y
  const int d = static_cast<int>(blockIdx.x * kFoldThreads + threadIdx.x);
  FoldedStripes stripes(a, reinterpret_cast<float*>(wide_shared()), token, head, tile_rows);
  a.y[(static_cast<std::int64_t>(token) * a.heads + head) * (gridDim.x * kFoldThreads) + d] = stripes.result(n, d);
}

using WideKernel = void (*)(WideArgs);
struct WideChoice {
  WideKernel kernel;
  int shared_bytes;
};
template <int kDimK, bool kInKeys, WideKeysSeen kSeen>
struct WideChoices {
  template <bool kBFloat16, int kParts, int kRows, bool kDecoded>
  static WideChoice choice() {
    using Shape = WideShape<kBFloat16, kParts, kRows, kDimK, kInKeys, kDecoded, kSeen>;
    return {attend_wide_kernel<Shape>, Shape::kSharedBytes};
  }
  static WideChoice choose(DType type, int rows) {
    if (type == DType::BF16) return choice<true, 3, 16, false>();
    if (type == DType::F8_E4M3) return rows == 16 ? choice<false, 2, 16, true>() : choice<false, 2, 32, true>();
    return rows == 16 ? choice<false, 2, 16, false>() : choice<false, 2, 32, false>();
  }
};
WideChoice wide_choice(const CacheView& c, int rows) {
  using enum WideKeysSeen;
  if (c.head_dim_k == 512) return WideChoices<512, false, All>::choose(c.k_type, rows);
  return c.values_in_keys ? WideChoices<576, true, All>::choose(c.k_type, rows)
                          : WideChoices<576, false, All>::choose(c.k_type, rows);
}
WideChoice selected_choice(const CacheView& c, int rows) {
  return WideChoices<576, true, WideKeysSeen::Selected>::choose(c.k_type, rows);
}

void launch_wide(const WideChoice& chosen, WideArgs& a, const CacheView& c, const WidePlan& p, int tokens,
                 std::byte* scratch, const Launch& at) {
  a.partials = reinterpret_cast<float*>(scratch);
  a.head_tiles = p.head_tiles;
  a.slot_rows = p.slot_rows;
  a.slot_floats = p.slot_floats();
  a.stripes = p.stripes;
  a.splits = p.splits;
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(chosen.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, chosen.shared_bytes),
             "giving attention its shared memory");
  launch(chosen.kernel,
         dim3(static_cast<unsigned>(p.splits), static_cast<unsigned>(c.kv_heads * p.head_tiles),
              static_cast<unsigned>(tokens)),
         dim3(kThreads), static_cast<std::size_t>(chosen.shared_bytes), at, a);
  if (p.splits == 1) return;
  allow_shared<fold_wide_kernel>(FoldedStripes::kSharedBytes);
  launch(fold_wide_kernel,
         dim3(static_cast<unsigned>(c.head_dim_v / kFoldThreads), static_cast<unsigned>(a.heads),
              static_cast<unsigned>(tokens)),
         dim3(kFoldThreads), FoldedStripes::kSharedBytes, at, a, p.rows);
}

}  // namespace

bool has_wide_heads(const CacheView& c) { return (c.head_dim_k == 512 || c.head_dim_k == 576) && c.head_dim_v == 512; }

bool attends_wide(const CacheView& c) {
  const bool type = c.k_type == DType::F16 || c.k_type == DType::BF16 || c.k_type == DType::F8_E4M3;
  if (!has_wide_heads(c) || !type || c.k_type != c.v_type) return false;
  const int rows = c.k_type == DType::BF16 ? 16 : 32;  // the most, so that a group's size does not matter
  return wide_choice(c, rows).shared_bytes <= device_limits().block_bytes;
}

void attend_wide(const float* q, float* y, const CacheView& c, const AttentionShape& s, const StepView& step,
                 int tokens, std::int64_t max_positions, std::byte* scratch, const Launch& at) {
  const WidePlan p = plan_attend_wide(c, s.heads, tokens, max_positions, device_limits().multiprocessors);
  WideArgs a = wide_arguments(q, y, c, s, step);
  launch_wide(wide_choice(c, p.rows), a, c, p, tokens, scratch, at);
}

bool attends_wide_selected(const CacheView& c) { return attends_wide(c) && c.head_dim_k == 576 && c.values_in_keys; }

void attend_wide_selected(const float* q, float* y, const CacheView& c, const AttentionShape& s, const Selected& keys,
                          const StepView& step, int tokens, std::byte* scratch, const Launch& at) {
  const WidePlan p = plan_attend_wide(c, s.heads, tokens, keys.top_k, device_limits().multiprocessors);
  WideArgs a = wide_arguments(q, y, c, s, step);
  a.selected = keys.positions;
  a.top_k = keys.top_k;
  launch_wide(selected_choice(c, p.rows), a, c, p, tokens, scratch, at);
}

}  // namespace llm::cuda
