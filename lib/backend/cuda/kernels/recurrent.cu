// Tokens of a sequence go one after another whatever a step has of them, so bits do not depend on how a prompt was cut
// or on what else is in the step.
//
// Gated delta rule. A CTA has 32 columns of a value head's state in registers while a sequence's tokens pass: four
// lanes share a column, of whose rows each has every fourth group of four. Keys, queries and values of the next tokens
// are copied into shared memory meanwhile, and what a token has but one of (its gates, lengths of key and query, their
// product) is made for 16 tokens at a time. A result is taken of the state before its token and of the token,
//   S' q = decay (S q) + (k q) d, where S' = decay S + k d,
// so that one sum over lanes, that of S k and S q, is all that a token waits for. Bytes: the state twice, 128 KB for a
// head of 128 x 128, and of each token q, k and v, which columns and value heads read again from the second cache.
// Operations: 8 for each element of the state and token. Where each row has a decay of its own, the state decays first,
// and half as many tokens are copied at a time.
//
// Selective state space. The same columns of x and rows of B and C; the state knows nothing of what was read of it, so
// that a token waits for one multiplication and addition of the one before it, and sums over lanes lie beside that.
// Bytes: the state twice, of each token x, B and C, which columns and heads read again from the second cache.
// Operations: 5 for each element of the state and token; where each element of x has a step, an exponential besides.
#include <cmath>
#include <type_traits>

#include "backend/cuda/kernels/bits.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/recurrent.h"
#include "backend/cuda/kernels/state_columns.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

// --- the convolution ---

constexpr int kConvThreads = 128;
constexpr int kConvTokens = 32;   ///< of a CTA
constexpr int kMostConvTaps = 8;  ///< of the kernel that has them in registers

/// Row `t` of a sequence's inputs, of which those before the step are in the state.
struct ConvLine {
  const float *x, *state;  ///< null: zeros
  int channels, kept;
  __device__ __forceinline__ float at(int t) const {
    if (t >= 0) return __ldcg(x + static_cast<std::int64_t>(t) * channels);
    return state == nullptr ? 0.0f : __ldcg(state + static_cast<std::int64_t>(t + kept) * channels);
  }
};

__device__ __forceinline__ ConvLine line_of(const ConvShape& s, const SequenceRun& run, const float* x,
                                            const float* states, int channel) {
  const int kept = (s.width - 1) * s.dilation;
  const std::int64_t slot = std::int64_t{kept} * s.channels;
  return {x + static_cast<std::int64_t>(run.first_token) * s.channels + channel,
          run.from < 0 ? nullptr : states + run.from * slot + channel, s.channels, kept};
}

/// The last inputs become the state, some at a time. The slot may be the same: what moves down in it is read before
/// anything is written from there on.
__device__ __forceinline__ void keep_last(const ConvShape& s, const SequenceRun& run, const ConvLine& line,
                                          float* states, int channel) {
  constexpr int kAtOnce = 8;
  float* const to = states + run.to * (std::int64_t{line.kept} * s.channels) + channel;
#pragma unroll 1
  for (int first = 0; first < line.kept; first += kAtOnce) {
    float some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < line.kept) some[i] = line.at(run.n_tokens - line.kept + first + i);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < line.kept) __stcg(to + static_cast<std::int64_t>(first + i) * s.channels, some[i]);
    }
  }
}

/// The i-th weight.
__device__ __forceinline__ float weight_of(const ConvOperands& o, std::int64_t i) {
  if (o.w_type == DType::F32) return reinterpret_cast<const float*>(o.w)[i];
  const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(o.w)[i];
  return o.w_type == DType::F16 ? half_to_float(bits) : __uint_as_float(bits << 16);
}

/// Grid: channels, sequences, pieces of kConvTokens tokens. With one piece, the state is kept here as well. Of
/// neighbouring tokens, whose rows stay in registers.
__global__ void __launch_bounds__(kConvThreads)
    conv_kernel(const __grid_constant__ ConvShape s, const __grid_constant__ ConvOperands o,
                const __grid_constant__ StepView step, float* y) {
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.z) * kConvTokens, end = min(begin + kConvTokens, run.n_tokens);
  if (channel >= s.channels || begin >= end) return;
  const ConvLine line = line_of(s, run, o.x, o.states, channel);
  const float bias = o.bias == nullptr ? 0.0f : o.bias[channel];
  float taps[kMostConvTaps], rows[kMostConvTaps];  // the newest row at the end
