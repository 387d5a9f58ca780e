// Numbers on the command line: the whole text must be one, in range, in any locale. Integers take the suffixes k, K, M,
// G (powers of 1000) and Ki, Mi, Gi (powers of 1024).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace llm::app {

inline constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

/// Throw ErrorKind::Usage naming the option, what was given and what is allowed.
std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t min, std::int64_t max);
double parse_real(std::string_view option, std::string_view text, double min, double max);

/// Options with such values. T: int or std::int64_t.
template <class T>
CLI::Option* add_integer(CLI::App& cli, const std::string& names, T& target, std::int64_t min, std::int64_t max,
                         const std::string& help) {
  const std::string name = names.substr(0, names.find(','));
  const auto set = [&target, name, min, max](const std::string& text) {
    target = static_cast<T>(parse_integer(name, text, min, max));
  };
  return cli.add_option_function<std::string>(names, set, help)->type_name("N")->take_last();
}
CLI::Option* add_real(CLI::App& cli, const std::string& names, float& target, double min, double max,
                      const std::string& help);

}  // namespace llm::app
