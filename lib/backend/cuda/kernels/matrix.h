// Matrices in device memory: how a storage type lies there, and what can be done with one beside multiplying.
//
// Float types lie as in the file: rows of k elements. Quantised types lie as tiles of 16 rows x 256 k in the order in
// which a warp feeds the tensor cores (tiles.cuh says how, type by type), strip by strip of 16 rows; what is missing of
// the last strip or the last 256 is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/cuda/kernels/launch.h"
#include "tensor/dtype.h"

namespace llm::cuda {

inline constexpr int kTileRows = 16;

/// The type that a matrix of a storage type is kept as: itself, or F32 for F64.
DType device_type(DType stored);
/// Whether a type lies as tiles: the quantised ones.
bool has_tiles(DType);

/// n rows of k elements; `type` as device_type gives it. Experts follow one another, matrix_bytes() apart.
struct MatrixType {
  DType type = DType::F32;
  std::int64_t k = 0, n = 0;
};
/// A multiple of 128.
std::size_t matrix_bytes(const MatrixType&);
/// Whether experts that follow one another lie as one matrix of all their rows.
bool experts_are_rows(const MatrixType&);

/// Puts rows [first_row, first_row + n_rows) of a matrix, which lie at `rows` as in a file of type m.type, into
/// `matrix`. Both numbers are multiples of 16 unless the range ends with the matrix. Also of float types (a copy).
void pack_rows(const MatrixType& m, const std::byte* rows, std::int64_t first_row, std::int64_t n_rows,
               std::byte* matrix, const Launch&);

/// Rows [first_row, first_row + n_rows) decoded, rounded to F16: out [n_rows][k]. Any range.
void decode_rows_f16(const MatrixType& m, const std::byte* matrix, std::int64_t first_row, std::int64_t n_rows,
                     void* out, const Launch&);

/// What each row is divided by to be E4M3, 448 being its largest number: scales [n], each the largest magnitude of a
/// row / 448, 1 of a row of zeros.
void find_f8_scales(const MatrixType& m, const std::byte* matrix, float* scales, const Launch&);
/// Rows [first_row, first_row + n_rows) decoded, divided by their scales [n_rows] and rounded to E4M3: out [n_rows][k].
/// What is not finite becomes NaN. k is a multiple of 16.
void decode_rows_f8(const MatrixType& m, const std::byte* matrix, std::int64_t first_row, std::int64_t n_rows,
                    const float* scales, void* out, const Launch&);

/// y [count][k] = row ids[i] of the matrix, as f32 the values that lib/tensor's decoders give; an id ~i stands for
/// drawn[i]. One outside [0, n) gives NaN.
void gather_rows(const MatrixType& m, const std::byte* matrix, const std::int32_t* ids, const std::int32_t* drawn,
                 std::int64_t count, float* y, const Launch&);

}  // namespace llm::cuda
