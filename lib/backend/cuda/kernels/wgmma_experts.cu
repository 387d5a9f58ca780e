// Targets of one type share their launches.
#include <vector>

#include "backend/cuda/kernels/wgmma_experts.cuh"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "base/error.h"

namespace llm::cuda {

#define LLM_EXPERTS_DECLARED(name) \
  extern template void launch_wgmma_experts<kReadAs<DType::name>>(WgmmaExpertArguments, int, const Launch&);
LLM_TILE_TYPES(LLM_EXPERTS_DECLARED)
#undef LLM_EXPERTS_DECLARED

namespace {

void launch_type(DType type, const WgmmaExpertArguments& arguments, int routes, const Launch& at) {
  switch (type) {
#define LLM_EXPERTS_CASE(name) \
  case DType::name:            \
    return launch_wgmma_experts<kReadAs<DType::name>>(arguments, routes, at);
    LLM_TILE_TYPES(LLM_EXPERTS_CASE)
#undef LLM_EXPERTS_CASE
    default:
      check(false, "a matrix of a type without tiles");
  }
}

}  // namespace

void wgmma_expert_products(std::span<const Target> targets, const std::byte* x, int capacity, const float* unscale,
                           const RouteGroups& groups, int routes_of_expert, const Launch& at) {
  check(targets.size() <= kMaxTargets, "products have too many targets");
  constexpr int kMostGroups = 65535;  // numbers of 16 bits
  check(groups.columns <= kGroupedColumns && groups.max_groups <= kMostGroups, "groups are of up to 128 routes");
  if (targets.empty() || groups.max_groups == 0) return;
  WgmmaExpertArguments arguments;
  arguments.k = static_cast<int>(targets.front().type.k);
  arguments.x = x;
  arguments.lines = static_cast<int>(panel_lines(capacity));
  arguments.unscale = unscale;
  arguments.groups = groups;
  const std::vector<DType> types = types_of(targets);
  for (const DType type : types) {
    arguments.n_targets = arguments.tiles = 0;
    for (const Target& t : targets) {
      if (t.type.type != type || t.type.n == 0) continue;
      arguments.targets[arguments.n_targets++] = {.matrix = t.matrix,
                                                  .matrix_bytes = static_cast<std::int64_t>(matrix_bytes(t.type)),
                                                  .bias = t.bias,
                                                  .scale = t.scale,
                                                  .y = t.y,
                                                  .n = static_cast<int>(t.type.n),
                                                  .first_tile = arguments.tiles};
      arguments.tiles += static_cast<int>((t.type.n + kWgmmaRows - 1) / kWgmmaRows);
    }
    arguments.is_beside = type != types.front();
    arguments.has_next = type != types.back();
    launch_type(type, arguments, routes_of_expert, at);
  }
}

}  // namespace llm::cuda
