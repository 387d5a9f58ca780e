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
// 2 us and 30 us. So where tokens are few, a cluster of up to eight CTAs has a token, each a stretch of the keys; they
// read each other's counts. Whoever counts, the threshold is the same.
#include <algorithm>
#include <bit>

#include "backend/cuda/kernels/index_scores.cuh"
#include "backend/cuda/kernels/select_keys.h"
#include "backend/cuda/kernels/shared_limit.cuh"
#include "backend/cuda/kernels/wide_asm.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kMostTokens = 8;                                ///< of a CTA's queries
constexpr int kMostQueryBytes = 64 * 1024;                    ///< of these where there are several
constexpr std::size_t kMostScratch = std::size_t{128} << 20;  ///< beyond that tokens are taken some at a time
constexpr int kChoiceThreads = 1024, kDigits = 256;

struct ScoreArgs : IndexArgs {
  const float *q, *w;      ///< w may be null
  unsigned char* queries;  ///< [tokens][parts][heads / 8][kGroupBytes] operands, or [tokens][heads][dim] f32
  float* weights;          ///< [tokens][heads], of operands
  std::uint32_t* ranks;    ///< [tokens][most_keys]
  int heads, chooses_from, tokens, tokens_of_cta;
  std::int64_t most_keys;
};

__device__ __forceinline__ float positive(float x) { return x > 0 ? x : 0.0f; }  // NaN becomes 0

__device__ __forceinline__ float weight_of(const ScoreArgs& a, std::int64_t head) {
  return a.w == nullptr ? 1.0f : __ldcg(a.w + head);
}

// --- by tensor cores ---

/// A warp has a head.
template <bool kBFloat16, int kParts>
__global__ void __launch_bounds__(kThreads) index_queries_kernel(const __grid_constant__ ScoreArgs a) {
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, g = static_cast<int>(threadIdx.x) / 32;
  const int group = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y), groups = a.heads / kHeadGroup;
  if (__ldcg(a.sequence + token) < 0 || __ldcg(a.positions + token) < a.chooses_from) return wait_for_previous();
  const std::int64_t head = static_cast<std::int64_t>(token) * a.heads + group * kHeadGroup + g;
  wait_for_previous();
  const float4 four = __ldcg(reinterpret_cast<const float4*>(a.q + head * kIndexDim) + lane);
  unsigned char* const to = a.queries + (static_cast<std::int64_t>(token) * kParts * groups + group) * kGroupBytes;
  const float down = write_query<kBFloat16, kParts>(four, a.round_query, g, lane, to, groups * kGroupBytes);
  if (lane == 0) a.weights[head] = weight_of(a, head) * down;
}

