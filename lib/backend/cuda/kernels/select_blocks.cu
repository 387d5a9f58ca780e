// The blocks of keys that the heads of each KV head are to attend to: scores q . key of all keys that a token sees, the
// greatest of each block, and the positions of the blocks with the greatest of these.
//
// Scores by tensor cores, where an index has rows of 128 elements and blocks are whole strips of 32 keys: a warp has a
// strip as operands in registers and goes through the queries of a CTA, eight at a time, whichever tokens and heads
// they are of: of prompts up to 128, of single tokens the few that a token has. Published files have 4 heads and blocks
// of 128: a token at 131,072 positions reads 33.6 MB of F16, 7.4 us at 4.54 TB/s; 2,048 tokens of a prompt behind
// 32,768 others 73 GFLOP, 0.14 ms at 540 TFLOP/s, and keys read once for 32 tokens, 0.55 GB from the second cache, 0.1
// ms. Other indexes: a warp has four keys in registers for the queries of up to eight tokens, products are f32.
//
// What scores leave in memory is the greatest of each unit, 32 keys by tensor cores, otherwise 4 or 1, as a rank. A
// block is some whole units. Its own block a token always chooses, so that no other is less than whole.
//
// The choice: a warp has the blocks of a token and head in registers, up to 1,024, and finds the rank of the last that
// is chosen bit by bit: 32 counts. More blocks are a CTA's, as many as there are.
#include <algorithm>

#include "backend/cuda/kernels/index_scores.cuh"
#include "backend/cuda/kernels/select_blocks.h"
#include "backend/cuda/kernels/shared_limit.cuh"

namespace llm::cuda {
namespace {

constexpr int kMostColumns = 128;                             ///< queries of a CTA where there are several tokens
constexpr int kMostTokens = 32;                               ///< of a CTA
constexpr int kFloatTokens = 8;                               ///< of these where scores are made in f32
constexpr int kFewTokens = 64;                                ///< of a step, of which each has CTAs of its own
constexpr int kMostQueryBytes = 64 * 1024;                    ///< of a CTA where there are several tokens
constexpr std::size_t kMostScratch = std::size_t{128} << 20;  ///< beyond that tokens are taken some at a time

struct BlockScoreArgs : IndexArgs {
  const float* q;        ///< [tokens][heads][dim]
  float* rounded;        ///< q rounded, where it is to be and scores are made in f32
  std::uint32_t* ranks;  ///< [tokens][heads][most_units]
  int heads, top_k, tokens, tokens_of_cta;
  int groups;  ///< of eight queries, of a CTA
  std::int64_t most_units;
};

// --- by tensor cores ---

/// What a CTA has of each of its queries: the sequence, -1 where nothing is chosen, and the last key that is seen.
struct Column {
  int sequence, last;
};
constexpr int kColumnBytes = static_cast<int>(sizeof(Column) + sizeof(float));

/// The queries of a CTA's tokens, in shared memory: operands, columns, and what products are multiplied with. Operands
/// of columns that no token has are left as they are: nobody reads their products.
template <bool kBFloat16, int kParts>
struct Queries {
  const BlockScoreArgs& a;
  unsigned char* const operands;
  Column* const columns;
  float* const downs;

  __device__ __forceinline__ Queries(const BlockScoreArgs& args, unsigned char* shared)
      : a(args),
        operands(shared),
        columns(reinterpret_cast<Column*>(shared + kParts * args.groups * kGroupBytes)),
        downs(reinterpret_cast<float*>(columns + args.groups * kHeadGroup)) {}
  static int bytes(const BlockScoreArgs& a) { return a.groups * (kParts * kGroupBytes + kHeadGroup * kColumnBytes); }

