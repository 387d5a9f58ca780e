// The ring of tile_ring.cuh for the experts of one token. A block's visits are (strip, expert, target), one after the
// other; the roles of its warps and the bits are the same, but
//   producer      finds the experts first, with all its lanes (route_token.cuh), or reads who they are, while the
//                 others make the columns: which weights to fetch is not known before. The first launch of the two
//                 lets the second start when its first block knows that who they are is written, so that the second
//                 reads it, and fills its ring, while the first one ends.
//   8 consumers   of matrices of fewer than 8 pieces begin each visit at the warp after the last one's, so that visits
//                 that follow one another share the warps. Where a block has few visits (users_of_visits()), a warp
//                 waits for none of which it has no piece.
//   epilogue      keeps a gate until what it lets through is there, or adds up the experts' results in their order.
//
// Bytes are the weights of the chosen experts, once: 14 MB for gate and up, 7 to 10 for down of a qwen3-30b-a3b, 3.1
// and 2 us at the read limit of an H200. Latencies in a row: the boundary, the logits or ids (0.7 us), choosing (0.5
// us), the first weights (1 us), the last visit's sums.
#pragma once

#include "backend/cuda/kernels/expert_ring.h"
#include "backend/cuda/kernels/route_token.cuh"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

inline constexpr int kExpertAreas = 7;  ///< a barrier is left for the routes

/// Shared memory: barriers, stages, areas of results [slot][16], ids, weights and what they are made with, columns.
template <class T>
struct ExpertPlaces {
  static constexpr int kSums = sums_bytes<T>();
  using Columns = ColumnsPlaces<T::kFormat, kSums>;
  using Store = StoreCodes<T::kFormat, kSums>;
  Columns columns;
  int stages, n_pieces, top_k;

  LLM_HOST_DEVICE ExpertPlaces(ExpertStep step, const ExpertRing& p)
      : columns{ring_columns(step, p.route.op.top_k), static_cast<int>(k_blocks(p.target[0].type.k))},
        stages(p.stages),
        n_pieces(static_cast<int>(pieces<T>(p.target[0].type.k))),
        top_k(p.route.op.top_k) {}
  LLM_HOST_DEVICE int stage_pieces() const { return n_pieces < kConsumers ? n_pieces : kConsumers; }
  LLM_HOST_DEVICE int stage_bytes() const { return (stage_pieces() * T::kPieceBytes + 127) / 128 * 128; }
  LLM_HOST_DEVICE int stage(int i) const { return kBarrierBytes + i * stage_bytes(); }
  LLM_HOST_DEVICE static constexpr int area_bytes() { return kSlots * kTileRows * static_cast<int>(sizeof(float)); }
  LLM_HOST_DEVICE int area(int i) const { return stage(stages) + i * area_bytes(); }
  LLM_HOST_DEVICE int ids() const { return area(kExpertAreas); }
  LLM_HOST_DEVICE int weights() const { return ids() + 4 * kMostRingRoutes; }
  LLM_HOST_DEVICE int totals() const { return weights() + 4 * kMostRingRoutes; }
  LLM_HOST_DEVICE int x() const { return totals() + 16; }
  LLM_HOST_DEVICE int bytes() const { return x() + columns.bytes(); }
};

static_assert(sizeof(RouteTotals) <= 16);

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// Ends its only phase when a block's experts are known.
__device__ __forceinline__ std::uint32_t routed_barrier(const RingBarriers<kExpertAreas>& barriers) {
  constexpr int kOthers = 2 * kMaxStages + 2 * kExpertAreas;
  static_assert(8 * (kOthers + 1) <= kBarrierBytes);
  return barriers.full(kOthers);
}

/// One of a block's visits.
struct ExpertVisit {
  int strip, route, target;
  int first_warp;  ///< which has the first piece
  bool last_of_turn;
};
template <ExpertStep step, class F>
__device__ __forceinline__ void for_visits(const ExpertRing& p, int n_pieces, const F& f) {
  constexpr bool gated = step != ExpertStep::Down;
  const int visits = gated ? 2 : p.route.op.top_k, rounds = gated ? p.route.op.top_k : 1;  // of a turn; of the strips
  int strip = static_cast<int>(blockIdx.x), round = 0, first_warp = 0;
  while (true) {
    for (; strip >= p.strips; strip -= p.strips) ++round;  // a division takes longer
    if (round >= rounds) return;
    for (int i = 0; i < visits; ++i) {
      f(ExpertVisit{strip, gated ? round : i, gated ? i : 0, first_warp, i + 1 == visits});
      if (n_pieces < kConsumers) first_warp = (first_warp + n_pieces) & (kConsumers - 1);
    }
    strip += static_cast<int>(gridDim.x);
  }
}

