// Products of experts with many routes, on tensor cores: what prompts need. A pass over an expert's weights serves up
// to 128 routes instead of expert_tile_products' 32, and activations are F16 instead of int8.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"

namespace llm::cuda {

/// Routes of a group that grouped_products takes at most; group_routes() is asked for groups of this many.
inline constexpr int kGroupedColumns = 128;

/// Rows of F16 begin at multiples of 16 bytes.
constexpr bool grouped_products_take(std::int64_t k) { return k % 8 == 0; }

/// Rows [rows][k] of F16 in one part or two, and their factors, as Forms has them (rows.h); begun at multiples of 16
/// bytes.
struct HalfRows {
  const void* f16;
  const void* rest;  ///< null: one part
  const float* unscale;
};

/// y [routes][n] = w x * unscale[row] * scale + bias. Weights of any type but F32, rounded to F16; sums in f32. Weights
/// of F16 multiply the second part of x, too, where there is one; the others do not. All targets share k.
/// The bits of a route's result do not depend on the other routes or on how they are grouped.
void grouped_products(std::span<const Target>, const HalfRows& x, const RouteGroups&, const Launch&);

}  // namespace llm::cuda
