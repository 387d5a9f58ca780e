// Names in sorted order: lookup and the search for repeated names, in a time that no choice of names can make
// quadratic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace llm {

/// Indices 0..n-1 sorted by name; equal names stay in the order of their indices.
template <class NameOf>
std::vector<std::uint32_t> sorted_names(std::size_t n, NameOf name_of) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const int c = name_of(a).compare(name_of(b));
    return c != 0 ? c < 0 : a < b;
  });
  return order;
}

/// The smallest index whose name an earlier index has too.
template <class NameOf>
std::optional<std::uint32_t> first_repeated(const std::vector<std::uint32_t>& order, NameOf name_of) {
  std::optional<std::uint32_t> first;
  for (std::size_t i = 1; i < order.size(); ++i)
    if (name_of(order[i - 1]) == name_of(order[i]) && (!first || order[i] < *first)) first = order[i];
  return first;
}

/// The index with this name.
template <class NameOf>
std::optional<std::uint32_t> find_name(const std::vector<std::uint32_t>& order, std::string_view wanted,
                                       NameOf name_of) {
  const auto it = std::ranges::lower_bound(order, wanted, std::less<>{}, name_of);
  if (it == order.end() || name_of(*it) != wanted) return std::nullopt;
  return *it;
}

}  // namespace llm
