// Tokens from logits. A block of threads takes kDrawPart logits of a row and leaves the top_k best of them, in order;
// the one that comes last takes the best of all parts and does with them what backend/host/draw.cpp does, in its order.
//
// The best of a part without sorting it: each thread's best are 256 keys, and no key below the top_k-th of these can be
// among the top_k best. What is left lies with top_k threads, so that the list is bounded; its members are counted into
// their places. Keys are a logit's place in the order of floats, then the token, so that no two are equal.
//
// Bytes: the logits once (0.5 MB a row of 128 k), then parts x top_k keys. A row takes some microseconds of latency:
// loads, three rounds of counting, one arrival, and the sums of the last step one after another.
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr int kThreads = 256, kPerThread = kDrawPart / kThreads;
constexpr int kMostParts = draw_parts(kMostLogits);
/// Keys that a selection can list: those of kMostDrawn threads, of a part or of the best of all parts.
constexpr int kListed = kMostDrawn * kPerThread;
static_assert(kMostParts * kMostDrawn / kThreads <= kPerThread);
using Key = std::uint64_t;  ///< 0: none

__device__ __forceinline__ Key key_of(float logit, int token) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0f);  // one zero
  const std::uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return Key{order} << 32 | ~static_cast<std::uint32_t>(token);
}
__device__ __forceinline__ int token_of(Key key) { return static_cast<int>(~static_cast<std::uint32_t>(key)); }
__device__ __forceinline__ float logit_of(Key key) {
  const auto order = static_cast<std::uint32_t>(key >> 32);
  return __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

struct DrawShared {
  union {
    float logits[kDrawPart];
    Key list[kListed];
    double weights[kMostDrawn];
  };
  Key thread_best[kThreads];
  Key best[kMostDrawn];
  Key least;
  int listed, kept;
  std::uint32_t arrived;
  double sum;
};

/// The k best of all threads' keys in order in shared.best, 0 behind them. each(f) calls f for the caller's keys, at
/// most kPerThread.
template <class Each>
__device__ __forceinline__ void select_best(DrawShared& shared, int k, const Each& each) {
  const int thread = static_cast<int>(threadIdx.x);
  Key mine = 0;
  each([&](Key key) { mine = key > mine ? key : mine; });
  shared.thread_best[thread] = mine;
  if (thread == 0) shared.least = 1, shared.listed = 0;
  if (thread < kMostDrawn) shared.best[thread] = 0;
  __syncthreads();
  int above = 0;
#pragma unroll 8
  for (int i = 0; i < kThreads; ++i) above += shared.thread_best[i] > mine;
  if (above == k - 1 && mine != 0) shared.least = mine;
  __syncthreads();
  const Key least = shared.least;
  if (mine >= least) {
    each([&](Key key) {
      if (key >= least) shared.list[atomicAdd(&shared.listed, 1)] = key;
    });
  }
  __syncthreads();
  const int listed = shared.listed;
  for (int i = thread; i < listed; i += kThreads) {
    const Key own = shared.list[i];
    int place = 0;
    for (int j = 0; j < listed; ++j) place += shared.list[j] > own;
    if (place < k) shared.best[place] = own;
  }
  __syncthreads();
}

/// select_best() of one.
template <class Each>
__device__ __forceinline__ void select_one(DrawShared& shared, const Each& each) {
  const int thread = static_cast<int>(threadIdx.x);
  Key mine = 0;
  each([&](Key key) { mine = key > mine ? key : mine; });
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const Key other = __shfl_xor_sync(0xffffffffu, mine, width);
    mine = other > mine ? other : mine;
  }
  if (thread % 32 == 0) shared.thread_best[thread / 32] = mine;
  __syncthreads();
  if (thread == 0) {
#pragma unroll
    for (int i = 1; i < kThreads / 32; ++i) mine = shared.thread_best[i] > mine ? shared.thread_best[i] : mine;
    shared.best[0] = mine;
  }
  __syncthreads();
}

template <class Each>
__device__ __forceinline__ void select(DrawShared& shared, int k, const Each& each) {
  if (k == 1)
    select_one(shared, each);
  else
    select_best(shared, k, each);
}

__device__ __forceinline__ void edit(const DeviceRule& rule, float* logits, int begin, int token, int count,
                                     float bias) {
  constexpr float kMost = 3.40282347e38f;
  const int i = token - begin;
  if (i < 0 || i >= kDrawPart || token >= rule.n_tokens) return;
  float logit = logits[i];
  if (bias != 0) logit += bias;
  if (count > 0 && logit != -INFINITY) {
    const float repeated = logit <= 0 ? logit * rule.repeat : logit / rule.repeat;
    const float rest = repeated - (static_cast<float>(count) * rule.frequency + rule.presence);
    logit = fminf(fmaxf(rest, -kMost), kMost);
  }
  logits[i] = logit;
}

/// Each token is in the list once; what was drawn last counts once more, in its entry or without one.
__device__ __forceinline__ void apply_edits(const DrawStep& step, const DeviceRule& rule, const std::int32_t* drawn,
                                            float* logits, int begin, int* newest_listed) {
  const int newest = rule.newest >= 0 ? drawn[rule.newest] : -1;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *newest_listed = 0;
  __syncthreads();
  for (int i = thread; i < rule.n_edits; i += kThreads) {
    const std::int32_t* const e = step.data + rule.first_edit + 3 * i;
    const bool is_newest = newest >= 0 && e[0] == newest;
    if (is_newest) *newest_listed = 1;
    edit(rule, logits, begin, e[0], e[1] + (is_newest ? 1 : 0), __int_as_float(e[2]));
  }
  __syncthreads();
  if (thread == 0 && newest >= 0 && *newest_listed == 0) edit(rule, logits, begin, newest, 1, 0.0f);
  __syncthreads();
}

