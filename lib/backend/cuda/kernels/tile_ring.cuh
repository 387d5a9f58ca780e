// Products of tiles with few columns as a stream of weights: the kernel that decoding spends its time in.
//
// One block of threads a multiprocessor, which takes strips (16 rows) blockIdx.x, + gridDim.x, ... Its warps:
//   producer      copies the pieces of its strips, 8 at a time (a stage), into a ring in shared memory. It waits for
//                 room there and for nothing else: under programmatic dependent launch it fills the ring while the
//                 previous kernel ends, so that memory is busy across kernels' boundaries.
//   8 consumers   wait for the previous kernel, copy the columns into shared memory (ring_x.cuh) or make the only one
//                 there (column_source.cuh), which the epilogue's warp helps with, and then take one piece of each
//                 stage: warp w piece 8 j + w, whose part (of kParts) is w in even stages, w + 8 in odd ones. Sums of
//                 both are registers; at the strip's end they go to one of two result areas.
//   epilogue      adds the areas' slots, scales, adds the bias, writes y while the consumers are at the next strip.
//                 Of a gate and what it lets through, whose strips take turns, it keeps one until it has the other.
// Bits are those of tile_kernel.cuh: the same code adds pieces (tile_add.cuh), in the same order.
//
// 75 to 90 KB of weights are in flight to each multiprocessor: more than twice what 4.5 TB/s need at a latency of 1 us.
// A block takes more than half of its memory (alone_bytes()), so that it is the only one of its launch there: with two
// to a multiprocessor wherever a small kernel kept another one's place, whole models were a fifth slower.
//
// Barriers of a stage: `full` ends its phase when the producer has announced the stage's bytes and all have come;
// `empty` when all 8 consumers are done with it. Of a result area: `written` (8 consumers), `taken` (epilogue). Every
// role goes through the same stages and strips in the same order, so each waits for phases that are sure to end; a
// block ends after its last copy, since consumers wait for each.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>

#include "backend/cuda/kernels/column_source.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ring_asm.cuh"
#include "backend/cuda/kernels/ring_x.cuh"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "backend/cuda/kernels/tile_ring.h"
#include "base/error.h"

namespace llm::cuda {

inline constexpr int kConsumers = kSlots;  ///< warps, and pieces of a stage
inline constexpr int kEpilogueWarp = kConsumers, kProducerWarp = kConsumers + 1;
inline constexpr int kRingThreads = 32 * (kConsumers + 2);
inline constexpr int kCopyThreads = 32 * (kConsumers + 1);  ///< of the columns: all but the producer
inline constexpr int kMaxStages = 16;
inline constexpr int kBarrierBytes = 384;  ///< before the stages: full and empty of each, then of the results

/// Targets of types A and B, strips of A first; without those of B if the types are the same.
struct RingArguments {
  TileArguments a, b;
  int strips = 0, stages = 0;
  int paired = 0;  ///< 1: of two targets of as many strips, of which a block takes both that have the same rows
  RingExtras extras;
};

template <class A, class B>
struct RingTypes {
  static constexpr bool kOne = std::is_same_v<A, B>;
  static_assert(A::kFormat == B::kFormat);
  static_assert(sums_bytes<A>() == sums_bytes<B>() || sums_bytes<A>() == 0 || sums_bytes<B>() == 0);
  static constexpr int kStageBytes = kConsumers * std::max(A::kPieceBytes, B::kPieceBytes);
  static_assert(kStageBytes % 128 == 0);
  static constexpr int kSums = std::max(sums_bytes<A>(), sums_bytes<B>());
  using Places = ColumnsPlaces<A::kFormat, kSums>;
};

/// Shared memory: barriers, stages, two areas of results [slot][column][16], columns.
template <class Types>
struct RingPlaces {
  typename Types::Places columns;
  int stages;
  LLM_HOST_DEVICE int area_bytes() const {
    return kSlots * kTileRows * columns.columns * static_cast<int>(sizeof(float));
  }
  LLM_HOST_DEVICE int stage_pieces() const { return kConsumers; }
  LLM_HOST_DEVICE int stage(int i) const { return kBarrierBytes + i * Types::kStageBytes; }
  LLM_HOST_DEVICE int area(int i) const { return stage(stages) + i * area_bytes(); }
  LLM_HOST_DEVICE int x() const { return area(2); }
  LLM_HOST_DEVICE int bytes() const { return x() + columns.bytes(); }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// Which of `count` buffers is next, and in what phase.
struct RingPosition {
  int count, slot = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ explicit RingPosition(int count) : count(count) {}
  __device__ __forceinline__ void advance() {
    if (++slot == count) slot = 0, phase ^= 1;
  }
};

/// Barriers by their addresses: of stages, and of areas for results.
template <int kAreas>
struct RingBarriers {
  static_assert(8 * (2 * kMaxStages + 2 * kAreas) <= kBarrierBytes);
  std::uint32_t first;
  __device__ __forceinline__ std::uint32_t full(int stage) const { return first + 8u * static_cast<unsigned>(stage); }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ __forceinline__ std::uint32_t written(int area) const { return full(2 * kMaxStages + area); }
  __device__ __forceinline__ std::uint32_t taken(int area) const { return full(2 * kMaxStages + kAreas + area); }

