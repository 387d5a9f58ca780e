#include "common/man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/environment.h"
#include "common/help_page.h"

namespace llm::app {
namespace {

/// Text that stands for itself: '-' is a hyphen to roff unless it is escaped, '\' begins its escapes.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else {
      out += c;
    }
  }
  return out;
}

/// A line of text; one that begins like a request is kept from being one.
std::string line(std::string_view text) {
  const bool request = text.starts_with('.') || text.starts_with('\'');
  return (request ? "\\&" : "") + plain(text) + "\n";
}

/// Sources are read by people, too: lines of at most 72 columns before escapes.
std::string text_lines(const std::string& text) {
  std::istringstream in(wrapped(text, 72, 0));
  std::string out;
  for (std::string l; std::getline(in, l);) out += line(l);
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain(text) + "\\fR"; }

std::string verbatim(const std::string& lines) {
  std::istringstream in(lines);
  std::string out = ".nf\n";
  for (std::string text; std::getline(in, text);) out += line(text);
  return out + ".fi\n";
}

/// Paragraphs; lines that begin with a space stay as they are.
std::string prose(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  bool verbatim = false;
  for (std::string l; std::getline(in, l);) {
    if (l.empty()) {
      out += verbatim ? "" : ".PP\n";
      continue;
    }
    const bool keep = l.front() == ' ';
    if (keep != verbatim) out += keep ? ".nf\n" : ".fi\n.PP\n";
    verbatim = keep;
    out += keep ? line(l) : text_lines(l);
  }
  return out + (verbatim ? ".fi\n" : "");
}

std::string item(const std::string& head, const std::string& meaning) {
  return ".TP\n" + head + "\n" + text_lines(meaning);
}

std::string man_heading(const OptionRow& row) {
  std::string text;
  for (const std::string& name : row.names) text += (text.empty() ? "" : ", ") + bold(name);
  return row.value.empty() ? text : text + " " + italic(row.value);
}

std::string synopsis(const Command& app, const Page& page) {
  if (!page.usage.empty()) return verbatim(std::string(page.usage));
  std::string text = bold(app.name());
  if (!app.subcommands().empty()) text += " " + italic("COMMAND");
  for (const OptionRow& row : positionals(app)) text += " " + italic(row.value);
  return text + " [" + italic("options") + "]\n";
}

std::string commands_section(const Command& app, const Page& page) {
  const auto list = app.subcommands();
  if (list.empty()) return {};
  std::string text = ".SH COMMANDS\n";
  for (const Command* command : list) {
    std::string head = bold(command->name());
    for (const OptionRow& row : positionals(*command)) head += " " + italic(row.value);
    text += item(head, description(*command).intro);
    std::string options;
    for (const OptionGroup& group : option_groups(*command, page.aliases)) {
      for (const OptionRow& row : group.rows) {
        if (!row.asks_for_help) options += item(man_heading(row), row.meaning());
      }
    }
    if (!options.empty()) text += ".RS\n" + options + ".RE\n";
  }
  return text;
}

std::string environment_section(const Page& page) {
  std::string text = ".SH ENVIRONMENT\n";
  if (page.settings == Page::Settings::FromElsewhere) {
    text += item(bold("LLM_RUN_") + italic("NAME"),
                 "The value of the option --name, in capitals and with _ for -: LLM_RUN_CTX_SIZE is --ctx-size. A flag "
                 "takes true or false. The command line counts before these variables, and they before LLAMA_ARG_NAME "
                 "and --config.");
    text += item(bold("LLAMA_ARG_") + italic("NAME"), "llama.cpp's variables, for the options that this program has.");
  }
  for (const EnvironmentVariable& v : environment_variables()) text += item(bold(v.name), std::string(v.meaning) + ".");
  return text;
}

std::string exit_section() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCode& e : exit_codes()) text += item(bold(std::to_string(e.code)), std::string(e.meaning) + ".");
  return text;
}

/// "Looks into files." as the half sentence that whatis(1) shows.
std::string summary(const std::string& intro) {
  std::string text = intro.substr(0, intro.find(". "));
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.ends_with('.')) text.pop_back();
  if (!text.empty()) text.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(text.front())));
  return text;
}

}  // namespace

std::string man_page(const Command& app, const Page& page, std::string_view version, std::string_view date) {
  const Description about = description(app);
  std::string title = app.name();
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = ".TH " + plain(title) + " 1 \"" + std::string(date) + "\" \"llm-run " + std::string(version) +
                     "\" \"User Commands\"\n";
  text += ".SH NAME\n" + plain(app.name()) + " \\- " + plain(summary(about.intro)) + "\n";
  text += ".SH SYNOPSIS\n" + synopsis(app, page);
  text += ".SH DESCRIPTION\n" + prose(about.intro);
  if (!about.sections.empty()) text += ".PP\n" + prose(about.sections);
  if (const auto rows = positionals(app); !rows.empty()) {
    text += ".SH ARGUMENTS\n";
    for (const OptionRow& row : rows) text += item(italic(row.value), row.meaning());
  }
  text += commands_section(app, page);
  text += ".SH OPTIONS\n";
  for (const OptionGroup& group : option_groups(app, page.aliases)) {
    text += ".SS " + plain(group.name) + "\n";
    for (const OptionRow& row : group.rows) text += item(man_heading(row), row.meaning());
  }
  text += ".PP\n" + text_lines(numbers_text());
  if (!about.examples.empty()) text += ".SH EXAMPLES\n" + verbatim(about.examples);
  return text + environment_section(page) + exit_section();
}

}  // namespace llm::app
