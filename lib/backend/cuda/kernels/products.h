// Products of matrices with columns of activations: y = (w x) * scale + bias.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/matrix.h"

namespace llm::cuda {

/// One product of a Linear or an ExpertLinear.
struct Target {
  MatrixType type;
  const std::byte* matrix = nullptr;
  const float* bias = nullptr;   ///< [n], or [experts][n]; may be null
  const float* scale = nullptr;  ///< [1], or [experts]; may be null
  float* y = nullptr;            ///< [columns][n]; of experts [routes][n]
};
inline constexpr int kMaxTargets = 4;  ///< of one call

/// The routes of a step sorted by expert, in groups that one pass over an expert's weights serves. Made by
/// group_routes(); all in device memory.
struct RouteGroups {
  const std::int32_t* n_groups = nullptr;  ///< [1]: how many of max_groups there are in this step
  const std::int32_t* expert = nullptr;    ///< [max_groups]
  const std::int32_t* first = nullptr;     ///< [max_groups]: index into routes
  const std::int32_t* count = nullptr;     ///< [max_groups]: 1 .. columns
  const std::int32_t* routes = nullptr;    ///< [max_routes]: indices into [tokens][top_k], by expert, then ascending
  int max_groups = 0;
  int columns = 8;         ///< most routes of a group: of the products below up to kMaxColumns
  int routes_per_row = 1;  ///< x has one row per token (top_k) or one per route (1): row = route / routes_per_row
};

/// Columns that one launch of the products below takes; more are taken in turns of this many, which gives the same
/// bits.
inline constexpr int kMaxColumns = 64;

/// Tiles times quantised columns (act_layout.h; Q8x256 or Q8x32 as dtypes.def says for the type, with buffer capacity
/// `capacity` columns). All targets share k and the format of x; their types may differ. The bits of a column's result
/// do not depend on the other columns or on how many there are.
void tile_products(std::span<const Target>, const std::byte* x, int capacity, int columns, const Launch&);
void expert_tile_products(std::span<const Target>, const std::byte* x, int capacity, const RouteGroups&, const Launch&);

/// Float matrices of fewer rows have one in each warp's hand, so that there are more blocks than multiprocessors.
inline constexpr std::int64_t kFewRows = 512;

/// F32, F16 and BF16 rows times f32 columns x [columns][k]; sums in f32. The same independence of columns.
void float_products(std::span<const Target>, const float* x, int columns, const Launch&);
void expert_float_products(std::span<const Target>, const float* x, const RouteGroups&, const Launch&);

}  // namespace llm::cuda
