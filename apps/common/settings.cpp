#include "common/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/nearest.h"
#include "common/config_file.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/reserved.h"

extern char** environ;

namespace llm::app {
namespace {

constexpr std::string_view kOurs = "LLM_RUN_", kLlamas = "LLAMA_ARG_", kConfig = "--config",
                           kNotSupported = "recognised, not supported";

struct Setting {
  std::string variable, file;  ///< one of them: where it is set; `file` with the line
  CLI::Option* option;
  std::vector<std::string> values;
  const std::string& source() const { return variable.empty() ? file : variable; }
};

/// What was set, for messages: they come when the options are gone.
struct Applied {
  std::vector<std::string> names;  ///< the one to show first
  std::vector<std::string> values;
  std::string source;
};
std::vector<Applied>& applied() {
  static std::vector<Applied> settings;
  return settings;
}

[[noreturn]] void refuse(const Setting& s, const std::string& problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = s.file, .subject = s.variable, .problem = problem});
}

/// "context-shift = false" is --no-context-shift; false of a flag without an opposite is what it is by default.
void resolve_flag(CLI::App& cli, Setting& s) {
  const std::optional<bool> on = s.values.size() == 1 ? truth(s.values[0]) : std::nullopt;
  if (!on) refuse(s, "\"" + escaped(s.values.empty() ? "" : s.values.back()) + "\" is not true or false");
  if (*on) return;
  if (const std::string other = opposite(cli, *s.option); !other.empty()) {
    s.option = cli.get_option(other);
    s.values = {"true"};
  } else {
    s.values = {"false"};
  }
}

// --- where settings come from ---

std::vector<std::string> keys(const CLI::App& cli) {
  std::vector<std::string> names;
  for (const CLI::Option* option : cli.get_options()) {
    if (!option->get_group().empty() && !asks_for_page(cli, *option))
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return names;
}

bool names_file(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find("FILE") != std::string::npos || type.find("MODEL") != std::string::npos;
}

/// "predict" for "n", "parallel" for "np"; empty if no option has such a short name.
std::string long_name(const CLI::App& cli, const Page& page, const std::string& short_name) {
  const std::string name(meant_by("-" + short_name, page.aliases));
  if (name.starts_with("--")) return cli.get_option_no_throw(name) == nullptr ? "" : name.substr(2);
  const CLI::Option* of_letter = short_name.size() == 1 ? cli.get_option_no_throw(name) : nullptr;
  return of_letter == nullptr || of_letter->get_lnames().empty() ? "" : of_letter->get_lnames().front();
}

/// A file has the long names only.
std::string meant_key(const CLI::App& cli, const Page& page, const std::string& key) {
  const std::string of_short = long_name(cli, page, key);
  return of_short.empty() ? nearest_name(key, keys(cli)) : of_short;
}

void add_file(CLI::App& cli, const Page& page, const std::string& path, std::vector<Setting>& settings) {
  for (ConfigEntry& entry : read_config_file(path)) {
    Setting s{
        .variable = {}, .file = path + ":" + std::to_string(entry.line), .option = nullptr, .values = entry.values};
    const std::string name = "--" + entry.key;
    s.option = cli.get_option_no_throw(name);
    if (s.option == nullptr) {
      if (const auto why = reserved_because(name)) refuse(s, entry.key + " " + *why);
      const std::string nearest = meant_key(cli, page, entry.key);
      refuse(s,
             "there is no option --" + escaped(entry.key) + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
    if (names_file(*s.option)) std::transform(s.values.begin(), s.values.end(), s.values.begin(), home_expanded);
    if (asks_for_page(cli, *s.option)) refuse(s, entry.key + " prints something and ends: it is no setting");
    if (name == kConfig) refuse(s, "a configuration file cannot name another one");
    settings.push_back(std::move(s));
  }
}

struct Variable {
  std::string name, value;
};

/// Those that are not empty, in the order of their names.
std::vector<Variable> variables(std::string_view prefix) {
  std::vector<Variable> list;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const std::size_t equals = entry.find('=');
    if (!entry.starts_with(prefix) || equals + 1 >= entry.size()) continue;
    list.push_back({std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))});
  }
  std::sort(list.begin(), list.end(), [](const Variable& a, const Variable& b) { return a.name < b.name; });
  return list;
}

