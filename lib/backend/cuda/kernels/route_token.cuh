// Which experts a token goes to, by one warp: for whichever kernel has its logits.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "graph/op.h"

namespace llm::cuda {

/// Orders as the logits do: NaN below all numbers, both zeros the same, never 0.
LLM_HOST_DEVICE unsigned order_of(float logit, unsigned bits) {
  if (logit != logit) return 1;
  if (logit == 0.0f) bits = 0;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

/// One token by a warp; expert e is in lane e % 32. A NaN among the logits makes all weights NaN, so that the fault
/// shows; the ids are valid and distinct all the same. Slot s is written by lane s % 32; `chose(expert)` is called by
/// the whole warp for each.
template <int kPerLane, class Chose>
__device__ __forceinline__ void route_token(const Route& op, const float* row, const int experts,
                                            std::int32_t* token_ids, float* token_weights, Chose&& chose) {
  const int lane = lane_id();
  float logit[kPerLane];
  unsigned order[kPerLane];  // 0: none, or chosen already
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int e = lane + kWarp * j;
    logit[j] = e < experts ? __ldcg(row + e) : 0.0f;  // past the first cache: another kernel has just written it
    order[j] = e < experts ? order_of(logit[j], __float_as_uint(logit[j])) : 0;
  }
  unsigned lowest = 0xffffffffu;
  unsigned best = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if (order[j] != 0) lowest = min(lowest, order[j]);
    best = max(best, order[j]);
  }
  const bool fault = __reduce_min_sync(kWholeWarp, lowest) == 1;
  best = __reduce_max_sync(kWholeWarp, best);
  // The largest logit, from its place in the order.
  const float top = __uint_as_float((best >> 31) != 0 ? best & 0x7fffffffu : ~best);
  float all = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if (lane + kWarp * j < experts) all += expf(logit[j] - top);
  }
  all = warp_sum(all);

  float chosen = 0;
  for (int slot = 0; slot < op.top_k; ++slot) {
    unsigned mine = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) mine = max(mine, order[j]);
    const unsigned largest = __reduce_max_sync(kWholeWarp, mine);
    unsigned expert = 0xffffffffu;
#pragma unroll
    for (int j = kPerLane - 1; j >= 0; --j) {
      if (order[j] == largest) expert = static_cast<unsigned>(lane + kWarp * j);
    }
    expert = __reduce_min_sync(kWholeWarp, expert);
    float value = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (expert == static_cast<unsigned>(lane + kWarp * j)) {
        order[j] = 0;
        value = logit[j];
      }
    }
    chose(static_cast<int>(expert));
    const float gate = expf(__shfl_sync(kWholeWarp, value, static_cast<int>(expert % kWarp)) - top);
    chosen += gate;
    if (lane == slot % kWarp) {  // which lane also finishes it
      token_ids[slot] = static_cast<std::int32_t>(expert);
      token_weights[slot] = gate;
    }
  }
  const float total = fault ? __uint_as_float(0x7fc00000u) : op.weights == RouteWeights::Renormalized ? chosen : all;
  for (int slot = lane; slot < op.top_k; slot += kWarp) token_weights[slot] = token_weights[slot] / total * op.scale;
}

}  // namespace llm::cuda
