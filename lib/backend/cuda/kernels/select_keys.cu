// The lightning indexer: scores of all keys that a token sees, a sum over heads of w * max(q . key, 0), and the
// positions of the top_k greatest.
//
// Scores by tensor cores, where an index has rows of 128 elements: a warp has 32 keys as operands in registers and goes
// through the heads of one token after another, whose queries lie in shared memory as the lanes read them. Elements of
// a row are multiplied in another order than they lie in, so that a lane's four are one load of 16 bytes. Of exact
// scores a query is the sum of two F16 or three BF16 numbers (attend_halves.cuh says how and why). 64 heads: 16.4 kFLOP
// a key, which is 256 bytes of F16; a token at 8,192 positions 134 MFLOP, twice when exact, 0.5 us, and 2.1 MB, 0.5 us;
// 4,096 tokens of a prompt behind 32,768 others 2.3 TFLOP, 4.3 ms at 540 TFLOP/s, and keys read once for four tokens,
// 8.9 GB from the second cache, 1.6 ms. Other indexes: a warp has four keys in registers, products are f32.
//
// An index of a stride s has a key for each s positions, in a block of the cache 64 / s of them side by side. What is
// scored and chosen are these keys, by their number; only what is written are positions, or these numbers.
//
// The choice: a CTA has a token. Its k-th greatest score is found by digits of 8 bits, counts of which each lane has
// for itself, then the positions are written in their order, a warp having a stretch of them. Scores are read six times
// at most: a token at 8,192 positions 197 KB, at 131,072 3.1 MB, which one multiprocessor gets from the second cache in
// 2 us and 30 us.
#include <algorithm>
#include <bit>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_tiles.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/select_keys.h"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kIndexDim = 128;  ///< of an index whose scores are made by tensor cores
constexpr int kHeadGroup = 8;   ///< heads of a product
constexpr int kStrip = 32;      ///< keys of a warp
constexpr int kGroupBytes = kHeadGroup * kIndexDim * 2;
constexpr int kMostTokens = 8;                                ///< of a CTA's queries
constexpr int kMostQueryBytes = 64 * 1024;                    ///< of these where there are several
constexpr std::size_t kMostScratch = std::size_t{128} << 20;  ///< beyond that tokens are taken some at a time
constexpr int kChoiceThreads = 1024, kDigits = 256;

/// Rows of the index, as operands: as they are, E4M3, or decoded to F16.
enum class IndexRows { Plain, Float8, Decoded };

struct ScoreArgs {
  const float *q, *w;  ///< w may be null
  const unsigned char* keys;
  unsigned char* queries;  ///< [tokens][parts][heads / 8][kGroupBytes] operands, or [tokens][heads][dim] f32
  float* weights;          ///< [tokens][heads], of operands
  std::uint32_t* ranks;    ///< [tokens][most_keys]
  const std::int32_t *positions, *sequence, *block_table;
  DType type;
  int table_stride, heads, dim, row_bytes, chooses_from, tokens, tokens_of_cta;
  int shift;  ///< the index has a key for each 2^shift positions
  std::int64_t most_keys;
  bool round_query;
};

/// The number of the last key of an index that a token at a position sees; -1: it sees none.
__device__ __forceinline__ int last_key(int position, int shift) { return ((position + 1) >> shift) - 1; }

/// A score as a number in the order of scores, never 0.
__device__ __forceinline__ std::uint32_t rank_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const std::uint32_t bits = __float_as_uint(score + 0.0f);  // the zeros are equal
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float positive(float x) { return x > 0 ? x : 0.0f; }  // NaN becomes 0

__device__ __forceinline__ const unsigned char* row_at(const ScoreArgs& a, int sequence, int key) {
  const int position = key << a.shift;
  const int block =
      __ldcg(a.block_table + static_cast<std::int64_t>(sequence) * a.table_stride + position / kCacheBlock);
  return a.keys + cache_rows_offset(block, 1, 0, a.row_bytes) +
         static_cast<std::size_t>(position % kCacheBlock >> a.shift) * static_cast<std::size_t>(a.row_bytes);
}
__device__ __forceinline__ float weight_of(const ScoreArgs& a, std::int64_t head) {
  return a.w == nullptr ? 1.0f : __ldcg(a.w + head);
}

