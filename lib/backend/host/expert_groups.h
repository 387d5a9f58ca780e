// Tokens sorted by the expert that they were routed to, so that each expert's weights are read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/host/interpreter.h"
#include "base/error.h"

namespace llm::host {

/// Over memory of the caller: counting sort of the routes by expert, stable, so that a group keeps the order of its
/// tokens.
class ExpertGroups {
 public:
  static std::size_t bytes(std::int64_t n_experts, std::int64_t routes) {
    return static_cast<std::size_t>(n_experts + 1 + routes) * sizeof(std::int32_t);
  }

  /// `ids` [top_k, tokens]; throws ErrorKind::Internal if one is not an expert.
  ExpertGroups(const Operand& ids, std::int64_t n_experts, std::byte* memory)
      : ends_(reinterpret_cast<std::int32_t*>(memory)), routes_(ends_ + n_experts + 1), n_routes_(ids.elements()) {
    const std::int32_t* const id = ids.i32();
    for (std::int64_t e = 0; e <= n_experts; ++e) ends_[e] = 0;
    for (std::int64_t i = 0; i < n_routes_; ++i) {
      check(id[i] >= 0 && id[i] < n_experts, "a route names an expert");
      ++ends_[id[i] + 1];
    }
    for (std::int64_t e = 0; e < n_experts; ++e) ends_[e + 1] += ends_[e];
    for (std::int64_t i = 0; i < n_routes_; ++i) routes_[ends_[id[i]]++] = static_cast<std::int32_t>(i);
  }

  /// Indices into [top_k, tokens] of an expert's routes, ascending.
  std::span<const std::int32_t> group(std::int64_t expert) const {
    const std::int32_t begin = expert == 0 ? 0 : ends_[expert - 1];
    return {routes_ + begin, static_cast<std::size_t>(ends_[expert] - begin)};
  }

 private:
  std::int32_t* ends_;  ///< after sorting: the end of each expert's group
  std::int32_t* routes_;
  std::int64_t n_routes_;
};

/// How an ExpertLinear's inputs lie: x [k, tokens] serves all slots of a token, x [k, top_k, tokens] has a row for
/// each.
struct ExpertInput {
  const float* x = nullptr;
  std::int64_t k = 0, routes_per_row = 1;
  ExpertInput(const Operand& x_operand, const Operand& ids)
      : x(x_operand.f32()), k(x_operand.width()), routes_per_row(x_operand.row_elems == k ? ids.row_elems : 1) {}
  std::int64_t row_of(std::int64_t route) const { return route / routes_per_row; }
};

}  // namespace llm::host
