#include "common/config_file.h"

#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"
#include "base/shortest.h"
#include "common/input.h"

namespace llm::app {
namespace {

[[noreturn]] void refuse(const std::string& path, std::size_t line, const std::string& problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = path + ":" + std::to_string(line), .problem = problem});
}

std::string value_text(const std::string& path, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return shortest(number->get());
  if (const auto* number = node.as_floating_point()) return shortest(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  refuse(path, node.source().begin.line,
         node.is_table() ? "tables are not used here: a line is a key, = and a value"
                         : "is not a text, a number, true, false or an array of these");
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::string& path) {
  const std::string text = read_input(path, kMostText);
  std::vector<ConfigEntry> entries;
  try {
    for (const auto& [key, node] : toml::parse(text, path)) {
      ConfigEntry entry{.line = node.source().begin.line, .key = std::string(key.str()), .values = {}};
      if (const toml::array* list = node.as_array()) {
        for (const toml::node& item : *list) entry.values.push_back(value_text(path, item));
      } else {
        entry.values.push_back(value_text(path, node));
      }
      entries.push_back(std::move(entry));
    }
  } catch (const toml::parse_error& e) {
    const std::string problem(e.description());
    const bool twice = problem.find("redefine") != std::string::npos;
    refuse(path, e.source().begin.line, problem + (twice ? "" : " (a text stands in quotes)"));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  return entries;
}

}  // namespace llm::app