// --- by tensor cores ---

/// A warp has a head. Element 32 i + 8 t + j of head g lies in unit 4 g + t of the i-th 512 bytes of its group.
template <bool kBFloat16, int kParts>
__global__ void __launch_bounds__(kThreads) index_queries_kernel(const __grid_constant__ ScoreArgs a) {
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, g = static_cast<int>(threadIdx.x) / 32;
  const int group = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y), groups = a.heads / kHeadGroup;
  if (__ldcg(a.sequence + token) < 0 || __ldcg(a.positions + token) < a.chooses_from) return wait_for_previous();
  const std::int64_t head = static_cast<std::int64_t>(token) * a.heads + group * kHeadGroup + g;
  wait_for_previous();
  const float4 four = __ldcg(reinterpret_cast<const float4*>(a.q + head * kIndexDim) + lane);
  float x[4] = {four.x, four.y, four.z, four.w};
  int bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
  if (a.round_query) {  // 32 neighbours are 8 lanes'
    int of_block = bits;
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) of_block = max(of_block, __shfl_xor_sync(kAll, of_block, offset));
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = rounded_q8x32(x[i], of_block);
    bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bits = max(bits, __float_as_int(x[i]) & 0x7fffffff);
  }
  bits = __reduce_max_sync(kAll, bits);
  const int power = bits < 0x7f800000 ? query_power<kBFloat16>(bits >> 23) : 0;
  const float up = __int_as_float((127 + power) << 23), down = __int_as_float((127 - power) << 23);
  if (lane == 0) a.weights[head] = weight_of(a, head) * down;
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= up;
  unsigned char* const to = a.queries + (static_cast<std::int64_t>(token) * kParts * groups + group) * kGroupBytes +
                            lane / 8 * 512 + (g * 4 + lane % 8 / 2) * 16 + lane % 2 * 8;
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    *reinterpret_cast<uint2*>(to + static_cast<std::int64_t>(p) * groups * kGroupBytes) =
        make_uint2(pack<kBFloat16>(x[0], x[1]), pack<kBFloat16>(x[2], x[3]));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float rest = x[i] - narrowed<kBFloat16>(x[i]);
      x[i] = isfinite(x[i]) ? rest : 0.0f;
    }
  }
}

template <bool kBFloat16, int kParts, IndexRows kRows>
class Scorer {
  static constexpr int kTiles = kStrip / 16, kQuads = kIndexDim / 32;

 public:
  __device__ __forceinline__ Scorer(const ScoreArgs& args, const unsigned char* queries)
      : a(args),
        queries(queries),
        weights(reinterpret_cast<const float*>(queries + args.tokens_of_cta * token_bytes(args))),
        lane(static_cast<int>(threadIdx.x) % 32) {}
  static __host__ __device__ int token_bytes(const ScoreArgs& a) { return kParts * a.heads / kHeadGroup * kGroupBytes; }
  static int shared_bytes(const ScoreArgs& a) {
    return a.tokens_of_cta * (token_bytes(a) + a.heads * static_cast<int>(sizeof(float)));
  }

