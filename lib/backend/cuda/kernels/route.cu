// Experts: which ones a token goes to, the routes sorted by expert, and the weighted sum of what comes back.
//
// Routing and sorting move a few kilobytes: latency only. The weighted sum reads 4 bytes per slot and element.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/route_token.cuh"
#include "backend/cuda/kernels/rows.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kRouteTokens = 4;  ///< of a block of threads, a warp each
constexpr int kMaxExpertsPerLane = kMostExperts / kWarp;

template <int kPerLane, Choice choice>
__global__ void __launch_bounds__(kRouteTokens* kWarp)
    route_kernel(const Route op, const float* logits, const float* bias, const int experts, const int tokens,
                 std::int32_t* ids, float* weights) {
  let_next_start();
  wait_for_previous();
  const std::int64_t token = std::int64_t{blockIdx.x} * kRouteTokens + threadIdx.x / kWarp;
  if (token >= tokens) return;
  route_token<kPerLane, choice>(op, logits + token * experts, bias, experts, ids + token * op.top_k,
                                weights + token * op.top_k, [](int) {});
}

template <int kPerLane>
__global__ void __launch_bounds__(kRouteTokens* kWarp)
    route_by_table_kernel(const __grid_constant__ Router router, const float* logits, const int experts,
                          const int tokens, std::int32_t* ids, float* weights) {
  let_next_start();
  wait_for_previous();
  const std::int64_t row = std::int64_t{blockIdx.x} * kRouteTokens + threadIdx.x / kWarp;
  if (row >= tokens) return;
  const int top_k = router.op.top_k;
  std::int32_t token = __ldcg(router.tokens + row);
  if (token < 0) token = __ldcg(router.drawn + ~token);
  const bool is_there = token >= 0 && token < router.vocab;
  weigh_named_experts<kPerLane>(router.op, logits + row * experts, experts,
                                is_there ? router.table + std::int64_t{token} * top_k : nullptr, ids + row * top_k,
                                weights + row * top_k);
}

constexpr int kMaxSortWarps = 16;
constexpr int kSortCounts = 8192;  ///< 32 KB of shared memory

struct GroupMemory {
  std::int32_t *n_groups, *expert, *first, *count, *routes;
};
GroupMemory group_memory(std::byte* memory, std::int64_t max_routes) {
  auto* const words = reinterpret_cast<std::int32_t*>(memory);
  std::int32_t* const lists = words + 4;
  return {words, lists, lists + max_routes, lists + 2 * max_routes, lists + 3 * max_routes};
}