  /// By a warp, whose lanes have one of each kind. `users`: consumers that arrive for each stage.
  __device__ __forceinline__ void init(int stages, int users, int lane) const {
    static_assert(kMaxStages <= 32 && kAreas <= 32);
    if (lane < stages) {
      init_barrier(full(lane), 1);
      init_barrier(empty(lane), users);
    }
    if (lane < kAreas) {
      init_barrier(written(lane), 32 * users);  // each lane for itself: what it wrote is ordered by its arrival
      init_barrier(taken(lane), 32);
    }
    publish_barriers();
    __syncwarp();
  }
  /// The warp that has initialised them does not wait for the others, which wait before they use any.
  __device__ __forceinline__ void tell_block() const {
    asm volatile("barrier.cta.arrive 0, %0;" ::"n"(kRingThreads) : "memory");
  }
  __device__ __forceinline__ void wait_for_init() const {
    asm volatile("barrier.cta.sync 0, %0;" ::"n"(kRingThreads) : "memory");
  }
};

__device__ __forceinline__ const KernelTarget& target_of(const TileArguments& p, int strip) {
  int target = 0;
  while (target + 1 < p.n_targets && strip >= p.targets[target + 1].first) ++target;
  return p.targets[target];
}

/// One thread's work for a strip of type T, which begins at `strip`.
template <class T, class Places, class Barriers>
__device__ __forceinline__ void produce(const std::byte* strip, std::int64_t k, const Places& places,
                                        const Barriers& barriers, RingPosition& at, std::uint64_t policy) {
  const int n_pieces = static_cast<int>(pieces<T>(k));
  for (int first = 0; first < n_pieces; first += kConsumers) {
    const auto count = static_cast<std::uint32_t>(min(kConsumers, n_pieces - first));
    wait_barrier(barriers.empty(at.slot), at.phase ^ 1);
    const std::uint32_t full = barriers.full(at.slot);
    const std::uint32_t to = barriers.first + static_cast<std::uint32_t>(places.stage(at.slot));
    const auto of_codes = static_cast<std::uint32_t>(places.stage_pieces() * T::Codes::kBytes);
    arrive_expecting(full, count * T::kPieceBytes);
    copy_bulk(to, strip + codes_at<T>(first), count * T::Codes::kBytes, full, policy);
    copy_bulk(to + of_codes, strip + scales_at<T>(first, k), count * T::Scales::kBytes, full, policy);
    at.advance();
  }
}

/// A warp's pieces of a strip of type T, which it has number `slot` of each stage of: those of part `slot` into the one
/// half of acc, of part slot + 8 into the other, which change places with every stage: the code is there once.
template <class T, int NB, class Places, class Barriers>
__device__ __forceinline__ void consume(const std::byte* shared, const Places& places, const Barriers& barriers,
                                        RingPosition& at, const LaneRing<NB>& columns, int n_pieces, int slot, int lane,
                                        float (&acc)[2][NB][4]) {
#pragma unroll 1
  for (int first = 0; first < n_pieces; first += kConsumers) {
    wait_barrier(barriers.full(at.slot), at.phase);
    if (first + slot < n_pieces) {
      const std::byte* stage = shared + places.stage(at.slot);
      const std::byte* scales = stage + places.stage_pieces() * T::Codes::kBytes;
      const auto take = [&](T& piece) {
        piece.template load<FromMemory>(stage + slot * T::Codes::kBytes, scales + slot * T::Scales::kBytes, lane);
      };
      const RingColumns<T, NB> x{shared, columns, static_cast<std::uint32_t>(first + slot)};
      add_piece<T>(take, x, lane, acc[0]);
    }
    __syncwarp();
    if (lane == 0) arrive(barriers.empty(at.slot));
    at.advance();
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float other = acc[1][nb][j];
        acc[1][nb][j] = acc[0][nb][j];
        acc[0][nb][j] = other;
      }
  }
}

/// The sums of a strip of type T, as all slots lie in `area`: store(y, total) for each result.
template <class T, class Store>
__device__ __forceinline__ void finish(const TileArguments& p, int strip, const float* area, std::uint32_t written,
                                       std::uint32_t phase, int lane, const Store& store) {
  const KernelTarget& to = target_of(p, strip);
  const int row = lane % kTileRows, i = (strip - to.first) * kTileRows + row;  // of y's row
  const float scale = to.scale != nullptr ? to.scale[0] : 1.0f;
  const float bias = to.bias != nullptr && i < to.n ? to.bias[i] : 0.0f;
  const int elements = kTileRows * p.columns;
  wait_barrier(written, phase);
  if (i >= to.n) return;
  for (int e = lane; e < elements; e += 32) {
    float total = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) total += area[s * elements + e];
    if constexpr (T::Codes::kPasses == 1) total *= T::Codes::kUnit;
    if (to.scale != nullptr) total *= scale;
    if (to.bias != nullptr) total += bias;
    store(to.y, static_cast<std::int64_t>(p.first_column + e / kTileRows) * to.n + i, total);
  }
}