  /// A warp makes some of them, of `n` tokens from `first` on.
  __device__ __forceinline__ void make(int first, int n, const int* sequences, const int* last_keys, int warp,
                                       int lane) const {
    for (int i = warp; i < a.groups * kHeadGroup; i += kWarps) {
      const int token = i / a.heads, sequence = token < n ? sequences[token] : -1;
      float down = 0;
      if (sequence >= 0) {
        const std::int64_t head = static_cast<std::int64_t>(first) * a.heads + i;
        const float4 four = __ldcg(reinterpret_cast<const float4*>(a.q + head * kIndexDim) + lane);
        down = write_query<kBFloat16, kParts>(four, a.round_query, i % kHeadGroup, lane,
                                              operands + i / kHeadGroup * kGroupBytes, a.groups * kGroupBytes);
      }
      if (lane == 0) columns[i] = {sequence, sequence >= 0 ? last_keys[token] : -1}, downs[i] = down;
    }
  }
};

/// The greatest products of the strip with two of the lane's queries, of the keys up to their last ones, in all lanes
/// that have these. What is not a number counts as less than all.
template <int kTiles>
__device__ __forceinline__ float2 greatest(const float (&dots)[kTiles][4], int first, int last0, int last1) {
  float2 most = make_float2(-INFINITY, -INFINITY);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first + m * 16 + half * 8;
      if (key <= last0) most.x = fmaxf(most.x, dots[m][2 * half]);
      if (key <= last1) most.y = fmaxf(most.y, dots[m][2 * half + 1]);
    }
  }
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    most.x = fmaxf(most.x, __shfl_xor_sync(kAll, most.x, offset));
    most.y = fmaxf(most.y, __shfl_xor_sync(kAll, most.y, offset));
  }
  return most;
}

template <bool kBFloat16, int kParts, IndexRows kRows>
__global__ void __launch_bounds__(kThreads, 2) block_scores_kernel(const __grid_constant__ BlockScoreArgs a) {
  let_next_start();
  const int first = static_cast<int>(blockIdx.y) * a.tokens_of_cta, n = min(a.tokens_of_cta, a.tokens - first);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  __shared__ int last_keys[kMostTokens], sequences[kMostTokens];  // -1: the token chooses nothing
  bool chooses = false;
  if (thread < kMostTokens) {
    last_keys[thread] = thread < n ? __ldcg(a.positions + first + thread) : -1;
    sequences[thread] = thread < n && last_keys[thread] >= a.top_k ? __ldcg(a.sequence + first + thread) : -1;
    chooses = sequences[thread] >= 0;
  }
  wait_for_previous();
  if (__syncthreads_or(chooses) == 0) return;
  const Queries<kBFloat16, kParts> queries(a, dynamic_shared());
  queries.make(first, n, sequences, last_keys, warp, lane);
  __syncthreads();
  IndexStrip<kBFloat16, kParts, kRows> keys;
#pragma unroll 1
  for (int begin = 0; begin < n; ++begin) {
    const int own = sequences[begin];  // all its tokens at its first one
    bool is_first = own >= 0;
    for (int t = 0; t < begin && is_first; ++t) is_first = sequences[t] != own;
    if (!is_first) continue;
    int most = -1;
    for (int t = begin; t < n; ++t) most = sequences[t] == own ? max(most, last_keys[t]) : most;
    const int strips = most / kStrip + 1;
#pragma unroll 1
    for (int strip = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); strip < strips;
         strip += static_cast<int>(gridDim.x) * kWarps) {
      keys.load(a, own, strip * kStrip, most, lane);
#pragma unroll 1
      for (int group = 0; group < a.groups; ++group) {
        const int column = group * kHeadGroup + lane % 4 * 2;
        const int4 two = *reinterpret_cast<const int4*>(queries.columns + column);
        const int last0 = two.x == own ? two.y : -1, last1 = two.z == own ? two.w : -1;
        if (!__any_sync(kAll, max(last0, last1) >= strip * kStrip)) continue;
        typename IndexStrip<kBFloat16, kParts, kRows>::Dots dots;
        keys.multiply(queries.operands + group * kGroupBytes + lane * 16, a.groups * kGroupBytes, dots);
        const float2 best = greatest(dots, strip * kStrip + lane / 4, last0, last1);
        std::uint32_t* const to =
            a.ranks + (static_cast<std::int64_t>(first) * a.heads + column) * a.most_units + strip;
        if (lane < 4 && last0 >= strip * kStrip) __stcg(to, rank_of(best.x * queries.downs[column]));
        if (lane < 4 && last1 >= strip * kStrip) __stcg(to + a.most_units, rank_of(best.y * queries.downs[column + 1]));
      }
    }
  }
}

// --- in f32 ---

