// Integer arithmetic that says when it does not fit. Every number that a file decides goes through here.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

namespace llm {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T r{};
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T r{};
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// `n` rounded up to a multiple of `align`, a power of two.
template <std::unsigned_integral T>
constexpr std::optional<T> checked_align(T n, T align) {
  if (n > std::numeric_limits<T>::max() - (align - 1)) return std::nullopt;
  return (n + (align - 1)) & ~(align - 1);
}

}  // namespace llm
