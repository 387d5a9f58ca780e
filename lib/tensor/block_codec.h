// Decoder and encoder of one block of each type: what decode.cpp and quantize.cpp make their tables of, defined in
// files per family of types. Hidden, so that a compiler may inline those of the same file into the loops over blocks
// although the code is position independent.
#pragma once

#include "tensor/blocks.h"

namespace llm {

#define LLM_DTYPE(name, id, elems, block, use, activation)                 \
  [[gnu::visibility("hidden")]] void decode_block(const block&, float* y); \
  [[gnu::visibility("hidden")]] void encode_block(const float* x, block&);
#include "tensor/dtypes.def"
#undef LLM_DTYPE

}  // namespace llm