/// f.operator()<T>(arguments, strip) for every strip of the block, with the type and the arguments it is of.
template <class A, class B, class F>
__device__ __forceinline__ void for_strips(const RingArguments& p, const F& f) {
  const int first = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x), ends = p.strips >> p.paired;
  for (int i = 0, turn = first; turn < ends; ++i, turn = first + (i >> p.paired) * blocks) {
    const int strip = turn + (i & p.paired) * ends;
    if constexpr (RingTypes<A, B>::kOne) {
      f.template operator()<A>(p.a, strip);
    } else {
      if (strip < p.a.strips)
        f.template operator()<A>(p.a, strip);
      else
        f.template operator()<B>(p.b, strip - p.a.strips);
    }
  }
}

#endif

/// Blocks of kRingThreads; shared: RingPlaces. Bytes and operations are those of the pieces, as in tile_kernel.cuh;
/// measured on an H200 with one column, launches back to back, when two blocks still shared a multiprocessor, of the
/// read limit: 84 % of 28672 x 4096 in Q4_K, 90 % of 128256 x 4096, but 61 % of 6144 x 4096 and 50 % of 4096 x 4096,
/// where a block had three strips or two (docs/cuda-kernels.md has the ladder).
template <class A, class B, int NB, ColumnWay way>
__global__ void __launch_bounds__(kRingThreads, 1) ring_kernel(const __grid_constant__ RingArguments p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte ring_shared[];
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  using Types = RingTypes<A, B>;
  const RingPlaces<Types> places{{p.a.columns, static_cast<int>(k_blocks(p.a.k))}, p.stages};
  const RingBarriers<2> barriers{shared_address(ring_shared)};
  if (warp == kProducerWarp) {
    barriers.init(p.stages, kConsumers, lane);
    barriers.tell_block();
    if (lane != 0) return;
    const std::uint64_t policy = read_once_policy();
    RingPosition at(p.stages);
    for_strips<A, B>(p, [&]<class T>(const TileArguments& arguments, int strip) {
      const KernelTarget& from = target_of(arguments, strip);
      produce<T>(from.matrix + (strip - from.first) * strip_bytes<T>(arguments.k), arguments.k, places, barriers, at,
                 policy);
    });
    return;
  }
  barriers.wait_for_init();

  std::byte* const x = ring_shared + places.x();
  if constexpr (way != ColumnWay::Copied) {
    auto& of_parts = *reinterpret_cast<float4(*)[kMaxParts / 4]>(ring_shared + places.area(0));
    make_column<way>(p.extras.source, static_cast<int>(p.a.k), warp, kCopyThreads / 32, of_parts,
                     StoreCodes<A::kFormat, Types::kSums>(x, places.columns, 0));
  } else {
    copy_columns(x, places.columns, p.a, static_cast<int>(threadIdx.x), kCopyThreads);
  }
  asm volatile("barrier.cta.sync 1, %0;" ::"n"(kCopyThreads) : "memory");
  RingPosition area(2);
  if (warp == kEpilogueWarp) {
    float gate = 0;
    for_strips<A, B>(p, [&]<class T>(const TileArguments& arguments, int strip) {
      const auto store = [&](float* y, std::int64_t i, float total) {
        const GatedResult& to = p.extras.gated;
        if (!Types::kOne || NB > 1 || p.paired == 0) {
          y[i] = total;
        } else if (strip < p.strips / 2) {
          gate = total;
        } else if (to.activation == Activation::Silu) {
          to.y[i] = gated<Activation::Silu>(gate, total);
        } else {
          to.y[i] = gated<Activation::Gelu>(gate, total);
        }
      };
      finish<T>(arguments, strip, reinterpret_cast<const float*>(ring_shared + places.area(area.slot)),
                barriers.written(area.slot), area.phase, lane, store);
      arrive(barriers.taken(area.slot));
      area.advance();
    });
    return;
  }

  LaneRing<NB> columns;
  columns.find(places.columns, places.x(), lane);
  RingPosition at(p.stages);
  for_strips<A, B>(p, [&]<class T>(const TileArguments& arguments, int) {
    float acc[2][NB][4] = {};
    consume<T, NB>(ring_shared, places, barriers, at, columns, static_cast<int>(pieces<T>(arguments.k)), warp, lane,
                   acc);
    wait_barrier(barriers.taken(area.slot), area.phase ^ 1);
    auto* to = reinterpret_cast<float*>(ring_shared + places.area(area.slot)) + warp * kTileRows * arguments.columns;
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = kColumns * nb + lane % 4 * 2 + j % 2, row = tile_row(lane / 4, j / 2);
        if (column < arguments.columns) to[column * kTileRows + row] = acc[0][nb][j] + acc[1][nb][j];
      }
    arrive(barriers.written(area.slot));
    area.advance();
  });
