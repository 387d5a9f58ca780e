// What positions give: the step's table of cosines and sines, and turning heads by it; scales of queries.
//
// The table is a few hundred elements per token, in double precision. Turning reads and writes 4 bytes per element:
// bound by memory for many tokens, by latency for one.
#include <cstdint>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/rows.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kThreads = 128;

/// A thread per (token, pair).
__global__ void __launch_bounds__(kThreads)
    table_kernel(const double* theta, const double magnitude, const int offset, const int pairs,
                 const std::int32_t* positions, const int tokens, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t token = i / pairs;
  const int pair = static_cast<int>(i % pairs);
  if (token >= tokens) return;
  double sin = 0, cos = 0;
  sincos((positions[token] + offset) * theta[pair], &sin, &cos);
  y[2 * i] = static_cast<float>(cos * magnitude);
  y[2 * i + 1] = static_cast<float>(sin * magnitude);
}

__global__ void __launch_bounds__(kThreads)
    position_scale_kernel(const PositionScale op, const std::int32_t* positions, const int tokens, float* y) {
  let_next_start();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token >= tokens) return;
  const std::int64_t lengths = (std::int64_t{positions[token]} + op.offset) / op.length;
  y[token] = static_cast<float>(1 + double{op.slope} * log1p(static_cast<double>(lengths)));
}

struct HeadShape {
  int heads, head_dim, pairs;
  int turns;   ///< threads that turn a head: each kPairs pairs
  int copies;  ///< threads that copy what is not turned: each kPairs elements
};

/// Four floats, or kPairs that are anything.
template <int kCount>
struct Floats {
  float v[kCount];
  __device__ static Floats load(const float* p) {
    Floats f;
    if constexpr (kCount == 4) {
      const float4 q = *reinterpret_cast<const float4*>(p);
      f.v[0] = q.x, f.v[1] = q.y, f.v[2] = q.z, f.v[3] = q.w;
    } else {
      f.v[0] = *p;
    }
    return f;
  }
  __device__ void store(float* p) const {
    if constexpr (kCount == 4) {
      *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
    } else {
      *p = v[0];
    }
  }
};

/// kPairs neighbouring pairs of a head per thread: 4, with loads of 16 bytes, or 1. A thread loads all that it needs
/// before it stores, and no other thread touches it: y may be x.
template <RopePairing kPairing, int kPairs>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const float* x, const float* table, const HeadShape shape, float* y) {
  let_next_start();
  wait_for_previous();
  const int per_head = shape.turns + shape.copies;
  const int item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int head = item / per_head, i = item % per_head;
  if (head >= shape.heads) return;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * shape.heads + head) * shape.head_dim;
  using Some = Floats<kPairs>;
  if (i >= shape.turns) {
    const std::int64_t k = at + 2 * shape.pairs + (i - shape.turns) * kPairs;
    Some::load(x + k).store(y + k);
    return;
  }
  const float* const angles = table + static_cast<std::int64_t>(blockIdx.x) * 2 * shape.pairs + 2 * kPairs * i;
  const Some cos_sin[2] = {Some::load(angles), Some::load(angles + kPairs)};
  constexpr bool kHalves = kPairing == RopePairing::Halves;
  const std::int64_t first = at + (kHalves ? kPairs * i : 2 * kPairs * i);
  const std::int64_t second = first + (kHalves ? shape.pairs : kPairs);
  const Some in[2] = {Some::load(x + first), Some::load(x + second)};
  Some out[2];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    // Element e of two loads that follow one another is [e / kPairs].v[e % kPairs].
    const int even = 2 * j, odd = 2 * j + 1;
    const float cos = cos_sin[even / kPairs].v[even % kPairs], sin = cos_sin[odd / kPairs].v[odd % kPairs];
    const float a = kHalves ? in[0].v[j] : in[even / kPairs].v[even % kPairs];
    const float b = kHalves ? in[1].v[j] : in[odd / kPairs].v[odd % kPairs];
    const float turned_a = a * cos - b * sin, turned_b = a * sin + b * cos;
    (kHalves ? out[0].v[j] : out[even / kPairs].v[even % kPairs]) = turned_a;
    (kHalves ? out[1].v[j] : out[odd / kPairs].v[odd % kPairs]) = turned_b;
  }
  out[0].store(y + first);
  out[1].store(y + second);
}

template <RopePairing kPairing, int kPairs>
void launch_rope(const float* x, const float* table, int heads, int head_dim, int n_rot, int tokens, float* y,
                 const Launch& at) {
  const HeadShape shape{heads, head_dim, n_rot / 2, n_rot / 2 / kPairs, x == y ? 0 : (head_dim - n_rot) / kPairs};
  const int items = heads * (shape.turns + shape.copies);
  launch(rope_kernel<kPairing, kPairs>, dim3(tokens, (items + kThreads - 1) / kThreads), dim3(kThreads), 0, at, x,
         table, shape, y);
}

}  // namespace

void rope_table(const double* theta, double magnitude, int offset, int n_rot, const StepView& step, int tokens,
                float* y, const Launch& at) {
  if (tokens == 0) return;
  const std::int64_t items = static_cast<std::int64_t>(tokens) * (n_rot / 2);
  launch(table_kernel, dim3(static_cast<unsigned>((items + kThreads - 1) / kThreads)), dim3(kThreads), 0, at, theta,
         magnitude, offset, n_rot / 2, step.positions, tokens, y);
}

void position_scale(const PositionScale& op, const StepView& step, int tokens, float* y, const Launch& at) {
  if (tokens == 0) return;
  launch(position_scale_kernel, dim3(static_cast<unsigned>((tokens + kThreads - 1) / kThreads)), dim3(kThreads), 0, at,
         op, step.positions, tokens, y);
}

void rope(const Rope& op, const float* x, const float* table, int heads, int head_dim, int tokens, float* y,
          const Launch& at) {
  check(op.n_rot > 0 && op.n_rot % 2 == 0 && op.n_rot <= head_dim, "a head has the elements that are turned");
  if (tokens == 0) return;
  const auto aligned = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool wide = op.n_rot % 8 == 0 && head_dim % 4 == 0 && aligned(x) && aligned(table) && aligned(y);
  const auto run = [&](auto f) { f(x, table, heads, head_dim, op.n_rot, tokens, y, at); };
  if (op.pairing == RopePairing::Halves) {
    run(wide ? launch_rope<RopePairing::Halves, 4> : launch_rope<RopePairing::Halves, 1>);
  } else {
    run(wide ? launch_rope<RopePairing::Interleaved, 4> : launch_rope<RopePairing::Interleaved, 1>);
  }
}

}  // namespace llm::cuda
