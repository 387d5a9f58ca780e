// Each script is data about the options, written out of the table, and a few lines of the shell's own language around
// it.
#include "common/completion.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace llm::app {
namespace {

constexpr std::array<std::string_view, 3> kShells{"bash", "zsh", "fish"};

/// A program or one of its commands, with what may follow it.
struct Place {
  std::string command;  ///< empty: the program itself
  std::string meaning;
  std::vector<OptionRow> options, arguments;
};

std::vector<OptionRow> all_rows(const Command& app, const Page& page) {
  std::vector<OptionRow> rows;
  for (OptionGroup& group : option_groups(app, page.aliases)) {
    rows.insert(rows.end(), std::make_move_iterator(group.rows.begin()), std::make_move_iterator(group.rows.end()));
  }
  return rows;
}

std::vector<Place> places(const Command& app, const Page& page) {
  std::vector<Place> list{{"", description(app).intro, all_rows(app, page), positionals(app)}};
  for (const Command* c : app.subcommands()) {
    list.push_back({c->name(), description(*c).intro, all_rows(*c, page), positionals(*c)});
  }
  return list;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : std::string(separator)) + w;
  return text;
}

std::string function_name(const Command& app) {
  std::string name = "_" + app.name();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

enum class Quoting {
  Posix,  ///< nothing is special inside; a quote closes, is given alone, and opens again
  Fish,   ///< backslashes before quotes and backslashes
};
std::string quoted(const std::string& text, Quoting quoting) {
  std::string out = "'";
  for (const char c : text) {
    if (quoting == Quoting::Fish && (c == '\'' || c == '\\')) out += '\\';
    if (quoting == Quoting::Posix && c == '\'') {
      out += "'\\''";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out + "'";
}

// --- bash ---

std::string bash_values(const OptionRow& row) {
  std::string text;
  if (!row.words.empty()) text += " COMPREPLY+=($(compgen -W '" + joined(row.words, " ") + "' -- \"$cur\"));";
  if (row.takes_model) text += " _FUNCTION_files '!*.gguf';";
  if (row.takes_file) text += " _FUNCTION_files '';";
  return text;
}

std::string bash_place(const Place& place) {
  std::string text = "    " + (place.command.empty() ? "'')" : place.command + ")") + "\n      case $prev in\n";
  std::vector<std::string> names;
  for (const OptionRow& row : place.options) {
    names.insert(names.end(), row.names.begin(), row.names.end());
    if (!row.value.empty()) text += "        " + joined(row.names, "|") + ")" + bash_values(row) + " return ;;\n";
  }
  text += "      esac\n      words='" + joined(names, " ") + "'\n";
  std::string arguments;
  for (const OptionRow& row : place.arguments) arguments += bash_values(row);
  if (!arguments.empty()) text += "      [[ $cur != -* ]] && {" + arguments + " }\n";
  return text + "      ;;\n";
}

std::string bash(const Command& app, const Page& page) {
  const std::vector<Place> list = places(app, page);
  std::vector<std::string> names;
  for (const Place& p : list) {
    if (!p.command.empty()) names.push_back(p.command);
  }
  std::string text = R"(# bash completion of PROGRAM
_FUNCTION_files() {
  compopt -o filenames 2>/dev/null
  local file
  while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -o plusdirs -f -X "$1" -- "$cur")
}
_FUNCTION() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' words='' word
  COMPREPLY=()
  # --name=value comes as three words
  if [[ $cur == = ]]; then
    cur=''
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
)";
  if (!names.empty()) {
    text += "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case $word in\n      " + joined(names, "|") +
            ") command=$word; break ;;\n    esac\n  done\n";
  }
  text += "  case $command in\n";
  for (const Place& p : list) text += bash_place(p);
  text += "  esac\n";
  text += "  if [[ $cur == -* ]]; then\n    COMPREPLY+=($(compgen -W \"$words\" -- \"$cur\"))\n";
  if (!names.empty()) {
    text += "  elif [[ ! $command ]]; then\n    COMPREPLY+=($(compgen -W '" + joined(names, " ") + "' -- \"$cur\"))\n";
  }
  text += "  fi\n}\n";
  text += "complete -F _FUNCTION PROGRAM\n";
  return text;
}

// --- zsh ---

/// In a specification of _arguments a colon separates and brackets enclose the meaning.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionRow& row) {
  if (row.takes_model) return "_files -g \"*.gguf(-.)\"";
  if (!row.words.empty()) return "(" + joined(row.words, " ") + ")";
  return row.takes_file ? "_files" : " ";
}

