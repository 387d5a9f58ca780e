// What the products over tiles are called with, type by type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels/kernel_target.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"

namespace llm::cuda {

/// Targets of one type. `groups` without n_groups means columns first_column .. first_column + columns - 1 of x; else
/// the columns of each group.
struct TileArguments {
  KernelTarget targets[kMaxTargets];
  int n_targets = 0;
  int strips = 0;  ///< of all targets
  std::int64_t k = 0;
  const std::byte* x = nullptr;
  std::uint32_t x_scales = 0;  ///< offset in x of the scales of group 0, block 0
  int first_column = 0, columns = 0;
  int prefetched = 0;  ///< strips that a block asks the L2 cache for before it waits for its input
  RouteGroups groups;
};

/// One pass over the weights of arguments.targets, of `type`, for all their columns (kMaxColumns at most).
template <DType type>
void launch_tile_products(const TileArguments& arguments, const Launch&);

}  // namespace llm::cuda