/// Sums of all lower threads' values, and of all threads'. `of_warp` is shared memory, read until the next barrier.
struct Prefix {
  int before, total;
};
__device__ __forceinline__ Prefix prefix(int value, int* of_warp) {
  int up_to = value;
  for (int width = 1; width < kWarp; width *= 2) {
    const int lower = __shfl_up_sync(kWholeWarp, up_to, width);
    if (lane_id() >= width) up_to += lower;
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  if (lane_id() == kWarp - 1) of_warp[warp] = up_to;
  __syncthreads();
  Prefix p{up_to - value, 0};
  for (int w = 0; w < warps; ++w) {
    if (w < warp) p.before += of_warp[w];
    p.total += of_warp[w];
  }
  return p;
}

/// Counting sort in one block of threads: each warp has a stretch of the routes and a count per expert, from which
/// follows where each of its routes goes, whatever the other warps do.
__global__ void __launch_bounds__(kMaxSortWarps* kWarp)
    group_kernel(const std::int32_t* ids, const int experts, const int max_tokens, const int top_k, const int columns,
                 const std::int32_t* counts, const GroupMemory out) {
  let_next_start();
  __shared__ int count[kSortCounts];  // [warp][expert], later where the warp's next route of the expert goes
  __shared__ int sums[2][kMaxSortWarps];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / kWarp, warps = threads / kWarp, lane = lane_id();
  for (int i = thread; i < warps * experts; i += threads) count[i] = 0;
  wait_for_previous();
  const int routes = min(counts[0], max_tokens) * top_k;
  const int stretch = (routes + warps * kWarp - 1) / (warps * kWarp) * kWarp;
  const int begin = warp * stretch, end = min(routes, begin + stretch);
  int* const mine = count + warp * experts;
  __syncthreads();

  const auto expert_of = [&](int route) {
    if (route >= end) return -1;
    const int e = ids[route];
    return e >= 0 && e < experts ? e : -1;
  };
  for (int base = begin; base < end; base += kWarp) {
    const int e = expert_of(base + lane);
    const unsigned peers = __match_any_sync(kWholeWarp, e);
    if (e >= 0 && lane == __ffs(static_cast<int>(peers)) - 1) mine[e] += __popc(peers);
    __syncwarp();
  }
  __syncthreads();

  int routes_before = 0, groups_before = 0;
  for (int base = 0; base < experts; base += threads) {
    const int e = base + thread;
    int total = 0;
    for (int w = 0; e < experts && w < warps; ++w) total += count[w * experts + e];
    const int groups = (total + columns - 1) / columns;
    const Prefix route = prefix(total, sums[0]), group = prefix(groups, sums[1]);
    const int first = routes_before + route.before, first_group = groups_before + group.before;
    int next = first;
    for (int w = 0; e < experts && w < warps; ++w) {
      const int n = count[w * experts + e];
      count[w * experts + e] = next;
      next += n;
    }
    for (int g = 0; g < groups; ++g) {
      out.expert[first_group + g] = e;
      out.first[first_group + g] = first + g * columns;
      out.count[first_group + g] = min(columns, total - g * columns);
    }
    routes_before += route.total;
    groups_before += group.total;
    __syncthreads();
  }
  if (thread == 0) *out.n_groups = groups_before;

  for (int base = begin; base < end; base += kWarp) {
    const int e = expert_of(base + lane);
    const unsigned peers = __match_any_sync(kWholeWarp, e);
    const int lower = __popc(peers & ((1u << lane) - 1));
    if (e >= 0) out.routes[mine[e] + lower] = base + lane;
    __syncwarp();
    if (e >= 0 && lower == 0) mine[e] += __popc(peers);
    __syncwarp();
  }
}

/// Tokens are bits of a word; experts and routes of each fit shared memory and half a word.
constexpr int kGroupedTokens = 64, kGroupedRoutes = 512;

constexpr int route_group_warps(int per_lane) { return per_lane <= 8 ? 32 : 16; }  // by the registers that they need

/// Both steps for few tokens, in one block of threads: a warp routes a token and marks it at the experts that it
/// chooses. How many tokens an expert has, and which of them a token is, are bits counted; a sum over the experts
/// before gives the places.
template <int kPerLane, Choice choice>
__global__ void __launch_bounds__(route_group_warps(kPerLane) * kWarp, 1)
    route_group_kernel(const Route op, const float* logits, const float* bias, const int experts, const int tokens,
                       std::int32_t* ids, float* weights, const int columns, const std::int32_t* counts,
                       const GroupMemory out) {
  let_next_start();
  constexpr int kMostExperts = kPerLane * kWarp;
  __shared__ unsigned long long chosen_by[kMostExperts];
  __shared__ int first[kMostExperts];
  __shared__ int sums[kWarp];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / kWarp, warps = threads / kWarp;
  for (int e = thread; e < experts; e += threads) chosen_by[e] = 0;
  __syncthreads();
  wait_for_previous();
  const int grouped = min(counts[0], tokens);
  for (int token = warp; token < tokens; token += warps) {
    const bool marks = token < grouped;
    route_token<kPerLane, choice>(op, logits + token * experts, bias, experts, ids + token * op.top_k,
                                  weights + token * op.top_k, [&](int e) {
                                    if (marks) atomicOr(chosen_by + e, 1ull << token);
                                  });
  }
  if (tokens == 1) {  // what decoding runs: every route is a group of its own, nothing is to be sorted
    if (warp > 0) return;
    for (int slot = lane_id(); slot < op.top_k; slot += kWarp) {
      out.expert[slot] = ids[slot];
      out.first[slot] = slot;
      out.count[slot] = 1;
      out.routes[slot] = slot;
    }
    if (thread == 0) *out.n_groups = grouped * op.top_k;
    return;
  }
  __syncthreads();

  const int per_thread = (experts + threads - 1) / threads;
  const int begin = min(experts, thread * per_thread), end = min(experts, begin + per_thread);
  int mine = 0;  // routes, and groups in the upper half
  for (int e = begin; e < end; ++e) {
    const int n = __popcll(chosen_by[e]);
    mine += n + ((n + columns - 1) / columns << 16);
  }
  const Prefix p = prefix(mine, sums);
  int route = p.before & 0xffff, group = p.before >> 16;
  for (int e = begin; e < end; ++e) {
    const int n = __popcll(chosen_by[e]);
    first[e] = route;
    for (int done = 0; done < n; done += columns, ++group) {
      out.expert[group] = e;
      out.first[group] = route + done;
      out.count[group] = min(columns, n - done);
    }
    route += n;
  }
  if (thread == 0) *out.n_groups = p.total >> 16;
  __syncthreads();

  for (int token = warp; token < grouped; token += warps) {
    for (int slot = lane_id(); slot < op.top_k; slot += kWarp) {
      const int r = token * op.top_k + slot, e = ids[r];
      out.routes[first[e] + __popcll(chosen_by[e] & ((1ull << token) - 1))] = r;
    }
  }
}

constexpr int kCombineThreads = 64;

/// Four elements of a token per thread.
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const float* x, const float* weights, const int top_k, const int n, float* y, const bool wide) {
  let_next_start();
  wait_for_previous();
  const std::int64_t token = blockIdx.x;
  const int k = 4 * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (k >= n) return;
  const float* const rows = x + token * top_k * n;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int slot = 0; slot < top_k; ++slot) {
    const float weight = weights[token * top_k + slot];
    const float4 v = load_quad(rows + static_cast<std::int64_t>(slot) * n, k, n, wide);
    sum = map(sum, v, [=](float s, float f) { return fmaf(weight, f, s); });
  }
  store_quad(y + token * n, k, n, wide, sum);
}