  /// Keys from `first` on; behind the last one, that one again.
  __device__ __forceinline__ void load(int sequence, int first, int last) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned char* const row = row_at(a, sequence, min(first + m * 16 + half * 8 + lane / 4, last));
#pragma unroll
        for (int i = 0; i < kQuads; ++i) keys[m][half][i] = unit(row, i * 4 + lane % 4);
      }
    }
  }

  /// Of key `lane` / 4 + 8 (`lane` % 4) of the strip.
  __device__ __forceinline__ float score(int token) const {
    const unsigned char* const q = queries + token * token_bytes(a) + lane * 16;
    const float* const w = weights + token * a.heads + lane % 4 * 2;
    const int groups = a.heads / kHeadGroup;
    float sums[kTiles][2] = {};
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      float dots[kTiles][4];
      multiply(q + group * kGroupBytes, groups * kGroupBytes, dots);
      const float2 two = *reinterpret_cast<const float2*>(w + group * kHeadGroup);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sums[m][half] = fmaf(two.x, positive(dots[m][2 * half]), sums[m][half]);
          sums[m][half] = fmaf(two.y, positive(dots[m][2 * half + 1]), sums[m][half]);
        }
      }
    }
    float mine = 0;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      float sum = sums[i / 2][i % 2];
      sum += __shfl_xor_sync(kAll, sum, 1);
      sum += __shfl_xor_sync(kAll, sum, 2);
      if (lane % 4 == i) mine = sum;
    }
    return mine;
  }
  __device__ __forceinline__ int key() const { return lane / 4 + lane % 4 * 8; }

 private:
  __device__ __forceinline__ uint4 unit(const unsigned char* row, int u) const {
    if constexpr (kRows == IndexRows::Plain) {
      return __ldcg(reinterpret_cast<const uint4*>(row) + u);
    } else if constexpr (kRows == IndexRows::Float8) {
      return f8_eight(__ldcg(reinterpret_cast<const uint2*>(row) + u));
    } else {
      float x[8];
      decode8_in_memory(a.type, row, u * 8, kIndexDim, x);
      return make_uint4(pack<false>(x[0], x[1]), pack<false>(x[2], x[3]), pack<false>(x[4], x[5]),
                        pack<false>(x[6], x[7]));
    }
  }
  /// Two chains of the first parts, one of the others.
  __device__ __forceinline__ void multiply(const unsigned char* q, int part_bytes, float (&dots)[kTiles][4]) const {
    constexpr int kChains = kParts > 1 ? 3 : 2;
    float sum[kTiles][kChains][4] = {};
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const uint4 b = *reinterpret_cast<const uint4*>(q + p * part_bytes + i * 512);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint4 &low = keys[m][0][i], &high = keys[m][1][i];
          multiply_add<kBFloat16>(sum[m][p == 0 ? 0 : 2], {low.x, high.x, low.y, high.y}, b.x, b.y);
          multiply_add<kBFloat16>(sum[m][p == 0 ? 1 : 2], {low.z, high.z, low.w, high.w}, b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        dots[m][j] = sum[m][0][j] + sum[m][1][j];
        if constexpr (kParts > 1) dots[m][j] += sum[m][2][j];
      }
    }
  }

  const ScoreArgs& a;
  const unsigned char* const queries;
  const float* const weights;
  const int lane;
  uint4 keys[kTiles][2][kQuads];
};

