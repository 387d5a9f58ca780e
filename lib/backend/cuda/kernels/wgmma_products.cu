// Targets of one type share a launch; those of several types run beside each other.
#include <algorithm>
#include <vector>

#include "backend/cuda/kernels/wgmma_products.cuh"
#include "backend/cuda/kernels/wgmma_products.h"
#include "base/error.h"

namespace llm::cuda {

#define LLM_WGMMA_DECLARED(name) \
  extern template void launch_wgmma_products<kReadAs<DType::name>>(WgmmaArguments, const Launch&);
LLM_TILE_TYPES(LLM_WGMMA_DECLARED)
#undef LLM_WGMMA_DECLARED

namespace {

void launch_type(DType type, const WgmmaArguments& arguments, const Launch& at) {
  switch (type) {
#define LLM_WGMMA_CASE(name) \
  case DType::name:          \
    return launch_wgmma_products<kReadAs<DType::name>>(arguments, at);
    LLM_TILE_TYPES(LLM_WGMMA_CASE)
#undef LLM_WGMMA_CASE
    default:
      check(false, "a matrix of a type without tiles");
  }
}

}  // namespace

std::vector<DType> types_of(std::span<const Target> targets) {
  std::vector<DType> types;
  for (const Target& t : targets)
    if (t.type.n > 0 && std::find(types.begin(), types.end(), t.type.type) == types.end()) types.push_back(t.type.type);
  return types;
}

bool has_wgmma() { return ring_device().capability == 9; }

void wgmma_products(std::span<const Target> targets, const std::byte* x, int capacity, const float* unscale,
                    int columns, const Launch& at) {
  check(targets.size() <= kMaxTargets, "products have too many targets");
  check(columns <= capacity, "columns fit their buffer");
  if (targets.empty() || columns == 0) return;
  WgmmaArguments arguments;
  arguments.k = static_cast<int>(targets.front().type.k);
  arguments.x = x;
  arguments.lines = static_cast<int>(panel_lines(capacity));
  arguments.unscale = unscale;
  arguments.columns = columns;
  const std::vector<DType> types = types_of(targets);
  for (const DType type : types) {
    arguments.n_targets = arguments.tiles = 0;
    for (const Target& t : targets) {
      if (t.type.type != type || t.type.n == 0) continue;
      arguments.targets[arguments.n_targets++] = {.matrix = t.matrix,
                                                  .bias = t.bias,
                                                  .scale = t.scale,
                                                  .y = t.y,
                                                  .n = static_cast<int>(t.type.n),
                                                  .first_tile = arguments.tiles};
      arguments.tiles += static_cast<int>((t.type.n + kWgmmaRows - 1) / kWgmmaRows);
    }
    arguments.is_beside = type != types.front();
    arguments.has_next = type != types.back();
    launch_type(type, arguments, at);
  }
}

}  // namespace llm::cuda