#pragma unroll
  for (int i = 0; i < kMostConvTaps; ++i) {
    const int tap = i - (kMostConvTaps - s.width);
    taps[i] = tap < 0 ? 0.0f : weight_of(o, static_cast<std::int64_t>(channel) * s.width + tap);
    rows[i] = i + 1 < kMostConvTaps && tap >= 0 ? line.at(begin + tap - line.kept) : 0.0f;
  }
  float* const to = y + static_cast<std::int64_t>(run.first_token) * s.channels + channel;
  for (int t = begin; t < end; ++t) {
    rows[kMostConvTaps - 1] = line.at(t);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMostConvTaps; ++i) {
      if (i >= kMostConvTaps - s.width) sum = fmaf(rows[i], taps[i], sum);
    }
    sum += bias;
    to[static_cast<std::int64_t>(t) * s.channels] = s.activation == Activation::Silu ? silu(sum) : sum;
#pragma unroll
    for (int i = 0; i + 1 < kMostConvTaps; ++i) rows[i] = rows[i + 1];
  }
  if (gridDim.z == 1) keep_last(s, run, line, o.states, channel);
}

/// The same of all other convolutions, and means: a token's rows are read for it.
__global__ void __launch_bounds__(kConvThreads)
    conv_apart_kernel(const __grid_constant__ ConvShape s, const __grid_constant__ ConvOperands o,
                      const __grid_constant__ StepView step, float* y) {
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.z) * kConvTokens, end = min(begin + kConvTokens, run.n_tokens);
  if (channel >= s.channels || begin >= end) return;
  const ConvLine line = line_of(s, run, o.x, o.states, channel);
  const float bias = o.bias == nullptr ? 0.0f : o.bias[channel];
  float* const to = y + static_cast<std::int64_t>(run.first_token) * s.channels + channel;
#pragma unroll 1
  for (int t = begin; t < end; ++t) {
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < s.width; ++i) {
      const float row = line.at(t - line.kept + i * s.dilation);
      const float tap = o.w == nullptr ? 1.0f : weight_of(o, static_cast<std::int64_t>(channel) * s.width + i);
      sum = fmaf(row, tap, sum);
    }
    if (o.w == nullptr) sum /= static_cast<float>(s.width);
    sum += bias;
    to[static_cast<std::int64_t>(t) * s.channels] = s.activation == Activation::Silu ? silu(sum) : sum;
  }
  if (gridDim.z == 1) keep_last(s, run, line, o.states, channel);
}

/// Behind a kernel whose pieces all may read the slot that is written.
__global__ void __launch_bounds__(kConvThreads)
    conv_state_kernel(const __grid_constant__ ConvShape s, const __grid_constant__ StepView step, const float* x,
                      float* states) {
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x) * kConvThreads + static_cast<int>(threadIdx.x);
  if (channel >= s.channels || run.n_tokens == 0) return;
  keep_last(s, run, line_of(s, run, x, states, channel), states, channel);
}

// --- the gated delta rule ---

/// Of a token with keys and queries as they are: with s = S k and t = S q before it, d = rate (v - seen s), then
/// S = decay S + k d, and y = kept t + added d. Rows with decays of their own have decayed before.
struct alignas(16) DeltaToken {
  float decay, rate, seen, kept, added;
};

/// What a CTA has of a chunk of tokens.
template <int kKeys, Decays decays>
struct DeltaChunk {
  static constexpr bool kOfRows = decays == Decays::OfRows;
  static constexpr int kChunk = (kKeys <= 128 ? 16 : 8) / (kOfRows ? 2 : 1);
  float k[kChunk][kKeys], q[kChunk][kKeys];
  float v[kChunk][kStateColumns];
  DeltaToken token[kChunk];
};
template <int kKeys>
struct RowDecayChunk : DeltaChunk<kKeys, Decays::OfRows> {
  float decay[DeltaChunk<kKeys, Decays::OfRows>::kChunk][kKeys];  ///< until it is prepared, alpha
};

template <int kKeys, Decays decays>
class Delta : StateColumn<kKeys> {
  using Base = StateColumn<kKeys>;
  using Base::column, Base::first_column, Base::head, Base::kRows, Base::load, Base::part, Base::state, Base::sum;

 public:
  using Chunk = std::conditional_t<decays == Decays::OfRows, RowDecayChunk<kKeys>, DeltaChunk<kKeys, decays>>;