template <bool kBFloat16, int kParts, IndexRows kRows>
__global__ void __launch_bounds__(kThreads, 2) index_scores_kernel(const __grid_constant__ ScoreArgs a) {
  let_next_start();
  unsigned char* const shared = dynamic_shared();
  const int first = static_cast<int>(blockIdx.y) * a.tokens_of_cta, n = min(a.tokens_of_cta, a.tokens - first);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  __shared__ int last_keys[kMostTokens], sequences[kMostTokens];  // -1: the token chooses nothing
  bool chooses = false;
  if (thread < kMostTokens) {
    const int position = thread < n ? __ldcg(a.positions + first + thread) : -1;
    last_keys[thread] = last_key(position, a.shift);
    sequences[thread] = thread < n && position >= a.chooses_from ? __ldcg(a.sequence + first + thread) : -1;
    chooses = sequences[thread] >= 0;
  }
  wait_for_previous();
  if (__syncthreads_or(chooses) == 0) return;
  using Own = Scorer<kBFloat16, kParts, kRows>;
  const int bytes = Own::token_bytes(a);
  const unsigned char* const from = a.queries + static_cast<std::int64_t>(first) * bytes;
  for (int i = thread * 16; i < n * bytes; i += kThreads * 16) copy16_async(shared + i, from + i);
  commit_copies();
  float* const weights = reinterpret_cast<float*>(shared + a.tokens_of_cta * bytes);
  for (int i = thread; i < n * a.heads; i += kThreads)
    weights[i] = __ldcg(a.weights + static_cast<std::int64_t>(first) * a.heads + i);
  wait_for_copies<0>();
  __syncthreads();
  Own scorer(a, shared);
#pragma unroll 1
  for (int begin = 0; begin < n; ++begin) {
    const int own = sequences[begin];  // all its tokens at its first one
    bool is_first = own >= 0;
    int most = -1;
    for (int t = 0; t < n; ++t) {
      if (sequences[t] != own) continue;
      is_first = is_first && t >= begin;
      most = max(most, last_keys[t]);
    }
    if (!is_first) continue;
    const int strips = most / kStrip + 1;
#pragma unroll 1
    for (int strip = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); strip < strips;
         strip += static_cast<int>(gridDim.x) * kWarps) {
      scorer.load(own, strip * kStrip, most);
      const int key = strip * kStrip + scorer.key();
#pragma unroll 1
      for (int t = begin; t < n; ++t) {
        if (sequences[t] != own || strip * kStrip > last_keys[t]) continue;
        const float score = scorer.score(t);
        if (key <= last_keys[t]) __stcg(a.ranks + (first + t) * a.most_keys + key, rank_of(score));
      }
    }
  }
}

// --- in f32 ---

/// A warp has 32 neighbours.
__global__ void __launch_bounds__(kThreads) rounded_queries_kernel(const __grid_constant__ ScoreArgs a) {
  let_next_start();
  const std::int64_t all = std::int64_t{a.tokens} * a.heads * a.dim;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_previous();
  const float x = round_q8x32(i < all ? __ldcg(a.q + i) : 0.0f);
  if (i < all) reinterpret_cast<float*>(a.queries)[i] = x;
}

/// A lane has 8 elements of each unit of 256.
template <int kUnits, int kKeys>
__global__ void __launch_bounds__(kThreads) float_scores_kernel(const __grid_constant__ ScoreArgs a) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  wait_for_previous();
  if (sequence < 0 || position < a.chooses_from) return;
  const float* const q =
      (a.round_query ? reinterpret_cast<const float*>(a.queries) : a.q) + std::int64_t{token} * a.heads * a.dim;
  const int last = last_key(position, a.shift), step = static_cast<int>(gridDim.x) * kWarps * kKeys;
#pragma unroll 1
  for (int first = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * kKeys; first <= last;
       first += step) {
    float x[kKeys][kUnits][8];
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      const unsigned char* const row = row_at(a, sequence, min(first + k, last));
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int e = (u * 32 + lane) * 8;
        if (e < a.dim) {
          decode8_in_memory(a.type, row, e, a.dim, x[k][u]);
        } else {
#pragma unroll
          for (int j = 0; j < 8; ++j) x[k][u][j] = 0;
        }
      }
    }
    float sums[kKeys] = {};
#pragma unroll 1
    for (int h = 0; h < a.heads; ++h) {
      float dots[kKeys] = {};
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int e = (u * 32 + lane) * 8 + j;
          if (e >= a.dim) continue;
          const float of_query = __ldcg(q + h * a.dim + e);
#pragma unroll
          for (int k = 0; k < kKeys; ++k) dots[k] = fmaf(of_query, x[k][u][j], dots[k]);
        }
      }
      const float weight = weight_of(a, std::int64_t{token} * a.heads + h);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) dots[k] += __shfl_xor_sync(kAll, dots[k], offset);
        sums[k] = fmaf(weight, positive(dots[k]), sums[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      if (lane == k && first + k <= last) __stcg(a.ranks + token * a.most_keys + first + k, rank_of(sums[k]));
    }
  }
}

// --- the choice ---

struct ChoiceArgs {
  const std::uint32_t* ranks;
  const std::int32_t *positions, *sequence;
  std::int32_t* chosen;  ///< [tokens][top_k]
  std::int64_t most_keys;
  int top_k, chooses_from, shift;  ///< the last two as ScoreArgs have them
  bool by_numbers;                 ///< keys, not positions

