// The known name nearest to a misspelt one, for messages that ask "did you mean ...?".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace llm {

/// Characters to insert, remove or change, and neighbours to swap (each of them once).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Empty if none is near: at most two edits, and no more than half of `given`, or capitals in place of small letters.
std::string nearest_name(std::string_view given, std::span<const std::string> known);

}  // namespace llm
