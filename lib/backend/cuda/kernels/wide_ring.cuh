// Products of tiles with up to 64 columns as a stream of weights and of columns.
//
// A block of threads has a tile of up to 16 strips. Its warps:
//   producer     copies one piece of k of every strip and the same piece of all columns' codes into a stage of a ring
//   in
//                shared memory: 33 KB of Q4_K and 8 KB of codes for 14 strips and 32 columns. Weights of the first
//                stages are on their way before the previous kernel has ended.
//   scales       copies the columns' scales and sums, which lie 64 bytes apart, side by side into the same stage
//   8 consumers  warp w takes strips w and w + 8: of each B operand that it loads it makes two products
// A consumer has its strips from the first piece to the last, in the order in which the sums of tile_kernel.cuh are
// taken: slot by slot (SlotWalk). So a strip's sum is one in registers, another half a slot, and the slots' total, and
// not 16 parts. Bits are those of tile_kernel.cuh: the same code adds pieces (tile_add.cuh), in the same order.
//
// Where there are too few strips for all multiprocessors (o and down of an 8B model have two for each), every block
// would read all columns for them, more bytes than weights. There a cluster of 2, 4 or 8 blocks has the tile together:
// each block takes some of the slots, so a part of k, and the sums of all are added by way of the cluster's shared
// memory.
//
// Per 16 x 256 with 32 columns, where two strips share the columns, for Q4_K: about 375 instructions, of them 40 mma
// and 128 multiplications of sums by their scales (two cycles each); 80 cycles of shared memory. A multiprocessor
// issues 4 instructions and moves one row of shared memory a cycle, and the weights come in 118 cycles. So 94 cycles of
// instructions, 80 of shared memory and 118 of memory overlap: the products wait for memory only where all three do
// not stand in each other's way. Q6_K has 600 instructions (150 cycles) for what comes in 168.
#pragma once

#include <algorithm>
#include <optional>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ring_asm.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"
#include "backend/cuda/kernels/wide_asm.cuh"
#include "backend/cuda/kernels/wide_plan.h"
#include "backend/cuda/kernels/wide_ring.h"

namespace llm::cuda {

static_assert(kWideSlots == kSlots && kWideParts == kParts);

inline constexpr int kWideWarps = 8;  ///< consumers
inline constexpr int kWideProducer = kWideWarps, kWideScales = kWideWarps + 1;
inline constexpr int kWideThreads = 32 * (kWideWarps + 4);  ///< fours of warps share out registers
inline constexpr int kConsumerRegisters = 224, kProducerRegisters = 56;
inline constexpr int kWideStages = 8;          ///< at most
inline constexpr int kWideBarrierBytes = 128;  ///< before the stages: full and empty of each
static_assert(2 * 8 * kWideStages <= kWideBarrierBytes);

/// Strips that a warp has at once: two, where their sums fit into the registers.
template <int NB>
inline constexpr int kWarpStrips = NB <= 4 ? 2 : 1;

struct WideArguments {
  TileArguments p;
  WidePlan plan;
  int stages = 0;
};

/// Shared memory: barriers; stages of codes and scales of the strips' pieces, the columns' codes, scales and sums; sums
/// [slot][strip][NB][lane] of 4.
template <class T, int NB>
struct WidePlaces {
  static constexpr bool kBlocks = T::kFormat == ActFormat::Q8x256;
  static constexpr int kGroupCodes = T::kSteps * kStepK * kColumns;  ///< bytes of 8 columns
  static constexpr int kScales = kColumns * NB * (kBlocks ? 1 : T::kSteps) * static_cast<int>(sizeof(float));
  static constexpr int kSums = sums_bytes<T>();  ///< of a column
  static constexpr int kX = NB * kGroupCodes + kScales + kColumns * NB * kSums;
  static constexpr int kAreaBytes = NB * 32 * static_cast<int>(sizeof(float4));  ///< of a strip
  int strips, slots, stages;