/// A unit is kKeys keys.
template <int kUnits, int kKeys>
__global__ void __launch_bounds__(kThreads) float_block_scores_kernel(const __grid_constant__ BlockScoreArgs a) {
  let_next_start();
  const int first_token = static_cast<int>(blockIdx.y) * a.tokens_of_cta;
  const int n = min(a.tokens_of_cta, a.tokens - first_token), lane = static_cast<int>(threadIdx.x) % 32;
  const int own_unit = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const auto position_of = [&](int t) { return __ldcg(a.positions + first_token + t); };
  const auto sequence_of = [&](int t) {  // -1: the token chooses nothing
    return position_of(t) >= a.top_k ? __ldcg(a.sequence + first_token + t) : -1;
  };
  const float* const queries = a.round_query ? a.rounded : a.q;
  wait_for_previous();
#pragma unroll 1
  for (int begin = 0; begin < n; ++begin) {
    const int own = sequence_of(begin);  // all its tokens at its first one
    bool is_first = own >= 0;
    for (int t = 0; t < begin && is_first; ++t) is_first = sequence_of(t) != own;
    if (!is_first) continue;
    int most = -1;
    for (int t = begin; t < n; ++t) most = sequence_of(t) == own ? max(most, position_of(t)) : most;
#pragma unroll 1
    for (int unit = own_unit; unit * kKeys <= most; unit += static_cast<int>(gridDim.x) * kWarps) {
      float x[kKeys][kUnits][8];
      load_rows(a, own, unit * kKeys, most, lane, x);
#pragma unroll 1
      for (int t = begin; t < n; ++t) {
        const int last = position_of(t);
        if (sequence_of(t) != own || unit * kKeys > last) continue;
#pragma unroll 1
        for (int h = 0; h < a.heads; ++h) {
          const std::int64_t head = static_cast<std::int64_t>(first_token + t) * a.heads + h;
          float dots[kKeys], best = -INFINITY;
          multiply_rows(x, queries + head * a.dim, a.dim, lane, dots);
#pragma unroll
          for (int k = 0; k < kKeys; ++k) best = unit * kKeys + k <= last ? fmaxf(best, dots[k]) : best;
          if (lane == 0) __stcg(a.ranks + head * a.most_units + unit, rank_of(best));
        }
      }
    }
  }
}

// --- the choice ---

struct BlockChoiceArgs {
  const std::uint32_t* ranks;
  const std::int32_t *positions, *sequence;
  std::int32_t* chosen;  ///< [pairs][top_k], a pair being a token and a head
  std::int64_t most_units;
  int pairs, heads, top_k, block, local;
  int units;  ///< of a block
};

/// Of the `blocks` that a token sees; 0 behind them. Those that it always chooses are as good as can be.
__device__ __forceinline__ std::uint32_t block_rank(const BlockChoiceArgs& a, const std::uint32_t* ranks, int place,
                                                    int blocks) {
  if (place >= blocks) return 0;
  if (place + a.local >= blocks) return rank_of(INFINITY);
  const std::uint32_t* const own = ranks + static_cast<std::int64_t>(place) * a.units;
  std::uint32_t best = 0;
  if (a.units % 4 == 0) {
    for (int j = 0; j < a.units; j += 4) {
      const uint4 four = __ldcg(reinterpret_cast<const uint4*>(own + j));
      best = max(max(max(best, four.x), four.y), max(four.z, four.w));
    }
  } else {
    for (int j = 0; j < a.units; ++j) best = max(best, __ldcg(own + j));
  }
  return best;
}

/// The blocks of a pair, a stretch of them in each of kWarps warps, 32 at a time: in registers, kSlots times 32 of a
/// warp, or read again whenever they are asked for where kSlots is 0.
template <int kWarps, int kSlots>
class BlockChoice {
 public:
  __device__ __forceinline__ BlockChoice(const BlockChoiceArgs& args, std::int64_t pair, int position)
      : a(args),
        ranks(args.ranks + pair * args.most_units),
        to(args.chosen + pair * args.top_k),
        seen(position + 1),
        blocks((seen + args.block - 1) / args.block),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(kWarps == 1 ? 0 : static_cast<int>(threadIdx.x) / 32),
        slots(kSlots > 0 ? kSlots : (blocks + 32 * kWarps - 1) / (32 * kWarps)),
        first(warp * slots * 32) {}

  /// What a token sees that is no more than it may choose.
  __device__ __forceinline__ void write_all() const {
    for (int i = warp * 32 + lane; i < a.top_k; i += kWarps * 32) to[i] = i < seen ? i : -1;
  }