__device__ __forceinline__ void weigh(DrawShared& shared, int n, float from, float divisor) {
  const int i = static_cast<int>(threadIdx.x);
  const auto scaled = [&](Key key) { return divisor == 1 ? logit_of(key) : (logit_of(key) - from) / divisor; };
  if (i < n)
    shared.weights[i] = exp(static_cast<double>(scaled(shared.best[i])) - static_cast<double>(scaled(shared.best[0])));
  __syncthreads();
  if (i == 0) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += shared.weights[j];
    shared.sum = sum;
  }
  __syncthreads();
}

/// What top_p and min_p leave of n candidates in order.
__device__ __forceinline__ int narrowed(const DrawShared& shared, const DeviceRule& rule, int n) {
  if (rule.top_p < 1) {
    const double wanted = static_cast<double>(rule.top_p) * shared.sum;
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      sum += shared.weights[i];
      if (sum >= wanted && i + 1 >= rule.min_keep) {
        n = i + 1;
        break;
      }
    }
  }
  const float least = logit_of(shared.best[0]) + rule.below;
  int kept = 1;
  while (kept < n && (logit_of(shared.best[kept]) >= least || kept < rule.min_keep)) ++kept;
  return kept;
}

/// Of the candidates in shared.best.
__device__ __forceinline__ int choose(DrawShared& shared, const DeviceRule& rule, int k) {
  if (rule.temperature <= 0 || shared.best[0] == 0) return token_of(shared.best[0]);
  int n = 0;
  while (n < k && shared.best[n] != 0) ++n;
  weigh(shared, n, 0.0f, 1.0f);
  if (threadIdx.x == 0) shared.kept = narrowed(shared, rule, n);
  __syncthreads();
  n = shared.kept;
  const float best = logit_of(shared.best[0]);
  const float from = fabsf(best) > 3.40282347e38f * rule.temperature ? best : 0.0f;
  weigh(shared, n, from, rule.temperature);
  const double target = rule.uniform * shared.sum;
  double sum = 0;
  int token = token_of(shared.best[0]);
  for (int i = 0; i < n; ++i) {
    sum += shared.weights[i];
    if (shared.weights[i] > 0) token = token_of(shared.best[i]);
    if (sum > target) break;
  }
  return token;
}

/// Block (part, row).
__global__ void __launch_bounds__(kThreads)
    draw_kernel(const DrawStep step, const DrawMemory memory, const DrawResults results) {
  __shared__ DrawShared shared;
  __shared__ int newest_listed;
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  const int parts = static_cast<int>(gridDim.x), thread = static_cast<int>(threadIdx.x), begin = part * kDrawPart;
  if (row >= *step.used_rows) return;
  const DeviceRule rule = step.rules[row];
  const int k = rule.temperature <= 0 ? 1 : min(rule.top_k, kMostDrawn);

  bool bad = false;
  const float* const logits = step.logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(step.n);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int at = i * kThreads + thread;
    const float logit = begin + at < step.n ? logits[begin + at] : 0.0f;
    bad |= (__float_as_uint(logit) & 0x7f800000u) == 0x7f800000u;
    shared.logits[at] = logit;
  }
  bad = __syncthreads_or(bad);
  if (rule.n_edits > 0 || rule.newest >= 0) apply_edits(step, rule, memory.drawn, shared.logits, begin, &newest_listed);

  Key keys[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int at = i * kThreads + thread;
    const bool candidate = begin + at < rule.n_tokens && shared.logits[at] != -INFINITY;
    keys[i] = candidate ? key_of(shared.logits[at], begin + at) : 0;
  }
  __syncthreads();  // the list takes the logits' place
  select(shared, k, [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) f(keys[i]);
  });

  Key* const row_best = memory.best + static_cast<std::size_t>(row) * parts * kMostDrawn;
  if (thread < k) __stcg(row_best + part * k + thread, shared.best[thread]);
  __threadfence();
  __syncthreads();
  constexpr std::uint32_t kBad = 1u << 16;
  if (thread == 0) shared.arrived = atomicAdd(memory.arrivals + row, 1u + (bad ? kBad : 0u)) + (bad ? kBad : 0u);
  __syncthreads();
  if (shared.arrived % kBad + 1 != static_cast<std::uint32_t>(parts)) return;

  __threadfence();
  if (parts > 1) {
    select(shared, k, [&](const auto& f) {
      for (int i = thread; i < parts * k; i += kThreads) f(__ldcg(row_best + i));
    });
  }
  const int token = choose(shared, rule, k);
  if (thread != 0) return;
  memory.arrivals[row] = 0;
  memory.drawn[rule.turn * memory.rows + row] = token;
  const int to = rule.turn * results.capacity + row;
  results.tokens[to] = token;
  results.bad[to] = shared.arrived >= kBad ? 1 : 0;
}

}  // namespace

void draw_tokens(const DrawStep& step, int rows, const DrawMemory& memory, const DrawResults& results,
                 const Launch& at) {
  if (rows == 0) return;
  launch(draw_kernel, dim3(static_cast<unsigned>(draw_parts(step.n)), static_cast<unsigned>(rows)), dim3(kThreads), 0,
         at, step, memory, results);
}

}  // namespace llm::cuda