/// run(p) with p.value * 32 >= experts.
template <class F>
void with_experts_per_lane(int experts, F&& run) {
  if (experts <= 1 * kWarp) return run(std::integral_constant<int, 1>{});
  if (experts <= 2 * kWarp) return run(std::integral_constant<int, 2>{});
  if (experts <= 4 * kWarp) return run(std::integral_constant<int, 4>{});
  if (experts <= 8 * kWarp) return run(std::integral_constant<int, 8>{});
  if (experts <= 16 * kWarp) return run(std::integral_constant<int, 16>{});
  run(std::integral_constant<int, kMaxExpertsPerLane>{});
}

RouteGroups groups_in(const GroupMemory& memory, int experts, int routes, int columns) {
  RouteGroups groups;
  groups.n_groups = memory.n_groups;
  groups.expert = memory.expert;
  groups.first = memory.first;
  groups.count = memory.count;
  groups.routes = memory.routes;
  groups.max_groups = std::min(routes, experts + routes / columns);
  groups.columns = columns;
  groups.routes_per_row = 1;
  return groups;
}

void check_router(const Route& op, int experts) {
  check(op.top_k >= 1 && op.top_k <= experts && experts <= kMostExperts && op.groups <= kMostRouteGroups,
        "routers of more experts were refused when the model was loaded");
}