/// The names of an option of llama.cpp's by those of ours that it shares; "-" names have one letter for CLI11.
CLI::Option* shared_option(CLI::App& cli, const Page& page, std::string_view names) {
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(' ', begin), names.size());
    const std::string name(meant_by(names.substr(begin, end - begin), page.aliases));
    if (CLI::Option* option = cli.get_option_no_throw(name)) return option;
    begin = end + 1;
  }
  return nullptr;
}

/// LLAMA_ARG_NO_X is set to switch X off, whatever its value.
const LlamaOption* llama_option(const std::string& variable, bool& off) {
  const auto find = [](const std::string& name) -> const LlamaOption* {
    for (const auto options : {llama_options(), earlier_llama_options()}) {
      const auto found =
          std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.variable == name; });
      if (found != options.end()) return &*found;
    }
    return nullptr;
  };
  const std::string no = std::string(kLlamas) + "NO_";
  const LlamaOption* option = find(variable);
  off = option == nullptr && variable.starts_with(no);
  return off ? find(std::string(kLlamas) + variable.substr(no.size())) : option;
}

std::vector<std::string> variables_of_llama() {
  std::vector<std::string> names;
  for (const LlamaOption& o : llama_options()) {
    if (!o.variable.empty()) names.emplace_back(o.variable);
  }
  return names;
}

void warn_of_unknown(const std::string& variable, const std::string& nearest) {
  print_warnings({{"unknown-variable", variable + " has no effect: there is no such setting" +
                                           (nearest.empty() ? "" : "; did you mean " + nearest + "?")}});
}

void add_llama_variables(CLI::App& cli, const Page& page, std::vector<Setting>& settings) {
  for (const Variable& v : variables(kLlamas)) {
    bool off = false;
    const LlamaOption* known = llama_option(v.name, off);
    if (known == nullptr) {
      warn_of_unknown(v.name, nearest_name(v.name, variables_of_llama()));
      continue;
    }
    if (known->program != LlamaProgram::Run) continue;  // not meant for a program like this one
    if (CLI::Option* option = shared_option(cli, page, known->names)) {
      settings.push_back({.variable = v.name, .file = {}, .option = option, .values = {off ? "false" : v.value}});
    } else {
      const std::string_view name = known->names.substr(known->names.rfind(' ') + 1);
      note(v.name + " has no effect: option " + std::string(name) + " " +
           reserved_because(name).value_or("is unknown"));
    }
  }
}

bool is_read_elsewhere(const std::string& variable) {
  const auto list = environment_variables();
  return std::any_of(list.begin(), list.end(), [&](const EnvironmentVariable& v) { return v.name == variable; });
}

/// The variables have the long names only, too.
std::string meant_variable(const CLI::App& cli, const Page& page, const std::string& variable,
                           const std::vector<std::string>& known) {
  std::string letters = variable.substr(kOurs.size());
  std::transform(letters.begin(), letters.end(), letters.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string of_short = long_name(cli, page, letters);
  return of_short.empty() ? nearest_name(variable, known) : variable_of(of_short);
}

void add_our_variables(CLI::App& cli, const Page& page, std::vector<Setting>& settings) {
  std::vector<std::string> names;
  for (const std::string& key : keys(cli)) names.push_back(variable_of(key));
  for (const EnvironmentVariable& v : environment_variables()) names.emplace_back(v.name);
  for (const Variable& v : variables(kOurs)) {
    CLI::Option* option = nullptr;
    for (CLI::Option* o : cli.get_options([&cli](const CLI::Option* any) { return !asks_for_page(cli, *any); })) {
      const auto& own = o->get_lnames();
      if (std::any_of(own.begin(), own.end(), [&](const std::string& n) { return variable_of(n) == v.name; }))
        option = o;
    }
    if (option != nullptr) {
      if (!option->check_name(std::string(kConfig)))
        settings.push_back({.variable = v.name, .file = {}, .option = option, .values = {v.value}});
    } else if (!is_read_elsewhere(v.name)) {
      warn_of_unknown(v.name, meant_variable(cli, page, v.name, names));
    }
  }
}

// --- giving them to the options ---

/// The callback's own words name the option; here the source stands for it.
std::string without_option(const std::string& problem) {
  if (!problem.starts_with("option ")) return problem;
  const std::size_t colon = problem.find(": ");
  return colon == std::string::npos ? problem : problem.substr(colon + 2);
}

/// True if it took it. What llama.cpp has and we have not is a note where it stands in llama.cpp's own variable, which
/// may be set for that program.
bool give(const Setting& s) {
  CLI::Option& option = *s.option;
  const bool each = option.get_trigger_on_parse();
  const bool one = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast;
  if (one && !each && s.values.size() != 1) refuse(s, "takes one value, an array is given");
  try {
    for (const std::string& value : s.values) {
      if (each) option.clear();
      option.add_result(value);
      if (each) option.run_callback();
    }
    if (!each && !s.values.empty()) option.run_callback();
  } catch (const Error& e) {
    const std::string& problem = e.parts().problem;
    if (!s.variable.starts_with(kLlamas) || problem.find(kNotSupported) == std::string::npos) {
      refuse(s, without_option(problem));
    }
    note(s.variable + " has no effect: " + problem);
    return false;
  } catch (const CLI::ParseError& e) {
    refuse(s, e.what());
  }
  return true;
}

bool names_word(const std::string& message, const std::string& name) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; };
  for (std::size_t at = message.find(name); at != std::string::npos; at = message.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !inside(message[at - 1])) && (end == message.size() || !inside(message[end]))) return true;
  }
  return false;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& n : option.get_lnames()) names.push_back("--" + n);
  for (const std::string& n : option.get_snames()) names.push_back("-" + n);
  return names;
}

}  // namespace

