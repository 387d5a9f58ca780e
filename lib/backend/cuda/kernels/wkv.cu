// The recurrences of RWKV. Tokens of a sequence go one after another whatever a step has of them, so bits do not depend
// on how a prompt was cut or on what else is in the step.
//
// Columns of a head's state are in registers as in recurrent.cu. What a token has for the state's rows is copied into
// shared memory some tokens ahead, and made there into decays and keys for a chunk of tokens at a time, 16 or 32 lanes
// to a token. Of RWKV-7 a token waits for one sum over lanes, of what it takes away, and for two multiplications and
// additions behind it; of RWKV-6 for one of these alone. Sums for results lie beside that. Bytes: the state twice, 32
// KB for a head of 64, and of each token four rows of a head, six or eight of RWKV-7, which columns read again from the
// second cache. Operations: 6 for each element of the state and token, 8 of RWKV-7.
#include <cmath>

#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/state_columns.cuh"
#include "backend/cuda/kernels/wkv.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kShiftThreads = 128;
constexpr int kShiftTokens = 32;  ///< of a CTA

/// Grid: channels, sequences, pieces of kShiftTokens tokens. The first piece, which alone reads the state, leaves it.
__global__ void __launch_bounds__(kShiftThreads)
    shift_kernel(const float* x, float* states, const int channels, const __grid_constant__ StepView step, float* y) {
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x) * kShiftThreads + static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.z) * kShiftTokens, end = min(begin + kShiftTokens, run.n_tokens);
  if (channel >= channels || begin >= end) return;
  const std::int64_t first = static_cast<std::int64_t>(run.first_token) * channels + channel;
  const auto row = [&](int t) { return __ldcg(x + first + static_cast<std::int64_t>(t) * channels); };
  const auto slot = [&](int i) { return states + static_cast<std::int64_t>(i) * channels + channel; };
  float before = begin > 0 ? row(begin - 1) : run.from < 0 ? 0.0f : __ldcg(slot(run.from));
  if (begin == 0) __stcg(slot(run.to), row(run.n_tokens - 1));
#pragma unroll 4
  for (int t = begin; t < end; ++t) {
    const float now = row(t);
    y[first + static_cast<std::int64_t>(t) * channels] = before - now;
    before = now;
  }
}

/// A thread per element of x.
__global__ void __launch_bounds__(kThreads)
    lerp_kernel(const __grid_constant__ LerpOperands o, const std::int64_t elements) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t row = i / o.n, at = i % o.n;
  const float x = o.x[i], d = o.d[i];
#pragma unroll
  for (int j = 0; j < kMostLerps; ++j) {
    if (j >= o.m) break;
    float share = o.w[std::int64_t{j} * o.n + at];
    if (o.more != nullptr) share += o.more[(row * o.m + j) * o.n + at];
    o.y[j][i] = fmaf(d, share, x);
  }
}

/// How a state goes on: RWKV-6's own, gated linear attention, RWKV-7's.
enum class WkvKind { First, Linear, Removing };

/// What a CTA has of a chunk of tokens. Of kinds that take nothing away the last arrays are not there.
template <int kHead, WkvKind kind>
struct alignas(16) WkvChunk {
  static constexpr int kChunk = 512 / kHead;
  static constexpr int kRemoving = kind == WkvKind::Removing ? kChunk : 1;
  float r[kChunk][kHead], k[kChunk][kHead], decay[kChunk][kHead];
  float v[kChunk][kStateColumns];
  float own[kChunk];  ///< what v counts for y, or for `own`
  float added[kRemoving][kHead], removed[kRemoving][kHead];
  float v_first[kRemoving][kStateColumns], mix[kRemoving][kStateColumns];
};

template <int kHead, WkvKind kind>
class Wkv : StateColumn<kHead> {
  using Base = StateColumn<kHead>;
  using Base::column, Base::first_column, Base::head, Base::kRows, Base::load, Base::part, Base::state, Base::sum;
  using Chunk = WkvChunk<kHead, kind>;
  static constexpr int kChunk = Chunk::kChunk;            ///< tokens copied at a time, to one of two places
  static constexpr int kLanes = kColumnThreads / kChunk;  ///< that prepare a token
  static constexpr bool kRemoving = kind == WkvKind::Removing;
  static_assert(kLanes <= 32);

 public:
  __device__ __forceinline__ Wkv(const WkvShape& shape, const WkvOperands& operands, const SequenceRun& sequence,
                                 float* y, Chunk* places)
      : Base(shape.n, shape.n),
        s(shape),
        o(operands),
        run(sequence),
        y(y),
        places(places),
        thread(static_cast<int>(threadIdx.x)),
        key_head(head / (s.heads / s.kv_heads)) {}