/// run(p, c) as with_experts_per_lane(), c.value the choice of the router.
template <class F>
void with_router(const Router& router, int experts, F&& run) {
  with_experts_per_lane(experts, [&](auto per_lane) {
    if (chooses_by_logits(router.op, router.bias != nullptr))
      run(per_lane, std::integral_constant<Choice, Choice::Logits>{});
    else
      run(per_lane, std::integral_constant<Choice, Choice::Scores>{});
  });
}

}  // namespace

void route(const Router& router, const float* logits, int experts, int tokens, std::int32_t* ids, float* weights,
           const Launch& at) {
  check_router(router.op, experts);
  if (tokens == 0) return;
  const dim3 grid((tokens + kRouteTokens - 1) / kRouteTokens), threads(kRouteTokens * kWarp);
  if (router.table != nullptr) {
    with_experts_per_lane(experts, [&](auto per_lane) {
      launch(route_by_table_kernel<per_lane.value>, grid, threads, 0, at, router, logits, experts, tokens, ids,
             weights);
    });
    return;
  }
  with_router(router, experts, [&](auto per_lane, auto choice) {
    launch(route_kernel<per_lane.value, choice.value>, grid, threads, 0, at, router.op, logits, router.bias, experts,
           tokens, ids, weights);
  });
}

bool groups_while_routing(int experts, int max_tokens, int top_k) {
  return experts <= kMostExperts && max_tokens <= kGroupedTokens && max_tokens * top_k <= kGroupedRoutes;
}

RouteGroups route_and_group(const Router& router, const float* logits, int experts, int max_tokens, int columns,
                            const StepView& step, std::int32_t* ids, float* weights, std::byte* memory,
                            const Launch& at) {
  const int top_k = router.op.top_k;
  check_router(router.op, experts);
  check(router.table == nullptr && groups_while_routing(experts, max_tokens, top_k) && columns >= 1,
        "few routes are grouped as they are made");
  const int routes = max_tokens * top_k;
  const GroupMemory out = group_memory(memory, routes);
  with_router(router, experts, [&](auto per_lane, auto choice) {
    const int warps = std::clamp(max_tokens, 1, route_group_warps(per_lane.value));
    launch(route_group_kernel<per_lane.value, choice.value>, dim3(1), dim3(warps * kWarp), 0, at, router.op, logits,
           router.bias, experts, max_tokens, ids, weights, columns, step.counts, out);
  });
  return groups_in(out, experts, routes, columns);
}

std::size_t route_groups_bytes(int /*experts*/, int max_tokens, int top_k) {
  return (4 + 4 * static_cast<std::size_t>(max_tokens) * static_cast<std::size_t>(top_k)) * sizeof(std::int32_t);
}

RouteGroups group_routes(const std::int32_t* ids, int experts, int max_tokens, int top_k, int columns,
                         const StepView& step, std::byte* memory, const Launch& at) {
  check(experts >= 1 && experts <= kSortCounts && columns >= 1, "routes can be sorted");
  const int routes = max_tokens * top_k;
  const GroupMemory out = group_memory(memory, routes);
  // A few routes are one warp's work, and barriers are cheaper among fewer.
  const int warps = std::clamp(std::min(kSortCounts / experts, (routes + kWarp - 1) / kWarp), 1, kMaxSortWarps);
  launch(group_kernel, dim3(1), dim3(warps * kWarp), 0, at, ids, experts, max_tokens, top_k, columns, step.counts, out);
  return groups_in(out, experts, routes, columns);
}

void combine(const float* x, const float* weights, int top_k, int n, int tokens, float* y, const Launch& at) {
  if (tokens == 0) return;
  const auto aligned = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  constexpr int kElements = 4 * kCombineThreads;
  launch(combine_kernel, dim3(tokens, (n + kElements - 1) / kElements), dim3(kCombineThreads), 0, at, x, weights, top_k,
         n, y, n % 4 == 0 && aligned(x) && aligned(y));
}

}  // namespace llm::cuda