 private:
  static constexpr bool kOfRows = Chunk::kOfRows;
  static constexpr int kChunk = Chunk::kChunk;  ///< tokens copied at a time, to one of two places
  /// What the gates of a token are made of.
  struct Gates {
    float alpha, beta;
  };

 public:
  __device__ __forceinline__ Delta(const DeltaShape& shape, const DeltaOperands& operands, const SequenceRun& sequence,
                                   float* y, Chunk* places)
      : Base(shape.dk, shape.dv),
        s(shape),
        o(operands),
        run(sequence),
        y(y),
        places(places),
        thread(static_cast<int>(threadIdx.x)),
        key_head(s.op.sharing == HeadSharing::Tiled ? head % s.op.key_heads : head / (s.heads / s.op.key_heads)),
        row_width(2 * s.op.key_heads * s.dk + s.heads * s.dv) {}

  __device__ __forceinline__ void go() {
    this->load_state(o.states, run.from);
    clear_beyond();
    Gates gates{};
    for (int begin = 0; begin < run.n_tokens + kChunk; begin += kChunk) {  // copies are a chunk ahead
      const Gates next = copy(begin);
      if (begin > 0) take_chunk(begin - kChunk, gates);
      gates = next;
    }
    this->store_state(o.states, run.to);
  }

 private:
  __device__ __forceinline__ void take_chunk(int begin, const Gates& gates) {
    wait_for_copies<1>();
    __syncthreads();
    Chunk& chunk = places[begin / kChunk % 2];
    prepare(chunk, gates);
    __syncthreads();
    const int n = min(kChunk, run.n_tokens - begin);
#pragma unroll 2
    for (int i = 0; i < n; ++i) take(chunk, i, begin + i);
    __syncthreads();  // the place is filled again
  }

  /// What no copy reaches counts as 0.
  __device__ __forceinline__ void clear_beyond() {
    if (s.dk == kKeys && first_column + kStateColumns <= s.dv) return;
    for (int place = 0; place < 2; ++place) {
      for (int i = thread; i < kChunk * kKeys; i += kColumnThreads) {
        if (i % kKeys < s.dk) continue;
        places[place].k[i / kKeys][i % kKeys] = 0;
        places[place].q[i / kKeys][i % kKeys] = 0;
        if constexpr (kOfRows) places[place].decay[i / kKeys][i % kKeys] = 0;
      }
      for (int i = thread; i < kChunk * kStateColumns; i += kColumnThreads) {
        if (first_column + i % kStateColumns >= s.dv) places[place].v[i / kStateColumns][i % kStateColumns] = 0;
      }
    }
  }

  static constexpr int kLanes = kColumnThreads / kChunk;  ///< that prepare a token

  /// Starts the copies of the tokens from `begin` on, if there are some. Gives the gates of the one that the thread
  /// prepares.
  __device__ __forceinline__ Gates copy(int begin) {
    const int n = min(kChunk, run.n_tokens - begin);
    Chunk& to = places[begin / kChunk % 2];
    if (n > 0) {
      const float* const row = o.qkv + (run.first_token + begin) * row_width;
      const float* const q = row + key_head * s.dk;
      copy_rows(to.q, q, s.dk, row_width, n);
      copy_rows(to.k, q + s.op.key_heads * s.dk, s.dk, row_width, n);
      copy_rows(to.v, row + 2 * s.op.key_heads * s.dk + head * s.dv + first_column,
                min(kStateColumns, s.dv - first_column), row_width, n);
      const std::int64_t first = static_cast<std::int64_t>(run.first_token + begin) * s.heads + head;
      if constexpr (kOfRows) copy_rows(to.decay, o.alpha + first * s.dk, s.dk, std::int64_t{s.heads} * s.dk, n);
    }
    commit_copies();
    if (thread / kLanes >= n) return {0, 0};
    const std::int64_t at = static_cast<std::int64_t>(run.first_token + begin + thread / kLanes) * s.heads + head;
    return {kOfRows ? 0.0f : __ldcg(o.alpha + at), __ldcg(o.beta + at)};
  }

  __device__ __forceinline__ float decay_of(float alpha, int bias) const {
    const float x = alpha + o.bias[bias], a = o.a[head];
    return expf(s.op.floor < 0 ? s.op.floor * sigmoid(fabsf(a) * x) : a * softplus(x));
  }

