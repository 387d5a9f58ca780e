// f32 to storage types by plain rounding: what tests, tools and small caches need. One function per type of dtypes.def.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace llm {

/// Encodes `n` elements (a multiple of block_elems) so that decode() gives back values near them: scales from the
/// block's extremes, quants rounded to nearest, no search. Types of every use are accepted.
void encode(DType, const float* src, std::byte* dst, std::int64_t n);

}  // namespace llm
