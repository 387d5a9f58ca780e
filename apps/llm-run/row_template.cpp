#include "row_template.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace llm::app {

RowTemplate::RowTemplate(std::string_view text) : texts_(1) {
  while (!text.empty()) {
    std::size_t taken = 1;
    if (text.starts_with("{{") || text.starts_with("}}")) {
      texts_.back() += text[0];
      taken = 2;
    } else if (text[0] != '{') {
      texts_.back() += text[0];
    } else if (const std::size_t end = text.find('}'); end != std::string_view::npos) {
      columns_.emplace_back(text.substr(1, end - 1));
      texts_.emplace_back();
      taken = end + 1;
    } else {
      throw Error(ErrorKind::Usage, "option --template-row: an open { without }; a brace of the text is written {{");
    }
    text.remove_prefix(taken);
  }
}

bool RowTemplate::inserts(std::string_view name) const {
  return std::find(columns_.begin(), columns_.end(), name) != columns_.end();
}

PromptText RowTemplate::fill(const nlohmann::ordered_json& columns, const WrittenMembers& written) const {
  PromptText out{texts_.front(), {}};
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto& value = columns.at(columns_[i]);
    const std::size_t begin = out.text.size();
    out.text += value.is_string() ? value.get<std::string>() : written.at(columns_[i]);
    out.user.push_back({begin, out.text.size()});
    out.text += texts_[i + 1];
  }
  return out;
}

}  // namespace llm::app