#endif
}

/// Stages and shared memory of a launch; none where the columns leave no room for three stages. No more than 7/16 of a
/// multiprocessor's memory, where that is room for three; launches ask for more than half (alone_bytes()), since they
/// share it with no other of their blocks.
template <class Types>
std::optional<RingPlaces<Types>> ring_places(const DeviceLimits& device, const TileArguments& p,
                                             std::int64_t block_stages) {
  RingPlaces<Types> places{{p.columns, static_cast<int>(k_blocks(p.k))}, 0};
  const int fixed = places.bytes(), shared = device.multiprocessor_bytes / 16 * 7 - device.reserved_bytes;
  constexpr int kFewest = 3, kInFlight = 96 << 10;
  int stages = shared > fixed ? (shared - fixed) / Types::kStageBytes : 0;
  if (stages < kFewest && device.block_bytes > fixed)
    stages =
        std::min((device.block_bytes - fixed) / Types::kStageBytes, std::max(kFewest, kInFlight / Types::kStageBytes));
  if (stages < kFewest) return std::nullopt;
  places.stages = static_cast<int>(std::min<std::int64_t>({stages, kMaxStages, block_stages}));
  return places;
}

/// Everything of a launch but the source of its columns.
struct RingLaunch {
  RingArguments arguments;
  int blocks = 0;
  std::size_t bytes = 0;  ///< of shared memory
};
template <class A, class B>
std::optional<RingLaunch> ring_launch(const TileArguments& a, const TileArguments& b, int paired) {
  using Types = RingTypes<A, B>;
  const DeviceLimits& device = device_limits();
  if (device.capability < 9) return std::nullopt;
  const int all = a.strips + b.strips, ends = all >> paired, blocks = std::min(device.multiprocessors, ends);
  const std::int64_t strip_stages = (std::max(pieces<A>(a.k), pieces<B>(a.k)) + kConsumers - 1) / kConsumers;
  const auto places = ring_places<Types>(device, a, ((ends + blocks - 1) / blocks << paired) * strip_stages);
  if (!places) return std::nullopt;
  const int bytes = alone_bytes(device, places->bytes());
  return RingLaunch{
      .arguments = {.a = a, .b = b, .strips = all, .stages = places->stages, .paired = paired, .extras = {}},
      .blocks = blocks,
      .bytes = static_cast<std::size_t>(bytes)};
}