  /// Keys that are chosen where a token sees more.
  __device__ __forceinline__ int choices() const { return by_numbers ? top_k : ((top_k + 1) >> shift) - 1; }
  /// 2^that are written for a key.
  __device__ __forceinline__ int written_shift() const { return by_numbers ? 0 : shift; }
};

/// Four neighbours from `first` on, a multiple of 4; 0 from n on.
__device__ __forceinline__ void load_ranks(const std::uint32_t* ranks, int first, int n, std::uint32_t (&r)[4]) {
  const uint4 four = first < n ? __ldcg(reinterpret_cast<const uint4*>(ranks + first)) : uint4{};
  r[0] = four.x, r[1] = four.y, r[2] = four.z, r[3] = four.w;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i >= n) r[i] = 0;
  }
}

/// The positions of key `key`, the i-th that is chosen.
__device__ __forceinline__ void write_key(std::int32_t* to, int i, int key, int shift) {
  for (int j = 0; j < 1 << shift; ++j) to[(i << shift) + j] = (key << shift) + j;
}

/// The k-th greatest of n ranks, and how many of those equal to it are chosen.
struct Threshold {
  std::uint32_t rank;
  int equal;
};
__device__ __forceinline__ Threshold find_threshold(const std::uint32_t* ranks, int n, int k) {
  __shared__ unsigned counts[kDigits][32];  // of each lane
  __shared__ unsigned totals[kDigits];
  __shared__ Threshold found;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  std::uint32_t prefix = 0;
  int wanted = k;
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = thread; i < kDigits * 32; i += kChoiceThreads) (&counts[0][0])[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (int first = thread * 4; first < n; first += kChoiceThreads * 4) {
      std::uint32_t r[4];
      load_ranks(ranks, first, n, r);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool alike = shift == 24 || r[i] >> (shift + 8) == prefix >> (shift + 8);
        if (r[i] != 0 && alike) atomicAdd(&counts[r[i] >> shift & 0xff][lane], 1u);
      }
    }
    __syncthreads();
    for (int digit = warp; digit < kDigits; digit += kChoiceThreads / 32) {
      const unsigned total = __reduce_add_sync(kAll, counts[digit][lane]);
      if (lane == 0) totals[digit] = total;
    }
    __syncthreads();
    if (warp == 0) {  // a lane has 8 digits, the greatest first
      unsigned own = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) own += totals[kDigits - 1 - lane * 8 - i];
      unsigned until = own;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const unsigned other = __shfl_up_sync(kAll, until, offset);
        if (lane >= offset) until += other;
      }
      unsigned before = until - own;
      const auto rest = static_cast<unsigned>(wanted);
      if (before < rest && until >= rest) {
#pragma unroll 1
        for (int i = 0; i < 8; ++i) {
          const int digit = kDigits - 1 - lane * 8 - i;
          if (before + totals[digit] >= rest) {
            found = {prefix | static_cast<std::uint32_t>(digit) << shift, static_cast<int>(rest - before)};
            break;
          }
          before += totals[digit];
        }
      }
    }
    __syncthreads();
    prefix = found.rank;
    wanted = found.equal;
    __syncthreads();
  }
  return {prefix, wanted};
}