/// What is known of a block's experts, in shared memory: ids and weights of all that were chosen; where the launch
/// chooses, what the weights are still to be made with.
struct ChosenExperts {
  std::int32_t* ids;
  float* weights;
  RouteTotals* totals;
};

/// By one warp.
template <ExpertStep step>
__device__ __forceinline__ void find_experts(const TokenRoute& route, const ChosenExperts& to) {
  const int lane = lane_id();
  if constexpr (step != ExpertStep::Down) wait_for_previous();
  if constexpr (chooses(step)) {
    constexpr int kPerLane = (step == ExpertStep::Choose ? kMostRingExperts : kFewRingExperts) / kWarp;
    const RouteTotals totals =
        choose_experts<kPerLane>(route.op, route.logits, nullptr, route.experts, to.ids, to.weights, [](int) {});
    if (lane == 0) *to.totals = totals;
  } else {
    if (lane >= route.op.top_k) return;
    to.ids[lane] = __ldcg(route.ids + lane);
    to.weights[lane] = __ldcg(route.weights + lane);
  }
}

/// Whether the block is the one that lets the next launch start when which experts were chosen is written; the other
/// blocks do so at once. Blocks of the next launch find it written, whether or not this one has ended.
template <ExpertStep step>
__device__ __forceinline__ bool publishes_experts() {
  return step != ExpertStep::Down && blockIdx.x == 0;
}
__device__ __forceinline__ void publish_experts(const TokenRoute& route, const ChosenExperts& chosen) {
  const int lane = lane_id();
  finish_weights(route.op, Gating::Softmax, *chosen.totals, chosen.weights);
  if (lane < route.op.top_k) {
    route.ids[lane] = chosen.ids[lane];
    route.weights[lane] = chosen.weights[lane];
  }
  __threadfence();
}

/// By `warps` warps, of which the caller is number `warp` and makes kTogether blocks at a time.
template <class T, int kTogether>
__device__ __forceinline__ void make_expert_columns(std::byte* to, const typename ExpertPlaces<T>::Columns& places,
                                                    const float* x, int k, int warp, int warps) {
  using Store = typename ExpertPlaces<T>::Store;
  struct Item {
    int column = 0, block = 0;
    __device__ __forceinline__ void advance(int by, int blocks) {
      for (block += by; block >= blocks; block -= blocks) ++column;  // a division takes longer
    }
  };
  Item item[kTogether];
  const auto find = [&](int by) {
    item[0] = item[kTogether - 1];
    item[0].advance(by, places.blocks);
#pragma unroll
    for (int i = 1; i < kTogether; ++i) {
      item[i] = item[i - 1];
      item[i].advance(warps, places.blocks);
    }
  };
  find(warp);
  wait_for_previous();
#pragma unroll 1
  for (; item[0].column < places.columns; find(warps)) {
    BlockPart v[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      v[i] = load_fresh_part(x + item[i].column * k, item[i].block, item[i].column < places.columns ? k : 0);
    const auto store = [&](int i) { return Store(to, places, item[i].column); };
    if constexpr (kTogether == 1)
      Store::template put<1>({store(0)}, {item[0].block}, {true}, v);
    else
      Store::template put<3>({store(0), store(1), store(2)}, {item[0].block, item[1].block, item[2].block},
                             {true, item[1].column < places.columns, item[2].column < places.columns}, v);
  }
}

/// Of one column, for all lanes.
template <class Columns>
__device__ __forceinline__ LaneRing<1> lane_column(const Columns& places, int start, int column, int lane) {
  const auto place = [&](int at, int stride) { return static_cast<std::uint32_t>(start + at + column * stride); };
  const std::uint32_t t = static_cast<std::uint32_t>(lane % 4), scale = place(places.scales(), places.scales_stride());
  return {{place(0, places.codes_stride()) + 16 * t},
          {place(places.sums(), places.sums_stride()) + 4 * t},
          {{scale, scale}}};
}

/// The sum over a row's slots, scaled and with its bias.
template <class T>
__device__ __forceinline__ float expert_total(const Target& to, int expert, int row, const float* area, int slots,
                                              int lane) {
  float total = 0;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) total += s < slots ? area[s * kTileRows + lane] : 0.0f;
  if constexpr (T::Codes::kPasses == 1) total *= T::Codes::kUnit;
  if (to.scale != nullptr) total *= to.scale[expert];
  if (to.bias != nullptr) total += to.bias[expert * to.type.n + row];
  return total;
}

