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
#ifdef __GLIBCXX__
  // Without going back, which takes for ever with repetitions in one another.
  constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
  constexpr auto kSyntax = std::regex::ECMAScript;
#endif
  try {
    return std::regex(expression, kSyntax);
  } catch (const std::regex_error& e) {
    if (e.code() == std::regex_constants::error_complexity)
      throw Error(ErrorKind::Usage, "\"" + escaped(expression) + "\" has a back reference, which is not supported");
    throw Error(ErrorKind::Usage, "\"" + escaped(expression) + "\" is not a regular expression");
  }
}

}  // namespace

NamePattern::NamePattern(const std::string& expression) : regex_(compiled(expression)) {}

bool NamePattern::matches(std::string_view name) const { return std::regex_search(name.begin(), name.end(), regex_); }

}  // namespace llm
