// Which experts a token goes to, by one warp: for whichever kernel has its logits.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/rows.h"
#include "graph/op.h"

namespace llm::cuda {

/// Orders as the logits do: NaN below all numbers, both zeros the same, never 0.
LLM_HOST_DEVICE unsigned order_of(float logit, unsigned bits) {
  if (logit == 0.0f) bits = 0;
  const unsigned order = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return logit != logit ? 1 : order;
}

/// The logit at this place in the order; of both zeros the positive one.
LLM_HOST_DEVICE unsigned logit_bits(unsigned order) { return (order >> 31) != 0 ? order & 0x7fffffffu : ~order; }

/// Of the lane's experts: 0 in `order` for those of groups that are not used. Expert e is in lane e % 32, the sum of
/// group g in lane g.
static_assert(kMostRouteGroups == kWarp);
template <int kPerLane>
__device__ __forceinline__ void leave_groups_out(const Route& op, const int experts, unsigned (&order)[kPerLane]) {
  const int lane = lane_id(), n = experts / op.groups;
  unsigned left = 0;  // the order of the lane's group; 0: none, or used already
#pragma unroll 1
  for (int g = 0; g < op.groups; ++g) {
    unsigned taken[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) taken[j] = (lane + kWarp * j) / n == g ? order[j] : 0;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < op.group_best; ++i) {
      unsigned mine = 0;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) mine = max(mine, taken[j]);
      const unsigned largest = __reduce_max_sync(kWholeWarp, mine);
      sum += __uint_as_float(logit_bits(largest));
      if (__ffs(static_cast<int>(__ballot_sync(kWholeWarp, mine == largest))) - 1 != lane) continue;
      bool once = true;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        if (!once || taken[j] != largest) continue;
        taken[j] = 0;
        once = false;
      }
    }
    if (lane == g) left = order_of(sum, __float_as_uint(sum));
  }
  unsigned used = 0;
#pragma unroll 1
  for (int i = 0; i < op.groups_used; ++i) {
    const unsigned largest = __reduce_max_sync(kWholeWarp, left);
    const int group = __ffs(static_cast<int>(__ballot_sync(kWholeWarp, left == largest))) - 1;
    used |= 1u << group;
    if (lane == group) left = 0;
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if ((used >> ((lane + kWarp * j) / n % kMostRouteGroups) & 1) == 0) order[j] = 0;
  }
}

/// What the gate of an expert is; by softmax before it is divided by the sum of all.
__device__ __forceinline__ float undivided_gate(Gating gating, float logit, float top) {
  switch (gating) {
    case Gating::Sigmoid:
      return sigmoid(logit);
    case Gating::RootSoftplus:
      return sqrtf(softplus(logit));
    default:
      return expf(logit - top);
  }
}

/// What a token's weights are made with: the largest logit and, where all experts count, the sum of all gates.
struct RouteTotals {
  float top, all;
  int fault;  ///< a NaN among the logits
};

/// Whether experts are chosen by their logits as they are.
LLM_HOST_DEVICE bool chooses_by_logits(const Route& op, bool has_bias) { return !has_bias && op.groups == 1; }

/// One token's experts by a warp; expert e is in lane e % 32, which writes the slot that e gets: the id, and the logit
/// in place of a weight; it also calls `chose(e)`. All lanes see all slots afterwards. This is the way to the experts'
/// matrices: what can be done later, finish_weights() does. `Choice`: what the experts are chosen by.
enum class Choice { Logits, Scores };
template <int kPerLane, Choice choice = Choice::Logits, class Chose>
__device__ __forceinline__ RouteTotals choose_experts(const Route& op, const float* row, const float* bias,
                                                      const int experts, std::int32_t* token_ids, float* token_weights,
                                                      Chose&& chose) {
  const int lane = lane_id();
  float logit[kPerLane];
  unsigned order[kPerLane];  // 0: none, or chosen already
#pragma unroll
  for (int j = 0; j < kPerLane; ++j)  // past the first cache: another kernel has just written it; all are under way
    logit[j] = __ldcg(row + min(lane + kWarp * j, experts - 1));  // before the first is looked at
#pragma unroll
  for (int j = 0; j < kPerLane; ++j)
    order[j] = lane + kWarp * j < experts ? order_of(logit[j], __float_as_uint(logit[j])) : 0;
  unsigned lowest = 0xffffffffu, best = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if (order[j] != 0) lowest = min(lowest, order[j]);
    best = max(best, order[j]);
  }
  RouteTotals totals{};
  const auto sum_gates = [&] {
    totals.top = __uint_as_float(logit_bits(__reduce_max_sync(kWholeWarp, best)));
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (lane + kWarp * j < experts) totals.all += expf(logit[j] - totals.top);
    }
    totals.all = warp_sum(totals.all);
  };
  if constexpr (choice == Choice::Scores) {
    sum_gates();
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int e = lane + kWarp * j;
      if (e >= experts) continue;
      const float undivided = undivided_gate(op.gating, logit[j], totals.top);
      const float gate = op.gating == Gating::Softmax ? undivided / totals.all : undivided;
      const float score = bias != nullptr ? gate + bias[e] : gate;
      order[j] = order_of(score, __float_as_uint(score));
    }
    if (op.groups > 1) leave_groups_out(op, experts, order);
  }
#pragma unroll 1
  for (int slot = 0; slot < op.top_k; ++slot) {
    unsigned mine = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) mine = max(mine, order[j]);
    const unsigned largest = __reduce_max_sync(kWholeWarp, mine);
    constexpr unsigned kNone = 0xffffffffu;
    unsigned own = kNone;  // the lane's first expert with this logit
