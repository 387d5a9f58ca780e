// From a type that is known when the program runs to the code that is compiled for it.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/tiles.cuh"
#include "base/error.h"

namespace llm::cuda {

/// f(std::integral_constant<DType, type>) of a type with tiles.
template <class F>
auto with_tile(DType type, const F& f) {
  switch (type) {
#define LLM_TILE_CASE(name) \
  case DType::name:         \
    return f(std::integral_constant<DType, DType::name>());
    LLM_TILE_TYPES(LLM_TILE_CASE)
#undef LLM_TILE_CASE
    default:
      check(false, "a matrix of a type without tiles");
      return f(std::integral_constant<DType, DType::Q8_0>());
  }
}

}  // namespace llm::cuda
