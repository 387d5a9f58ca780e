// The searching quantisers of one instruction set as a function per storage type. The same sources are compiled once
// per set (cmake/kernels.cmake). No standard containers here: an inline function of the library that was compiled for
// AVX-512 could be the copy that the linker keeps for everybody.
//
// What comes out depends on a block and its weights alone: every set does the same operations on every lane, none of
// them fused, and lanes meet only in loops of a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace llm::quantizers {

/// Blocks that lie one after another, row after row. All values are finite.
struct Source {
  const float* x;
  const float* weights;  ///< of one row, [blocks_per_row * block_elems], positive, the largest between 1 and 4
  std::int64_t blocks;
  std::int64_t blocks_per_row;
};
using BlocksFn = void (*)(const Source&, std::byte* dst);

/// The quantiser of a type in this instruction set, nullptr for types of one element per block and for those that no
/// weight is stored in.
BlocksFn quantizer_portable(DType);
BlocksFn quantizer_avx2(DType);
BlocksFn quantizer_avx512(DType);

}  // namespace llm::quantizers