  LLM_HOST_DEVICE int codes(int strip) const { return strip * T::Codes::kBytes; }
  LLM_HOST_DEVICE int scales(int strip) const { return strips * T::Codes::kBytes + strip * T::Scales::kBytes; }
  LLM_HOST_DEVICE int x_codes() const { return (strips * T::kPieceBytes + 127) / 128 * 128; }
  LLM_HOST_DEVICE int x_scales() const { return x_codes() + NB * kGroupCodes; }
  LLM_HOST_DEVICE int x_sums() const { return x_scales() + kScales; }
  LLM_HOST_DEVICE int stage_bytes() const { return (x_codes() + kX + 127) / 128 * 128; }
  LLM_HOST_DEVICE int stage(int i) const { return kWideBarrierBytes + i * stage_bytes(); }
  LLM_HOST_DEVICE int area(int slot) const { return stage(stages) + slot * strips * kAreaBytes; }
  LLM_HOST_DEVICE int bytes() const { return area(slots); }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// The columns' side of a piece, from a stage.
template <class T, int NB>
struct StageColumns {
  using Places = WidePlaces<T, NB>;
  static constexpr int kAhead = NB <= 4 ? 2 : 1;
  const std::byte *of_codes, *of_scales, *of_sums;
  int lane;

  __device__ __forceinline__ StageColumns(const std::byte* stage, const Places& places, int lane)
      : of_codes(stage + places.x_codes()),
        of_scales(stage + places.x_scales()),
        of_sums(stage + places.x_sums()),
        lane(lane) {}
  __device__ __forceinline__ void begin() const {}
  __device__ __forceinline__ void codes(int first, uint2 (&b)[kAhead][NB]) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
#pragma unroll
      for (int nb = 0; nb < NB; ++nb)
        b[i][nb] = FromMemory::pair(of_codes + nb * Places::kGroupCodes + step_of<T>(first + i) * kStepK * kColumns +
                                    8 * lane);
  }
  __device__ __forceinline__ void step_scales(int first, float (&d)[kAhead][NB][2]) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
#pragma unroll
      for (int nb = 0; nb < NB; ++nb) {
        const int column = kColumns * nb + 2 * (lane % 4);
        const uint2 two = FromMemory::pair(of_scales + 4 * ((first + i) * kColumns * NB + column));
        d[i][nb][0] = bits_to_float(two.x), d[i][nb][1] = bits_to_float(two.y);
      }
  }
  __device__ __forceinline__ float scale(int nb, int c) const {
    return bits_to_float(FromMemory::word(of_scales + 4 * (kColumns * nb + 2 * (lane % 4) + c)));
  }
  __device__ __forceinline__ std::uint32_t sums(int nb, int further) const {
    return FromMemory::word(of_sums + (kColumns * nb + lane / 4) * Places::kSums + 4 * (lane % 4) + further);
  }
  __device__ __forceinline__ std::uint32_t sums32(int nb) const { return sums(nb, 0); }
  __device__ __forceinline__ std::uint32_t low16(int nb) const { return sums(nb, 0); }
  __device__ __forceinline__ std::uint32_t high16(int nb) const { return sums(nb, 16); }
};

/// A lane's columns' scales and sums of a piece, on their way to a stage.
template <class T, int NB>
struct HeldScales {
  using Places = WidePlaces<T, NB>;
  static constexpr int kEach = NB > 4 ? 2 : 1;  ///< columns of a lane: lane, lane + 32
  static constexpr int kCount = Places::kBlocks ? 1 : T::kSteps, kQuads = Places::kSums / 16;
  float scale[kEach][kCount];
  uint4 sums[kEach][kQuads > 0 ? kQuads : 1];

