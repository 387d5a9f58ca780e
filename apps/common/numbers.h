// Numbers on the command line: the whole text must be one, in range, in any locale. Integers take suffixes, as 32k.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "common/command.h"

namespace llm::app {

inline constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

/// "k, K, M, G (powers of 1000), Ki, Mi, Gi (powers of 1024)"
std::string suffixes_text();

/// Throw ErrorKind::Usage naming the option, what was given and what is allowed.
std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t min, std::int64_t max);
double parse_real(std::string_view option, std::string_view text, double min, double max);

/// Options with such values. T: int or std::int64_t.
Option* add_integer_option(Command& cli, const std::string& names, std::function<void(std::int64_t)> set,
                           std::int64_t min, std::int64_t max, const std::string& help);
template <class T>
Option* add_integer(Command& cli, const std::string& names, T& target, std::int64_t min, std::int64_t max,
                    const std::string& help) {
  const auto set = [&target](std::int64_t value) { target = static_cast<T>(value); };
  return add_integer_option(cli, names, set, min, max, help);
}
Option* add_real(Command& cli, const std::string& names, float& target, double min, double max,
                 const std::string& help);

}  // namespace llm::app
