// Which experts a token goes to, by one warp: for whichever kernel has its logits.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/norm.cuh"
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

/// What a token's weights are made with: the largest logit and, where all experts count, the sum of all gates.
struct RouteTotals {
  float top, all;
  int fault;  ///< a NaN among the logits
};

/// One token's experts by a warp; expert e is in lane e % 32, which writes the slot that e gets: the id, and the logit
/// in place of a weight; it also calls `chose(e)`. All lanes see all slots afterwards. This is the way to the experts'
/// matrices: what can be done later, finish_weights() does.
template <int kPerLane, class Chose>
__device__ __forceinline__ RouteTotals choose_experts(const Route& op, const float* row, const int experts,
                                                      std::int32_t* token_ids, float* token_weights, Chose&& chose) {
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
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (own == static_cast<unsigned>(lane + kWarp * j)) order[j] = 0;
    }
    chose(static_cast<int>(own));
    token_ids[slot] = static_cast<std::int32_t>(own);
    token_weights[slot] = __uint_as_float(logit_bits(largest));
  }
  __syncwarp();
  RouteTotals totals{__uint_as_float(logit_bits(__reduce_max_sync(kWholeWarp, best))), 0,
                     __reduce_min_sync(kWholeWarp, lowest) == 1 ? 1 : 0};
  if (op.weights != RouteWeights::Renormalized) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (lane + kWarp * j < experts) totals.all += expf(logit[j] - totals.top);
    }
    totals.all = warp_sum(totals.all);
  }
  return totals;
}

/// By a warp, of which lane s % 32 reads and writes slot s. A NaN among the logits makes all weights NaN, so that the
/// fault shows; the ids are valid and distinct all the same.
__device__ __forceinline__ void finish_weights(const Route& op, const RouteTotals& totals, float* token_weights) {
  float chosen = 0;
#pragma unroll 1
  for (int first = 0; first < op.top_k; first += kWarp) {
    const int slot = first + lane_id(), end = min(kWarp, op.top_k - first);
    const float gate = slot < op.top_k ? expf(token_weights[slot] - totals.top) : 0.0f;
    if (slot < op.top_k) token_weights[slot] = gate;
#pragma unroll 8
    for (int i = 0; i < end; ++i) chosen += __shfl_sync(kWholeWarp, gate, i);
  }
  const bool renormalized = op.weights == RouteWeights::Renormalized;
  const float total = totals.fault != 0 ? __uint_as_float(0x7fc00000u) : renormalized ? chosen : totals.all;
#pragma unroll 1
  for (int slot = lane_id(); slot < op.top_k; slot += kWarp)
    token_weights[slot] = token_weights[slot] / total * op.scale;
}

/// Both.
template <int kPerLane, class Chose>
__device__ __forceinline__ void route_token(const Route& op, const float* row, int experts, std::int32_t* token_ids,
                                            float* token_weights, Chose&& chose) {
  const RouteTotals totals = choose_experts<kPerLane>(op, row, experts, token_ids, token_weights, chose);
  finish_weights(op, totals, token_weights);
}

}  // namespace llm::cuda
