// Grouped products: targets of one type share a launch.
#include <algorithm>

#include "backend/cuda/kernels/grouped_kernel.cuh"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {

#define LLM_TILE_DECLARED(name) \
  extern template void launch_grouped_products<DType::name>(const GroupedArguments&, const Launch&);
LLM_TILE_TYPES(LLM_TILE_DECLARED)
#undef LLM_TILE_DECLARED

namespace {

void launch_type(DType type, const GroupedArguments& arguments, const Launch& at) {
  if (type == DType::F16) return launch_grouped_products<DType::F16>(arguments, at);
  if (type == DType::BF16) return launch_grouped_products<DType::BF16>(arguments, at);
  with_tile(type, [&](auto of) { launch_grouped_products<kReadAs<of()>>(arguments, at); });
}

}  // namespace

void grouped_products(std::span<const Target> targets, const HalfRows& x, const RouteGroups& groups, const Launch& at) {
  constexpr int kMostInGrid = 65535;
  check(targets.size() <= kMaxTargets, "products have too many targets");
  if (targets.empty() || groups.max_groups == 0) return;
  const std::int64_t k = targets.front().type.k;
  check(grouped_products_take(k) && groups.columns <= kGroupedColumns && groups.max_groups <= kMostInGrid,
        "grouped products take rows of whole 16 bytes and groups of up to 128");
  GroupedArguments arguments;
  arguments.k = static_cast<int>(k);
  arguments.x = static_cast<const uint4*>(x.f16);
  arguments.x_rest = static_cast<const uint4*>(x.rest);
  arguments.unscale = x.unscale;
  arguments.groups = groups;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const DType type = targets[i].type.type;
    const auto is_type = [&](const Target& t) { return t.type.type == type; };
    if (std::any_of(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(i), is_type)) continue;
    arguments.n_targets = arguments.blocks = 0;
    for (const Target& t : targets) {
      if (!is_type(t) || t.type.n == 0) continue;
      arguments.targets[arguments.n_targets++] = kernel_target(t, arguments.blocks);
      arguments.blocks += static_cast<int>((t.type.n + kGroupedRows - 1) / kGroupedRows);
    }
    if (arguments.n_targets > 0) launch_type(type, arguments, at);
  }
}

}  // namespace llm::cuda