#pragma unroll
    for (int j = kPerLane - 1; j >= 0; --j) {
      if (order[j] == largest) own = static_cast<unsigned>(lane + kWarp * j);
    }
    unsigned expert = own;
    if (__popc(__ballot_sync(kWholeWarp, own != kNone)) > 1) expert = __reduce_min_sync(kWholeWarp, own);
    if (own == kNone || expert != own) continue;
    float chosen = __uint_as_float(logit_bits(largest));
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (own != static_cast<unsigned>(lane + kWarp * j)) continue;
      order[j] = 0;
      if constexpr (choice == Choice::Scores) chosen = logit[j];
    }
    chose(static_cast<int>(own));
    token_ids[slot] = static_cast<std::int32_t>(own);
    token_weights[slot] = chosen;
  }
  __syncwarp();
  totals.fault = __reduce_min_sync(kWholeWarp, lowest) == 1 ? 1 : 0;
  if constexpr (choice == Choice::Scores) return totals;
  if (op.weights != RouteWeights::Renormalized)
    sum_gates();
  else
    totals.top = __uint_as_float(logit_bits(__reduce_max_sync(kWholeWarp, best)));
  return totals;
}

/// By a warp, of which lane s % 32 reads and writes slot s. A NaN among the logits makes all weights NaN, so that the
/// fault shows; the ids are valid and distinct all the same. `gating` is op's: where it is known, the other's code is
/// not there.
__device__ __forceinline__ void finish_weights(const Route& op, const Gating gating, const RouteTotals& totals,
                                               float* token_weights) {
  const bool softmax = gating == Gating::Softmax;
  float chosen = kLeastGates;
#pragma unroll 1
  for (int first = 0; first < op.top_k; first += kWarp) {
    const int slot = first + lane_id(), end = min(kWarp, op.top_k - first);
    const float logit = slot < op.top_k ? token_weights[slot] : 0.0f;
    const float gate = slot < op.top_k ? undivided_gate(gating, logit, totals.top) : 0.0f;
    if (slot < op.top_k) token_weights[slot] = gate;
#pragma unroll 1
    for (int i = 0; i < end; ++i) chosen += __shfl_sync(kWholeWarp, gate, i);
  }
  const bool renormalized = op.weights == RouteWeights::Renormalized;
  const float all = softmax ? totals.all : 1.0f;
  const float total = totals.fault != 0 ? __uint_as_float(0x7fc00000u) : renormalized ? chosen : all;
#pragma unroll 1
  for (int slot = lane_id(); slot < op.top_k; slot += kWarp)
    token_weights[slot] = token_weights[slot] / total * op.scale;
}

/// RouteWeights::NearBest in place of finish_weights(): of each choice, softmax over the experts that were not chosen
/// before it and whose logits are near its own.
template <int kPerLane>
__device__ __forceinline__ void weigh_near_best(const Route& op, const float* row, int experts, int fault,
                                                const std::int32_t* token_ids, float* token_weights) {
  float logit[kPerLane];
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int e = lane_id() + kWarp * j;
    logit[j] = e < experts ? __ldcg(row + e) : -INFINITY;
  }
#pragma unroll 1
  for (int slot = 0; slot < op.top_k; ++slot) {
    const float top = token_weights[slot];
    float near = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const bool far = (top - logit[j]) / fmaxf(fabsf(logit[j]), top) > kNearBest;  // not of 0 / 0
      if (!far) near += expf(logit[j] - top);
      if (token_ids[slot] == lane_id() + kWarp * j) logit[j] = -INFINITY;
    }
    near = warp_sum(near);
    if (lane_id() == 0) token_weights[slot] = fault != 0 ? __uint_as_float(0x7fc00000u) : op.scale / near;
  }
}

/// A token's experts that a table names, by a warp: their ids and weights. One that is none makes its weight NaN.
template <int kPerLane>
__device__ __forceinline__ void weigh_named_experts(const Route& op, const float* row, int experts,
                                                    const std::int32_t* named, std::int32_t* token_ids,
                                                    float* token_weights) {
  const int lane = lane_id();
  RouteTotals totals{-INFINITY, 0, 0};
  float logit[kPerLane];
  bool fault = false;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int e = lane + kWarp * j;
    logit[j] = e < experts ? __ldcg(row + e) : -INFINITY;
    totals.top = fmaxf(totals.top, logit[j]);
    fault = fault || isnan(logit[j]);
  }
  for (int width = kWarp / 2; width > 0; width /= 2)
    totals.top = fmaxf(totals.top, __shfl_xor_sync(kWholeWarp, totals.top, width));
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if (lane + kWarp * j < experts) totals.all += expf(logit[j] - totals.top);
  }
  totals.all = warp_sum(totals.all);
  totals.fault = __any_sync(kWholeWarp, fault) ? 1 : 0;
  for (int slot = lane; slot < op.top_k; slot += kWarp) {
    const int e = named == nullptr ? -1 : named[slot];
    const bool is_one = e >= 0 && e < experts;
    token_ids[slot] = is_one ? e : 0;
    token_weights[slot] = is_one ? __ldcg(row + e) : __uint_as_float(0x7fc00000u);
  }
  __syncwarp();
  finish_weights(op, op.gating, totals, token_weights);
}

/// Chosen and weighed.
template <int kPerLane, Choice choice, class Chose>
__device__ __forceinline__ void route_token(const Route& op, const float* row, const float* bias, int experts,
                                            std::int32_t* token_ids, float* token_weights, Chose&& chose) {
  const RouteTotals totals = choose_experts<kPerLane, choice>(op, row, bias, experts, token_ids, token_weights, chose);
  if (op.weights == RouteWeights::NearBest)
    return weigh_near_best<kPerLane>(op, row, experts, totals.fault, token_ids, token_weights);
  finish_weights(op, op.gating, totals, token_weights);
}

}  // namespace llm::cuda
