// Members of JSON objects as they are written: a number that was parsed may be another, since it is a double then.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace llm::app {

/// JSON by the member's name.
using WrittenMembers = std::map<std::string, std::string, std::less<>>;

/// Of an object that a parser has taken.
WrittenMembers written_members(std::string_view object);

}  // namespace llm::app
