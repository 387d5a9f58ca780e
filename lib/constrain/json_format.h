// The formats of JSON Schema's `format` that are enforced, as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace llm {

/// The expression that the whole string must match: the format or, where the format is no regular language, a part of
/// it that is large enough to write with. Nothing for a format that is not known here.
std::optional<std::string> format_expression(std::string_view format);
/// Their names, for messages.
std::string known_formats();

}  // namespace llm