bool is_flag(const CLI::Option& option) { return option.get_items_expected_min() == 0; }

std::optional<bool> truth(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (has_name("true on enabled yes 1", text)) return true;
  if (has_name("false off disabled no 0", text)) return false;
  return std::nullopt;
}

std::string opposite(const CLI::App& cli, const CLI::Option& flag) {
  for (const std::string& name : flag.get_lnames()) {
    const std::string other = "--" + (name.starts_with("no-") ? name.substr(3) : "no-" + name);
    if (cli.get_option_no_throw(other) != nullptr) return other;
  }
  return {};
}

void add_config_option(Command& cli) {
  // ArgumentWalk has read it, before CLI11 sees the line.
  cli.add_option_function<std::string>(
         std::string(kConfig), [](const std::string&) {}, "options from this file, lines of name = value in TOML")
      ->type_name("FILE")
      ->take_last();
}

std::string apply_settings(CLI::App& cli, const Page& page, const std::set<const CLI::Option*>& given,
                           const std::string& config) {
  std::vector<Setting> settings;
  const char* by_variable = std::getenv(variable_of(kConfig).c_str());
  const std::string file = !config.empty() || by_variable == nullptr ? config : by_variable;
  if (!file.empty()) add_file(cli, page, file, settings);
  add_llama_variables(cli, page, settings);
  add_our_variables(cli, page, settings);
  for (Setting& s : settings) {
    if (is_flag(*s.option)) resolve_flag(cli, s);
  }
  const auto set_at = [&](std::size_t first, const CLI::Option* option) {
    return std::any_of(settings.begin() + static_cast<std::ptrdiff_t>(first), settings.end(),
                       [option](const Setting& s) { return s.option == option; });
  };
  const CLI::Option* gate = page.gate.option.empty() ? nullptr : cli.get_option_no_throw(std::string(page.gate.option));
  const bool open = gate == nullptr || given.count(gate) != 0 || set_at(0, gate);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Setting& s = settings[i];
    if (given.count(s.option) != 0 || set_at(i + 1, s.option)) continue;  // said again where it counts before this
    if (!open && s.option->get_group() == page.gate.group) continue;
    if (give(s)) applied().push_back({names_of(*s.option), s.values, s.source()});
  }
  return file;
}

void say_settings() {
  for (const Applied& a : applied()) {
    std::string values;
    for (const std::string& v : a.values) values += " " + escaped(v);
    verbose("setting: " + a.names.front() + values + " (" + a.source + ")");
  }
}

bool is_set_elsewhere(const std::string& option) {
  return std::any_of(applied().begin(), applied().end(), [&](const Applied& a) {
    return std::find(a.names.begin(), a.names.end(), option) != a.names.end();
  });
}

std::string settings_named_in(const std::string& message) {
  std::string text;
  for (const Applied& a : applied()) {
    const bool named =
        std::any_of(a.names.begin(), a.names.end(), [&](const std::string& n) { return names_word(message, n); });
    if (named) text += (text.empty() ? " (" : ", ") + a.names.front() + " is set by " + a.source;
  }
  return text.empty() ? text : text + ")";
}

}  // namespace llm::app