  /// Columns that do not exist as the last one.
  __device__ __forceinline__ void load(const TileArguments& p, int piece, int lane) {
    const int first_step = piece * T::kSteps, block = first_step / kSteps;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int column = p.first_column + min(lane + 32 * e, p.columns - 1);
      const std::byte* from =
          p.x + p.x_scales +
          (static_cast<std::int64_t>(column / kColumns) * k_blocks(p.k) + block) * scales_bytes(T::kFormat);
      if constexpr (Places::kBlocks) {
        constexpr int kFirst = Places::kSums == 32 ? offsetof(ColumnBlock, low16) : offsetof(ColumnBlock, low32);
        from += column % kColumns * sizeof(ColumnBlock);
        scale[e][0] = __ldcg(reinterpret_cast<const float*>(from));
#pragma unroll
        for (int i = 0; i < kQuads; ++i) sums[e][i] = __ldcg(reinterpret_cast<const uint4*>(from + kFirst + 16 * i));
      } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          const int at = (first_step % kSteps + i) * kColumns + column % kColumns;
          scale[e][i] = __ldcg(reinterpret_cast<const float*>(from + at * sizeof(StepScale)));
        }
      }
    }
  }
  __device__ __forceinline__ void store(std::byte* stage, const Places& places, int lane) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int column = lane + 32 * e;
      if (column >= kColumns * NB) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        *reinterpret_cast<float*>(stage + places.x_scales() + 4 * (i * kColumns * NB + column)) = scale[e][i];
#pragma unroll
      for (int i = 0; i < kQuads; ++i)
        *reinterpret_cast<uint4*>(stage + places.x_sums() + column * Places::kSums + 16 * i) = sums[e][i];
    }
  }
};

/// What a block goes through: the pieces of its slots, for tile after tile.
struct WideCursor {
  int tile, tiles, next, first_slot;
  SlotWalk walk;

  __device__ __forceinline__ WideCursor(const WidePlan& plan, int rank, int cluster, int clusters, int pieces)
      : tile(cluster),
        tiles(plan.tiles),
        next(clusters),
        first_slot(rank * (kSlots / plan.cluster)),
        walk(first_slot, first_slot + kSlots / plan.cluster, pieces) {
    if (walk.at_end()) tile = tiles;
  }
  __device__ __forceinline__ bool at_end() const { return tile >= tiles; }
  __device__ __forceinline__ void advance() {
    walk.advance();
    if (!walk.at_end()) return;
    tile += next;
    walk = SlotWalk(first_slot, walk.end, walk.pieces);
  }
};

struct WideBarriers {
  std::uint32_t first;
  __device__ __forceinline__ std::uint32_t full(int stage) const { return first + 8u * static_cast<unsigned>(stage); }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(kWideStages + stage); }
  __device__ __forceinline__ void init(int stages) const {
    for (int i = 0; i < stages; ++i) {
      init_barrier(full(i), 1 + 32);  // the producer, and the lanes of the scales
      init_barrier(empty(i), kWideWarps);
    }
    publish_barriers();
  }
};

/// What the roles of a block have in common.
template <class T, int NB>
struct WideBlock {
  using Places = WidePlaces<T, NB>;
  const WideArguments& arguments;
  Places places;
  std::byte* memory;
  WideBarriers barriers;
  int rank, size, cluster, clusters, lane;

  __device__ __forceinline__ const TileArguments& p() const { return arguments.p; }
  __device__ __forceinline__ int pieces() const { return static_cast<int>(llm::cuda::pieces<T>(p().k)); }
  __device__ __forceinline__ WideCursor cursor() const {
    return WideCursor(arguments.plan, rank, cluster, clusters, pieces());
  }
  __device__ __forceinline__ int first_strip(int tile) const { return tile * places.strips; }
  __device__ __forceinline__ int tile_strips(int tile) const {
    return min(places.strips, p().strips - first_strip(tile));
  }
  __device__ __forceinline__ int groups() const { return static_cast<int>(column_groups(p().columns)); }
  __device__ __forceinline__ std::byte* stage(int i) const { return memory + places.stage(i); }
  __device__ __forceinline__ std::uint32_t stage_address(int i) const {
    return barriers.first + static_cast<std::uint32_t>(places.stage(i));
  }
  /// Of sums of a strip of the tile.
  __device__ __forceinline__ int area(int slot, int strip, int nb) const {
    return places.area(slot) + ((strip * NB + nb) * 32 + lane) * static_cast<int>(sizeof(float4));
  }

  // --- the producer's, by a whole warp ---

