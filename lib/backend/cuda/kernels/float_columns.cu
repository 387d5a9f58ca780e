// Products of float rows with one column that their blocks make themselves: what rms_norm() or make_forms() would have
// written goes into each block's memory while its first weights are on their way. What float_products() runs afterwards
// is the same, and so are the bits.
//
// A norm in every block pays where blocks are few, as a router's: it is 2 or 3 us from the previous kernel's end to the
// first product, which rows of many blocks pay in every wave of them. 1B F16 (tg128): norms by their own kernels 1,018
// t/s, by the products' 986, by blocks that stay for many rows 926.
#include <algorithm>

#include "backend/cuda/kernels/column_source.cuh"
#include "backend/cuda/kernels/float_columns.h"
#include "backend/cuda/kernels/float_products.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// Most that a block has without being told that it needs more.
constexpr std::size_t kColumnBytes = std::size_t{46} << 10;

std::size_t column_bytes(std::int64_t k) { return static_cast<std::size_t>(k_blocks(k)) * kBlockK * sizeof(float); }

/// Of a warp in a short row, all of it: the kernel has few registers, so that its blocks start beside those of a ring.
constexpr int kFewLoads = 2;

/// Of both targets, of one size, a warp has the same row in hand: lane 0 gets both totals.
__device__ __forceinline__ void finish_gated(const FloatProducts& p, const GatedResult& to, const BlockTotal& total) {
  const int lane = lane_id(), t = total_of_lane(lane, 2);
  const float y = finished(p.target[t], 0, total.row, total.sum);
  const float up = __shfl_xor_sync(kWholeWarp, y, kWarp / 2);
  if (lane != 0 || total.column < 0) return;
  to.y[total.row] = to.activation == Activation::Silu ? gated<Activation::Silu>(y, up) : gated<Activation::Gelu>(y, up);
}

template <class Type, int kRows, int kAhead, ColumnWay way>
__global__ void __launch_bounds__(kProductThreads, kRows == 1 && kAhead > kFewLoads ? 2 : 3)
    float_column_kernel(const __grid_constant__ FloatProducts products, const __grid_constant__ ColumnSource source,
                        const __grid_constant__ GatedResult gated) {
  extern __shared__ float4 column_shared[];
  __shared__ float4 of_parts[kMaxParts / 4];
  let_next_start();
  const bool both = gated.y != nullptr;
  const int block = static_cast<int>(blockIdx.x), t = both ? 0 : target_of(products, block);
  BlockTask task = task_of(products, t, block, both ? 1 : kRows, 0);
  if (both) task.other = products.target[1].matrix - products.target[0].matrix;
  const auto column = [&]() -> const float* {
    if constexpr (way == ColumnWay::Copied) return WrittenColumns{source.x}();
    auto* const made = reinterpret_cast<float*>(column_shared);
    make_column<way>(source, products.k, static_cast<int>(threadIdx.x) / kWarp, kProductWarps, of_parts,
                     StoreFloats{made, std::is_same_v<Type, Bf16Rows>});
    __syncthreads();
    return made;
  };
  const BlockColumns one{0, 1, nullptr, 1};
  const BlockTotal total = multiply_block<Type, 16 / Type::kBytes, 1, kRows, kAhead>(task, one, column);
  if (kRows == 2 && both)
    finish_gated(products, gated, total);
  else
    finish(products, t, 0, one, total);
}

/// Of a way that makes the column.
template <class Type, int kRows, int kAhead>
auto making_kernel(ColumnWay way) {
  if (!norms(way)) return float_column_kernel<Type, kRows, kAhead, ColumnWay::Plain>;
  return way == ColumnWay::Normed1 ? float_column_kernel<Type, kRows, kAhead, ColumnWay::Normed1>
                                   : float_column_kernel<Type, kRows, kAhead, ColumnWay::Normed>;
}

template <class Type>
void launch_type(std::span<const Target> targets, const ColumnSource& source, const Launch& at,
                 const GatedResult& gated) {
  const bool both = gated.y != nullptr, few = !both && has_few_rows(targets);
  const bool makes = source.norm != nullptr || std::is_same_v<Type, Bf16Rows>;
  const FloatProducts p =
      float_products_of(targets, nullptr, 16 / Type::kBytes, both || few ? 1 : 2, /*experts=*/false);
  const auto blocks = static_cast<unsigned>(both ? p.target[1].first_block : p.blocks);
  const bool is_short = p.k <= kFewLoads * kProductThreads * (16 / Type::kBytes);
  const ColumnWay way = column_way(source, p.k, kProductWarps);
  const auto kernel = !makes            ? float_column_kernel<Type, 2, 3, ColumnWay::Copied>
                      : few && is_short ? making_kernel<Type, 1, kFewLoads>(way)
                      : few             ? making_kernel<Type, 1, 6>(way)
                                        : making_kernel<Type, 2, 3>(way);
  launch(kernel, dim3(blocks), dim3(kProductThreads), makes ? column_bytes(p.k) : 0, at, p, source, gated);
}

}  // namespace

bool makes_float_column(std::span<const MatrixType> matrices) {
  const MatrixType& first = matrices[0];
  return !has_tiles(first.type) && column_bytes(first.k) <= kColumnBytes &&
         std::all_of(matrices.begin(), matrices.end(),
                     [&](const MatrixType& m) { return m.type == first.type && m.k == first.k && loads_wide(m); });
}

void float_column_products(std::span<const Target> targets, const ColumnSource& source, const Launch& at,
                           const GatedResult& gated) {
  const MatrixType& first = targets[0].type;
  check(gated.y == nullptr || (targets.size() == 2 && targets[1].type.n == first.n),
        "a gate and what it lets through are of one size");
  // A column that lies there as it is read needs no copy.
  if (source.norm == nullptr && gated.y == nullptr && first.type != DType::BF16)
    return float_products(targets, source.x, 1, at);
  if (first.type == DType::F32) return launch_type<F32Rows>(targets, source, at, gated);
  if (first.type == DType::F16) return launch_type<F16Rows>(targets, source, at, gated);
  launch_type<Bf16Rows>(targets, source, at, gated);
}

}  // namespace llm::cuda
