// Products of experts with many routes where compute capability is 9.0: what grouped_products() gives, by wgmma, of
// operands in F16 or in E4M3.
#pragma once

#include <cstddef>
#include <span>

#include "backend/cuda/kernels/grouped_products.h"

namespace llm::cuda {

/// y [routes][n] = w x * unscale[row] * scale + bias. Weights of any type that has tiles, rounded to F16; x [rows] as
/// half_panels.h has it, with room for `capacity` rows; unscale [rows] as Forms has it (rows.h); groups of up to
/// kGroupedColumns; sums in f32. All targets share k. The bits of a route's result do not depend on the other routes
/// or on how they are grouped. `routes_of_expert`: so many are expected, in the mean; speed depends on it.
void wgmma_expert_products(std::span<const Target>, const std::byte* x, int capacity, const float* unscale,
                           const RouteGroups&, int routes_of_expert, const Launch&);

/// A target whose weights become E4M3.
struct Float8Target {
  Target target;
  const float* scales = nullptr;  ///< [experts][n]: what the rows are divided by, find_f8_scales()
};
/// Routes of a group that kernels of wgmma_expert_products_f8() take at most. Steps and numbers of experts are mostly
/// powers of two, and so is the mean of an expert's routes. Half of the experts have more, for the last of which all
/// weights would be decoded again: so they are 16 more than 64 and 128.
inline constexpr int kFloat8Columns[] = {80, 144, 192};
/// How many group_routes() is to be asked for, where an expert has so many routes in the mean.
constexpr int wgmma_expert_columns_f8(int routes_of_expert) {
  return routes_of_expert <= 128 ? kFloat8Columns[1] : kFloat8Columns[2];
}
/// Whether rows of x may have so many elements: they begin at multiples of 16 bytes.
constexpr bool wgmma_expert_products_f8_take(std::int64_t k) { return k % 16 == 0; }
/// Longer rows are multiplied faster in F16 (docs/cuda-kernels.md).
inline constexpr std::int64_t kFloat8MostK = 2048;

/// The same of weights divided by the factors of their rows and rounded to E4M3 (to one of its two neighbours where a
/// weight is within 2^-16 of their middle), and of x [rows][k] of E4M3 with factors x_scale [rows]. Sums are those of
/// the tensor cores, which keep some 14 bits, over up to 2,048 of k, and of these in f32.
/// Groups are of up to kFloat8Columns[2] routes.
void wgmma_expert_products_f8(std::span<const Float8Target>, const std::byte* x, int rows, const float* x_scale,
                              const RouteGroups&, const Launch&);

}  // namespace llm::cuda
