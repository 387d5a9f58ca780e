// Targets of one type share their launches.
#include <algorithm>
#include <limits>

#include "backend/cuda/kernels/wgmma_experts.cuh"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {

#define LLM_EXPERTS_DECLARED(name)                                                                                  \
  extern template void launch_wgmma_experts<kReadAs<DType::name>>(const WgmmaExpertArguments&, int, const Launch&); \
  extern template void launch_wgmma_experts_f8<kReadAs<DType::name>>(const WgmmaExpertArguments&, const Launch&);
LLM_TILE_TYPES(LLM_EXPERTS_DECLARED)
#undef LLM_EXPERTS_DECLARED

namespace {

void check_groups(const RouteGroups& groups, int columns) {
  constexpr int kMostGroups = 65535;  // numbers of 16 bits
  check(groups.columns <= columns && groups.max_groups <= kMostGroups, "groups are not of too many routes");
}

}  // namespace

void wgmma_expert_products(std::span<const Target> targets, const std::byte* x, int capacity, const float* unscale,
                           const RouteGroups& groups, int routes_of_expert, const Launch& at) {
  check_groups(groups, kGroupedColumns);
  if (targets.empty() || groups.max_groups == 0) return;
  const WgmmaExpertArguments arguments{{targets, x, capacity, unscale}, groups};
  for_types(targets, arguments, [&](DType type, const WgmmaExpertArguments& of_type) {
    with_tile(type, [&](auto of) { launch_wgmma_experts<kReadAs<of()>>(of_type, routes_of_expert, at); });
  });
}

void wgmma_expert_products_f8(std::span<const Float8Target> f8, const std::byte* x, int rows, const float* x_scale,
                              const RouteGroups& groups, const Launch& at) {
  check_groups(groups, kFloat8Columns[2]);
  check(f8.size() <= kMaxTargets, "products have too many targets");
  if (f8.empty() || groups.max_groups == 0) return;
  const std::int64_t k = f8.front().target.type.k;
  check(wgmma_expert_products_f8_take(k) && rows * k <= std::numeric_limits<std::uint32_t>::max(),
        "rows of E4M3 are whole lines of 16, and lie within 4 GiB");
  Target targets[kMaxTargets];
  std::ranges::transform(f8, targets, &Float8Target::target);
  const std::span<const Target> all(targets, f8.size());
  WgmmaExpertArguments arguments{{all, x, rows, x_scale}, groups};
  arguments.tile_rows = kFloat8TileRows;
  for_types(all, arguments, [&](DType type, WgmmaExpertArguments of_type) {
    const float** scales = of_type.row_scales;
    for (const Float8Target& t : f8) {
      if (t.target.type.type == type && t.target.type.n > 0) *scales++ = t.scales;
    }
    with_tile(type, [&](auto of) { launch_wgmma_experts_f8<kReadAs<of()>>(of_type, at); });
  });
}

}  // namespace llm::cuda
