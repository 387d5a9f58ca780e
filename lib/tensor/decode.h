// Storage types to f32: the definition of what a block means. Bit-exact with the format's published decoders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace llm {

/// Decodes `n` elements (a multiple of the type's block_elems) that start at a block boundary.
/// I64 and F64 round to the nearest f32.
void decode(DType, const std::byte* src, float* dst, std::int64_t n);

using DecodeFn = void (*)(const std::byte* src, float* dst, std::int64_t n);
DecodeFn decoder(DType);

}  // namespace llm
