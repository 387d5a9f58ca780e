#include "common/help_page.h"

#include <algorithm>
#include <sstream>

#include "base/environment.h"
#include "common/columns.h"

namespace llm::app {
namespace {

constexpr std::size_t kNamesWidth = 28;       ///< names that are wider have their meaning on the next line
constexpr std::size_t kBriefNamesWidth = 36;  ///< where each option should have one line

std::string heading(const OptionRow& row) {
  std::string text;
  for (const std::string& name : row.names) text += (text.empty() ? "" : ", ") + name;
  if (row.names.front().starts_with("--")) text = "    " + text;  // below the long names of the others
  return row.value.empty() ? text : text + " " + row.value;
}

/// What fits on a line: of what stands outside of parentheses the part before a semicolon, and short remarks.
std::string brief(const std::string& meaning) {
  constexpr std::size_t kLongRemark = 44;
  std::string text;
  bool ended = false;
  for (std::size_t i = 0; i < meaning.size(); ++i) {
    const std::size_t close = meaning[i] == '(' ? meaning.find(')', i) : std::string::npos;
    if (close != std::string::npos) {
      if (close - i < kLongRemark && (!ended || meaning.compare(i, 8, "(default") == 0)) {
        text += (ended ? " " : "") + meaning.substr(i, close + 1 - i);
      }
      i = close;
    } else {
      ended = ended || meaning.compare(i, 2, "; ") == 0;
      if (!ended) text += meaning[i];
    }
  }
  return text;
}

std::string brief_heading(OptionRow row) {
  const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
  const auto first_long = std::find_if(row.names.begin(), row.names.end(), is_long);
  std::vector<std::string> names(row.names.begin(), std::min(row.names.begin() + 1, first_long));
  if (first_long != row.names.end()) names.push_back(*first_long);
  row.names = std::move(names);
  return heading(row);
}

bool is_common(const OptionRow& row, const Page& page) {
  return std::any_of(page.common.begin(), page.common.end(), [&row](std::string_view name) {
    return std::find(row.names.begin(), row.names.end(), name) != row.names.end();
  });
}

std::string usage(const Command& app, const Page& page) {
  if (app.parent() == nullptr && !page.usage.empty()) return std::string(page.usage);
  std::string line = full_name(app);
  if (!app.subcommands().empty()) line += " COMMAND";
  for (const OptionRow& row : positionals(app)) {
    line += " " + (row.required ? row.value : "[" + row.value + "]");
  }
  return line + " [options]";
}

/// The options of the commands, which the program itself does not take.
std::string command_sections(const Command& app, std::size_t width) {
  std::string text;
  for (const Command* c : app.subcommands()) {
    std::string rows;
    for (const OptionGroup& group : option_groups(*c, {})) {
      for (const OptionRow& row : group.rows) {
        if (!row.asks_for_help) rows += entry(heading(row), row.meaning(), width, kNamesWidth);
      }
    }
    std::string head = full_name(*c);
    for (const OptionRow& row : positionals(*c)) head += " " + (row.required ? row.value : "[" + row.value + "]");
    if (!rows.empty()) text += "\n" + head + ":\n" + rows;
  }
  return text;
}

std::string indented(std::string_view lines, std::string_view first) {
  std::string text(first);
  for (const char c : lines) {
    text += c;
    if (c == '\n') text += std::string(first.size(), ' ');
  }
  return text + "\n";
}

/// "  Q4_K_M      the usual": what is too long goes on below its second column.
std::string table_line(const std::string& line, std::size_t width) {
  const std::size_t name = std::min(line.find_first_not_of(' '), line.size()), gap = line.find("  ", name);
  if (columns_of(line) <= width || gap == std::string::npos) return line;
  const std::size_t column = line.find_first_not_of(' ', gap);
  return line.substr(0, column) + wrapped(line.substr(column), width, column);
}

std::string paragraphs(const std::string& text, std::size_t width) {
  std::istringstream lines(text);
  std::string out, paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) out += wrapped(paragraph, width, 0) + "\n";
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == ' ' || line.back() == ':') {  // a line of its own
      flush();
      out += table_line(line, width) + "\n";
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + line;
    }
  }
  flush();
  return out;
}

