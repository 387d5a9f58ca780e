// Pieces of matrices on their way from the file to the device: copied through page-locked memory, packed there into the
// layout that products want.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/matrix.h"
#include "tensor/tensor.h"

namespace llm::cuda {

/// A weight as the file has it, in this machine's memory.
struct StoredMatrix {
  const std::byte* rows = nullptr;
  DType stored = DType::F32;
  MatrixType type = {};  ///< on the device; of one expert
  std::int64_t experts = 1;
};

/// Rows of one matrix; it may be all experts of one.
struct WeightPiece {
  const std::byte* rows = nullptr;
  DType stored = DType::F32;
  MatrixType type = {};
  std::int64_t first_row = 0, n_rows = 0;
  std::byte* matrix = nullptr;  ///< on the device

  /// As it is copied: F64 becomes F32 on the way.
  std::size_t copied_bytes() const;
};

/// Appends the matrix in pieces of at most `bytes`, but at least 16 rows, for `to` on the device.
void add_pieces(std::vector<WeightPiece>&, const StoredMatrix&, std::byte* to, std::size_t bytes);
/// Of the largest piece.
std::size_t most_copied_bytes(const std::vector<WeightPiece>&);

/// Both buffers hold a piece as it is copied.
void fill(const WeightPiece&, std::byte* pinned);
/// Enqueues the copy of what was filled and its packing, which reads `raw`.
void send(const WeightPiece&, const std::byte* pinned, std::byte* raw, cudaStream_t);

}  // namespace llm::cuda
