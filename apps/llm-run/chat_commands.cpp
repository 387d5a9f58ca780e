#include "chat_commands.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/nearest.h"
#include "chat_settings.h"
#include "common/folder.h"
#include "common/help_page.h"
#include "common/input.h"

namespace llm::app {
namespace {

using C = ChatCommand;

struct Row {
  C command;
  std::string_view names;  ///< separated by spaces, the first is the one to show
  std::string_view arguments;
  std::string_view help;
  bool takes_path = false;
};

constexpr Row kRows[] = {
    {C::Help, "/help /?", "[COMMAND]", "this list, or what it says of one"},
    {C::Exit, "/exit /quit /bye", "", "leave (also Ctrl-D)"},
    {C::Clear, "/clear /reset", "", "forget all messages, keep the system text"},
    {C::Regenerate, "/regen /retry", "", "answer the last message again"},
    {C::Undo, "/undo", "[N]", "remove the last N turns (1); what /read put before the next message goes first"},
    {C::Edit, "/edit", "", "change the last message in $EDITOR, then answer it"},
    {C::Continue, "/continue", "", "go on with the last answer"},
    {C::System, "/system", "[TEXT]", "show or replace the system text; \"\" removes it"},
    {C::Set, "/set", "[NAME VALUE]", "a sampling option by its name, predict, seed; without arguments list them"},
    {C::Show, "/show", "[info|params|template|system|license]", "the model, the settings, its chat template ..."},
    {C::Think, "/think", "[on|off|auto|N]",
     "whether answers begin with thinking, and how many tokens of it at most; alone: show it"},
    {C::Stop, "/stop", "[TEXT|off]", "end answers before this text, too; off: before none"},
    {C::Read, "/read", "FILE", "put a file's text before the next message", true},
    {C::Glob, "/glob", "PATTERN", "the same for all files whose paths match, each under its name", true},
    {C::Save, "/save", "FILE", "write messages and settings as JSON, the cache as FILE.cache", true},
    {C::Load, "/load", "FILE", "take them from such a file", true},
    {C::Fork, "/fork", "[NAME]", "go on in a copy called NAME, or in the one of that name; alone: list them"},
    {C::Export, "/export", "FILE.md|FILE.jsonl", "write the messages for reading, or one per line", true},
    {C::Context, "/context /tokens", "", "tokens of each message, of the context, in the cache"},
    {C::Stats, "/stats", "", "times of the last answer and of all"},
    {C::Why, "/why", "[N]", "what the model gave the last answer's token N and others; alone: number them"},
    {C::Grammar, "/grammar", "FILE|off", "answers follow a GBNF grammar", true},
    {C::Json, "/json", "FILE|off", "answers are JSON that the schema in the file allows", true},
    {C::Unsupported, "/image", "", ""},
    {C::Unsupported, "/audio", "", ""},
};

template <class F>
void for_each_name(const Row& row, const F& f) {
  for (std::string_view names = row.names; !names.empty();) {
    const std::size_t end = std::min(names.find(' '), names.size());
    f(std::string(names.substr(0, end)));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

const Row* find_row(std::string_view name) {
  for (const Row& row : kRows) {
    bool found = false;
    for_each_name(row, [&](const std::string& n) { found = found || n == name; });
    if (found) return &row;
  }
  return nullptr;
}

std::vector<std::string> supported_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.command != C::Unsupported) for_each_name(row, [&](std::string n) { names.push_back(std::move(n)); });
  }
  return names;
}

[[noreturn]] void refuse_command(const std::string& name) {
  const std::string nearest = nearest_name(name, supported_names());
  throw Error(ErrorKind::Usage, "no command is called " + escaped(name) +
                                    (nearest.empty() ? "; /help lists them" : "; did you mean " + nearest + "?") +
                                    " (//... sends a text that begins with a slash)");
}

std::string help_of(const Row& row, std::size_t width) {
  constexpr std::size_t kColumn = 30;
  const std::string arguments(row.arguments);
  return entry(std::string(row.names) + (arguments.empty() ? "" : " " + arguments), std::string(row.help), width,
               kColumn);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

std::vector<std::string> paths_from(std::string_view typed) {
  const std::filesystem::path begun(typed);
  const std::filesystem::path folder = begun.parent_path();
  const std::string name = begun.filename().string();
  std::vector<std::string> found;
  std::error_code error;
  const std::string listed = home_expanded(folder.string() + "/");
  for (const std::filesystem::path& entry : list_folder(folder.empty() ? "." : listed, error)) {
    const std::string candidate = entry.filename().string();
    if (!candidate.starts_with(name) || (name.empty() && candidate.starts_with('.'))) continue;
    std::error_code unknown;
    found.push_back((folder / candidate).string() + (std::filesystem::is_directory(entry, unknown) ? "/" : ""));
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Lines in which one of the words stands for what `typed` has from `at` on, which begins the word.
std::vector<std::string> beginning_with(std::string_view typed, std::size_t at, const std::vector<std::string>& words) {
  std::vector<std::string> lines;
  for (const std::string& word : words) {
    if (word.starts_with(typed.substr(at))) lines.push_back(std::string(typed.substr(0, at)) + word);
  }
  return lines;
}

/// Of "[on|off|auto|N]" those that stand for themselves.
std::vector<std::string> words_of(const Row& row) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::vector<std::string> words;
  std::string word;
  for (const char c : std::string(row.arguments) + "|") {
    if (c == '[' || c == ']') continue;
    if (c != '|') {
      word += c;
      continue;
    }
    if (!word.empty() && std::all_of(word.begin(), word.end(), is_lower)) words.push_back(word);
    word.clear();
  }
  return words;
}

/// "/help set" and "/help /set" are the same.
std::vector<std::string> complete_help(std::string_view typed, std::size_t at) {
  std::vector<std::string> names = supported_names();
  if (!typed.substr(at).starts_with('/')) std::for_each(names.begin(), names.end(), [](auto& n) { n.erase(0, 1); });
  return beginning_with(typed, at, names);
}

/// The name as far as it is typed, "--top-k" or "top_k"; behind it the value, or its last item.
std::vector<std::string> complete_setting(std::string_view typed, std::size_t at) {
  const std::size_t space = typed.find_first_of(" =", at);
  if (space != std::string_view::npos) {
    const std::size_t value = std::max(typed.find_last_of(" =;,") + 1, space + 1);
    return beginning_with(typed, value, setting_words(setting_name(typed.substr(at, space - at))));
  }
  const std::string_view name = typed.substr(at);
  const std::size_t letters = std::min(name.find_first_not_of('-'), name.size());
  std::vector<std::string> names = setting_names();
  if (name.find('-') != std::string_view::npos) {
    for (std::string& n : names) std::replace(n.begin(), n.end(), '_', '-');
  }
  return beginning_with(typed, at + letters, names);
}

}  // namespace

ChatLine read_chat_line(std::string_view line) {
  if (line.starts_with("//")) return {.text = std::string(line.substr(1))};
  if (!line.starts_with('/')) return {.text = std::string(line)};
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name(line.substr(0, end));
  const Row* row = find_row(name);
  if (row == nullptr) refuse_command(name);
  if (row->command == C::Unsupported) throw Error(ErrorKind::Usage, name + " is recognised, not supported yet");
  const std::string_view arguments = trimmed(line.substr(end));
  if (row->takes_path && arguments.empty()) {
    throw Error(ErrorKind::Usage, name + " needs " + std::string(row->arguments));
  }
  if (row->arguments.empty() && !arguments.empty()) {
    throw Error(ErrorKind::Usage, name + " takes nothing behind it, \"" + escaped(arguments) + "\" is given");
  }
  return {.command = row->command,
          .name = name,
          .text = row->takes_path ? home_expanded(arguments) : std::string(arguments),
          .works_on_files = row->takes_path};
}

std::vector<std::string> complete_chat_line(std::string_view typed, std::span<const std::string> branches) {
  if (!typed.starts_with('/')) return {};
  const std::size_t space = typed.find(' ');
  if (space == std::string_view::npos) return beginning_with(typed, 0, supported_names());
  const Row* row = find_row(typed.substr(0, space));
  if (row == nullptr) return {};
  const std::size_t begin = std::min(typed.find_first_not_of(' ', space), typed.size());
  if (row->command == C::Set) return complete_setting(typed, begin);
  if (row->command == C::Help) return complete_help(typed, begin);
  if (row->command == C::Fork) return beginning_with(typed, begin, {branches.begin(), branches.end()});
  std::vector<std::string> found = beginning_with(typed, begin, words_of(*row));
  if (row->takes_path) {
    for (const std::string& path : paths_from(trimmed(typed.substr(begin))))
      found.push_back(std::string(typed.substr(0, begin)) + path);
  }
  return found;
}

std::string chat_help(const std::string& name, std::size_t width) {
  if (!name.empty()) {
    const std::string command = (name.starts_with('/') ? "" : "/") + name;
    const Row* row = find_row(command);
    if (row == nullptr) refuse_command(command);
    return help_of(*row, width);
  }
  std::string text;
  for (const Row& row : kRows) {
    if (row.command != C::Unsupported) text += help_of(row, width);
  }
  for (const char* line :
       {"A line that ends in \\ goes on in the next; \"\"\" begins and ends several lines; //... begins with a slash.",
        "Ctrl-C stops an answer, Ctrl-G opens $EDITOR, Tab completes commands and what they take."}) {
    text += wrapped(line, width, 0) + "\n";
  }
  return text;
}

}  // namespace llm::app
