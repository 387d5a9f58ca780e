// --template-row: a text with {column} in it, of which each row of a batch makes its prompt.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "written_json.h"

namespace llm::app {

class RowTemplate {
 public:
  /// Throws ErrorKind::Usage for a text that no row could fill.
  explicit RowTemplate(std::string_view text);

  /// The names in it, as often as they are.
  const std::vector<std::string>& columns() const { return columns_; }
  bool inserts(std::string_view name) const;
  /// `{name}` replaced by that column, which is the user's text, `{{` and `}}` by braces; what is no text as it is
  /// written. All of columns() must be there.
  PromptText fill(const nlohmann::ordered_json& columns, const WrittenMembers& written) const;

 private:
  std::vector<std::string> texts_;    ///< before each of the columns, and behind the last
  std::vector<std::string> columns_;  ///< one less
};

}  // namespace llm::app
