// Every environment variable that the project reads, in one table (also printed by --help).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view meaning;
};

std::span<const EnvironmentVariable> environment_variables();

/// The value of a variable of the table above; empty counts as unset. Asking for another name is a bug of ours.
std::optional<std::string> environment(std::string_view name);

}  // namespace llm
