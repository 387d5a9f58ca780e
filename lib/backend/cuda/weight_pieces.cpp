#include "backend/cuda/weight_pieces.h"

#include <algorithm>
#include <cstring>

#include "tensor/decode.h"

namespace llm::cuda {
namespace {

std::size_t stored_row_bytes(const WeightPiece& p) { return TensorType{p.stored, {p.type.k}}.row_bytes(); }
std::size_t copied_row_bytes(const MatrixType& m) { return TensorType{m.type, {m.k}}.row_bytes(); }

}  // namespace

std::size_t WeightPiece::stored_bytes() const { return stored_row_bytes(*this) * static_cast<std::size_t>(n_rows); }

std::size_t WeightPiece::copied_bytes() const { return copied_row_bytes(type) * static_cast<std::size_t>(n_rows); }

/// In the file the rows of all experts follow one another; if they do so on the device, a piece takes rows of several.
std::vector<WeightPiece> pieces_of(const StoredMatrix& m, std::byte* to, std::size_t bytes) {
  std::vector<WeightPiece> pieces;
  WeightPiece piece{.stored = m.stored, .type = m.type, .matrix = to};
  std::int64_t experts = m.experts;
  if (experts_are_rows(m.type)) {
    piece.type.n *= experts;
    experts = 1;
  }
  const auto fitting = static_cast<std::int64_t>(bytes / copied_row_bytes(m.type));
  const std::int64_t height = std::max<std::int64_t>(kTileRows, fitting / kTileRows * kTileRows);
  for (std::int64_t e = 0; e < experts; ++e) {
    for (piece.first_row = 0; piece.first_row < piece.type.n; piece.first_row += height) {
      piece.n_rows = std::min(height, piece.type.n - piece.first_row);
      pieces.push_back(piece);
      piece.offset += piece.stored_bytes();
    }
    piece.matrix += matrix_bytes(m.type);
  }
  return pieces;
}

void fill(const WeightPiece& p, const std::byte* rows, std::byte* pinned) {
  if (p.copied_as_stored())
    std::memcpy(pinned, rows, p.copied_bytes());
  else
    decode(p.stored, rows, reinterpret_cast<float*>(pinned), p.n_rows * p.type.k);
}

void send(const WeightPiece& p, const std::byte* pinned, std::byte* raw, cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(raw, pinned, p.copied_bytes(), cudaMemcpyHostToDevice, stream), "copying weights");
  pack_rows(p.type, raw, p.first_row, p.n_rows, p.matrix, {.stream = stream});
}

}  // namespace llm::cuda