  __device__ __forceinline__ void write_best() {
    if (a.units == 4)
      keep_fours();
    else
      keep();
    const int choices = a.top_k / a.block;
    std::uint32_t last = 0;  // the rank of the last that is chosen
#pragma unroll 1
    for (int bit = 31; bit >= 0; --bit) {
      const std::uint32_t least = last | 1u << bit;
      if (count(bit, [=](std::uint32_t r) { return r >= least; }) >= choices) last = least;
    }
    write(last, choices - count(1, [=](std::uint32_t r) { return r > last; }));
  }

 private:
  __device__ __forceinline__ std::uint32_t read(int slot) const {
    return block_rank(a, ranks, first + slot * 32 + lane, blocks);
  }
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) kept[i] = read(i);
  }
  /// The same, so that all are asked for at once.
  __device__ __forceinline__ void keep_fours() {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int place = first + i * 32 + lane;
      const bool weighed = place + a.local < blocks;
      const uint4 four = weighed ? __ldcg(reinterpret_cast<const uint4*>(ranks) + place) : uint4{};
      const std::uint32_t best = max(max(four.x, four.y), max(four.z, four.w));
      kept[i] = weighed ? best : place < blocks ? rank_of(INFINITY) : 0;
    }
  }
  template <class F>
  __device__ __forceinline__ void for_each(const F& f) const {
    if constexpr (kSlots > 0) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        if (first + i * 32 < blocks) f(i, kept[i]);
      }
    } else {
      for (int i = 0; i < slots && first + i * 32 < blocks; ++i) f(i, read(i));
    }
  }

  template <class F>
  __device__ __forceinline__ int count_own(const F& is) const {
    int n = 0;
    for_each([&](int, std::uint32_t r) { n += is(r); });
    return __reduce_add_sync(kAll, n);
  }
  /// Of all warps. Those of two turns that follow one another are counted in different places, so that one barrier
  /// does.
  template <class F>
  __device__ __forceinline__ int count(int turn, const F& is) const {
    const int own = count_own(is);
    if constexpr (kWarps == 1) {
      return own;
    } else {
      __shared__ int counts[2][kWarps];
      if (lane == 0) counts[turn % 2][warp] = own;
      __syncthreads();
      return __reduce_add_sync(kAll, lane < kWarps ? counts[turn % 2][lane] : 0);
    }
  }

  /// Blocks of ranks above `last`, and the first `most_equal` of those equal to it.
  __device__ __forceinline__ void write(std::uint32_t last, int most_equal) const {
    int greater = 0, equal = 0;  // before the warp's stretch
    if constexpr (kWarps > 1) {
      __shared__ int of_warp[2][kWarps];
      const int own_greater = count_own([=](std::uint32_t r) { return r > last; });
      const int own_equal = count_own([=](std::uint32_t r) { return r == last; });
      if (lane == 0) of_warp[0][warp] = own_greater, of_warp[1][warp] = own_equal;
      __syncthreads();
      greater = __reduce_add_sync(kAll, lane < warp ? of_warp[0][lane] : 0);
      equal = __reduce_add_sync(kAll, lane < warp ? of_warp[1][lane] : 0);
    }
    int written = greater + min(equal, most_equal);
    for_each([&](int slot, std::uint32_t r) {
      const unsigned alike = __ballot_sync(kAll, r == last);
      const int before = equal + __popc(alike & ((1u << lane) - 1));
      unsigned chosen = __ballot_sync(kAll, r > last || (r == last && before < most_equal));
      equal += __popc(alike);
      for (; chosen != 0; chosen &= chosen - 1) write_block(written++, first + slot * 32 + __ffs(chosen) - 1);
    });
  }
  /// The i-th that is chosen.
  __device__ __forceinline__ void write_block(int i, int place) const {
    for (int j = lane; j < a.block; j += 32) {
      const int position = place * a.block + j;
      to[i * a.block + j] = position < seen ? position : -1;
    }
  }

  const BlockChoiceArgs& a;
  const std::uint32_t* const ranks;
  std::int32_t* const to;
  const int seen, blocks, lane, warp, slots;
  const int first;  ///< block of the warp
  std::uint32_t kept[kSlots > 0 ? kSlots : 1];
};