  __device__ __forceinline__ void go() {
    this->load_state(o.states, run.from);
    clear_beyond();
    for (int begin = 0; begin < run.n_tokens + kChunk; begin += kChunk) {  // copies are a chunk ahead
      copy(begin);
      if (begin > 0) take_chunk(begin - kChunk);
    }
    this->store_state(o.states, run.to);
  }

 private:
  __device__ __forceinline__ void take_chunk(int begin) {
    wait_for_copies<1>();
    __syncthreads();
    Chunk& chunk = places[begin / kChunk % 2];
    if constexpr (kRemoving)
      prepare_removing(chunk);
    else
      prepare(chunk);
    __syncthreads();
    const int n = min(kChunk, run.n_tokens - begin);
#pragma unroll 2
    for (int i = 0; i < n; ++i) take(chunk, i, begin + i);
    __syncthreads();  // the place is filled again
  }

  /// What no copy reaches counts as 0.
  __device__ __forceinline__ void clear_beyond() {
    if (s.n == kHead && first_column + kStateColumns <= s.n) return;
    for (int place = 0; place < 2; ++place) {
      Chunk& chunk = places[place];
      for (int i = thread; i < kChunk * kHead; i += kColumnThreads) {
        const int t = i / kHead, at = i % kHead;
        if (at < s.n) continue;
        chunk.r[t][at] = 0;
        chunk.k[t][at] = 0;
        chunk.decay[t][at] = 0;
        if constexpr (kRemoving) {
          chunk.added[t][at] = 0;
          chunk.removed[t][at] = 0;
        }
      }
      for (int i = thread; i < kChunk * kStateColumns; i += kColumnThreads) {
        const int t = i / kStateColumns, at = i % kStateColumns;
        if (first_column + at < s.n) continue;
        chunk.v[t][at] = 0;
        if constexpr (kRemoving) {
          chunk.v_first[t][at] = 0;
          chunk.mix[t][at] = 0;
        }
      }
    }
  }

  /// Starts the copies of the tokens from `begin` on, if there are some.
  __device__ __forceinline__ void copy(int begin) {
    const int n = min(kChunk, run.n_tokens - begin), columns = min(kStateColumns, s.n - first_column);
    Chunk& to = places[begin / kChunk % 2];
    if (n > 0) {
      const std::int64_t token = run.first_token + begin, width = std::int64_t{s.heads} * s.n,
                         key_width = std::int64_t{s.kv_heads} * s.n;
      const std::int64_t at = token * width + head * s.n, key_at = token * key_width + key_head * s.n;
      copy_rows(to.r, o.r + at, s.n, width, n);
      copy_rows(to.decay, o.w + at, s.n, width, n);
      copy_rows(to.k, o.k + key_at, s.n, key_width, n);
      copy_rows(to.v, o.v + key_at + first_column, columns, key_width, n);
      if constexpr (kRemoving) {
        copy_rows(to.added, o.a + at, s.n, width, n);
        if (o.mix != nullptr) {
          copy_rows(to.v_first, o.v_first + at + first_column, columns, width, n);
          copy_rows(to.mix, o.mix + at + first_column, columns, width, n);
        }
      }
    }
    commit_copies();
  }

