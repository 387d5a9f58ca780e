#include "batch_warnings.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "common/messages.h"

namespace llm::app {
namespace {

/// What a row may call this model: by its file, by the name that it was found by, by what its file calls it.
std::vector<std::string> names_of_model(const ModelOptions& options, const Metadata& metadata) {
  const std::filesystem::path file(metadata.file());
  std::vector<std::string> names{file.filename().string(), file.stem().string()};
  if (!options.hub_name.empty()) names.push_back(options.hub_name);
  for (const char* key : {"general.name", "general.basename"}) {
    const Metadata::Entry* entry = metadata.find(key);
    if (entry == nullptr || entry->type != GgufType::String) continue;
    const std::string name(metadata.get<std::string_view>(key));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  const auto same = [&](const std::string& own) {
    return std::equal(own.begin(), own.end(), name.begin(), name.end(),
                      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  };
  return std::any_of(names.begin(), names.end(), same);
}

struct Ignored {
  std::size_t rows = 0, first_line = 0;
};

std::string more_like_it(std::size_t rows) {
  return rows > 1 ? ", and " + std::to_string(rows - 1) + " more like it" : "";
}

std::string on_line(std::size_t line) { return "line " + std::to_string(line) + ": "; }

/// A row's messages, where it has any and can be run.
const ChatPrompt* chat_of(const BatchRequest& r) {
  return r.prompts.empty() || r.failure ? nullptr : std::get_if<ChatPrompt>(&r.prompts.front());
}

ToolsOffered tools_of(const ChatPrompt& chat) {
  return chat.variables.contains("tools") ? ToolsOffered::Yes : ToolsOffered::No;
}

const std::vector<std::string>& known_roles() {
  static const std::vector<std::string> roles{"system", "user", "assistant", "tool", "developer", "function"};
  return roles;
}

/// As templates compare roles with theirs.
bool is_known(const std::string& role, std::string_view source) {
  const std::vector<std::string>& roles = known_roles();
  return std::find(roles.begin(), roles.end(), role) != roles.end() ||
         source.find("'" + role + "'") != std::string_view::npos ||
         source.find('"' + role + '"') != std::string_view::npos;
}

}  // namespace

Warnings warnings_of_keys(std::span<const BatchRequest> requests) {
  std::map<std::string, Ignored> ignored;
  std::set<std::string> told;
  Warnings warnings;
  for (const BatchRequest& r : requests) {
    for (const std::string& key : r.ignored_keys) {
      Ignored& of_key = ignored[key];
      if (of_key.rows++ == 0) of_key.first_line = r.line;
    }
    for (const Warning& w : r.warnings) {
      if (told.insert(w.text).second) warnings.push_back({w.code, on_line(r.line) + w.text});
    }
  }
  const std::vector<std::string> known = row_keys();
  for (const auto& [key, of] : ignored) {
    const std::string nearest = nearest_name(key, known);
    const std::string of_rows = "\" of " + std::to_string(of.rows) + (of.rows == 1 ? " row" : " rows"),
                      where = (of.rows == 1 ? "line " : "first line ") + std::to_string(of.first_line),
                      meant = nearest.empty() || nearest == key ? "" : "; did you mean \"" + nearest + "\"?",
                      told = "key \"" + escaped(key) + of_rows + " has no meaning here (" + where + ")" + meant;
    warnings.push_back({"ignored-key", told});
  }
  return warnings;
}

void note_options_beside(std::span<const BatchRequest> requests) {
  std::set<std::string> keys;
  for (const BatchRequest& r : requests) keys.insert(r.options_beside.begin(), r.options_beside.end());
  if (keys.empty()) return;
  std::string list;
  for (const std::string& key : keys) list += (list.empty() ? "\"" : ", \"") + key + "\"";
  note("rows have options of their own beside --template-row: " + list);
}

Warnings warnings_of_other_models(std::span<const BatchRequest> requests, const ModelOptions& options,
                                  const Metadata& metadata) {
  const std::vector<std::string> own = names_of_model(options, metadata);
  const auto is_other = [&](const BatchRequest& r) { return !r.model.empty() && !is_one_of(r.model, own); };
  const auto first = std::find_if(requests.begin(), requests.end(), is_other);
  if (first == requests.end()) return {};
  const auto n = std::count_if(requests.begin(), requests.end(), is_other);
  std::string names;
  for (const std::string& name : own) names += (names.empty() ? "\"" : ", \"") + escaped(name) + "\"";
  Warnings warnings;
  warnings.push_back({"other-model", on_line(first->line) + "\"model\" is \"" + escaped(first->model) + "\"" +
                                         more_like_it(static_cast<std::size_t>(n)) +
                                         "; this model, which runs all rows, is known as " + names});
  return warnings;
}

Warnings warnings_of_unread_variables(std::span<const BatchRequest> requests, const PromptMaker& prompts) {
  std::map<std::string, std::vector<std::size_t>> lines;  // by the variable
  for (const BatchRequest& r : requests) {
    const ChatPrompt* chat = chat_of(r);
    if (chat == nullptr) continue;
    for (const auto& [name, value] : chat->variables.items()) {
      if (!prompts.reads(name, tools_of(*chat)) && !value.empty()) lines[name].push_back(r.line);
    }
  }
  Warnings warnings;
  for (const auto& [name, of] : lines) {
    warnings.push_back({"unread-variable", on_line(of.front()) + "the chat template does not read \"" + escaped(name) +
                                               "\"" + more_like_it(of.size()) + "; the model learns nothing of it"});
  }
  return warnings;
}

Warnings warnings_of_unknown_roles(std::span<const BatchRequest> requests, const PromptMaker& prompts) {
  std::map<std::string, std::set<std::size_t>> lines;  // by the role
  for (const BatchRequest& r : requests) {
    const ChatPrompt* chat = chat_of(r);
    if (chat == nullptr) continue;
    const std::string_view source = prompts.template_source(tools_of(*chat));
    for (const std::string& role : chat->roles) {
      if (!is_known(role, source)) lines[role].insert(r.line);
    }
  }
  Warnings warnings;
  for (const auto& [role, of] : lines) {
    const std::string nearest = nearest_name(role, known_roles());
    warnings.push_back({"unknown-role", on_line(*of.begin()) + "a message has the role \"" + escaped(role) + "\"" +
                                            more_like_it(of.size()) + ", which the chat template does not name" +
                                            (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?")});
  }
  return warnings;
}

Warnings warnings_of_lost_bytes(std::span<const std::pair<std::size_t, std::string>> lines) {
  if (lines.empty()) return {};
  const auto& [line, lost] = lines.front();
  Warnings warnings;
  warnings.push_back({"missing-bytes", on_line(line) + lost + more_like_it(lines.size())});
  return warnings;
}

}  // namespace llm::app
