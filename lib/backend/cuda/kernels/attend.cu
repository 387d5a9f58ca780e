// attend(): which of its kernels, over which grid.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "backend/cuda/kernels/attend_halves.cuh"
#include "backend/cuda/kernels/attend_kernel.cuh"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/rope_append.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

using AttendKernel = void (*)(AttendArgs);

template <CacheSource kK, CacheSource kV>
AttendKernel kernel_for(const AttendPlan& p) {
  if (p.units == 3) return attend_kernel<kK, kV, 32, 1, 3>;
  if (p.units == 2) return attend_kernel<kK, kV, 32, 1, 2>;
  if (p.lanes == 32) {
    return p.tile_heads == 1 ? attend_kernel<kK, kV, 32, 1> : attend_kernel<kK, kV, 32, 4>;
  }
  if (p.lanes == 16) {
    return p.tile_heads == 1   ? attend_kernel<kK, kV, 16, 1>
           : p.tile_heads == 4 ? attend_kernel<kK, kV, 16, 4>
                               : attend_kernel<kK, kV, 16, 8>;
  }
  return p.tile_heads == 1   ? attend_kernel<kK, kV, 8, 1>
         : p.tile_heads == 4 ? attend_kernel<kK, kV, 8, 4>
                             : attend_kernel<kK, kV, 8, 8>;
}
template <CacheSource kSource, int kDims, bool kRaw>
AttendKernel halves_kernel_of(const AttendPlan& p) {
  constexpr bool kNarrow = kSource == CacheSource::Q8_0 || kSource == CacheSource::F8;
  constexpr int kTiles = most_tiles(kNarrow, kDims);
  if constexpr (kDims == 256) {
    return attend_halves_kernel<kSource, kDims, 4, kTiles, kRaw>;
  } else if constexpr (kNarrow) {
    constexpr int kTilesOf8 = kDims == 64 ? kTiles / 2 : kTiles;
    return p.tile_heads == 4 ? attend_halves_kernel<kSource, kDims, 4, kTiles / 2, kRaw>
                             : attend_halves_kernel<kSource, kDims, 8, kTilesOf8, kRaw>;
  } else if (p.tiles < kTiles) {
    return p.tile_heads == 4 ? attend_halves_kernel<kSource, kDims, 4, kTiles / 2, kRaw>
                             : attend_halves_kernel<kSource, kDims, 8, kTiles / 2, kRaw>;
  } else {
    return p.tile_heads == 4 ? attend_halves_kernel<kSource, kDims, 4, kTiles, kRaw>
                             : attend_halves_kernel<kSource, kDims, 8, kTiles, kRaw>;
  }
}
template <CacheSource kSource, bool kRaw>
AttendKernel halves_kernel_of(const AttendPlan& p) {
  if constexpr (kSource != CacheSource::Q8_0) {
    if (p.lanes == 32) return halves_kernel_of<kSource, 256, kRaw>(p);
  }
  return p.lanes == 8 ? halves_kernel_of<kSource, 64, kRaw>(p) : halves_kernel_of<kSource, 128, kRaw>(p);
}
template <CacheSource kSource>
AttendKernel halves_kernel_of(const AttendPlan& p, bool raw) {
  return raw ? halves_kernel_of<kSource, true>(p) : halves_kernel_of<kSource, false>(p);
}

AttendKernel kernel_for(const CacheView& c, const AttendPlan& p, bool raw) {
  if (p.tiles > 0) {
    if (c.k_type == DType::Q8_0) return halves_kernel_of<CacheSource::Q8_0, false>(p);
    if (c.k_type == DType::F8_E4M3) return halves_kernel_of<CacheSource::F8>(p, raw);
    return c.k_type == DType::BF16 ? halves_kernel_of<CacheSource::BF16>(p, raw)
                                   : halves_kernel_of<CacheSource::F16>(p, raw);
  }
  const bool whole = c.head_dim_k % 8 == 0 && c.head_dim_v % 8 == 0;
  if (c.k_type == c.v_type && whole) {
    if (c.k_type == DType::F16) return kernel_for<CacheSource::F16, CacheSource::F16>(p);
    if (c.k_type == DType::BF16) return kernel_for<CacheSource::BF16, CacheSource::BF16>(p);
    if (c.k_type == DType::Q8_0) return kernel_for<CacheSource::Q8_0, CacheSource::Q8_0>(p);
  }
  return kernel_for<CacheSource::Any, CacheSource::Any>(p);
}

bool suits_tensor_cores(const CacheView& c) {
  const int dim = c.head_dim_k;
  if (c.k_type != c.v_type || c.head_dim_v != dim) return false;
  if (c.k_type == DType::Q8_0) return dim == 64 || dim == 128;
  const bool elements = c.k_type == DType::F16 || c.k_type == DType::BF16 || c.k_type == DType::F8_E4M3;
  return elements && (dim == 64 || dim == 128 || dim == 256);
}

AttendPlan plan_for(const CacheView& c, const AttentionShape& s, int tokens, std::int64_t max_positions) {
  const DeviceLimits& device = device_limits();
  const AttendWork work{.group = s.heads / c.kv_heads,
                        .kv_heads = c.kv_heads,
                        .k_row_bytes = cache_row_bytes(c.k_type, c.head_dim_k),
                        .v_row_bytes = cache_row_bytes(c.v_type, c.head_dim_v),
                        .widest_head = std::max(c.head_dim_k, c.head_dim_v),
                        .tokens = tokens,
                        .max_positions = max_positions,
                        .multiprocessors = device.multiprocessors,
                        .shared_limit = static_cast<std::size_t>(device.block_bytes)};
  if (suits_tensor_cores(c) && s.max_bias == 0) {
    const AttendPlan p = plan_attend_by_tensor_cores(work);
    if (p.tiles > 0) return p;
  }
  return plan_attend(work);
}

}  // namespace