  /// Over the lanes that prepare a token.
  __device__ __forceinline__ static float sum_lanes(float x) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
  }

  // Of tokens beyond the last nobody reads what is made.

  __device__ __forceinline__ void prepare(Chunk& chunk) const {
    const int token = thread / kLanes;
    float own = 0;
    for (int i = thread % kLanes; i < s.n; i += kLanes) {
      const float rate = expf(chunk.decay[token][i]);
      chunk.decay[token][i] = expf(-rate);
      if constexpr (kind == WkvKind::First)
        own = fmaf(chunk.r[token][i] * o.first[head * s.n + i], chunk.k[token][i], own);
      else
        chunk.k[token][i] *= -expm1f(-rate);
    }
    own = sum_lanes(own);
    if (thread % kLanes == 0) chunk.own[token] = own;
  }

  __device__ __forceinline__ void prepare_removing(Chunk& chunk) const {
    const int token = thread / kLanes, first = head * s.n;
    float square = 0;
    for (int i = thread % kLanes; i < s.n; i += kLanes) {
      const float key = chunk.k[token][i] * o.k_k[first + i];
      square = fmaf(key, key, square);
    }
    const float length = sqrtf(fmaxf(sum_lanes(square), kLeastWkvKey));
    float own = 0;
    for (int i = thread % kLanes; i < s.n; i += kLanes) {
      const float k = chunk.k[token][i], rate = sigmoid(chunk.added[token][i]);
      const float removed = k * o.k_k[first + i] / length;
      const float key = k * fmaf(rate - 1.0f, o.k_a[first + i], 1.0f);
      chunk.removed[token][i] = removed;
      chunk.added[token][i] = rate * removed;
      chunk.k[token][i] = key;
      chunk.decay[token][i] = expf(-kWkvDecay * sigmoid(chunk.decay[token][i]));
      own = fmaf(chunk.r[token][i] * key, o.r_k[first + i], own);
    }
    own = sum_lanes(own);
    if (thread % kLanes == 0) chunk.own[token] = own;
    if (o.mix == nullptr) return;
    for (int i = thread; i < kChunk * kStateColumns; i += kColumnThreads) {
      const int t = i / kStateColumns, at = i % kStateColumns;
      const float v = chunk.v[t][at];
      chunk.v[t][at] = fmaf(chunk.v_first[t][at] - v, sigmoid(chunk.mix[t][at]), v);
    }
  }

  __device__ __forceinline__ void take(const Chunk& chunk, int i, int t) {
    float k[kRows], r[kRows], decay[kRows];
    load(chunk.k[i], k);
    load(chunk.r[i], r);
    load(chunk.decay[i], decay);
    const float v = chunk.v[i][column], own = chunk.own[i];
    const auto read = [&] { return sum([&](int at, float of) { return fmaf(state[at], r[at], of); }); };
    float result = 0;
    if constexpr (kind == WkvKind::First) result = fmaf(own, v, read());
    if constexpr (kRemoving) {
      float removed[kRows], added[kRows];
      load(chunk.removed[i], removed);
      load(chunk.added[i], added);
      const float seen = sum([&](int at, float of) { return fmaf(state[at], removed[at], of); });
#pragma unroll
      for (int at = 0; at < kRows; ++at) state[at] = fmaf(-added[at], seen, fmaf(state[at], decay[at], k[at] * v));
    } else {
#pragma unroll
      for (int at = 0; at < kRows; ++at) state[at] = fmaf(state[at], decay[at], k[at] * v);
    }
    if constexpr (kind != WkvKind::First) result = read();
    if constexpr (kind == WkvKind::Linear) result *= rsqrtf(static_cast<float>(s.n));
    if (part != 0 || !this->has_column()) return;
    const std::int64_t to =
        (static_cast<std::int64_t>(run.first_token + t) * s.heads + head) * s.n + first_column + column;
    y[to] = result;
    if constexpr (kRemoving) o.own[to] = own * v;
  }

  const WkvShape& s;
  const WkvOperands& o;
  const SequenceRun run;
  float* const y;
  Chunk* const places;
  const int thread, key_head;
};

/// Grid: columns, heads, sequences.
template <int kHead, WkvKind kind>
__global__ void __launch_bounds__(kColumnThreads)
    wkv_kernel(const __grid_constant__ WkvShape s, const __grid_constant__ WkvOperands o,
               const __grid_constant__ StepView step, float* y) {
  __shared__ WkvChunk<kHead, kind> places[2];
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.z);
  if (run.n_tokens == 0) return;
  Wkv<kHead, kind>(s, o, run, y, places).go();
}

template <WkvKind kind>
void launch_wkv(const WkvShape& s, const WkvOperands& o, const StepView& step, int tokens, float* y, const Launch& at) {
  check(s.n <= kMaxWkvHead, "heads of a size that was not refused");
  if (tokens == 0) return;
  const auto kernel = s.n <= 64 ? wkv_kernel<64, kind> : wkv_kernel<128, kind>;
  launch(kernel, column_grid(s.n, s.heads, s.sequences), dim3(kColumnThreads), 0, spread_launch(at, tokens), s, o, step,
         y);
}

}  // namespace

void token_shift(const float* x, float* states, int channels, int sequences, const StepView& step, int tokens, float* y,
                 const Launch& at) {
  if (tokens == 0) return;
  const auto over = [](int n, int of) { return static_cast<unsigned>((n + of - 1) / of); };
  const dim3 grid(over(channels, kShiftThreads), static_cast<unsigned>(sequences), over(tokens, kShiftTokens));
  launch(shift_kernel, grid, dim3(kShiftThreads), 0, at, x, states, channels, step, y);
}

void lerp(const LerpOperands& o, int rows, const Launch& at) {
  if (rows == 0) return;
  check(o.m <= kMostLerps, "as many sums as there is place for");
  const std::int64_t elements = std::int64_t{rows} * o.n;
  const dim3 grid(static_cast<unsigned>((elements + kThreads - 1) / kThreads));
  launch(lerp_kernel, grid, dim3(kThreads), 0, at, o, elements);
}

void wkv6(const WkvShape& s, const WkvOperands& o, const StepView& step, int tokens, float* y, const Launch& at) {
  if (o.first != nullptr)
    launch_wkv<WkvKind::First>(s, o, step, tokens, y, at);
  else
    launch_wkv<WkvKind::Linear>(s, o, step, tokens, y, at);
}

void wkv7(const WkvShape& s, const WkvOperands& o, const StepView& step, int tokens, float* y, const Launch& at) {
  launch_wkv<WkvKind::Removing>(s, o, step, tokens, y, at);
}

}  // namespace llm::cuda