__global__ void __launch_bounds__(kChoiceThreads) choose_keys_kernel(const __grid_constant__ ChoiceArgs a) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  wait_for_previous();
  if (sequence < 0) return;
  std::int32_t* const to = a.chosen + std::int64_t{token} * a.top_k;
  const int n = last_key(position, a.shift) + 1;
  if (position < a.chooses_from) {
    const int seen = a.by_numbers ? n : position + 1;
    for (int i = thread; i < a.top_k; i += kChoiceThreads) to[i] = i < seen ? i : -1;
    return;
  }
  const std::uint32_t* const ranks = a.ranks + token * a.most_keys;
  const int choices = a.choices(), shift = a.written_shift();
  for (int i = (choices << shift) + thread; i < a.top_k; i += kChoiceThreads) {  // those behind the last key
    const int p = (n << shift) + i - (choices << shift);
    to[i] = p <= position ? p : -1;
  }
  const Threshold threshold = find_threshold(ranks, n, choices);
  // Stretches of whole 128 keys.
  constexpr int kAtOnce = 128, kChoiceWarps = kChoiceThreads / 32;
  const int steps = (n + kAtOnce - 1) / kAtOnce, of_warp = (steps + kChoiceWarps - 1) / kChoiceWarps * kAtOnce;
  const int begin = min(warp * of_warp, n), end = min(begin + of_warp, n);
  int greater = 0, equal = 0;
#pragma unroll 4
  for (int first = begin + lane * 4; first < end; first += kAtOnce) {
    std::uint32_t r[4];
    load_ranks(ranks, first, end, r);
#pragma unroll
    for (int i = 0; i < 4; ++i) greater += r[i] > threshold.rank, equal += r[i] == threshold.rank;
  }
  __shared__ int greater_of[kChoiceWarps], equal_of[kChoiceWarps];
  greater = __reduce_add_sync(kAll, greater);
  equal = __reduce_add_sync(kAll, equal);
  if (lane == 0) greater_of[warp] = greater, equal_of[warp] = equal;
  __syncthreads();
  greater = equal = 0;  // before the warp's stretch
  for (int i = 0; i < warp; ++i) greater += greater_of[i], equal += equal_of[i];
#pragma unroll 1
  for (int step = begin; step < end; step += kAtOnce) {
    std::uint32_t r[4];
    load_ranks(ranks, step + lane * 4, end, r);
    unsigned own = 0;  // equal ones in the high half
#pragma unroll
    for (int i = 0; i < 4; ++i) own += r[i] > threshold.rank ? 1u : r[i] == threshold.rank ? 0x10000u : 0u;
    unsigned until = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const unsigned other = __shfl_up_sync(kAll, until, offset);
      if (lane >= offset) until += other;
    }
    const unsigned all = __shfl_sync(kAll, until, 31), before = until - own;
    int g = greater + static_cast<int>(before & 0xffff), e = equal + static_cast<int>(before >> 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_greater = r[i] > threshold.rank, is_equal = r[i] == threshold.rank;
      if (is_greater || (is_equal && e < threshold.equal))
        write_key(to, g + min(e, threshold.equal), step + lane * 4 + i, shift);
      g += is_greater, e += is_equal;
    }
    greater += static_cast<int>(all & 0xffff), equal += static_cast<int>(all >> 16);
  }
}

// --- launches ---

/// How scores are made, and what of a token lies in memory meanwhile.
struct ScorePlan {
  int parts = 0;  ///< of queries; 0: in f32
  IndexRows rows = IndexRows::Plain;
  bool bfloat16 = false;
  std::size_t query_bytes = 0, weight_bytes = 0, rank_bytes = 0;  ///< of a token
  int at_once = 1;                                                ///< tokens

  std::size_t token_bytes() const { return query_bytes + weight_bytes + rank_bytes; }
  std::size_t scratch_bytes() const { return static_cast<std::size_t>(at_once) * token_bytes(); }
};

bool rounds_query(const CacheView& c, const SelectionShape& s) {
  return s.query == ActFormat::Q8x32 && cache_block_bytes(c.k_type) != 0;
}

/// Beside what the kernel of scores has of its own.
int most_shared() { return device_limits().block_bytes - 1024; }

int parts_for(const CacheView& c, const SelectionShape& s, Scores scores) {
  if (c.head_dim_k != kIndexDim || s.heads % kHeadGroup != 0 || c.k_type == DType::F32) return 0;
  if (scores == Scores::Exact && cache_block_bytes(c.k_type) != 0) return 0;
  const int parts = scores == Scores::Rounded ? 1 : c.k_type == DType::BF16 ? 3 : 2;
  return parts * s.heads * kIndexDim * 2 + s.heads * 4 <= most_shared() ? parts : 0;
}

