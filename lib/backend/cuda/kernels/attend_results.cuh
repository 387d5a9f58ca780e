// What the kernels of attend() share: their arguments, softmaxes over some keys, and how those are folded together.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = kAttendThreads, kWarps = kThreads / 32;

struct AttendArgs {
  const float* q;
  float* y;
  const unsigned char *k, *v;
  float* partials;
  unsigned* arrivals;
  const std::int32_t *positions, *sequence, *block_table;
  DType k_type, v_type;
  int table_stride;
  int heads, kv_heads, group, head_tiles;
  int head_dim_k, head_dim_v, k_row_bytes, v_row_bytes;
  int stage_rows, stage_bytes;
  int window;
  float scale_log2;  ///< the scale times log2(e): weights are powers of 2
  bool round_query;  ///< to Q8x32
  int splits, unit, max_chunks, max_groups;
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

/// The results of a CTA's chunks on their way into y. CTA-wide: every thread owns neighbouring elements of one head.
/// `kAhead`: loads of others' results that are under way at a time.
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
    static_assert(kDims % kOwned == 0 && (kSums % kThreads == 0 || kOwned == 1));
    return kSums % kThreads == 0 ? thread * kOwned : min(thread, kSums - 1);
  }

  /// Chunk `c` is done; a CTA takes its chunks in their order.
  __device__ __forceinline__ void take(int c, const Result& chunk) {
    if (keys.chunks == 1) {
      write(chunk);
      return;
    }
    const int g = c / kGroupChunks;
    if (a.unit == 1) {
      publish(chunk, a.max_groups + c);
      if (!last_to_arrive(g, keys.chunks_of_group(g))) return;
      fold_published(a.max_groups + g * kGroupChunks, keys.chunks_of_group(g), group);
    } else {
      if (c % kGroupChunks == 0) {
        group = chunk;
      } else {
        fold(group, chunk);
      }
      if (c % kGroupChunks != kGroupChunks - 1 && c != keys.chunks - 1) return;
    }
    finish_group(g);
  }

  // --- heads: recomputed where they are needed, since registers are short ---

  __device__ __forceinline__ int heads_before() const {  // in the KV head's group
    const int most = (a.group + a.head_tiles - 1) / a.head_tiles;
    return static_cast<int>(blockIdx.y) % a.head_tiles * most + skipped_heads;
  }
  __device__ __forceinline__ int first_head() const { return kv_head * a.group + heads_before(); }
  __device__ __forceinline__ int n_heads() const {
    const int most = (a.group + a.head_tiles - 1) / a.head_tiles;
    return min(kHeads, min(most - skipped_heads, a.group - heads_before()));
  }

 private:
  static constexpr int kPartialFloats = kSums + 2 * kHeads;

  __device__ __forceinline__ float* slot(int index) const {
    const int slots = a.max_groups + (a.unit == 1 ? a.max_chunks : 0);
    return a.partials + (pair * slots + index) * kPartialFloats;
  }
  __device__ __forceinline__ void publish(const Result& p, int index) {
    float* const to = slot(index);
    const int o = owned();
#pragma unroll
    for (int i = 0; i < kOwned; ++i) __stcg(to + o + i, p.sums[i]);
    if (o % kDims == 0) {
      __stcg(to + kSums + o / kDims, p.max);
      __stcg(to + kSums + kHeads + o / kDims, p.total);
    }
  }
  /// Folds `n` published results in their order.
  __device__ __forceinline__ void fold_published(int index, int n, Result& to) {
    const float* const from = slot(index);
    const int o = owned();
    const auto load = [&](int c, Result& result) {
      const float* const p = from + static_cast<std::int64_t>(min(c, n - 1)) * kPartialFloats;
      result.max = __ldcg(p + kSums + o / kDims);
      result.total = __ldcg(p + kSums + kHeads + o / kDims);
#pragma unroll
      for (int i = 0; i < kOwned; ++i) result.sums[i] = __ldcg(p + o + i);
    };
    load(0, to);
    for (int c = 1; c < n; c += kAhead) {
      Result next[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) load(c + j, next[j]);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (c + j < n) fold(to, next[j]);
      }
    }
  }

  /// Whether this CTA is the last of `expected` to have published for a counter of its pair, which is then zero again.
  __device__ __forceinline__ bool last_to_arrive(int counter, int expected) {
    __threadfence();
    __syncthreads();
    if (thread == 0) {
      unsigned* const arrivals = a.arrivals + pair * (a.max_groups + 1) + counter;
      const bool last = atomicAdd(arrivals, 1u) == static_cast<unsigned>(expected) - 1u;
      if (last) *arrivals = 0;
      *flag = last ? 1 : 0;
    }
    __syncthreads();
    const bool last = *flag != 0;
    if (last) __threadfence();
    return last;
  }

  __device__ __forceinline__ void finish_group(int g) {
    if (keys.groups() == 1) {
      write(group);
    } else if (a.splits == 1) {
      if (g == 0) {
        total = group;
      } else {
        fold(total, group);
      }
      if (g == keys.groups() - 1) write(total);
    } else {
      publish(group, g);
      if (!last_to_arrive(a.max_groups, keys.groups())) return;
      fold_published(0, keys.groups(), group);
      write(group);
    }
  }

  __device__ __forceinline__ void write(const Result& p) {
    const int head = owned() / kDims, d = owned() % kDims;
    if (head >= n_heads()) return;
    float* const to = a.y + (static_cast<std::int64_t>(token) * a.heads + first_head() + head) * a.head_dim_v + d;
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      if (d + i < a.head_dim_v) to[i] = p.sums[i] / p.total;
    }
  }

  const AttendArgs& a;
  const TokenChunks keys;
  const int token, skipped_heads, kv_head;
  int* const flag;
  const int thread;
  const std::int64_t pair;
  Result group, total;
};

}  // namespace
}  // namespace llm::cuda
