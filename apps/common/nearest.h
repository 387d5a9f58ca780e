// The known name nearest to one that was mistyped.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace llm::app {

/// Empty if none is near: fewer than three changes, and fewer than half of the letters.
std::string nearest_name(std::string_view given, std::span<const std::string> names);

}  // namespace llm::app
