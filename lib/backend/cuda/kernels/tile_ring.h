// Products over tiles with few columns, by the kernel of tile_ring.cuh where it can run.
#pragma once

#include <algorithm>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/tile_products.cuh"
#include "tensor/dtype.h"

namespace llm::cuda {

inline constexpr int kRingColumns = 16;

/// Shared memory of a block that wants `bytes`: more than half of a multiprocessor's, since two blocks of one launch
/// must not share a multiprocessor: each has as many strips as one that has it to itself.
inline int alone_bytes(const DeviceLimits& device, int bytes) {
  constexpr int kUnit = 128;  // in which shared memory is given out
  const int alone = device.multiprocessor_bytes / 2 - device.reserved_bytes + kUnit;
  return std::min(std::max(bytes, alone), device.block_bytes);
}

/// Whether the ring can run: not before compute capability 9.0, with routes of experts, with more than kRingColumns
/// columns or with more than fit beside the weights.
template <DType type>
bool ring_takes(const TileArguments&);
/// What products of one column can have before them and behind them.
struct RingExtras {
  ColumnSource source;  ///< with its x, that of the arguments is not read
  GatedResult gated;    ///< with its y, of two targets of one size
};
/// Like launch_tile_products() with the same bits. False, and nothing launched, where ring_takes() says so.
template <DType type>
bool launch_ring_products(const TileArguments&, const Launch&, const RingExtras& = {});

/// Targets of two types, which share x, in one launch. False also where there is no kernel for the two.
bool ring_takes_pair(DType, const TileArguments&, DType, const TileArguments&);
bool launch_ring_pair(DType, const TileArguments&, DType, const TileArguments&, const Launch&,
                      const ColumnSource& = {});

}  // namespace llm::cuda
