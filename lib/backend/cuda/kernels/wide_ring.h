// Products over tiles with up to 64 columns, by the kernel of wide_ring.cuh where it can run.
#pragma once

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/tile_products.cuh"
#include "tensor/dtype.h"

namespace llm::cuda {

/// The storage types that it has kernels for.
#define LLM_WIDE_TYPES(X) \
  X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4)

/// Like launch_tile_products() with the same bits. False, and nothing launched, where it cannot run: before compute
/// capability 9.0, with routes of experts, columns from the middle of a group, other types.
bool launch_wide_products(DType, const TileArguments&, const Launch&);

/// Of one type; launch_wide_products() finds it.
template <DType type>
bool launch_wide(const TileArguments&, const Launch&);

}  // namespace llm::cuda