template <bool kBFloat16, int kParts, IndexRows kRows>
class Scorer {
  using Strip = IndexStrip<kBFloat16, kParts, kRows>;
  static constexpr int kTiles = Strip::kTiles;

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
    strip.load(a, sequence, first, last, lane);
  }

  /// Of key `lane` / 4 + 8 (`lane` % 4) of the strip.
  __device__ __forceinline__ float score(int token) const {
    const unsigned char* const q = queries + token * token_bytes(a) + lane * 16;
    const float* const w = weights + token * a.heads + lane % 4 * 2;
    const int groups = a.heads / kHeadGroup;
    float sums[kTiles][2] = {};
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      typename Strip::Dots dots;
      strip.multiply(q + group * kGroupBytes, groups * kGroupBytes, dots);
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
  const ScoreArgs& a;
  const unsigned char* const queries;
  const float* const weights;
  const int lane;
  Strip strip;
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
    load_rows(a, sequence, first, last, lane, x);
    float sums[kKeys] = {};
#pragma unroll 1
    for (int h = 0; h < a.heads; ++h) {
      float dots[kKeys];
      multiply_rows(x, q + h * a.dim, a.dim, lane, dots);
      const float weight = weight_of(a, std::int64_t{token} * a.heads + h);
#pragma unroll
      for (int k = 0; k < kKeys; ++k) sums[k] = fmaf(weight, positive(dots[k]), sums[k]);
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

/// Until all threads of a token's CTAs are here.
template <int kCtas>
__device__ __forceinline__ void wait_for_all() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if constexpr (kCtas > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
#else
  __syncthreads();
#endif
}
/// What CTA `cta` of the token's has where the caller's has *own.
template <int kCtas>
__device__ __forceinline__ unsigned count_of(const unsigned* own, int cta) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if constexpr (kCtas > 1) {
    return load_remote_word(shared_address(own), cta);
  } else {
    return *own;
  }
#else
  return *own;
#endif
}

/// The k-th greatest of a token's ranks, and how many of those equal to it are chosen. A CTA counts ranks [begin, end).
struct Threshold {
  std::uint32_t rank;
  int equal;
};
template <int kCtas>
__device__ __forceinline__ Threshold find_threshold(const std::uint32_t* ranks, int begin, int end, int k) {
  __shared__ unsigned counts[kDigits][32];  // of each lane
  __shared__ unsigned of_cta[2][kDigits];   // in turns: others may still read those of the digit before
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
    for (int first = begin + thread * 4; first < end; first += kChoiceThreads * 4) {
      std::uint32_t r[4];
      load_ranks(ranks, first, end, r);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool alike = shift == 24 || r[i] >> (shift + 8) == prefix >> (shift + 8);
        if (r[i] != 0 && alike) atomicAdd(&counts[r[i] >> shift & 0xff][lane], 1u);
      }
    }
    __syncthreads();
    for (int digit = warp; digit < kDigits; digit += kChoiceThreads / 32) {
      const unsigned total = __reduce_add_sync(kAll, counts[digit][lane]);
      if (lane == 0) of_cta[shift / 8 % 2][digit] = total;
    }
    wait_for_all<kCtas>();
    if (thread < kDigits) {
      unsigned total = 0;
#pragma unroll
      for (int cta = 0; cta < kCtas; ++cta) total += count_of<kCtas>(&of_cta[shift / 8 % 2][thread], cta);
      totals[thread] = total;
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

/// A cluster of kCtas has a token.
template <int kCtas>
__global__ void __launch_bounds__(kChoiceThreads) choose_keys_kernel(const __grid_constant__ ChoiceArgs a) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.x) / kCtas, cta = static_cast<int>(blockIdx.x) % kCtas;
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
  // Stretches of whole 128 keys.
  constexpr int kAtOnce = 128, kChoiceWarps = kChoiceThreads / 32, kStretches = kChoiceWarps * kCtas;
  const int steps = (n + kAtOnce - 1) / kAtOnce, of_warp = (steps + kStretches - 1) / kStretches * kAtOnce;
  const int cta_begin = min(cta * kChoiceWarps * of_warp, n), cta_end = min(cta_begin + kChoiceWarps * of_warp, n);
  const Threshold threshold = find_threshold<kCtas>(ranks, cta_begin, cta_end, choices);
  const int begin = min(cta_begin + warp * of_warp, n), end = min(begin + of_warp, n);
  int greater = 0, equal = 0;
#pragma unroll 4
  for (int first = begin + lane * 4; first < end; first += kAtOnce) {
    std::uint32_t r[4];
    load_ranks(ranks, first, end, r);
#pragma unroll
    for (int i = 0; i < 4; ++i) greater += r[i] > threshold.rank, equal += r[i] == threshold.rank;
  }
  __shared__ unsigned greater_of[kChoiceWarps], equal_of[kChoiceWarps];
  greater = __reduce_add_sync(kAll, greater);
  equal = __reduce_add_sync(kAll, equal);
  if (lane == 0) greater_of[warp] = static_cast<unsigned>(greater), equal_of[warp] = static_cast<unsigned>(equal);
  wait_for_all<kCtas>();
  unsigned before_greater = lane < warp ? greater_of[lane] : 0, before_equal = lane < warp ? equal_of[lane] : 0;
  for (int other = 0; other < cta; ++other) {
    before_greater += count_of<kCtas>(&greater_of[lane], other);
    before_equal += count_of<kCtas>(&equal_of[lane], other);
  }
  greater = static_cast<int>(__reduce_add_sync(kAll, before_greater));  // before the warp's stretch
  equal = static_cast<int>(__reduce_add_sync(kAll, before_equal));
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
  if constexpr (kCtas > 1) wait_for_all<kCtas>();  // others read what this CTA has counted
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

int parts_for(const CacheView& c, const SelectionShape& s, Scores scores) {
  const int parts = s.heads % kHeadGroup == 0 ? query_parts(c, scores) : 0;
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
  p.rows = index_rows(c);
  const auto aligned = [](std::int64_t bytes) { return static_cast<std::size_t>((bytes + 15) / 16 * 16); };
  const std::int64_t elements = std::int64_t{s.heads} * c.head_dim_k;
  p.query_bytes = p.parts > 0 ? aligned(p.parts * elements * 2) : rounds_query(c, s.query) ? aligned(elements * 4) : 0;
  p.weight_bytes = p.parts > 0 ? aligned(std::int64_t{s.heads} * 4) : 0;
  p.rank_bytes = aligned((most_keys(s, max_positions) + kStrip - 1) / kStrip * kStrip * 4);
  const std::size_t most = std::max<std::size_t>(1, kMostScratch / p.token_bytes());
  p.at_once = static_cast<int>(std::min<std::size_t>(most, static_cast<std::size_t>(std::max(tokens, 1))));
  return p;
}

ScoreArgs score_arguments(const float* q, const float* w, const CacheView& c, const SelectionShape& s,
                          const StepView& step, const ScorePlan& p, std::byte* scratch) {
  ScoreArgs a{};
  static_cast<IndexArgs&>(a) = index_arguments(c, s.query, step);
  a.q = q;
  a.w = w;
  const auto at_once = static_cast<std::size_t>(p.at_once);
  a.queries = reinterpret_cast<unsigned char*>(scratch);
  a.weights = reinterpret_cast<float*>(scratch + at_once * p.query_bytes);
  a.ranks = reinterpret_cast<std::uint32_t*>(scratch + at_once * (p.query_bytes + p.weight_bytes));
  a.heads = s.heads;
  a.chooses_from = s.chooses_from();
  a.tokens_of_cta = 1;
  a.shift = std::countr_zero(static_cast<unsigned>(s.stride));
  a.most_keys = static_cast<std::int64_t>(p.rank_bytes / 4);
  return a;
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
  if (a.round_query)
    round_queries(a.q, std::int64_t{a.tokens} * a.heads * a.dim, reinterpret_cast<float*>(a.queries), at);
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

constexpr int kMostChoiceCtas = 8;
constexpr std::int64_t kKeysOfCta = 2048;  ///< fewer take no longer in one CTA

/// CTAs that choose the keys of a token: all of a step at once on the device.
int choice_ctas(int tokens, std::int64_t most_keys) {
  const DeviceLimits& device = device_limits();
  if (device.capability < 9) return 1;
  int ctas = kMostChoiceCtas;
  while (ctas > 1 && (tokens * ctas > device.multiprocessors || most_keys < ctas * kKeysOfCta)) ctas /= 2;
  return ctas;
}

void launch_choice(const ChoiceArgs& a, int tokens, int ctas, const Launch& at) {
  const auto run = [&](auto kernel) {
    launch_clusters(ctas, kernel, dim3(static_cast<unsigned>(tokens * ctas)), dim3(kChoiceThreads), 0, at, a);
  };
  if (ctas == 8) return run(choose_keys_kernel<8>);
  if (ctas == 4) return run(choose_keys_kernel<4>);
  if (ctas == 2) return run(choose_keys_kernel<2>);
  run(choose_keys_kernel<1>);
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
    launch_choice(choice, a.tokens, choice_ctas(a.tokens, a.most_keys), at);
    a.q += std::int64_t{p.at_once} * s.heads * c.head_dim_k;
    if (a.w != nullptr) a.w += std::int64_t{p.at_once} * s.heads;
    choice.chosen += std::int64_t{p.at_once} * s.top_k;
    a.positions += p.at_once, choice.positions += p.at_once;
    a.sequence += p.at_once, choice.sequence += p.at_once;
  }
}

}  // namespace llm::cuda