  /// Of tokens beyond the last nobody reads what is made.
  __device__ __forceinline__ void prepare(Chunk& chunk, const Gates& gates) const {
    const int token = thread / kLanes;
    if constexpr (kOfRows) {
      for (int i = thread % kLanes; i < s.dk; i += kLanes)
        chunk.decay[token][i] = decay_of(chunk.decay[token][i], head * s.dk + i);
    }
    const auto* const keys = reinterpret_cast<const float4*>(chunk.k[token]);
    const auto* const queries = reinterpret_cast<const float4*>(chunk.q[token]);
    float kk = 0, qq = 0, kq = 0;
#pragma unroll
    for (int i = thread % kLanes; i < kKeys / 4; i += kLanes) {
      const float4 k = keys[i], q = queries[i];
      kk = fmaf(k.x, k.x, fmaf(k.y, k.y, fmaf(k.z, k.z, fmaf(k.w, k.w, kk))));
      qq = fmaf(q.x, q.x, fmaf(q.y, q.y, fmaf(q.z, q.z, fmaf(q.w, q.w, qq))));
      kq = fmaf(k.x, q.x, fmaf(k.y, q.y, fmaf(k.z, q.z, fmaf(k.w, q.w, kq))));
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      kk += __shfl_xor_sync(0xffffffffu, kk, offset);
      qq += __shfl_xor_sync(0xffffffffu, qq, offset);
      kq += __shfl_xor_sync(0xffffffffu, kq, offset);
    }
    if (thread % kLanes != 0) return;
    const float key = rsqrtf(kk + s.op.eps), query = rsqrtf((qq + s.op.eps) * s.dk);
    const float decay = kOfRows ? 1.0f : decay_of(gates.alpha, head);
    chunk.token[token] = {decay, sigmoid(gates.beta) * key, decay * key, query * decay, query * kq};
  }

  __device__ __forceinline__ void decay_rows(const float* decays_of_token) {
    float decay[kRows];
    load(decays_of_token, decay);
#pragma unroll
    for (int r = 0; r < kRows; ++r) state[r] *= decay[r];
  }

  __device__ __forceinline__ void take(const Chunk& chunk, int i, int t) {
    if constexpr (kOfRows) decay_rows(chunk.decay[i]);
    float k[kRows], q[kRows];
    load(chunk.k[i], k);
    load(chunk.q[i], q);
    const DeltaToken& token = chunk.token[i];
    const float seen = sum([&](int r, float c) { return fmaf(state[r], k[r], c); });
    const float before = sum([&](int r, float c) { return fmaf(state[r], q[r], c); });
    const float add = token.rate * (chunk.v[i][column] - token.seen * seen);
#pragma unroll
    for (int r = 0; r < kRows; ++r) state[r] = fmaf(k[r], add, kOfRows ? state[r] : state[r] * token.decay);
    if (part == 0 && this->has_column())
      y[(static_cast<std::int64_t>(run.first_token + t) * s.heads + head) * s.dv + first_column + column] =
          fmaf(token.kept, before, token.added * add);
  }

  const DeltaShape& s;
  const DeltaOperands& o;
  const SequenceRun run;
  float* const y;
  Chunk* const places;
  const int thread, key_head;
  const std::int64_t row_width;
};

/// Grid: columns, heads, sequences.
template <int kKeys, Decays decays>
__global__ void __launch_bounds__(kColumnThreads)
    delta_kernel(const __grid_constant__ DeltaShape s, const __grid_constant__ DeltaOperands o,
                 const __grid_constant__ StepView step, float* y) {
  __shared__ __align__(16) typename Delta<kKeys, decays>::Chunk places[2];
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.z);
  if (run.n_tokens == 0) return;
  Delta<kKeys, decays>(s, o, run, y, places).go();
}

template <Decays decays>
auto delta_kernel_for(int dk) {
  return dk <= 64 ? delta_kernel<64, decays> : dk <= 128 ? delta_kernel<128, decays> : delta_kernel<256, decays>;
}

// --- the selective state space ---

/// What a CTA has of a chunk of tokens.
template <int kState, Steps steps>
struct ScanChunk {
  static constexpr int kChunk = kState <= 128 ? 16 : 8;
  float b[kChunk][kState], c[kChunk][kState];
  float x[kChunk][kStateColumns];
  std::conditional_t<steps == Steps::OfHeads, float2[kChunk], float[kChunk][kStateColumns]>
      gates;  ///< the decay, the step
};