/// Warps of a CTA have pairs of their own, or all have one.
template <int kWarpsOfPair, int kSlots>
__global__ void __launch_bounds__(kWarpsOfPair == 1 ? kThreads : 32 * kWarpsOfPair)
    choose_blocks_kernel(const __grid_constant__ BlockChoiceArgs a) {
  let_next_start();
  const int pair = kWarpsOfPair == 1 ? static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32
                                     : static_cast<int>(blockIdx.x);
  const int token = min(pair, a.pairs - 1) / a.heads;
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  wait_for_previous();
  if (pair >= a.pairs || sequence < 0) return;
  BlockChoice<kWarpsOfPair, kSlots> choice(a, pair, position);
  if (position < a.top_k)
    choice.write_all();
  else
    choice.write_best();
}

// --- launches ---

/// How scores are made, and what lies in memory meanwhile.
struct BlockPlan {
  int parts = 0;  ///< of queries; 0: in f32
  int unit = 1;   ///< keys of a rank
  int tokens_of_cta = 1, groups = 0;
  int at_once = 1;  ///< tokens, whole CTAs of them
  std::int64_t most_units = 0;
  std::size_t rounded_bytes = 0, rank_bytes = 0;

  std::size_t scratch_bytes() const { return rounded_bytes + rank_bytes; }
};

int tokens_of_cta(int heads, int parts, int tokens) {
  if (tokens <= kFewTokens) return 1;  // which may be of different sequences
  if (parts == 0) return kFloatTokens;
  const int columns = std::min(kMostColumns, kMostQueryBytes / (parts * kIndexDim * 2));
  return std::clamp(columns / heads, 1, kMostTokens);
}

BlockPlan plan_blocks(const CacheView& c, const SelectBlocks& op, int heads, int tokens, std::int64_t max_positions,
                      Scores scores) {
  BlockPlan p;
  const auto groups_of = [&](int n) { return (n * heads + kHeadGroup - 1) / kHeadGroup; };
  p.parts = op.block % kStrip == 0 ? query_parts(c, scores) : 0;
  if (groups_of(1) * (p.parts * kGroupBytes + kHeadGroup * kColumnBytes) > most_shared()) p.parts = 0;
  p.unit = p.parts > 0 ? kStrip : op.block % 4 == 0 && c.head_dim_k <= 256 ? 4 : 1;
  p.tokens_of_cta = tokens_of_cta(heads, p.parts, tokens);
  p.groups = groups_of(p.tokens_of_cta);
  p.most_units = ((max_positions + p.unit - 1) / p.unit + 3) / 4 * 4;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::size_t cta_ranks = size(p.tokens_of_cta) * size(heads) * size(p.most_units) * 4;
  const bool rounds = p.parts == 0 && rounds_query(c, op.query);
  const std::size_t cta_rounded = rounds ? size(p.tokens_of_cta) * size(heads) * size(c.head_dim_k) * 4 : 0;
  const int wanted = (std::max(tokens, 1) + p.tokens_of_cta - 1) / p.tokens_of_cta;
  const std::size_t ctas = std::clamp<std::size_t>(kMostScratch / (cta_ranks + cta_rounded), 1, size(wanted));
  p.at_once = static_cast<int>(ctas) * p.tokens_of_cta;
  const auto aligned = [](std::size_t bytes) { return (bytes + 15) / 16 * 16; };
  p.rounded_bytes = aligned(ctas * cta_rounded);
  p.rank_bytes = aligned(ctas * cta_ranks);
  return p;
}

template <bool kBFloat16, int kParts, IndexRows kRows>
void launch_block_scores(const BlockScoreArgs& a, std::int64_t max_positions, const Launch& at) {
  const auto ctas = static_cast<unsigned>((a.tokens + a.tokens_of_cta - 1) / a.tokens_of_cta);
  allow_shared<block_scores_kernel<kBFloat16, kParts, kRows>>(most_shared());
  launch(block_scores_kernel<kBFloat16, kParts, kRows>,
         dim3(splits_for(static_cast<int>(ctas), kStrip, max_positions), ctas), dim3(kThreads),
         static_cast<std::size_t>(Queries<kBFloat16, kParts>::bytes(a)), at, a);
}

void launch_float_block_scores(const BlockScoreArgs& a, int unit, std::int64_t max_positions, const Launch& at) {
  if (a.round_query) round_queries(a.q, std::int64_t{a.tokens} * a.heads * a.dim, a.rounded, at);
  const int ctas = (a.tokens + a.tokens_of_cta - 1) / a.tokens_of_cta;
  const auto run = [&](auto kernel) {
    launch(kernel, dim3(splits_for((ctas + 3) / 4, unit * kWarps, max_positions), static_cast<unsigned>(ctas)),
           dim3(kThreads), 0, at, a);
  };
  if (a.dim > 256)
    run(float_block_scores_kernel<3, 1>);
  else if (unit == 4)
    run(float_block_scores_kernel<1, 4>);
  else
    run(float_block_scores_kernel<1, 1>);
}

