// Products of tiles with more than 64 columns where compute capability is 9.0: weights are decoded to F16 on their way
// to the tensor cores.
#pragma once

#include <cstddef>
#include <span>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"

namespace llm::cuda {

/// Whether the calling thread's device can.
bool has_wgmma();

/// y [columns][n] = w x * unscale[column] * scale + bias. Weights of any type that has tiles, rounded to F16; x as
/// half_panels.h has it, with room for `capacity` columns; unscale [columns] as Forms has it (rows.h); sums in f32, in
/// an order that depends on the number of columns. All targets share k.
void wgmma_products(std::span<const Target>, const std::byte* x, int capacity, const float* unscale, int columns,
                    const Launch&);

}  // namespace llm::cuda
