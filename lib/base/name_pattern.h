// A regular expression that is looked for in names, of tensors for instance.
#pragma once

#include <regex>
#include <string>
#include <string_view>

namespace llm {

class NamePattern {
 public:
  /// ECMAScript's grammar, as std::regex has it, without back references. Throws ErrorKind::Usage for what is none, or
  /// is too long for the matcher.
  explicit NamePattern(const std::string& expression);
  /// Anywhere in the name.
  bool matches(std::string_view name) const;

 private:
  std::regex regex_;
};

}  // namespace llm
