// What the kernels of attend() share: their arguments, softmaxes over some keys, and how those are folded together.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/rotate_head.cuh"

namespace llm::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = kAttendThreads, kWarps = kThreads / 32;
constexpr float kLog2E = 1.4426950408889634f;

/// Heads of the only token of a step as their products gave them: attention turns its queries, and brings the key and
/// the value into the cache itself.
struct RawHeads {
  const float* k = nullptr;  ///< [kv_heads][head_dim_k]; null: queries are turned and the cache is complete
  const float *v = nullptr, *table = nullptr, *norm_q = nullptr, *norm_k = nullptr;
  const std::int32_t* slots = nullptr;
  unsigned char *keys = nullptr, *values = nullptr;  ///< of the cache
  float eps = 0;
  Turn turn;
};

/// Scores become smaller by a head's slope for each position that the key is behind (alibi_slope()).
struct Alibi {
  float step;    ///< between the logarithms of two slopes, half of that of neighbours; 0: there is none
  int whole;     ///< heads that are a power of 2
  float factor;  ///< of what is added to products, before these are multiplied with AttendArgs::scale_log2
  /// Of the head; 0 where there is none.
  __device__ __forceinline__ float slope(int head) const {
    const int steps = head < whole ? 2 * (head + 1) : 2 * (head - whole) + 1;
    return step == 0 ? 0.0f : factor * exp2f(-step * static_cast<float>(steps));
  }
};

struct AttendArgs {
  const float* q;
  float* y;
  const unsigned char *k, *v;
  float* partials;     ///< [pair][stripe]: sums, maximum and total per head
  unsigned* arrivals;  ///< [pair]: CTAs that have published their stripes
  const std::int32_t *positions, *sequence, *block_table;
  DType k_type, v_type;
  int table_stride;
  int heads, kv_heads, group, head_tiles;
  int tile_group;  ///< heads of a group in each of its head tiles but the last
  int head_dim_k, head_dim_v, k_row_bytes, v_row_bytes;
  int stage_rows, stage_bytes;
  KeyWindow window = {};
  const float* sinks;  ///< [heads]; null: none
  float scale_log2;    ///< the scale, or with a cap this, times log2(e): weights are powers of 2
  float cap_factor;    ///< products times this are what tanh is taken of; 0: no cap
  Alibi alibi;
  bool round_query;  ///< to Q8x32
  int stripes, splits;
  RawHeads raw;
};

/// A softmax over some keys that can be folded with others: N neighbouring elements of a head's sums.
template <int N>
struct Partial {
  float max, total, sums[N];
};
template <int N>
__device__ __forceinline__ void fold(Partial<N>& a, const Partial<N>& b) {
  const float max = fmaxf(a.max, b.max);
  const float ca = exp2f(a.max - max), cb = exp2f(b.max - max);
  a.max = max;
  a.total = fmaf(a.total, ca, b.total * cb);
#pragma unroll
  for (int i = 0; i < N; ++i) a.sums[i] = fmaf(a.sums[i], ca, b.sums[i] * cb);
}

/// N neighbouring floats of L2, at a multiple of their size.
template <int N>
__device__ __forceinline__ void load_neighbours(const float* from, float (&to)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(from + i));
      to[i] = x.x, to[i + 1] = x.y, to[i + 2] = x.z, to[i + 3] = x.w;
    }
  } else if constexpr (N == 2) {
    const float2 x = __ldcg(reinterpret_cast<const float2*>(from));
    to[0] = x.x, to[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = __ldcg(from + i);
  }
}
template <int N>
__device__ __forceinline__ void store_neighbours(float* to, const float (&from)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      __stcg(reinterpret_cast<float4*>(to + i), make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]));
    }
  } else if constexpr (N == 2) {
    __stcg(reinterpret_cast<float2*>(to), make_float2(from[0], from[1]));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) __stcg(to + i, from[i]);
  }
}

/// The stripes of a CTA on their way into y. CTA-wide: every thread owns neighbouring elements of one head, a warp
/// elements of one head. `kAhead`: stripes whose loads are under way at a time.
template <int kDims, int kHeads, int kAhead>
class AttendResults {
 public:
  static constexpr int kSums = kHeads * kDims;
  static constexpr int kOwned = (kSums + kThreads - 1) / kThreads;  ///< results of a thread
  using Result = Partial<kOwned>;

  /// `skipped_heads` of the head tile are others' work; `flag` is in shared memory.
  __device__ __forceinline__ AttendResults(const AttendArgs& args, const TokenChunks& keys, int token,
                                           int skipped_heads, int* flag)
      : a(args),
        keys(keys),
        token(token),
        skipped_heads(skipped_heads),
        kv_head(static_cast<int>(blockIdx.y) / args.head_tiles),
        flag(flag),
        thread(static_cast<int>(threadIdx.x)),
        pair(static_cast<std::int64_t>(token) * gridDim.y + blockIdx.y) {}

  /// Index of a thread's first result, head * kDims + element; the others are the same head's. Threads beyond the
  /// results repeat the last.
  __device__ __forceinline__ int owned() const {
    static_assert(kDims % (32 * kOwned) == 0 && (kSums % kThreads == 0 || kOwned == 1));
    return kSums % kThreads == 0 ? thread * kOwned : min(thread, kSums - 1);
  }

