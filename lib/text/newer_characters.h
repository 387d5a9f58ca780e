// Characters that Unicode got since version 15, for a matcher whose tables may be older.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace llm {

/// The text with an older character of the same category, of as many bytes, in place of each newer one, so that what is
/// found in it stands at the same place in the text; nothing if there are none.
std::optional<std::string> with_older_characters(std::string_view valid_utf8);

}  // namespace llm