/// Where a word that is wider than a line is broken, which is behind an item of a list; its end if nowhere.
std::size_t break_in(const std::string& word, std::size_t columns) {
  const std::string_view fits = fitting_prefix(word, columns);
  const std::size_t mark = fits.size() == word.size() ? std::string_view::npos : fits.find_last_of(",;");
  return mark == std::string_view::npos ? word.size() : mark + 1;
}

std::string environment_text(const Page& page, std::size_t width) {
  std::string text = "Environment:\n";
  if (page.settings == Page::Settings::FromElsewhere) {
    text += entry("LLM_RUN_NAME",
                  "sets --name: LLM_RUN_CTX_SIZE is --ctx-size; also llama.cpp's LLAMA_ARG_... for what it has; the "
                  "command line counts before LLM_RUN_..., that before LLAMA_ARG_..., that before --config",
                  width, kNamesWidth);
  }
  for (const EnvironmentVariable& v : environment_variables()) {
    text += entry(std::string(v.name), std::string(v.meaning), width, kNamesWidth);
  }
  return text;
}

std::string exit_codes_text(std::size_t width) {
  std::string text = "Exit codes:\n";
  for (const ExitCode& e : exit_codes()) {
    text += entry(std::string(e.code < 10    ? "  "
                              : e.code < 100 ? " "
                                             : "") +
                      std::to_string(e.code),
                  std::string(e.meaning), width, 8);
  }
  return text;
}

}  // namespace

std::string entry(const std::string& head, const std::string& meaning, std::size_t width, std::size_t column) {
  constexpr std::size_t kHeadIndent = 6;  // of what a long head goes on with
  std::string text = "  " + head;
  if (columns_of(text) > width) text = "  " + wrapped(head, width, kHeadIndent);
  if (columns_of(text) + 2 > column) {
    text += "\n" + std::string(column, ' ');
  } else {
    text += std::string(column - columns_of(text), ' ');
  }
  return text + wrapped(meaning, width, column) + "\n";
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  const std::string new_line = "\n" + std::string(indent, ' ');
  std::string out;
  std::size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + columns_of(word) > width) {
      out += new_line;
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    for (std::size_t end = break_in(word, width - indent); end < word.size(); end = break_in(word, width - indent)) {
      out += word.substr(0, end) + new_line;
      word.erase(0, end);
    }
    out += word;
    column += columns_of(word);
  }
  return out;
}

std::string help_page(const Command& app, const Page& page, HelpDetail detail, std::size_t width) {
  const Description about = description(app);
  const bool root = app.parent() == nullptr;
  const bool all = detail == HelpDetail::All || page.common.empty() || !root;
  std::string text = paragraphs(about.intro, width) + "\n" + indented(usage(app, page), "Usage: ");
  std::size_t left_out = 0;
  for (const OptionGroup& group : option_groups(app, page.aliases)) {
    std::string rows;
    for (const OptionRow& row : group.rows) {
      if (all) {
        rows += entry(heading(row), row.meaning(), width, kNamesWidth);
      } else if (is_common(row, page)) {
        rows += entry(brief_heading(row), brief(row.meaning()), width, kBriefNamesWidth);
      } else {
        ++left_out;
      }
    }
    if (!rows.empty()) text += "\n" + group.name + ":\n" + rows;
  }
  std::string arguments;
  for (const OptionRow& row : positionals(app)) arguments += entry(row.value, row.meaning(), width, kNamesWidth);
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  if (const auto list = app.subcommands(); !list.empty()) {
    text += "\nCommands:\n";
    for (const Command* c : list) text += entry(c->name(), description(*c).intro, width, kNamesWidth);
  }
  if (detail == HelpDetail::All) text += command_sections(app, width);
  if (root && !about.sections.empty()) text += "\n" + paragraphs(about.sections, width);
  if (!about.examples.empty()) text += "\nExamples:\n" + about.examples + "\n";
  if (!root) return text + "\n" + full_name(*app.parent()) + " --help-all shows the options of all commands.\n";
  if (!all) {
    return text + "\n" + std::to_string(left_out) + " more options: " + app.name() + " --help-all, man " + app.name() +
           "\n";
  }
  text += "\n" + wrapped(numbers_text(), width, 0) + "\n";
  return text + "\n" + environment_text(page, width) + "\n" + exit_codes_text(width);
}

}  // namespace llm::app