AttentionMemory attention_memory(const CacheView& c, const AttentionShape& s, int tokens, std::int64_t max_positions) {
  if (attends_wide(c) && s.max_bias == 0)
    return {plan_attend_wide(c, s.heads, tokens, max_positions, device_limits().multiprocessors).scratch_bytes(), 0};
  const AttendPlan p = plan_for(c, s, tokens, max_positions);
  return {p.scratch_bytes(), p.arrivals_bytes()};
}

namespace {

/// 0 everywhere without a bias.
Alibi alibi_of(const AttentionShape& s) {
  const auto whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(s.heads)));
  return {.step = s.max_bias / static_cast<float>(2 * whole),
          .whole = whole,
          .factor = static_cast<float>(std::numbers::log2e / static_cast<double>(score_factor(s)))};
}

AttendArgs arguments_of(const float* q, float* y, const CacheView& c, const AttentionShape& s, const StepView& step,
                        const AttendPlan& p, std::byte* scratch, std::byte* arrivals) {
  AttendArgs a{};
  a.q = q;
  a.y = y;
  a.k = reinterpret_cast<const unsigned char*>(c.k);
  a.v = reinterpret_cast<const unsigned char*>(c.v);
  a.partials = reinterpret_cast<float*>(scratch);
  a.arrivals = reinterpret_cast<unsigned*>(arrivals);
  a.positions = step.positions;
  a.sequence = step.sequence;
  a.block_table = step.block_table;
  a.k_type = c.k_type;
  a.v_type = c.v_type;
  a.table_stride = step.table_stride;
  a.heads = s.heads;
  a.kv_heads = c.kv_heads;
  a.group = s.heads / c.kv_heads;
  a.head_tiles = p.head_tiles;
  a.tile_group = (a.group + p.head_tiles - 1) / p.head_tiles;
  a.head_dim_k = c.head_dim_k;
  a.head_dim_v = c.head_dim_v;
  a.k_row_bytes = cache_row_bytes(c.k_type, c.head_dim_k);
  a.v_row_bytes = cache_row_bytes(c.v_type, c.head_dim_v);
  a.stage_rows = p.stage_rows;
  a.stage_bytes = p.stage_bytes;
  a.window = s.window;
  a.sinks = s.sinks;
  a.scale_log2 = score_factor(s);
  a.cap_factor = cap_factor(s);
  a.alibi = alibi_of(s);
  a.round_query = s.query == ActFormat::Q8x32 && cache_block_bytes(c.k_type) != 0;
  a.stripes = p.stripes;
  a.splits = p.splits;
  return a;
}

void launch_attention(const AttendArgs& a, const CacheView& c, const AttendPlan& p, int tokens, const Launch& at) {
  const AttendKernel kernel = kernel_for(c, p, a.raw.k != nullptr);
  const std::size_t shared = p.shared_bytes();
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared)),
             "giving attention its shared memory");
  launch(kernel,
         dim3(static_cast<unsigned>(p.splits), static_cast<unsigned>(c.kv_heads * p.head_tiles),
              static_cast<unsigned>(tokens)),
         dim3(kThreads), shared, at, a);
}

}  // namespace

void attend(const float* q, float* y, const CacheView& c, const AttentionShape& s, const StepView& step, int tokens,
            std::int64_t max_positions, std::byte* scratch, std::byte* arrivals, const Launch& at) {
  if (tokens <= 0) return;
  if (attends_wide(c) && s.max_bias == 0) return attend_wide(q, y, c, s, step, tokens, max_positions, scratch, at);
  const AttendPlan p = plan_for(c, s, tokens, max_positions);
  launch_attention(arguments_of(q, y, c, s, step, p, scratch, arrivals), c, p, tokens, at);
}

bool attends_with_rope(const CacheView& c, const AttentionShape& s, std::int64_t max_positions) {
  return appends_with_rope(c.k_type, c.v_type) && plan_for(c, s, 1, max_positions).tiles > 0;
}

void rope_append_attend(const Rope& op, const RopeAppend& r, float* y, const CacheView& c, const AttentionShape& s,
                        const StepView& step, std::int64_t max_positions, std::byte* scratch, std::byte* arrivals,
                        const Launch& at) {
  const AttendPlan p = plan_for(c, s, 1, max_positions);
  check(p.tiles > 0 && op.n_rot <= c.head_dim_k, "one token's heads are turned where it is attended to");
  check((r.norm_q == nullptr) == (r.norm_k == nullptr), "both norms or none");
  for (const float* const heads : {r.q, r.k, r.norm_q, r.norm_k})
    check(reinterpret_cast<std::uintptr_t>(heads) % 16 == 0, "heads are aligned to 16 bytes");
  AttendArgs a = arguments_of(r.q, y, c, s, step, p, scratch, arrivals);
  a.raw = {.k = r.k,
           .v = r.v,
           .table = r.table,
           .norm_q = r.norm_q,
           .norm_k = r.norm_k,
           .slots = step.slots,
           .keys = reinterpret_cast<unsigned char*>(c.k),
           .values = reinterpret_cast<unsigned char*>(c.v),
           .eps = r.eps,
           .turn = {op.n_rot, op.pairing == RopePairing::Halves}};
  launch_attention(a, c, p, 1, at);
}

}  // namespace llm::cuda