std::string zsh_option(const OptionRow& row) {
  std::string text;
  for (const std::string& name : row.names) {
    // -x takes its value in the next word, --x there or behind =
    const std::string form = row.value.empty() ? name : name.starts_with("--") ? name + "=" : name;
    std::string spec = "*" + form + "[" + zsh_text(row.meaning()) + "]";
    if (!row.value.empty()) spec += ":" + zsh_text(row.value) + ":" + zsh_action(row);
    text += " \\\n        " + quoted(spec, Quoting::Posix);
  }
  return text;
}

std::string zsh_place(const Place& place) {
  std::string text = "_arguments -S";
  for (const OptionRow& row : place.options) text += zsh_option(row);
  for (const OptionRow& row : place.arguments) {
    text += " \\\n        " + quoted("*:" + zsh_text(row.value) + ":" + zsh_action(row), Quoting::Posix);
  }
  return text;
}

std::string zsh(const Command& app, const Page& page) {
  const std::vector<Place> list = places(app, page);
  std::string text = "#compdef PROGRAM\n_FUNCTION() {\n";
  if (list.size() == 1)
    return text + "  " + zsh_place(list.front()) + "\n}\n" + R"(compdef _FUNCTION PROGRAM
)";
  text += R"(  local i
  for ((i = 2; i < CURRENT; ++i)); do
    case ${words[i]} in
)";
  for (const Place& p : list) {
    if (p.command.empty()) continue;
    text += "      " + p.command + ")\n        shift $((i - 1)) words; ((CURRENT -= i - 1))\n        " + zsh_place(p) +
            "\n        return ;;\n";
  }
  text += "    esac\n  done\n  if ((CURRENT == 2)) && [[ ${words[2]} != -* ]]; then\n    local -a commands=(\n";
  for (const Place& p : list) {
    if (!p.command.empty()) text += "      " + quoted(p.command + ":" + p.meaning, Quoting::Posix) + "\n";
  }
  text += "    )\n    _describe command commands\n  fi\n  " + zsh_place(list.front()) + "\n}\n";
  return text + "compdef _FUNCTION PROGRAM\n";
}

// --- fish ---

std::string fish_names(const OptionRow& row) {
  std::string text;
  for (const std::string& name : row.names) {
    const bool two = name.starts_with("--");
    text += (two ? " -l " : name.size() == 2 ? " -s " : " -o ") + name.substr(two ? 2 : 1);
  }
  return text;
}

std::string fish_values(const OptionRow& row) {
  if (row.takes_model) return " -r -k -a '(__fish_complete_suffix .gguf)'";
  if (!row.words.empty()) return " -x -a '" + joined(row.words, " ") + "'";
  return row.takes_file ? " -r -F" : row.value.empty() ? "" : " -x";
}

std::string fish(const Command& app, const Page& page) {
  const std::string complete = "complete -c " + app.name();
  std::string text = "# fish completion of PROGRAM\n" + complete + " -f\n";
  const std::vector<Place> list = places(app, page);
  std::vector<std::string> names;
  for (const Place& p : list) {
    if (!p.command.empty()) names.push_back(p.command);
  }
  for (const Place& p : list) {
    const std::string seen = "__fish_seen_subcommand_from ";
    const std::string where = names.empty()       ? ""
                              : p.command.empty() ? " -n 'not " + seen + joined(names, " ") + "'"
                                                  : " -n '" + seen + p.command + "'";
    if (!p.command.empty()) {
      text += complete + " -n 'not " + seen + joined(names, " ") + "' -a " + p.command + " -d " +
              quoted(p.meaning, Quoting::Fish) + "\n";
    }
    for (const OptionRow& row : p.options) {
      text +=
          complete + where + fish_names(row) + fish_values(row) + " -d " + quoted(row.meaning(), Quoting::Fish) + "\n";
    }
    for (const OptionRow& row : p.arguments) {
      if (row.value.empty()) continue;
      text += complete + where + (row.words.empty() ? " -F" : " -a '" + joined(row.words, " ") + "'") + "\n";
    }
  }
  return text;
}

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::span<const std::string_view> shell_names() { return kShells; }

std::string completion_script(const Command& app, const Page& page, std::string_view shell) {
  if (std::find(kShells.begin(), kShells.end(), shell) == kShells.end()) {
    throw Error(ErrorKind::Usage, "completion: \"" + escaped(shell) + "\" is not bash, zsh or fish");
  }
  std::string text = shell == "bash" ? bash(app, page) : shell == "zsh" ? zsh(app, page) : fish(app, page);
  replace_all(text, "_FUNCTION", function_name(app));
  replace_all(text, "PROGRAM", app.name());
  return text;
}

}  // namespace llm::app
