#include "base/name_pattern.h"

#include <cstddef>

#include "base/error.h"

namespace llm {
namespace {

std::regex compiled(const std::string& expression) {
  constexpr std::size_t kMost = 1000;  // the matcher goes deeper with every parenthesis
  if (expression.size() > kMost)
    throw Error(ErrorKind::Usage, "a pattern of " + std::to_string(expression.size()) + " bytes is longer than " +
                                      std::to_string(kMost) + ": \"" + escaped(expression, 64) + "\"");
  try {
    return std::regex(expression);
  } catch (const std::regex_error&) {
    throw Error(ErrorKind::Usage, "\"" + escaped(expression) + "\" is not a regular expression");
  }
}

}  // namespace

NamePattern::NamePattern(const std::string& expression) : regex_(compiled(expression)) {}

bool NamePattern::matches(std::string_view name) const { return std::regex_search(name.begin(), name.end(), regex_); }

}  // namespace llm
