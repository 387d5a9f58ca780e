// Products of float rows with one column that their blocks make themselves: what rms_norm() or make_forms() would have
// written goes into each block's memory while its first weights are on their way. What float_products() runs afterwards
// is the same, and so are the bits.
//
// 396 blocks that norm 2,048 elements read 16 KB each from the second cache, 6 MB, for a kernel less, which is 2 us or
// more.
#include <algorithm>

#include "backend/cuda/kernels/column_source.cuh"
#include "backend/cuda/kernels/float_columns.h"
#include "backend/cuda/kernels/float_products.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/tile_ring.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// Most that a block has without being told that it needs more.
constexpr std::size_t kColumnBytes = std::size_t{46} << 10;

std::size_t column_bytes(std::int64_t k) { return static_cast<std::size_t>(k_blocks(k)) * kBlockK * sizeof(float); }

/// Of both targets, of one size, a warp has the same row in hand: lane 0 gets both totals.
__device__ __forceinline__ void finish_gated(const FloatProducts& p, const GatedResult& to, const BlockTotal& total) {
  const int lane = lane_id(), t = total_of_lane(lane, 2);
  const float y = finished(p.target[t], 0, total.row, total.sum);
  const float up = __shfl_xor_sync(kWholeWarp, y, kWarp / 2);
  if (lane != 0 || total.column < 0) return;
  to.y[total.row] = to.activation == Activation::Silu ? gated<Activation::Silu>(y, up) : gated<Activation::Gelu>(y, up);
}

constexpr int kBlocksTogether = 3;  ///< on a multiprocessor

/// A block makes the column once and takes blocks of rows blockIdx.x, + gridDim.x, ...
template <class Type, int kRows, int kAhead>
__global__ void __launch_bounds__(kProductThreads, kBlocksTogether)
    float_column_kernel(const __grid_constant__ FloatProducts products, const __grid_constant__ ColumnSource source,
                        const __grid_constant__ GatedResult gated, const int blocks) {
  extern __shared__ float4 column_shared[];
  __shared__ float4 of_parts[kMaxParts / 4];
  let_next_start();
  auto* const column = reinterpret_cast<float*>(column_shared);
  bool made = false;
  const auto make_once = [&] {
    if (made) return column;
    make_column(source, products.k, static_cast<int>(threadIdx.x) / kWarp, kProductWarps, of_parts,
                StoreFloats{column, std::is_same_v<Type, Bf16Rows>});
    __syncthreads();
    made = true;
    return column;
  };
  const bool both = gated.y != nullptr;
  const BlockColumns one{0, 1, nullptr, 1};
  for (int block = static_cast<int>(blockIdx.x); block < blocks; block += static_cast<int>(gridDim.x)) {
    const int t = both ? 0 : target_of(products, block);
    BlockTask task = task_of(products, t, block, both ? 1 : kRows, 0);
    if (both) task.other = products.target[1].matrix - products.target[0].matrix;
    const BlockTotal total = multiply_block<Type, 16 / Type::kBytes, 1, kRows, kAhead>(task, one, make_once);
    if (kRows == 2 && both)
      finish_gated(products, gated, total);
    else
      finish(products, t, 0, one, total);
  }
}

template <class Type>
void launch_type(std::span<const Target> targets, const ColumnSource& source, const Launch& at,
                 const GatedResult& gated) {
  const bool both = gated.y != nullptr, few = !both && has_few_rows(targets);
  const FloatProducts p =
      float_products_of(targets, nullptr, 16 / Type::kBytes, both || few ? 1 : 2, /*experts=*/false);
  const int blocks = both ? p.target[1].first_block : p.blocks;
  const int at_once = kBlocksTogether * ring_device().multiprocessors;
  launch(few ? float_column_kernel<Type, 1, 6> : float_column_kernel<Type, 2, 3>,
         dim3(static_cast<unsigned>(std::min(blocks, at_once))), dim3(kProductThreads), column_bytes(p.k), at, p,
         source, gated, blocks);
}

}  // namespace

bool makes_float_column(std::span<const MatrixType> matrices) {
  if (matrices.empty() || matrices.size() > kMaxTargets) return false;
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
