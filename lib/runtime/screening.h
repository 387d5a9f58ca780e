// Numbers that cannot be right, found before they cost anything.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "gguf/file.h"
#include "graph/graph.h"
#include "model/lora.h"

namespace llm {

/// Index of the first NaN or infinity, by the bits of the floats: holds under any floating-point mode.
std::optional<std::size_t> first_non_finite(std::span<const float> values);

/// Looks for NaN and infinity in the small weights that a graph reads: norms, biases, factors, routers. Matrices are
/// not read, that would read the whole file. Throws ErrorKind::Model naming the tensor.
void screen_small_weights(const GgufFile&, std::span<const LoraAdapter>, const Graph&);

}  // namespace llm