/// What becomes of a visit's total; `kept` is the lane's from one visit of a turn to the next.
template <ExpertStep step>
__device__ __forceinline__ void finish_visit(const ExpertRing& p, const ExpertVisit& v, float weight, float total,
                                             int row, float& kept) {
  if constexpr (step == ExpertStep::Down) {
    kept = fmaf(weight, total, v.route == 0 ? 0.0f : kept);
    if (v.last_of_turn) p.y[row] = kept;
  } else if (v.target == 0) {
    kept = total;
  } else {
    float& y = p.y[v.route * p.target[0].type.n + row];
    switch (p.activation) {
      case Activation::Silu:
        y = gated<Activation::Silu>(kept, total);
        break;
      case Activation::Gelu:
        y = gated<Activation::Gelu>(kept, total);
        break;
      case Activation::ClampedSilu:
        y = gated<Activation::ClampedSilu>(kept, total);
        break;
      case Activation::Relu:
        y = gated<Activation::Relu>(kept, total);
        break;
      case Activation::Sigmoid:  // of no experts that come here (fusions.cpp)
      case Activation::Softplus:
      case Activation::Identity:
        break;
    }
  }
}

#endif

/// Blocks of kRingThreads; shared: ExpertPlaces.
template <class T, ExpertStep step>
__global__ void __launch_bounds__(kRingThreads, 2) expert_ring_kernel(const __grid_constant__ ExpertRing p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte ring_shared[];
  if (!publishes_experts<step>()) let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const ExpertPlaces<T> places(step, p);
  const RingBarriers<kExpertAreas> barriers{shared_address(ring_shared)};
  const ChosenExperts chosen{reinterpret_cast<std::int32_t*>(ring_shared + places.ids()),
                             reinterpret_cast<float*>(ring_shared + places.weights()),
                             reinterpret_cast<RouteTotals*>(ring_shared + places.totals())};
  const std::int64_t k = p.target[0].type.k;
  if (warp == kProducerWarp) {
    if (lane == 0) init_barrier(routed_barrier(barriers), 32);
    barriers.init(p.stages, p.users, lane);
    barriers.tell_block();
    const std::uint64_t policy = read_once_policy();
    std::int64_t bytes = strip_bytes<T>(k);
    asm volatile("" : "+l"(bytes));  // known before the experts are
    find_experts<step>(p.route, chosen);
    arrive(routed_barrier(barriers));
    __syncwarp();
    if (lane != 0) return;
    RingPosition at(p.stages);
    for_visits<step>(p, places.n_pieces, [&](const ExpertVisit& v) {
      const Target& from = p.target[v.target];
      const std::int64_t strip = std::int64_t{chosen.ids[v.route]} * p.strips + v.strip;
      produce<T>(from.matrix + strip * bytes, k, places, barriers, at, policy);
    });
    return;
  }
  barriers.wait_for_init();

  constexpr int kTogether = step == ExpertStep::Down ? 3 : 1;
  make_expert_columns<T, kTogether>(ring_shared + places.x(), places.columns, p.x, static_cast<int>(k), warp,
                                    kCopyThreads / 32);
  asm volatile("barrier.cta.sync 1, %0;" ::"n"(kCopyThreads) : "memory");
  RingPosition area(kExpertAreas);
  if (warp == kEpilogueWarp) {
    wait_barrier(routed_barrier(barriers), 0);
    if (publishes_experts<step>()) {
      if constexpr (chooses(step)) publish_experts(p.route, chosen);
      __syncwarp();
      let_next_start();
    }
    float kept = 0;
    for_visits<step>(p, places.n_pieces, [&](const ExpertVisit& v) {
      const Target& to = p.target[v.target];
      const int row = v.strip * kTileRows + lane;
      wait_barrier(barriers.written(area.slot), area.phase);
      if (lane < kTileRows && row < to.type.n) {
        const auto* const sums = reinterpret_cast<const float*>(ring_shared + places.area(area.slot));
        finish_visit<step>(p, v, chosen.weights[v.route],
                           expert_total<T>(to, chosen.ids[v.route], row, sums, p.users, lane), row, kept);
      }
      arrive(barriers.taken(area.slot));
      area.advance();
    });
    return;
  }

  RingPosition at(p.stages);
  for_visits<step>(p, places.n_pieces, [&](const ExpertVisit& v) {
    const LaneRing<1> column = lane_column(places.columns, places.x(), step == ExpertStep::Down ? v.route : 0, lane);
    const int slot = (warp + kConsumers - v.first_warp) % kConsumers;
    if (slot >= p.users) {  // a visit of one stage, which is others' work
      at.advance();
      area.advance();
      return;
    }
    float acc[2][1][4] = {};
    consume<T, 1>(ring_shared, places, barriers, at, column, places.n_pieces, slot, lane, acc);
    wait_barrier(barriers.taken(area.slot), area.phase ^ 1);
    auto* const to = reinterpret_cast<float*>(ring_shared + places.area(area.slot)) + slot * kTileRows;
    if (lane % 4 == 0) {  // the lanes that have column 0
      to[tile_row(lane / 4, 0)] = acc[0][0][0] + acc[1][0][0];
      to[tile_row(lane / 4, 1)] = acc[0][0][2] + acc[1][0][2];
    }
    arrive(barriers.written(area.slot));
    area.advance();
  });
#endif
}