  __device__ __forceinline__ void announce(const WideCursor& at, int slot) const {
    if (lane == 0)
      arrive_expecting(barriers.full(slot), static_cast<std::uint32_t>(tile_strips(at.tile) * T::kPieceBytes +
                                                                       groups() * Places::kGroupCodes));
    __syncwarp();
  }
  /// Half of the warp copies codes, the other half scales.
  __device__ __forceinline__ void copy_weights(const WideCursor& at, int slot, std::uint64_t policy) const {
    const int count = tile_strips(at.tile), piece = at.walk.piece;
    const std::uint32_t to = stage_address(slot);
    for (int i = lane % 16; i < count; i += 16) {
      const int strip = first_strip(at.tile) + i;
      const KernelTarget& target = target_of(p(), strip);
      const std::byte* from = target.matrix + (strip - target.first) * strip_bytes<T>(p().k);
      if (lane < 16)
        copy_bulk(to + static_cast<std::uint32_t>(places.codes(i)), from + codes_at<T>(piece), T::Codes::kBytes,
                  barriers.full(slot), policy);
      else
        copy_bulk(to + static_cast<std::uint32_t>(places.scales(i)), from + scales_at<T>(piece, p().k),
                  T::Scales::kBytes, barriers.full(slot), policy);
    }
  }
  __device__ __forceinline__ void copy_columns(const WideCursor& at, int slot) const {
    if (lane >= groups()) return;
    const std::byte* from = p().x + codes_offset(p().first_column / kColumns + lane, 0, p().k) +
                            static_cast<std::int64_t>(at.walk.piece) * Places::kGroupCodes;
    copy_bulk(stage_address(slot) + static_cast<std::uint32_t>(places.x_codes() + lane * Places::kGroupCodes), from,
              Places::kGroupCodes, barriers.full(slot));
  }
  __device__ __forceinline__ void produce() const {
    const std::uint64_t policy = read_once_policy();
    WideCursor ahead = cursor(), columns = ahead;
    RingPosition at(places.stages);
    int first = 0;
    for (; first < places.stages && !ahead.at_end(); ++first, ahead.advance(), at.advance()) {
      announce(ahead, first);
      copy_weights(ahead, first, policy);
    }
    wait_for_previous();
    for (int i = 0; i < first; ++i, columns.advance()) copy_columns(columns, i);
    for (; !ahead.at_end(); ahead.advance(), at.advance()) {
      wait_barrier(barriers.empty(at.slot), at.phase ^ 1);
      announce(ahead, at.slot);
      copy_weights(ahead, at.slot, policy);
      copy_columns(ahead, at.slot);
    }
  }

  /// The scales' and sums' of the columns, asked for a stage before they are stored.
  __device__ __forceinline__ void produce_scales() const {
    WideCursor ahead = cursor();
    RingPosition at(places.stages);
    HeldScales<T, NB> held, next;
    wait_for_previous();
    if (!ahead.at_end()) next.load(p(), ahead.walk.piece, lane);
    while (!ahead.at_end()) {
      held = next;
      ahead.advance();
      if (!ahead.at_end()) next.load(p(), ahead.walk.piece, lane);
      wait_barrier(barriers.empty(at.slot), at.phase ^ 1);
      held.store(stage(at.slot), places, lane);
      arrive(barriers.full(at.slot));
      at.advance();
    }
  }

  // --- the consumers' ---

  /// The piece of a stage into the sums of strips warp, warp + 8; of none, if M is 0.
  template <int M>
  __device__ __forceinline__ void add_stage(RingPosition& at, int warp, float (&acc)[M > 0 ? M : 1][NB][4]) const {
    wait_barrier(barriers.full(at.slot), at.phase);
    if constexpr (M > 0) {
      const std::byte* from = stage(at.slot);
      const auto take = [&](T(&piece)[M]) {
#pragma unroll
        for (int m = 0; m < M; ++m) {
          const int strip = warp + m * kWideWarps;
          piece[m].template load<FromMemory>(from + places.codes(strip), from + places.scales(strip), lane);
        }
      };
      const StageColumns<T, NB> x(from, places, lane);
      add_pieces<T>(take, x, lane, acc);
    }
    __syncwarp();
    if (lane == 0) arrive(barriers.empty(at.slot));
    at.advance();
  }