std::int64_t most_keys(const SelectionShape& s, std::int64_t max_positions) {
  return (max_positions + s.stride - 1) / s.stride;
}

ScorePlan plan_scores(const CacheView& c, const SelectionShape& s, int tokens, std::int64_t max_positions,
                      Scores scores) {
  ScorePlan p;
  p.parts = parts_for(c, s, scores);
  p.bfloat16 = c.k_type == DType::BF16;
  p.rows = c.k_type == DType::F16 || p.bfloat16 ? IndexRows::Plain
           : c.k_type == DType::F8_E4M3         ? IndexRows::Float8
                                                : IndexRows::Decoded;
  const auto aligned = [](std::int64_t bytes) { return static_cast<std::size_t>((bytes + 15) / 16 * 16); };
  const std::int64_t elements = std::int64_t{s.heads} * c.head_dim_k;
  p.query_bytes = p.parts > 0 ? aligned(p.parts * elements * 2) : rounds_query(c, s) ? aligned(elements * 4) : 0;
  p.weight_bytes = p.parts > 0 ? aligned(std::int64_t{s.heads} * 4) : 0;
  p.rank_bytes = aligned((most_keys(s, max_positions) + kStrip - 1) / kStrip * kStrip * 4);
  const std::size_t most = std::max<std::size_t>(1, kMostScratch / p.token_bytes());
  p.at_once = static_cast<int>(std::min<std::size_t>(most, static_cast<std::size_t>(std::max(tokens, 1))));
  return p;
}

ScoreArgs score_arguments(const float* q, const float* w, const CacheView& c, const SelectionShape& s,
                          const StepView& step, const ScorePlan& p, std::byte* scratch) {
  ScoreArgs a{};
  a.q = q;
  a.w = w;
  a.keys = reinterpret_cast<const unsigned char*>(c.k);
  const auto at_once = static_cast<std::size_t>(p.at_once);
  a.queries = reinterpret_cast<unsigned char*>(scratch);
  a.weights = reinterpret_cast<float*>(scratch + at_once * p.query_bytes);
  a.ranks = reinterpret_cast<std::uint32_t*>(scratch + at_once * (p.query_bytes + p.weight_bytes));
  a.positions = step.positions;
  a.sequence = step.sequence;
  a.block_table = step.block_table;
  a.type = c.k_type;
  a.table_stride = step.table_stride;
  a.heads = s.heads;
  a.dim = c.head_dim_k;
  a.row_bytes = cache_row_bytes(c.k_type, c.head_dim_k);
  a.chooses_from = s.chooses_from();
  a.tokens_of_cta = 1;
  a.shift = std::countr_zero(static_cast<unsigned>(s.stride));
  a.most_keys = static_cast<std::int64_t>(p.rank_bytes / 4);
  a.round_query = rounds_query(c, s);
  return a;
}

/// CTAs of a token, or some: all at once on the device, unless the keys are fewer.
unsigned splits_for(int groups, std::int64_t keys_each, std::int64_t keys) {
  const std::int64_t most = (keys + keys_each - 1) / keys_each;
  const std::int64_t room = 2 * device_limits().multiprocessors / std::max(groups, 1);
  return static_cast<unsigned>(std::clamp<std::int64_t>(room, 1, std::max<std::int64_t>(1, most)));
}

template <bool kBFloat16, int kParts, IndexRows kRows>
void launch_scores(ScoreArgs a, const Launch& at) {
  using Own = Scorer<kBFloat16, kParts, kRows>;
  // Few tokens may be of different sequences, and leave multiprocessors without one.
  const int fits = kMostQueryBytes / (Own::token_bytes(a) + 4 * a.heads);
  a.tokens_of_cta = a.tokens <= 64 ? 1 : std::clamp(fits, 1, kMostTokens);
  const int groups = (a.tokens + a.tokens_of_cta - 1) / a.tokens_of_cta;
  launch(index_queries_kernel<kBFloat16, kParts>,
         dim3(static_cast<unsigned>(a.heads / kHeadGroup), static_cast<unsigned>(a.tokens)), dim3(kThreads), 0, at, a);
  const auto kernel = index_scores_kernel<kBFloat16, kParts, kRows>;
  allow_shared<index_scores_kernel<kBFloat16, kParts, kRows>>(most_shared());
  launch(kernel, dim3(splits_for(groups, kStrip, a.most_keys), static_cast<unsigned>(groups)), dim3(kThreads),
         static_cast<std::size_t>(Own::shared_bytes(a)), at, a);
}