  /// Stripe `s` is done; a CTA takes its stripes in their order.
  __device__ __forceinline__ void take(int s, const Result& stripe) {
    if (divided()) {
      publish(s, stripe);
    } else if (s == 0) {
      whole = stripe;
    } else {
      fold(whole, stripe);
    }
  }
  /// All stripes of the CTA are done. `one`: what a weight of 1 adds to totals.
  __device__ __forceinline__ void finish(float one) {
    if (divided()) {
      if (!last_to_arrive()) return;
      fold_published();
    }
    write(one);
  }

  // --- heads: recomputed where they are needed, since registers are short ---

  __device__ __forceinline__ int heads_before() const {  // in the KV head's group
    return (static_cast<int>(blockIdx.y) - kv_head * a.head_tiles) * a.tile_group + skipped_heads;
  }
  __device__ __forceinline__ int first_head() const { return kv_head * a.group + heads_before(); }
  __device__ __forceinline__ int n_heads() const {
    return min(kHeads, min(a.tile_group - skipped_heads, a.group - heads_before()));
  }

 private:
  static constexpr int kPartialFloats = kSums + 2 * kHeads;

  __device__ __forceinline__ bool divided() const { return a.splits > 1 && keys.stripes() > 1; }
  __device__ __forceinline__ float* slot(int stripe) const {
    return a.partials + (pair * a.stripes + stripe) * kPartialFloats;
  }
  __device__ __forceinline__ void publish(int stripe, const Result& p) {
    float* const to = slot(stripe);
    const int o = owned();
    store_neighbours(to + o, p.sums);
    if (o % kDims == 0) {
      __stcg(to + kSums + o / kDims, p.max);
      __stcg(to + kSums + kHeads + o / kDims, p.total);
    }
  }

  /// Whether this CTA is the last of its pair to have published, whose counter is then zero again. One thread speaks
  /// for all: what the barriers order, its addition orders for the device.
  __device__ __forceinline__ bool last_to_arrive() {
    __syncthreads();
    if (thread == 0) {
      unsigned* const arrivals = a.arrivals + pair;
      const bool last = add_acquire_release(arrivals, 1u) == static_cast<unsigned>(min(a.splits, keys.stripes())) - 1u;
      if (last) *arrivals = 0;
      *flag = last ? 1 : 0;
    }
    __syncthreads();
    return *flag != 0;
  }

  /// Folds the published stripes in their order, as fold() does.
  __device__ __forceinline__ void fold_published() {
    const int n = keys.stripes();
    whole.max = -INFINITY;
    for (int first = 0; first < n; first += 32) fold_published(first, n);
  }
  /// Up to 32 of them. Their factors depend on the maxima alone: a lane finds those of its stripe.
  __device__ __forceinline__ void fold_published(int first, int n) {
    static_assert(32 % kAhead == 0 && kAhead % 4 == 0);
    const int o = owned(), lane = thread % 32;
    const float* const from = slot(first) + o;
    const float* const stats = slot(min(first + lane, n - 1)) + kSums + o / kDims;
    const float max = __ldcg(stats), total = __ldcg(stats + kHeads);
    float next[kAhead][kOwned];
    const auto load = [&](int begin) {  // by fours, of which the last may be unwritten
#pragma unroll
      for (int i = 0; i < kAhead; i += 4) {
        if (first + begin + i >= n) break;
#pragma unroll
        for (int j = i; j < i + 4; ++j) load_neighbours(from + (begin + j) * kPartialFloats, next[j]);
      }
    };
    load(0);
    float until = fmaxf(whole.max, max);  // the maximum up to the lane's stripe
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const float other = __shfl_sync(kAll, until, lane - offset);
      if (lane >= offset) until = fmaxf(other, until);
    }
    float before = __shfl_sync(kAll, until, lane - 1);
    if (lane == 0) before = whole.max;
    const float old_share = exp2f(before - until), share = exp2f(max - until);
    whole.max = __shfl_sync(kAll, until, 31);
#pragma unroll 1
    for (int begin = 0; begin < min(32, n - first); begin += kAhead) {
      if (begin != 0) load(begin);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int s = begin + i;
        if (first + s >= n) continue;
        const float ca = __shfl_sync(kAll, old_share, s), cb = __shfl_sync(kAll, share, s);
        const float add = __shfl_sync(kAll, total, s);
        const bool begins = first + s == 0;
        whole.total = begins ? add : fmaf(whole.total, ca, add * cb);
#pragma unroll
        for (int j = 0; j < kOwned; ++j) {
          whole.sums[j] = begins ? next[i][j] : fmaf(whole.sums[j], ca, next[i][j] * cb);
        }
      }
    }
  }

  /// One more key, whose value is 0.
  __device__ __forceinline__ void add_sink(float sink, float one) {
    const float score = sink * kLog2E, max = fmaxf(whole.max, score), share = exp2f(whole.max - max);
    whole.total = fmaf(whole.total, share, one * exp2f(score - max));
#pragma unroll
    for (int i = 0; i < kOwned; ++i) whole.sums[i] *= share;
  }

  __device__ __forceinline__ void write(float one) {
    const int head = owned() / kDims, d = owned() % kDims;
    if (head >= n_heads()) return;
    if (a.sinks != nullptr) add_sink(a.sinks[first_head() + head], one);
    float* const to = a.y + (static_cast<std::int64_t>(token) * a.heads + first_head() + head) * a.head_dim_v + d;
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      if (d + i < a.head_dim_v) to[i] = quotient(whole.sums[i], whole.total);
    }
  }

  const AttendArgs& a;
  const TokenChunks keys;
  const int token, skipped_heads, kv_head;
  int* const flag;
  const int thread;
  const std::int64_t pair;
  Result whole;
};

}  // namespace
}  // namespace llm::cuda