  /// A tile's strips of a warp. Slots come one by one; their total is in shared memory, or of a cluster each slot's
  /// sum.
  template <int M>
  __device__ __forceinline__ void consume(RingPosition& at, int tile, int warp) const {
    const int n = pieces(), slots = kSlots / size, first_slot = rank * slots;
#pragma unroll 1
    for (int slot = 0; slot < slots; ++slot) {
      float acc[M > 0 ? M : 1][NB][4] = {}, of_part[M > 0 ? M : 1][NB][4] = {};
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
#pragma unroll 1
        for (int piece = first_slot + slot + half * kSlots; piece < n; piece += kParts) add_stage<M>(at, warp, acc);
        if (half == 1) break;
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
          for (int nb = 0; nb < NB; ++nb)
#pragma unroll
            for (int j = 0; j < 4; ++j) of_part[m][nb][j] = acc[m][nb][j], acc[m][nb][j] = 0;
      }
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int nb = 0; nb < NB; ++nb) {
          const float(&a)[4] = of_part[m][nb], (&b)[4] = acc[m][nb];
          keep(make_float4(a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]), slot, tile, warp + m * kWideWarps, nb);
        }
    }
  }

  /// The sum of a slot, of this lane.
  __device__ __forceinline__ void keep(float4 sum, int slot, int tile, int strip, int nb) const {
    if (size > 1) {
      *reinterpret_cast<float4*>(memory + area(slot, strip, nb)) = sum;
      return;
    }
    auto* const at = reinterpret_cast<float4*>(memory + area(0, strip, nb));
    float4 total = slot == 0 ? make_float4(0, 0, 0, 0) : *at;
    add(total, sum);
    if (slot + 1 < kSlots)
      *at = total;
    else
      write(total, first_strip(tile) + strip, nb, lane);
  }
  static __device__ __forceinline__ void add(float4& to, float4 v) {
    to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w;
  }

  /// The sums of rows g and g + 8 and columns 2t and 2t + 1 of a group, lane (g, t), into y.
  __device__ __forceinline__ void write(float4 total, int strip, int nb, int of_lane) const {
    const KernelTarget& to = target_of(p(), strip);
    const float sums[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = (strip - to.first) * kTileRows + tile_row(of_lane / 4, j / 2);
      const int column = kColumns * nb + of_lane % 4 * 2 + j % 2;
      if (i >= to.n || column >= p().columns) continue;
      float y = sums[j];
      if constexpr (T::Codes::kPasses == 1) y *= T::Codes::kUnit;
      if (to.scale != nullptr) y *= to.scale[0];
      if (to.bias != nullptr) y += to.bias[i];
      to.y[static_cast<std::int64_t>(p().first_column + column) * to.n + i] = y;
    }
  }

  __device__ __forceinline__ void consume_all(int warp) const {
    wait_for_previous();  // which may read y
    RingPosition at(places.stages);
    for (int tile = cluster; tile < arguments.plan.tiles; tile += clusters) {
      const int count = tile_strips(tile);
      if (kWarpStrips < NB >> 1 && warp + kWideWarps < count)
        consume<kWarpStrips<NB>>(at, tile, warp);
      else if (warp < count)
        consume<1>(at, tile, warp);
      else
        consume<0>(at, tile, warp);
    }
  }

  // --- a cluster's ---

  /// The slots of all blocks in order, by all consumers of the cluster.
  __device__ __forceinline__ void add_slots(int thread) const {
    const int elements = tile_strips(cluster) * NB * 32, slots = kSlots / size;
    for (int e = rank * 32 * kWideWarps + thread; e < elements; e += size * 32 * kWideWarps) {
      float4 sums[kSlots], total = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int s = 0; s < kSlots; ++s)
        sums[s] = load_remote(
            barriers.first + static_cast<std::uint32_t>(places.area(s % slots) + e * static_cast<int>(sizeof(float4))),
            s / slots);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) add(total, sums[s]);
      write(total, first_strip(cluster) + e / (32 * NB), e / 32 % NB, e % 32);
    }
  }
};

#endif

