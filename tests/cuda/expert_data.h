// Routes to experts for the tests of their products: who goes where, and the groups that group_routes() makes of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/products.h"
#include "device_data.h"

namespace llm::cuda::test {

/// The routes of ids [routes] in groups, as group_routes() makes them; an id of -1 is a route that is not there.
struct Groups {
  Groups(const std::vector<std::int32_t>& ids, int experts, int columns, int routes_per_row) {
    std::vector<std::int32_t> expert, first, count, routes;
    for (int e = 0; e < experts; ++e) {
      const auto begin = static_cast<std::int32_t>(routes.size());
      for (std::size_t r = 0; r < ids.size(); ++r)
        if (ids[r] == e) routes.push_back(static_cast<std::int32_t>(r));
      for (auto at = begin; at < static_cast<std::int32_t>(routes.size()); at += columns) {
        expert.push_back(e);
        first.push_back(at);
        count.push_back(std::min(static_cast<std::int32_t>(routes.size()) - at, columns));
      }
    }
    const auto n = static_cast<std::int32_t>(expert.size());
    for (int spare = 0; spare < 2; ++spare) expert.push_back(-77), first.push_back(-77), count.push_back(-77);
    lists.emplace_back(std::vector<std::int32_t>{n});
    for (const auto* list : {&expert, &first, &count, &routes}) lists.emplace_back(*list);
    view = {.n_groups = lists[0].data(),
            .expert = lists[1].data(),
            .first = lists[2].data(),
            .count = lists[3].data(),
            .routes = lists[4].data(),
            .max_groups = n + 2,
            .columns = columns,
            .routes_per_row = routes_per_row};
  }
  std::vector<OnDevice<std::int32_t>> lists;
  RouteGroups view;
};

inline std::vector<std::int32_t> random_ids(int routes, int experts, std::uint32_t seed) {
  Random random(seed);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < routes; ++i) ids.push_back(random.below(experts));
  return ids;
}

}  // namespace llm::cuda::test
