// Products over tiles: targets of one type share a launch, columns beyond kMaxColumns come in turns.
#include <algorithm>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/tile_products.cuh"
#include "backend/cuda/kernels/tile_ring.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// By the ring wherever it can run: alone, products of a few megabytes are a little slower by it, but whole models are
/// faster, since its weights are on their way before the previous kernel has ended. With more columns, these do not fit.
void launch_type(DType type, const TileArguments& arguments, const Launch& at) {
  switch (type) {
#define LLM_TILE_CASE(name)                                       \
  case DType::name:                                               \
    if (launch_ring_products<DType::name>(arguments, at)) return; \
    return launch_tile_products<DType::name>(arguments, at);
    LLM_TILE_TYPES(LLM_TILE_CASE)
#undef LLM_TILE_CASE
    default:
      check(false, "a matrix without tiles among products of tiles");
  }
}

void add_target(TileArguments& to, const Target& t) {
  to.targets[to.n_targets++] = {.matrix = t.matrix,
                                .matrix_bytes = static_cast<std::int64_t>(matrix_bytes(t.type)),
                                .bias = t.bias,
                                .scale = t.scale,
                                .y = t.y,
                                .n = static_cast<int>(t.type.n),
                                .first_strip = to.strips};
  to.strips += static_cast<int>(strips(t.type.n));
}

/// One launch for each type that occurs among the targets, or for two.
void launch_targets(std::span<const Target> targets, const TileArguments& arguments, const Launch& at) {
  check(targets.size() <= kMaxTargets, "products have too many targets");
  struct OfType {
    DType type;
    TileArguments arguments;
  };
  OfType types[kMaxTargets];
  int n_types = 0;
  for (const Target& t : targets) {
    if (t.type.n == 0) continue;
    OfType* of = std::find_if(types, types + n_types, [&](const OfType& o) { return o.type == t.type.type; });
    if (of == types + n_types) types[n_types++] = {t.type.type, arguments};
    add_target(of->arguments, t);
  }
  if (n_types == 2 && launch_ring_pair(types[0].type, types[0].arguments, types[1].type, types[1].arguments, at))
    return;
  for (int i = 0; i < n_types; ++i) launch_type(types[i].type, types[i].arguments, at);
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
