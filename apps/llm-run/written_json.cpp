#include "written_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace llm::app {
namespace {

std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

std::size_t end_of_value(std::string_view text, std::size_t at) {
  std::size_t open = 0;
  do {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
      continue;
    }
    if (c == '{' || c == '[') ++open;
    if (c == '}' || c == ']') --open;
    // A number or a word goes up to what may follow it; inside of brackets there is no need to know.
    at = open > 0 || c == '}' || c == ']' ? at + 1 : std::min(text.find_first_of(",]} \t\r\n", at), text.size());
  } while (open > 0);
  return at;
}

}  // namespace

WrittenMembers written_members(std::string_view object) {
  WrittenMembers members;
  const auto behind = [&](std::string_view skipped, std::size_t at) { return object.find_first_not_of(skipped, at); };
  for (std::size_t at = behind(" \t\r\n,", object.find('{') + 1); object[at] != '}'; at = behind(" \t\r\n,", at)) {
    const std::size_t name_end = end_of_string(object, at);
    const std::size_t value = behind(" \t\r\n:", name_end), end = end_of_value(object, value);
    members.insert_or_assign(nlohmann::json::parse(object.substr(at, name_end - at)).get<std::string>(),
                             std::string(object.substr(value, end - value)));
    at = end;
  }
  return members;
}

}  // namespace llm::app