template <int kState, Steps steps>
class Scan : StateColumn<kState> {
  using Base = StateColumn<kState>;
  using Base::column, Base::first_column, Base::head, Base::kRows, Base::load, Base::part, Base::state, Base::sum;
  using Chunk = ScanChunk<kState, steps>;
  static constexpr int kChunk = Chunk::kChunk;  ///< tokens copied at a time, to one of two places
  static constexpr bool kOfElements = steps == Steps::OfElements;

 public:
  __device__ __forceinline__ Scan(const ScanShape& shape, const ScanOperands& operands, const SequenceRun& sequence,
                                  float* y, Chunk* places)
      : Base(shape.n, shape.p),
        s(shape),
        o(operands),
        run(sequence),
        y(y),
        places(places),
        thread(static_cast<int>(threadIdx.x)),
        group(head / (s.heads / s.groups)),
        row_width(s.heads * s.p + 2 * s.groups * s.n),
        weight(kOfElements ? head * s.p + min(first_column + column, s.p - 1) : head) {}

  __device__ __forceinline__ void go() {
    this->load_state(o.states, run.from);
    load_weights();
    clear_beyond();
    float dt = 0;
    for (int begin = 0; begin < run.n_tokens + kChunk; begin += kChunk) {  // copies are a chunk ahead
      const float next = copy(begin);
      if (begin > 0) take_chunk(begin - kChunk, dt);
      dt = next;
    }
    this->store_state(o.states, run.to);
  }

 private:
  __device__ __forceinline__ void load_weights() {
    skip = o.d[weight];
    if constexpr (kOfElements) {
      bias = o.bias[weight];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        a[r] = this->inside(r) ? o.a[static_cast<std::int64_t>(weight) * s.n + this->row_of(r)] : 0.0f;
    }
  }

  __device__ __forceinline__ void take_chunk(int begin, float dt) {
    Chunk& chunk = places[begin / kChunk % 2];
    if constexpr (!kOfElements) {
      if (thread < kChunk) chunk.gates[thread] = gates_of(dt);
    }
    wait_for_copies<1>();
    __syncthreads();
    const int n = min(kChunk, run.n_tokens - begin);
#pragma unroll 2
    for (int i = 0; i < n; ++i) take(chunk, i, begin + i);
    __syncthreads();  // the place is filled again
  }

  /// What no copy reaches counts as 0.
  __device__ __forceinline__ void clear_beyond() {
    if (s.n == kState && first_column + kStateColumns <= s.p) return;
    for (int place = 0; place < 2; ++place) {
      for (int i = thread; i < kChunk * kState; i += kColumnThreads) {
        if (i % kState < s.n) continue;
        places[place].b[i / kState][i % kState] = 0;
        places[place].c[i / kState][i % kState] = 0;
      }
      for (int i = thread; i < kChunk * kStateColumns; i += kColumnThreads) {
        if (first_column + i % kStateColumns < s.p) continue;
        places[place].x[i / kStateColumns][i % kStateColumns] = 0;
        if constexpr (kOfElements) places[place].gates[i / kStateColumns][i % kStateColumns] = 0;
      }
    }
  }

  /// Starts the copies of the tokens from `begin` on, if there are some. Gives the thread's own one's dt, where that is
  /// one for the head.
  __device__ __forceinline__ float copy(int begin) {
    const int n = min(kChunk, run.n_tokens - begin), columns = min(kStateColumns, s.p - first_column);
    Chunk& to = places[begin / kChunk % 2];
    const std::int64_t first = static_cast<std::int64_t>(run.first_token + begin) * s.heads + head;
    if (n > 0) {
      const float* const row = o.xbc + (run.first_token + begin) * row_width;
      const float* const b = row + s.heads * s.p + group * s.n;
      copy_rows(to.b, b, s.n, row_width, n);
      copy_rows(to.c, b + s.groups * s.n, s.n, row_width, n);
      copy_rows(to.x, row + head * s.p + first_column, columns, row_width, n);
      if constexpr (kOfElements)
        copy_rows(to.gates, o.dt + first * s.p + first_column, columns, std::int64_t{s.heads} * s.p, n);
    }
    commit_copies();
    if (kOfElements || thread >= n) return 0;
    return __ldcg(o.dt + first + static_cast<std::int64_t>(thread) * s.heads);
  }

  __device__ __forceinline__ float2 gates_of(float dt) const {
    const float step = softplus(dt + o.bias[head]);
    return make_float2(expf(o.a[head] * step), step);
  }

