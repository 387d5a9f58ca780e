// Products of experts with many routes where compute capability is 9.0: what grouped_products() gives, by wgmma.
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

}  // namespace llm::cuda
