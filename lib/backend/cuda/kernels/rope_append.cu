#include <cstdint>
#include <type_traits>

#include "backend/backend.h"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/rope_append.h"
#include "backend/cuda/kernels/rotate_head.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kHeadsTogether = 8;  ///< of a block of threads, a warp each

struct Geometry {
  int heads, kv_heads, dim_k, dim_v;
  Turn turn;
  bool wide;  ///< every row of queries, keys and norms is aligned to 16 bytes
};

/// A warp per token and head: queries first, then keys, then values. Norms are those of rows.cu for rows of one warp.
/// Every head is read once and written once: of one token, far less than a product's weights, so that only the latency
/// of the launch counts; of prompts, 4 + 4 bytes per element of queries, 4 + 2 of keys and values, bound by memory.
template <class K, class V>
__global__ void __launch_bounds__(kHeadsTogether* kWarp)
    rope_append_kernel(const RopeAppend a, const Geometry g, K* keys, V* values, const StepView step) {
  let_next_start();
  __shared__ __align__(16) float rows[kHeadsTogether][kBlockK];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int head = static_cast<int>(blockIdx.y) * kHeadsTogether + warp;
  if (head >= g.heads + 2 * g.kv_heads) return;
  const bool is_query = head < g.heads, is_key = !is_query && head < g.heads + g.kv_heads;
  const float* const norm = is_query ? a.norm_q : is_key ? a.norm_k : nullptr;
  BlockPart weight{};
  if (norm != nullptr) weight = load_part(norm, 0, g.dim_k, g.wide);
  wait_for_previous();

  const std::int64_t token = blockIdx.x;
  if (!is_query) head -= is_key ? g.heads : g.heads + g.kv_heads;
  const int slot = is_query ? 0 : step.slots[token];
  if (slot < 0) return;
  const std::int64_t from = token * (is_query ? g.heads : g.kv_heads) + head;
  const std::int64_t to = (std::int64_t{slot / kBlockPositions} * g.kv_heads + head) * kBlockPositions +
                          slot % kBlockPositions;  // of keys and values
  if (!is_query && !is_key) {
    for (int i = lane_id(); i < g.dim_v; i += kWarp) store(values + to * g.dim_v + i, a.v[from * g.dim_v + i]);
    return;
  }
  const Angles<kBlockK> angles(a.table + token * g.turn.n_rot, g.turn);
  BlockPart x = load_part((is_query ? a.q : a.k) + from * g.dim_k, 0, g.dim_k, g.wide);
  if (norm != nullptr) x = normed_head(x, weight, g.dim_k, a.eps);
  if (is_query) {
    float* const y = a.rotated_q + from * g.dim_k;
    rotate(x, g.dim_k, angles, g.turn, rows[warp], [y](int i, float v) { y[i] = v; });
  } else {
    K* const y = keys + to * g.dim_k;
    rotate(x, g.dim_k, angles, g.turn, rows[warp], [y](int i, float v) { store(y + i, v); });
  }
}

template <class K, class V>
void run(const RopeAppend& a, const Geometry& g, const CacheView& cache, const StepView& step, int tokens,
         const Launch& at) {
  const int heads = g.heads + 2 * g.kv_heads;
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>((heads + kHeadsTogether - 1) / kHeadsTogether));
  launch(rope_append_kernel<K, V>, grid, dim3(kHeadsTogether * kWarp), 0, at, a, g, reinterpret_cast<K*>(cache.k),
         reinterpret_cast<V*>(cache.v), step);
}

/// f of what rows of the type consist of.
template <class F>
void with_element(DType t, F&& f) {
  switch (t) {
    case DType::F32:
      return f(std::type_identity<float>());
    case DType::F16:
      return f(std::type_identity<__half>());
    case DType::BF16:
      return f(std::type_identity<__nv_bfloat16>());
    default:
      check(t == DType::F8_E4M3, "rows of the cache are elements, not blocks");
      f(std::type_identity<__nv_fp8_e4m3>());
  }
}

}  // namespace

bool appends_with_rope(DType k, DType v) { return cache_element_bytes(k) != 0 && cache_element_bytes(v) != 0; }

void rope_append(const Rope& op, const RopeAppend& a, const CacheView& cache, const StepView& step, int tokens,
                 const Launch& at) {
  check(op.n_rot <= cache.head_dim_k && cache.head_dim_k <= kBlockK, "a warp holds a head");
  check((a.norm_q == nullptr) == (a.norm_k == nullptr), "both norms or none");
  if (tokens == 0) return;
  const auto aligned = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const Geometry g{
      .heads = a.heads,
      .kv_heads = cache.kv_heads,
      .dim_k = cache.head_dim_k,
      .dim_v = cache.head_dim_v,
      .turn = {op.n_rot, op.pairing == RopePairing::Halves},
      .wide = cache.head_dim_k % 4 == 0 && aligned(a.q) && aligned(a.k) && aligned(a.norm_q) && aligned(a.norm_k)};
  with_element(cache.k_type, [&](auto k) {
    with_element(cache.v_type, [&](auto v) {
      run<typename decltype(k)::type, typename decltype(v)::type>(a, g, cache, step, tokens, at);
    });
  });
}

}  // namespace llm::cuda
