// f32 to storage types by search: scales and quants that bring the decoded row as near to the source as the type
// allows, with or without importance weights. What llm-quantize calls; tensor/quantize.h is the plain rounding beside
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace llm {

/// Quantises `rows` rows of `n` elements (a multiple of the type's block_elems) into rows * n / block_elems blocks.
/// Minimises the sum over elements of importance[column] * (decoded - source)^2, where importance is [n], the mean
/// square of the activations that meet the column, or nullptr for 1 everywhere; Q2_K, Q3_K, IQ1, IQ2 and IQ3 then
/// undo what that shrinks, or half of it (kernels/shrinking.h). A type of one element per block is rounded.
///
/// The bytes depend on the row and the importance alone: the same for every instruction set, for rows together or one
/// by one. Throws ErrorKind::Numeric, naming row and column, for a source or an importance that is not finite or an
/// importance below zero.
void quantize(DType, const float* src, std::byte* dst, std::int64_t rows, std::int64_t n, const float* importance);

/// Whether a model quantised to this type without importance is not worth having: the types whose codebooks have few
/// entries. quantize() takes them all the same.
bool needs_importance(DType);

}  // namespace llm
