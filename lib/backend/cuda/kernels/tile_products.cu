// Products over tiles: targets of one type share a launch, columns beyond kMaxColumns come in turns.
#include <algorithm>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/tile_products.cuh"
#include "backend/cuda/kernels/tiles.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

void launch_type(DType type, const TileArguments& arguments, const Launch& at) {
  switch (type) {
#define LLM_TILE_CASE(name) \
  case DType::name:         \
    return launch_tile_products<DType::name>(arguments, at);
    LLM_TILE_TYPES(LLM_TILE_CASE)
#undef LLM_TILE_CASE
    default:
      check(false, "a matrix without tiles among products of tiles");
  }
}

/// One launch for each type that occurs among the targets.
void launch_targets(std::span<const Target> targets, TileArguments arguments, const Launch& at) {
  check(targets.size() <= kMaxTargets, "products have too many targets");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const DType type = targets[i].type.type;
    const auto is_type = [&](const Target& t) { return t.type.type == type; };
    if (std::any_of(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(i), is_type)) continue;
    arguments.n_targets = arguments.strips = 0;
    for (const Target& t : targets) {
      if (!is_type(t) || t.type.n == 0) continue;
      arguments.targets[arguments.n_targets++] = {.matrix = t.matrix,
                                                  .matrix_bytes = static_cast<std::int64_t>(matrix_bytes(t.type)),
                                                  .bias = t.bias,
                                                  .scale = t.scale,
                                                  .y = t.y,
                                                  .n = static_cast<int>(t.type.n),
                                                  .first_strip = arguments.strips};
      arguments.strips += static_cast<int>(strips(t.type.n));
    }
    if (arguments.n_targets > 0) launch_type(type, arguments, at);
  }
}

TileArguments arguments_of(std::span<const Target> targets, const std::byte* x, int capacity) {
  const MatrixType& m = targets.front().type;
  const ActFormat format = info(m.type).activation;
  check(quantized_bytes(format, m.k, capacity) <= 0xffffffffu, "activations of 4 GiB or more");
  TileArguments arguments;
  arguments.k = m.k;
  arguments.x = x;
  arguments.x_scales = static_cast<std::uint32_t>(scales_offset(format, 0, 0, m.k, capacity));
  return arguments;
}

}  // namespace

void tile_products(std::span<const Target> targets, const std::byte* x, int capacity, int columns, const Launch& at) {
  if (targets.empty()) return;
  TileArguments arguments = arguments_of(targets, x, capacity);
  for (int first = 0; first < columns; first += kMaxColumns) {
    arguments.first_column = first;
    arguments.columns = std::min(columns - first, kMaxColumns);
    launch_targets(targets, arguments, at);
  }
}

void expert_tile_products(std::span<const Target> targets, const std::byte* x, int capacity, const RouteGroups& groups,
                          const Launch& at) {
  if (targets.empty() || groups.max_groups == 0) return;
  TileArguments arguments = arguments_of(targets, x, capacity);
  arguments.groups = groups;
  launch_targets(targets, arguments, at);
}

}  // namespace llm::cuda
