// Targets of one type share their launches.
#include "backend/cuda/kernels/wgmma_experts.cuh"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {

#define LLM_EXPERTS_DECLARED(name) \
  extern template void launch_wgmma_experts<kReadAs<DType::name>>(WgmmaExpertArguments, int, const Launch&);
LLM_TILE_TYPES(LLM_EXPERTS_DECLARED)
#undef LLM_EXPERTS_DECLARED

void wgmma_expert_products(std::span<const Target> targets, const std::byte* x, int capacity, const float* unscale,
                           const RouteGroups& groups, int routes_of_expert, const Launch& at) {
  constexpr int kMostGroups = 65535;  // numbers of 16 bits
  check(groups.columns <= kGroupedColumns && groups.max_groups <= kMostGroups, "groups are of up to 128 routes");
  if (targets.empty() || groups.max_groups == 0) return;
  const WgmmaExpertArguments arguments{{targets, x, capacity, unscale}, groups, 0};
  for_types(targets, arguments, [&](DType type, const WgmmaExpertArguments& of_type) {
    with_tile(type, [&](auto of) { launch_wgmma_experts<kReadAs<of()>>(of_type, routes_of_expert, at); });
  });
}

}  // namespace llm::cuda
