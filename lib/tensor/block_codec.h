// Decoder and encoder of one block of each type: what decode.cpp and quantize.cpp make their tables of, defined in
// files per family of types.
#pragma once

#include "tensor/blocks.h"

namespace llm {

#define LLM_DTYPE(name, id, elems, block, use, activation) \
  void decode_block(const block&, float* y);               \
  void encode_block(const float* x, block&);
#include "tensor/dtypes.def"
#undef LLM_DTYPE

}  // namespace llm