template <class A, class B, int NB>
bool launch_ring_kernel(const TileArguments& a, const TileArguments& b, const RingExtras& extras, const Launch& at) {
  const int paired = extras.gated.y != nullptr ? 1 : 0;
  auto ring = ring_launch<A, B>(a, b, paired);
  if (!ring) return false;
  check((extras.source.x == nullptr && paired == 0) || a.columns == 1, "products make the form of one column only");
  check(paired == 0 || (RingTypes<A, B>::kOne && a.n_targets == 2 && a.targets[0].n == a.targets[1].n),
        "a gate and what it lets through are of one type and size");
  ring->arguments.extras = extras;
  const auto launch_way = [&]<ColumnWay way>() {
    if constexpr (NB == 1 || way == ColumnWay::Copied) {
      constexpr auto kernel = ring_kernel<A, B, NB, way>;
      allow_all_shared<kernel>(device_limits().block_bytes);
      launch(kernel, dim3(static_cast<unsigned>(ring->blocks)), dim3(kRingThreads), ring->bytes, at, ring->arguments);
    }
  };
  with_column_way(column_way(extras.source, a.k, kCopyThreads / 32), launch_way);
  return true;
}

inline bool ring_has_columns(const TileArguments& p) {
  return p.groups.n_groups == nullptr && p.columns <= kRingColumns;
}

template <DType type>
bool ring_takes(const TileArguments& p) {
  using T = Tile<kReadAs<type>>;
  return ring_has_columns(p) && ring_launch<T, T>(p, {}, 0).has_value();
}

template <DType type>
bool launch_ring_products(const TileArguments& p, const Launch& at, const RingExtras& extras) {
  using T = Tile<kReadAs<type>>;
  if (!ring_has_columns(p)) return false;
  return p.columns <= kColumns ? launch_ring_kernel<T, T, 1>(p, {}, extras, at)
                               : launch_ring_kernel<T, T, 2>(p, {}, extras, at);
}

/// What a source of kernels has for each of its types.
#define LLM_RING_TYPE(name)                                    \
  template bool ring_takes<DType::name>(const TileArguments&); \
  template bool launch_ring_products<DType::name>(const TileArguments&, const Launch&, const RingExtras&);

}  // namespace llm::cuda