void launch_float_scores(const ScoreArgs& a, const Launch& at) {
  if (a.round_query) {
    const std::int64_t all = std::int64_t{a.tokens} * a.heads * a.dim;
    launch(rounded_queries_kernel, dim3(static_cast<unsigned>((all + kThreads - 1) / kThreads)), dim3(kThreads), 0, at,
           a);
  }
  const auto run = [&](auto kernel, int keys) {
    launch(kernel, dim3(splits_for((a.tokens + 3) / 4, keys * kWarps, a.most_keys), static_cast<unsigned>(a.tokens)),
           dim3(kThreads), 0, at, a);
  };
  if (a.dim <= 256)
    run(float_scores_kernel<1, 4>, 4);
  else
    run(float_scores_kernel<3, 1>, 1);
}

void launch_scores(const ScorePlan& p, const ScoreArgs& a, const Launch& at) {
  using enum IndexRows;
  if (p.parts == 0) return launch_float_scores(a, at);
  const bool exact = p.parts > 1;
  if (p.bfloat16) return exact ? launch_scores<true, 3, Plain>(a, at) : launch_scores<true, 1, Plain>(a, at);
  if (p.rows == Plain) return exact ? launch_scores<false, 2, Plain>(a, at) : launch_scores<false, 1, Plain>(a, at);
  if (p.rows == Float8) return exact ? launch_scores<false, 2, Float8>(a, at) : launch_scores<false, 1, Float8>(a, at);
  launch_scores<false, 1, Decoded>(a, at);
}

}  // namespace

std::size_t selection_scratch(const CacheView& c, const SelectionShape& s, int tokens, std::int64_t max_positions) {
  return std::max(plan_scores(c, s, tokens, max_positions, Scores::Exact).scratch_bytes(),
                  plan_scores(c, s, tokens, max_positions, Scores::Rounded).scratch_bytes());
}

void select_keys(const float* q, const float* w, const CacheView& c, const SelectionShape& s, const StepView& step,
                 int tokens, std::int64_t max_positions, Scores scores, std::int32_t* positions, std::byte* scratch,
                 const Launch& at) {
  const bool by_numbers = s.choice == SelectKeys::Choice::Keys;
  check(s.stride >= 1 && kCacheBlock % s.stride == 0 && s.top_k >= (by_numbers ? 1 : 2 * s.stride - 1),
        "keys of whole blocks of a cache");
  const ScorePlan p = plan_scores(c, s, tokens, max_positions, scores);
  ScoreArgs a = score_arguments(q, w, c, s, step, p, scratch);
  ChoiceArgs choice{a.ranks, step.positions, step.sequence, positions, a.most_keys,
                    s.top_k, a.chooses_from, a.shift,       by_numbers};
  for (int first = 0; first < tokens; first += p.at_once) {
    a.tokens = std::min(p.at_once, tokens - first);
    launch_scores(p, a, at);
    launch(choose_keys_kernel, dim3(static_cast<unsigned>(a.tokens)), dim3(kChoiceThreads), 0, at, choice);
    a.q += std::int64_t{p.at_once} * s.heads * c.head_dim_k;
    if (a.w != nullptr) a.w += std::int64_t{p.at_once} * s.heads;
    choice.chosen += std::int64_t{p.at_once} * s.top_k;
    a.positions += p.at_once, choice.positions += p.at_once;
    a.sequence += p.at_once, choice.sequence += p.at_once;
  }
}

}  // namespace llm::cuda
