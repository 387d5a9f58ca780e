// column_products() of F32, F16 and BF16 rows.
#pragma once

#include <span>

#include "backend/cuda/kernels/column_products.h"

namespace llm::cuda {

/// Whether all, one or more, are of one float type and their column has room in a block's memory.
bool makes_float_column(std::span<const MatrixType>);
void float_column_products(std::span<const Target>, const ColumnSource&, const Launch&, const GatedResult&);

}  // namespace llm::cuda
