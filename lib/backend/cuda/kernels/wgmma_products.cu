// Targets of one type share a launch; those of several types run beside each other.
#include <algorithm>

#include "backend/cuda/kernels/wgmma_products.cuh"
#include "backend/cuda/kernels/wgmma_products.h"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {

#define LLM_WGMMA_DECLARED(name) \
  extern template void launch_wgmma_products<kReadAs<DType::name>>(WgmmaArguments, const Launch&);
LLM_TILE_TYPES(LLM_WGMMA_DECLARED)
#undef LLM_WGMMA_DECLARED

TargetTypes types_of(std::span<const Target> targets) {
  check(targets.size() <= kMaxTargets, "products have too many targets");
  TargetTypes types;
  for (const Target& t : targets) {
    DType* const end = types.list + types.count;
    if (t.type.n > 0 && std::find(types.list, end, t.type.type) == end) types.list[types.count++] = t.type.type;
  }
  return types;
}

bool has_wgmma() {
#ifdef LLM_CUDA_90A
  return device_limits().capability == 9;
#else
  return false;  // the kernels are not in this program
#endif
}

void set_targets(std::span<const Target> targets, DType type, WgmmaOperands& operands) {
  operands.n_targets = operands.tiles = 0;
  for (const Target& t : targets) {
    if (t.type.type != type || t.type.n == 0) continue;
    operands.targets[operands.n_targets++] = kernel_target(t, operands.tiles);
    operands.tiles += static_cast<int>((t.type.n + operands.tile_rows - 1) / operands.tile_rows);
  }
}

WgmmaOperands::WgmmaOperands(std::span<const Target> targets, const std::byte* x, int capacity, const float* unscale)
    : k(static_cast<int>(targets.front().type.k)),
      x(x),
      lines(static_cast<int>(panel_lines(capacity))),
      unscale(unscale) {
  check(has_wgmma(), "the device multiplies by wgmma");
}

void wgmma_products(std::span<const Target> targets, const std::byte* x, int capacity, const float* unscale,
                    int columns, const Launch& at) {
  check(columns <= capacity, "columns fit their buffer");
  if (targets.empty() || columns == 0) return;
  const WgmmaArguments arguments{{targets, x, capacity, unscale}, columns, {}};
  for_types(targets, arguments, [&](DType type, const WgmmaArguments& of_type) {
    with_tile(type, [&](auto of) { launch_wgmma_products<kReadAs<of()>>(of_type, at); });
  });
}

}  // namespace llm::cuda
