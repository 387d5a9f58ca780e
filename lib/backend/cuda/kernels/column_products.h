// Products with one column that do what other steps have kernels of their own for: its form and the norm before it, the
// gate behind it. Of tiles by the ring of tile_ring.cuh, where that runs; of float rows by their own kernel.
#pragma once

#include <span>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"
#include "graph/op.h"

namespace llm::cuda {

/// One column of x as f32, [k] each: products of it make the form that they read themselves, so that no kernel has to
/// run before them. It is x; or rms_norm(x); or rms_norm(x + added), where x + added is stored as well. Bits are those of
/// make_forms(), rms_norm() and add_rms_norm(). All aligned to 16 bytes; what is stored overlaps none of the others.
struct ColumnSource {
  const float* x = nullptr;
  const float* norm = nullptr;  ///< weights of the norm; null: none
  float eps = 0;
  const float* added = nullptr;  ///< only with a norm; may be null
  float* sum = nullptr;          ///< x + added
  float* normed = nullptr;       ///< the norm, if others read it too; only with a norm
};
/// Whether these matrices, multiplied with one column, can make its form themselves, all of them in one launch: tiles,
/// or float rows of one type.
bool makes_columns(std::span<const MatrixType>);
/// Whether those make a norm sooner than a kernel of its own would.
bool makes_norms(std::span<const MatrixType>);
/// Where activation(first) * second goes, of the products of two targets of one type and size, whose y are not written.
struct GatedResult {
  float* y = nullptr;
  Activation activation = Activation::Silu;
};
/// tile_products() or float_products() of one column, of matrices that makes_columns() takes; with glu() behind them where y is given.
void column_products(std::span<const Target>, const ColumnSource&, const Launch&, const GatedResult& = {});

}  // namespace llm::cuda