void launch_block_scores(const BlockPlan& p, IndexRows rows, const BlockScoreArgs& a, std::int64_t most,
                         const Launch& at) {
  using enum IndexRows;
  if (p.parts == 0) return launch_float_block_scores(a, p.unit, most, at);
  if (a.type == DType::BF16)
    return p.parts > 1 ? launch_block_scores<true, 3, Plain>(a, most, at)
                       : launch_block_scores<true, 1, Plain>(a, most, at);
  if (rows == Plain)
    return p.parts > 1 ? launch_block_scores<false, 2, Plain>(a, most, at)
                       : launch_block_scores<false, 1, Plain>(a, most, at);
  if (rows == Float8)
    return p.parts > 1 ? launch_block_scores<false, 2, Float8>(a, most, at)
                       : launch_block_scores<false, 1, Float8>(a, most, at);
  launch_block_scores<false, 1, Decoded>(a, most, at);
}

void launch_choice(const BlockChoiceArgs& a, std::int64_t max_positions, const Launch& at) {
  constexpr int kManyWarps = 32, kManySlots = 8;
  const std::int64_t most = (max_positions + a.block - 1) / a.block;
  const auto pairs = static_cast<unsigned>(a.pairs);
  if (most <= 32 * 32)
    launch(choose_blocks_kernel<1, 32>, dim3((pairs + kWarps - 1) / kWarps), dim3(kThreads), 0, at, a);
  else if (most <= 32 * kManyWarps * kManySlots)
    launch(choose_blocks_kernel<kManyWarps, kManySlots>, dim3(pairs), dim3(32 * kManyWarps), 0, at, a);
  else
    launch(choose_blocks_kernel<kManyWarps, 0>, dim3(pairs), dim3(32 * kManyWarps), 0, at, a);
}

}  // namespace

std::size_t block_selection_scratch(const CacheView& c, const SelectBlocks& op, int heads, int tokens,
                                    std::int64_t max_positions) {
  std::size_t most = 0;
  for (const int n : {std::min(tokens, kFewTokens), tokens}) {
    for (const Scores scores : {Scores::Exact, Scores::Rounded})
      most = std::max(most, plan_blocks(c, op, heads, n, max_positions, scores).scratch_bytes());
  }
  return most;
}

void select_blocks(const float* q, const CacheView& c, const SelectBlocks& op, int heads, const StepView& step,
                   int tokens, std::int64_t max_positions, Scores scores, std::int32_t* positions, std::byte* scratch,
                   const Launch& at) {
  const BlockPlan p = plan_blocks(c, op, heads, tokens, max_positions, scores);
  BlockScoreArgs a{};
  static_cast<IndexArgs&>(a) = index_arguments(c, op.query, step);
  a.q = q;
  a.rounded = reinterpret_cast<float*>(scratch);
  a.ranks = reinterpret_cast<std::uint32_t*>(scratch + p.rounded_bytes);
  a.heads = heads;
  a.top_k = op.top_k;
  a.tokens_of_cta = p.tokens_of_cta;
  a.groups = p.groups;
  a.most_units = p.most_units;
  BlockChoiceArgs choice{.ranks = a.ranks,
                         .positions = step.positions,
                         .sequence = step.sequence,
                         .chosen = positions,
                         .most_units = p.most_units,
                         .pairs = 0,
                         .heads = heads,
                         .top_k = op.top_k,
                         .block = op.block,
                         .local = op.local,
                         .units = op.block / p.unit};
  for (int first = 0; first < tokens; first += p.at_once) {
    a.tokens = std::min(p.at_once, tokens - first);
    choice.pairs = a.tokens * heads;
    launch_block_scores(p, index_rows(c), a, max_positions, at);
    launch_choice(choice, max_positions, at);
    a.q += std::int64_t{p.at_once} * heads * c.head_dim_k;
    choice.chosen += std::int64_t{p.at_once} * heads * op.top_k;
    a.positions += p.at_once, choice.positions += p.at_once;
    a.sequence += p.at_once, choice.sequence += p.at_once;
  }
}

}  // namespace llm::cuda