  __device__ __forceinline__ void take(const Chunk& chunk, int i, int t) {
    float b[kRows], c[kRows];
    load(chunk.b[i], b);
    load(chunk.c[i], c);
    const float x = chunk.x[i][column];
    if constexpr (kOfElements) {
      const float step = softplus(chunk.gates[i][column] + bias), add = step * x;
#pragma unroll
      for (int r = 0; r < kRows; ++r) state[r] = fmaf(b[r], add, state[r] * expf(a[r] * step));
    } else {
      const float2 gates = chunk.gates[i];
      const float add = gates.y * x;
#pragma unroll
      for (int r = 0; r < kRows; ++r) state[r] = fmaf(b[r], add, state[r] * gates.x);
    }
    const float seen = sum([&](int r, float of) { return fmaf(state[r], c[r], of); });
    if (part == 0 && this->has_column())
      y[(static_cast<std::int64_t>(run.first_token + t) * s.heads + head) * s.p + first_column + column] =
          fmaf(skip, x, seen);
  }

  const ScanShape& s;
  const ScanOperands& o;
  const SequenceRun run;
  float* const y;
  Chunk* const places;
  const int thread, group;
  const std::int64_t row_width;
  const int weight;  ///< the head's, or the column's
  float skip = 0, bias = 0;
  float a[kOfElements ? kRows : 1];  ///< of the lane's rows
};

/// Grid: columns, heads, sequences.
template <int kState, Steps steps>
__global__ void __launch_bounds__(kColumnThreads)
    scan_kernel(const __grid_constant__ ScanShape s, const __grid_constant__ ScanOperands o,
                const __grid_constant__ StepView step, float* y) {
  __shared__ __align__(16) ScanChunk<kState, steps> places[2];
  let_next_start();
  wait_for_previous();
  const SequenceRun run = run_of(step, blockIdx.z);
  if (run.n_tokens == 0) return;
  Scan<kState, steps>(s, o, run, y, places).go();
}

/// States of single elements are small as a rule: of 16.
template <Steps steps>
auto scan_kernel_for(int n) {
  if constexpr (steps == Steps::OfElements) {
    if (n <= 16) return scan_kernel<16, steps>;
  }
  return n <= 64 ? scan_kernel<64, steps> : n <= 128 ? scan_kernel<128, steps> : scan_kernel<256, steps>;
}

}  // namespace

void short_conv(const ConvShape& s, const ConvOperands& o, const StepView& step, int tokens, float* y,
                const Launch& at) {
  if (tokens == 0) return;
  const auto over = [](int n, int of) { return static_cast<unsigned>((n + of - 1) / of); };
  const dim3 grid(over(s.channels, kConvThreads), static_cast<unsigned>(s.sequences), over(tokens, kConvTokens));
  const bool in_registers = s.dilation == 1 && s.width <= kMostConvTaps && o.w != nullptr;
  launch(in_registers ? conv_kernel : conv_apart_kernel, grid, dim3(kConvThreads), 0, at, s, o, step, y);
  if (grid.z > 1) launch(conv_state_kernel, dim3(grid.x, grid.y), dim3(kConvThreads), 0, at, s, step, o.x, o.states);
}

void gated_delta(const DeltaShape& s, const DeltaOperands& o, const StepView& step, int tokens, float* y,
                 const Launch& at) {
  check(s.dk <= kMaxStateRows, "keys of a width that was not refused");
  const bool of_rows = s.decays == Decays::OfRows;
  const auto kernel = of_rows ? delta_kernel_for<Decays::OfRows>(s.dk) : delta_kernel_for<Decays::OfHeads>(s.dk);
  launch(kernel, column_grid(s.dv, s.heads, s.sequences), dim3(kColumnThreads), 0, spread_launch(at, tokens), s, o,
         step, y);
}

void selective_scan(const ScanShape& s, const ScanOperands& o, const StepView& step, int tokens, float* y,
                    const Launch& at) {
  check(s.n <= kMaxStateRows, "states of a size that was not refused");
  const bool of_elements = s.steps == Steps::OfElements;
  const auto kernel = of_elements ? scan_kernel_for<Steps::OfElements>(s.n) : scan_kernel_for<Steps::OfHeads>(s.n);
  launch(kernel, column_grid(s.p, s.heads, s.sequences), dim3(kColumnThreads), 0, spread_launch(at, tokens), s, o, step,
         y);
}

}  // namespace llm::cuda