/// Blocks of kWideThreads, plan.cluster to a cluster; shared: WidePlaces.
template <class T, int NB>
__global__ void __launch_bounds__(kWideThreads, 1) wide_kernel(const __grid_constant__ WideArguments arguments) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int size = arguments.plan.cluster, rank = size > 1 ? cluster_rank() : 0;
  std::byte* const memory = block_memory();
  const WideBlock<T, NB> block{.arguments = arguments,
                               .places = {arguments.plan.strips, size > 1 ? kSlots / size : 1, arguments.stages},
                               .memory = memory,
                               .barriers = {shared_address(memory)},
                               .rank = rank,
                               .size = size,
                               .cluster = static_cast<int>(blockIdx.x) / size,
                               .clusters = static_cast<int>(gridDim.x) / size,
                               .lane = lane};
  if (threadIdx.x == 0) block.barriers.init(arguments.stages);
  __syncthreads();
  if (warp < kWideWarps) {
    take_registers<kConsumerRegisters>();
    block.consume_all(warp);
    if (size == 1) return;
    cluster_barrier();
    block.add_slots(static_cast<int>(threadIdx.x));
  } else {
    give_registers<kProducerRegisters>();
    if (warp == kWideProducer) block.produce();
    if (warp == kWideScales) block.produce_scales();
    if (size == 1) return;
    cluster_barrier();
  }
  cluster_barrier();  // a block's memory goes when it ends
#endif
}

/// How many clusters of 1, 2, 4, 8 blocks of a kernel the device runs at once; 0 of those that it cannot.
template <class Kernel>
void wide_clusters(Kernel kernel, const DeviceLimits& device, int (&clusters)[4]) {
  clusters[0] = device.multiprocessors;
  for (int i = 1; i < 4; ++i) {
    LaunchAttributes attributes({}, kWideClusters[i]);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(device.multiprocessors / kWideClusters[i] * kWideClusters[i]));
    config.blockDim = dim3(kWideThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(device.block_bytes);
    config.attrs = attributes.list;
    config.numAttrs = attributes.count;
    if (cudaOccupancyMaxActiveClusters(&clusters[i], kernel, &config) == cudaSuccess) continue;
    static_cast<void>(cudaGetLastError());
    clusters[i] = 0;
  }
}

template <class T, int NB>
bool launch_wide_kernel(const TileArguments& p, const Launch& at) {
  using Places = WidePlaces<T, NB>;
  const DeviceLimits& device = device_limits();
  if (device.capability < 9) return false;
  const auto kernel = wide_kernel<T, NB>;
  static thread_local int known_of = -1, clusters[4];  // of the device that has been asked
  if (known_of != device.id) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.block_bytes),
               "asking for shared memory");
    wide_clusters(kernel, device, clusters);
    known_of = device.id;
  }
  const int pieces = static_cast<int>(llm::cuda::pieces<T>(p.k));
  const WidePlan plan = plan_wide({.strips = p.strips,
                                   .pieces = pieces,
                                   .piece_bytes = T::kPieceBytes,
                                   .column_bytes = Places::kX,
                                   .area_bytes = Places::kAreaBytes,
                                   .groups = NB,
                                   .most_strips = kWideWarps * kWarpStrips<NB>,
                                   .memory = device.block_bytes - 1024},  // places are rounded up
                                  clusters);
  Places places{plan.strips, wide_areas(plan), 0};
  places.stages = std::min((device.block_bytes - places.bytes()) / places.stage_bytes(), kWideStages);
  if (places.stages < kFewestWideStages) return false;
  launch_clusters(plan.cluster, kernel, dim3(static_cast<unsigned>(plan.cluster * std::min(plan.tiles, clusters[0]))),
                  dim3(kWideThreads), static_cast<std::size_t>(alone_bytes(device, places.bytes())), at,
                  WideArguments{.p = p, .plan = plan, .stages = places.stages});
  return true;
}

template <DType type>
bool launch_wide(const TileArguments& p, const Launch& at) {
  using T = Tile<kReadAs<type>>;
  if (p.columns <= 8) return launch_wide_kernel<T, 1>(p, at);
  if (p.columns <= 16) return launch_wide_kernel<T, 2>(p, at);
  return p.columns <= 32 ? launch_wide_kernel<T, 4>(p, at) : launch_wide_kernel<T, 8>(p, at);
}

}  // namespace llm::cuda
