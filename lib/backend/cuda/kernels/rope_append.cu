#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/backend.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/rope_append.h"

namespace llm::cuda {
namespace {

__device__ void store(float* to, float x) { *to = x; }
__device__ void store(__half* to, float x) { *to = __float2half_rn(x); }
__device__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

struct Geometry {
  int heads, kv_heads, dim_k, dim_v, n_rot;
  bool halves;
};

/// Rotates one head by the calling block's threads: `put(i, x)` takes element i.
template <class Put>
__device__ void rotate(const float* x, const float* table, const Geometry& g, Put&& put) {
  const int pairs = g.n_rot / 2;
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += static_cast<int>(blockDim.x)) {
    const int first = g.halves ? i : 2 * i, second = g.halves ? i + pairs : 2 * i + 1;
    const float cos = table[2 * i], sin = table[2 * i + 1], a = x[first], b = x[second];
    put(first, a * cos - b * sin);
    put(second, a * sin + b * cos);
  }
  for (int i = g.n_rot + static_cast<int>(threadIdx.x); i < g.dim_k; i += static_cast<int>(blockDim.x)) put(i, x[i]);
}

/// One block per token and head: queries first, then keys, then values. A head of keys moves 1.5 to 2 times its bytes;
/// all of it together is far less than a product's weights, so that only the latency of a launch counts.
template <class K, class V>
__global__ void rope_append_kernel(RopeAppend a, Geometry g, K* keys, V* values, StepView step) {
  let_next_start();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.x);
  int head = static_cast<int>(blockIdx.y);
  const float* const table = a.table + static_cast<std::size_t>(token) * g.n_rot;
  if (head < g.heads) {
    const std::size_t at = (static_cast<std::size_t>(token) * g.heads + head) * g.dim_k;
    float* const y = a.rotated_q + at;
    rotate(a.q + at, table, g, [y](int i, float x) { y[i] = x; });
    return;
  }
  head -= g.heads;
  const int slot = step.slots[token];
  if (slot < 0) return;
  const bool is_key = head < g.kv_heads;
  if (!is_key) head -= g.kv_heads;
  const std::size_t row =
      (static_cast<std::size_t>(slot / kBlockPositions) * g.kv_heads + head) * kBlockPositions + slot % kBlockPositions;
  const std::size_t from = static_cast<std::size_t>(token) * g.kv_heads + head;
  if (is_key) {
    K* const y = keys + row * g.dim_k;
    rotate(a.k + from * g.dim_k, table, g, [y](int i, float x) { store(y + i, x); });
  } else {
    V* const y = values + row * g.dim_v;
    for (int i = static_cast<int>(threadIdx.x); i < g.dim_v; i += static_cast<int>(blockDim.x))
      store(y + i, a.v[from * g.dim_v + i]);
  }
}

template <class K, class V>
void run(const RopeAppend& a, const Geometry& g, const CacheView& cache, const StepView& step, int tokens,
         const Launch& at) {
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(g.heads + 2 * g.kv_heads));
  launch(rope_append_kernel<K, V>, grid, dim3(64), 0, at, a, g, reinterpret_cast<K*>(cache.k),
         reinterpret_cast<V*>(cache.v), step);
}

template <class K>
void run_values(const RopeAppend& a, const Geometry& g, const CacheView& cache, const StepView& step, int tokens,
                const Launch& at) {
  if (cache.v_type == DType::F32) return run<K, float>(a, g, cache, step, tokens, at);
  if (cache.v_type == DType::F16) return run<K, __half>(a, g, cache, step, tokens, at);
  run<K, __nv_bfloat16>(a, g, cache, step, tokens, at);
}

bool is_plain(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

}  // namespace

bool appends_with_rope(DType k, DType v) { return is_plain(k) && is_plain(v); }

void rope_append(const Rope& op, const RopeAppend& a, const CacheView& cache, const StepView& step, int tokens,
                 const Launch& at) {
  if (tokens == 0) return;
  const Geometry g{a.heads,          cache.kv_heads, cache.head_dim_k,
                   cache.head_dim_v, op.n_rot,       op.pairing == RopePairing::Halves};
  if (cache.k_type == DType::F32) return run_values<float>(a, g, cache, step, tokens, at);
  if (cache.k_type == DType::F16) return run_values<__half>(a, g, cache, step, tokens, at);
  run_values<__nv_bfloat16>(a, g, cache, step, tokens, at);
}

}  // namespace llm::cuda
