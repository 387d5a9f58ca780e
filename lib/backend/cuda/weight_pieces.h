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

/// A weight as the file has it.
struct StoredMatrix {
  DType stored = DType::F32;
  MatrixType type = {};  ///< on the device; of one expert
  std::int64_t experts = 1;
};

/// Rows of one matrix; it may be all experts of one.
struct WeightPiece {
  std::uint64_t offset = 0;  ///< of its first byte in the weight's, as the file has them
  DType stored = DType::F32;
  MatrixType type = {};
  std::int64_t first_row = 0, n_rows = 0;
  std::byte* matrix = nullptr;  ///< on the device

  std::size_t stored_bytes() const;
  /// As it is copied: F64 becomes F32 on the way.
  std::size_t copied_bytes() const;
  bool copied_as_stored() const { return stored == type.type; }
};

/// The matrix in pieces of at most `bytes`, but at least 16 rows, for `to` on the device.
std::vector<WeightPiece> pieces_of(const StoredMatrix&, std::byte* to, std::size_t bytes);

/// `rows` are the piece's as the file has them; `pinned`, here and below, holds it as it is copied.
void fill(const WeightPiece&, const std::byte* rows, std::byte* pinned);
/// Enqueues the copy of what was filled and its packing, which reads `raw`.
void send(const WeightPiece&, const std::byte* pinned, std::byte* raw, cudaStream_t);

}  // namespace llm::cuda