/// A warp may pass over visits of which it has no piece where it cannot meet a barrier that is two phases behind: no
/// stage is used twice, and no area three times.
template <class T>
int users_of_visits(const ExpertRing& p, int multiprocessors) {
  const int turns = (p.turns() + multiprocessors - 1) / multiprocessors;
  const int visits = turns * (p.step == ExpertStep::Down ? p.route.op.top_k : 2),
            n_pieces = ExpertPlaces<T>(p.step, p).n_pieces;
  return n_pieces < kConsumers && visits <= std::min(p.stages, 2 * kExpertAreas) ? n_pieces : kConsumers;
}

template <DType type>
bool launch_expert_ring(ExpertRing p, const Launch* at) {
  using T = Tile<kReadAs<type>>;
  const DeviceLimits& device = device_limits();
  if (device.capability < 9) return false;
  p.strips = static_cast<int>(strips(p.target[0].type.n));
  const ExpertPlaces<T> empty(p.step, p);
  // As ring_places(): stages have no more than 7/16 of a multiprocessor's memory.
  constexpr int kFewest = 3;
  const int room = device.multiprocessor_bytes / 16 * 7 - device.reserved_bytes - empty.bytes();
  p.stages = std::min(kMaxStages, room / empty.stage_bytes());
  if (p.stages < kFewest) return false;
  if (at == nullptr) return true;
  p.users = users_of_visits<T>(p, device.multiprocessors);

  const auto launch_step = [&]<ExpertStep step>() {
    constexpr auto kernel = expert_ring_kernel<T, step>;
    allow_all_shared<kernel>(device.block_bytes);
    const auto blocks = static_cast<unsigned>(std::min(device.multiprocessors, p.turns()));
    const int bytes = alone_bytes(device, ExpertPlaces<T>(p.step, p).bytes());
    launch(kernel, dim3(blocks), dim3(kRingThreads), static_cast<std::size_t>(bytes), *at, p);
  };
  switch (p.step) {
    case ExpertStep::ChooseFew:
      launch_step.template operator()<ExpertStep::ChooseFew>();
      break;
    case ExpertStep::Choose:
      launch_step.template operator()<ExpertStep::Choose>();
      break;
    case ExpertStep::GateUp:
      launch_step.template operator()<ExpertStep::GateUp>();
      break;
    case ExpertStep::Down:
      launch_step.template operator()<ExpertStep::Down>();
      break;
  }
  return true;
}

#define LLM_EXPERT_RING_TYPE(name) template bool launch_expert_ring<DType::name>(ExpertRing, const Launch*);

}  // namespace llm::cuda
