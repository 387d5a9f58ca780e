// The walk over the command line that comes before CLI11's, and what every program answers by itself: help, version,
// manual, completion.
#include "common/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "common/build_info.h"
#include "common/completion.h"
#include "common/help_page.h"
#include "common/man_page.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/reserved.h"
#include "common/run_files.h"
#include "common/settings.h"
#include "common/terminal.h"

namespace llm::app {
namespace {

struct ManAsked {};
struct CompletionAsked {
  std::string shell;
};

/// "--seed: 1 required N missing", as CLI11 says it.
std::string in_our_words(const std::string& problem) {
  constexpr std::string_view kBetween = ": 1 required ", kEnd = " missing";
  const std::size_t at = problem.find(kBetween);
  if (at == std::string::npos || !problem.ends_with(kEnd)) return problem;
  const std::size_t type = at + kBetween.size();
  return "option " + problem.substr(0, at) + " needs a value, " +
         problem.substr(type, problem.size() - kEnd.size() - type);
}

/// "tokenize takes MODEL and options, among them --text": of options, the one that takes a text is what was meant.
std::string what_it_takes(const Command& command) {
  std::string arguments;
  for (const OptionRow& row : positionals(command)) arguments += " " + row.value;
  if (arguments.empty()) return "nothing goes behind " + std::string(command.name()) + " but options";
  const bool text = command.parser().get_option_no_throw("--text") != nullptr;
  return std::string(command.name()) + " takes" + arguments + " and options" + (text ? "; --text gives the text" : "");
}

/// What stands where an option was expected: a prompt or a model without its option, most often, or a command.
/// `taken`: an option that became the value of another, or empty.
std::string unexpected_argument(const Command& command, const std::string& taken) {
  const CLI::App& cli = command.parser();
  const std::vector<std::string> extras = cli.remaining(true);
  const std::string word = extras.empty() ? "" : extras.front();
  const std::string problem = "unexpected argument \"" + escaped(word) + "\"";
  for (const Command* sub : command.subcommands()) {
    if (sub->parsed()) return problem + ": " + what_it_takes(*sub);
  }
  if (!taken.empty()) return problem + ": " + taken + " as its value; an empty text is \"\"";
  std::vector<std::string> commands;
  for (const CLI::App* sub : cli.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(sub->get_name());
  if (const std::string nearest = nearest_name(word, commands); !nearest.empty())
    return problem + "; did you mean " + nearest + "?";
  const bool answers = cli.get_option_no_throw("--model") != nullptr && cli.get_option_no_throw("--prompt") != nullptr;
  return problem + (answers ? ": -m names the model, -p gives the prompt, -f - takes it from stdin" : "");
}

/// What a page calls the argument that was declared by this name.
std::string argument_name(const Command& cli, const std::string& declared) {
  for (const OptionRow& row : positionals(cli)) {
    if (row.option->get_name() == declared) return row.value;
  }
  for (const Command* sub : cli.subcommands()) {
    if (sub->parsed()) return argument_name(*sub, declared);
  }
  return declared;
}

/// "A subcommand is required", "file is required": of arguments, which have no dashes, the page says what they are.
/// `instead` stands where a command is expected, and is none.
std::string missing_argument(const Command& cli, const std::string& problem, const std::string& instead) {
  if (problem.starts_with("-")) return problem;
  std::vector<std::string> names;
  if (!cli.has_parsed_subcommand()) {
    for (const Command* sub : cli.subcommands()) names.push_back(sub->name());
  }
  if (names.empty()) {
    return "an argument is missing: " + argument_name(cli, problem.substr(0, problem.find(" is required")));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "a command is required: " : ", ") + name;
  if (instead.empty()) return text;
  const std::string nearest = nearest_name(instead, names);
  return text + ", not \"" + escaped(instead) + "\"" + (nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

[[noreturn]] void usage_error(std::string problem) { throw Error(ErrorKind::Usage, problem + " (see --help)"); }

/// What other programs call an option of ours, in names that are nowhere near it.
std::string own_name(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kOwn[] = {
      {"--max-tokens --max-new-tokens --num-predict", "--predict"},
      {"--num-ctx --context-length --max-context", "--ctx-size"},
      {"--json --format", "--output-format"},
      {"--think --no-think --nothink --enable-thinking", "--reasoning"},
  };
  for (const auto& [others, own] : kOwn) {
    if (has_name(others, name)) return std::string(own);
  }
  return {};
}

[[noreturn]] void unknown_option(const Command& cli, std::span<const Alias> aliases, std::string_view name) {
  std::vector<std::string> names;
  for (const OptionGroup& group : option_groups(cli, aliases)) {
    for (const OptionRow& row : group.rows) names.insert(names.end(), row.names.begin(), row.names.end());
  }
  if (name.size() > 2) std::erase_if(names, [](const std::string& n) { return n.size() == 2; });
  const std::string own = own_name(name);
  const bool has_own = !own.empty() && std::find(names.begin(), names.end(), own) != names.end();
  const std::string nearest = has_own ? own : nearest_name(name, names);
  usage_error("unknown option " + escaped(name) + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

/// An option of a subcommand, or of what it belongs to where that one lets its options follow the subcommand.
const CLI::Option* find_option(const Command& cli, std::string_view name) {
  const CLI::Option* option = cli.parser().get_option_no_throw(std::string(name));
  if (option != nullptr || cli.parent() == nullptr || !cli.parser().get_fallthrough()) return option;
  return find_option(*cli.parent(), name);
}

/// "tokenize", "show and verify": the commands that have an option which the one that was given has not.
std::string commands_with(const Command& cli, std::string_view name) {
  const Command& root = cli.parent() == nullptr ? cli : *cli.parent();
  if (root.parser().get_require_subcommand_min() == 0) return {};  // its own options are what was meant
  std::vector<std::string> names;
  for (const Command* sub : root.subcommands()) {
    if (sub->parser().get_option_no_throw(std::string(name)) != nullptr) names.push_back(sub->name());
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  }
  return text;
}

/// By every name of an option that is on the command line: the one that was typed.
std::map<std::string, std::string>& typed_names() {
  static std::map<std::string, std::string> names;
  return names;
}

bool has_option(const Command& cli, std::string_view name) { return find_option(cli, name) != nullptr; }

/// "-n128" and "-qv": what CLI11 reads as a short option with its value, or several flags.
bool is_short_group(const Command& cli, std::string_view arg) {
  if (arg.size() < 3 || arg[1] == '-' || has_option(cli, "-" + std::string(arg))) return false;
  const CLI::Option* first = find_option(cli, arg.substr(0, 2));
  if (first == nullptr) return false;
  if (first->get_items_expected_min() > 0) {
    const bool number_wanted = first->get_type_name() == "N" || first->get_type_name() == "X";
    return !number_wanted || std::string_view("0123456789+-.=").find(arg[2]) != std::string_view::npos;
  }
  return std::all_of(arg.begin() + 1, arg.end(), [&](char c) { return has_option(cli, std::string("-") + c); });
}

/// Replaces aliases, refuses what is reserved or unknown; values of options are left alone.
class ArgumentWalk {
 public:
  ArgumentWalk(const Command& root, const Page& page)
      : command_(&root), aliases_(page.aliases), switches_(page.switches) {}

  std::vector<std::string> walk(std::span<char*> args) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::string arg = args[i];
      if (arg == "--") {
        out.insert(out.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
        break;
      }
      if (arg.size() < 2 || arg[0] != '-') {
        enter_subcommand(arg);
        out.push_back(arg);
        continue;
      }
      if (i + 1 < args.size() && is_switch(arg) && is_switch_value(args[i + 1])) {
        out.push_back(option(arg + "=" + args[++i]));
        continue;
      }
      out.push_back(option(arg));
      if (takes_next(out.back()) && i + 1 < args.size()) {
        out.emplace_back(args[++i]);
        refuse_empty(arg, *find_option(*command_, out[out.size() - 2]), out.back());
        if (taken_option_.empty() && is_option(out.back())) taken_option_ = arg + " took \"" + out.back() + "\"";
        if (out[out.size() - 2] == "--config") config_ = out.back();
      } else if (out.back().starts_with("--config=")) {
        config_ = out.back().substr(out.back().find('=') + 1);
      }
    }
    return out;
  }

  /// Those that are on the command line.
  const std::set<const CLI::Option*>& given() const { return given_; }
  /// The value of --config, which is needed before the command line is parsed.
  const std::string& config() const { return config_; }
  /// The first word that stands where a command could, and is none.
  const std::string& no_command() const { return no_command_; }
  /// "-p took "-n"": the first option that is another one's value. A variable of the shell was empty there, most often.
  const std::string& taken_option() const { return taken_option_; }

 private:
  bool is_option(const std::string& word) const {
    return word.size() > 1 && word[0] == '-' && has_option(*command_, meant_by(word, aliases_));
  }

  bool is_switch(const std::string& arg) const {
    return std::find(switches_.begin(), switches_.end(), named(arg)) != switches_.end();
  }

  /// A list of them, "0,1", is none that a flag takes, and what is said of it names the flag.
  static bool is_switch_value(std::string_view word) {
    return !word.empty() && word.find_first_not_of("01,") == std::string_view::npos;
  }

  void enter_subcommand(const std::string& word) {
    for (const Command* sub : command_->subcommands()) {
      if (sub->name() == word) {
        command_ = sub;
        return;
      }
    }
    if (no_command_.empty()) no_command_ = word;
    if (word.empty() && !positionals(*command_).empty()) usage_error("an argument is empty");
  }

  /// A variable of the shell that is not set, most often. Where no file is, nothing would be read or written; a text
  /// may be empty.
  void refuse_empty(const std::string& name, const CLI::Option& option, std::string_view value) const {
    if (!value.empty()) return;
    const OptionRow row = option_row(*command_, option, aliases_);
    if (row.takes_file || row.takes_model || !row.words.empty())
      usage_error("option " + escaped(name) + ": the value is empty, " + row.value + " is required");
  }

  /// "--top_k" is --top-k, as for llama.cpp.
  std::string named(const std::string& typed) const {
    const std::string name(meant_by(typed, aliases_));
    if (!name.starts_with("--") || has_option(*command_, name)) return name;
    std::string dashed = typed;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    const std::string other(meant_by(dashed, aliases_));
    return has_option(*command_, other) ? other : name;
  }

  void remember(const std::string& typed, const CLI::Option& option) const {
    for (const std::string& name : option_row(*command_, option, aliases_).names) typed_names()[name] = typed;
  }

  std::string option(const std::string& arg) {
    const std::string typed = arg.substr(0, arg.find('=')), rest = arg.substr(typed.size());
    const std::string name = named(typed);
    if (const CLI::Option* found = find_option(*command_, name)) {
      given_.insert(found);
      remember(typed, *found);
      if (is_flag(*found) && !rest.empty()) return flag(name, *found, rest.substr(1));
      if (rest == "=") refuse_empty(name, *found, {});
      return name + rest;
    }
    const std::string owners = commands_with(*command_, name);
    if (!owners.empty()) usage_error("option " + escaped(name) + " goes with " + owners);
    if (const auto why = reserved_because(name)) usage_error("option " + escaped(name) + " " + *why);
    if (!is_short_group(*command_, arg)) unknown_option(*command_, aliases_, name);
    for (const char c : arg.substr(1)) {
      const CLI::Option* one = find_option(*command_, std::string("-") + c);
      given_.insert(one);
      if (one != nullptr) remember(std::string("-") + c, *one);
      if (one == nullptr || one->get_items_expected_min() > 0) break;  // the rest is its value
    }
    return arg;
  }

  /// "--greedy=false", against a flag that is set elsewhere: what "greedy = false" means there.
  std::string flag(const std::string& name, const CLI::Option& given, const std::string& value) {
    const std::optional<bool> on = truth(value);
    if (!on) {
      usage_error("option " + escaped(name) + ": \"" + escaped(value) + "\" is " +
                  (is_switch_value(value) ? "a list, and a run takes one of them" : "not true or false"));
    }
    const std::string long_name = "--" + given.get_lnames().front();
    if (*on) return long_name;
    const std::string other = opposite(command_->parser(), given);
    if (other.empty()) return long_name + "=false";
    given_.insert(find_option(*command_, other));
    return other;
  }

  bool takes_next(const std::string& arg) const {
    const CLI::Option* option = find_option(*command_, arg);
    return option != nullptr && option->get_items_expected_min() > 0;
  }

  const Command* command_;
  std::span<const Alias> aliases_;
  std::span<const std::string_view> switches_;
  std::set<const CLI::Option*> given_;
  std::string config_, no_command_, taken_option_;
};

/// The file of --log-file, which is opened when the whole line is known.
std::string& log_file() {
  static std::string path;
  return path;
}

/// What an option or a positional argument writes is no file for stdout, but for the one that says so.
void declare_written(const std::string& by, const std::string& path, bool takes_stdout) {
  if (path == "-" && !takes_stdout) {
    usage_error("option " + by + ": stdout is for what the program prints; name a file (./- is one of that name) or " +
                "/dev/stderr");
  }
  will_write(by, path);
}

void declare_option(const OptionRow& row, const Page& page) {
  const auto is_one = [&](std::string_view name) { return row.option->check_name(std::string(name)); };
  const std::string& by = row.names.front();
  const bool written = is_one("--log-file") || std::any_of(page.written.begin(), page.written.end(), is_one);
  for (const std::string& file : row.option->reduced_results()) {
    if (written) {
      declare_written(by, file, !page.takes_stdout.empty() && is_one(page.takes_stdout));
    } else {
      will_read(by, file);
    }
  }
}

/// "MODEL OUT TYPE": a word for each of the values, and what is said of it.
void declare_positional(const OptionRow& row) {
  std::istringstream kinds(row.value);
  std::string kind;
  for (const std::string& value : row.option->results()) {
    if (!(kinds >> kind)) return;
    if (kind == "MODEL" || kind == "FILE") will_read(kind, value);
    if (kind == "OUT") will_write(kind, value);
  }
}

/// The files that the line and the settings name for a command and its subcommands.
void declare_files(const Command& cli, const Page& page) {
  for (const OptionGroup& group : option_groups(cli, page.aliases)) {
    for (const OptionRow& row : group.rows) {
      if (row.takes_file || row.takes_model) declare_option(row, page);
    }
  }
  for (const OptionRow& row : positionals(cli)) declare_positional(row);
  for (const Command* c : cli.subcommands()) declare_files(*c, page);
}

/// llama.cpp's levels: 0 and 1 errors, 2 warnings, 3 more, 4 and 5 all.
void set_level(const std::string& text) {
  const std::int64_t level = parse_integer("--verbosity", text, 0, 5);
  set_verbosity(level < 2    ? Verbosity::Quiet
                : level == 2 ? Verbosity::Warnings
                : level == 3 ? Verbosity::Normal
                             : Verbosity::Verbose);
}

void add_log_options(Command& cli) {
  cli.add_flag_callback(
         "-q,--quiet,--log-disable", [] { set_verbosity(Verbosity::Quiet); }, "errors only on stderr")
      ->trigger_on_parse();  // of these three the last one counts
  cli.add_flag_callback(
         "-v,--verbose,--log-verbose", [] { set_verbosity(Verbosity::Verbose); }, "say what was chosen and compiled")
      ->trigger_on_parse();
  cli.add_option_function<std::string>("--verbosity,--log-verbosity", set_level,
                                       "what stderr shows; 0, 1: errors; 2: warnings; 3: more (default); 4, 5: as -v")
      ->type_name("N")
      ->take_last()
      ->trigger_on_parse();
  cli.add_option("--log-file", log_file(), "all that -v would show goes to this file, whatever stderr shows")
      ->type_name("FILE")
      ->take_last();
  cli.add_flag_callback(
         "--log-jsonl", [] { set_log_format(LogFormat::Json); },
         "lines on stderr and in the log's file are JSON objects with time, level and message")
      ->trigger_on_parse();  // before errors of other options
}

/// Asked for a page, a program prints it whatever is set elsewhere.
bool wants_page(const CLI::App& cli, const std::set<const CLI::Option*>& given) {
  return std::any_of(given.begin(), given.end(),
                     [&cli](const CLI::Option* o) { return o != nullptr && asks_for_page(cli, *o); });
}

/// A subcommand that was entered shows its own help.
void print_help(const Command& root, const Page& page, HelpDetail detail) {
  const Command* shown = &root;
  for (const Command* sub : root.subcommands()) {
    if (sub->parsed()) shown = sub;
  }
  write_stdout(help_page(*shown, page, detail, text_width(STDOUT_FILENO)));
}

}  // namespace

Error as_typed(const Error& error) {
  constexpr std::string_view kOption = "option ";
  ErrorParts parts = error.parts();
  std::string& text = parts.subject.empty() ? parts.problem : parts.subject;
  if (!text.starts_with(kOption)) return error;
  const std::size_t length = std::min(text.find_first_of(": ", kOption.size()), text.size()) - kOption.size();
  const auto typed = typed_names().find(text.substr(kOption.size(), length));
  if (typed == typed_names().end()) return error;
  text.replace(kOption.size(), length, typed->second);
  return {error.kind(), std::move(parts)};
}

std::optional<int> parse(Command& cli, int argc, char** argv, const Page& page) {
  CLI::App& parser = cli.parser();
  parser.name(std::string(program()));
  if (page.settings == Page::Settings::FromElsewhere) add_config_option(cli);
  for (CLI::App* command : parser.get_subcommands([](const CLI::App*) { return true; })) {
    command->set_help_flag("-h,--help", "this page");
  }
  std::span<char*> args(argv, static_cast<std::size_t>(argc));
  ArgumentWalk walk(cli, page);
  std::vector<std::string> words = walk.walk(args.empty() ? args : args.subspan(1));
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  std::string settings_file;
  try {
    if (page.settings == Page::Settings::FromElsewhere && !wants_page(parser, walk.given())) {
      settings_file = apply_settings(parser, page, walk.given(), walk.config());
    }
    parser.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    print_help(cli, page, HelpDetail::Common);
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    print_help(cli, page, HelpDetail::All);
    return 0;
  } catch (const TextAsked& asked) {
    write_stdout(asked.text);
    return 0;
  } catch (const ManAsked&) {
    write_stdout(man_page(cli, page, build_version(), build_date()));
    return 0;
  } catch (const CompletionAsked& asked) {
    write_stdout(completion_script(cli, page, asked.shell));
    return 0;
  } catch (const CLI::ExtrasError&) {
    usage_error(unexpected_argument(cli, walk.taken_option()));
  } catch (const CLI::RequiredError& error) {
    usage_error(missing_argument(cli, error.what(), walk.no_command()));
  } catch (const CLI::ParseError& error) {
    usage_error(in_our_words(error.what()));
  }
  will_read("--config", settings_file);
  declare_files(cli, page);
  if (!log_file().empty()) open_log_file(log_file());
  say_settings();
  return std::nullopt;
}

void add_completion_command(Command& cli) {
  std::string shells;
  for (const std::string_view shell : shell_names()) shells += (shells.empty() ? "" : "|") + std::string(shell);
  Command* command = cli.add_subcommand(
      "completion", "prints a script that completes command lines: source <(llm-run completion bash)");
  const auto shell = std::make_shared<std::string>();
  command
      ->add_option_function<std::string>(
          "shell", [shell](const std::string& word) { *shell = word; }, "the shell that is to read it")
      ->type_name(shells)
      ->required();
  command->final_callback([shell] { throw CompletionAsked{*shell}; });  // when no word is left over
}

void begin_group(Command& cli, const std::string& name) { cli.parser().option_defaults()->group(name); }

void add_common_options(Command& cli) {
  begin_group(cli, "General");
  add_log_options(cli);
  const auto error_format = [](const std::string& text) {
    if (text != "text" && text != "json") {
      throw Error(ErrorKind::Usage, "option --error-format: \"" + escaped(text) + "\" is not text or json");
    }
    set_error_format(text == "json" ? ErrorFormat::Json : ErrorFormat::Text);
  };
  cli.add_option_function<std::string>("--error-format", error_format, "json: one object per error (default text)")
      ->type_name("text|json")
      ->take_last();
  cli.parser().set_help_flag("-h,--help,--usage", "the commonest options");
  cli.parser().set_help_all_flag("--help-all", "all options, environment variables, exit codes");
  cli.add_flag_callback(
         "--version", [] { throw TextAsked{version_text() + "\n"}; }, "print version, build and instruction set")
      ->trigger_on_parse();
  cli.add_flag_callback(
         "--completion-bash", [] { throw CompletionAsked{"bash"}; }, "print a script for bash's completion")
      ->trigger_on_parse();
  // For the build, which installs what they print.
  cli.add_option_function<std::string>("--completion", [](const std::string& shell) { throw CompletionAsked{shell}; })
      ->trigger_on_parse()
      ->group("");
  cli.add_flag_callback("--man-page", [] { throw ManAsked{}; })->trigger_on_parse()->group("");
}

}  // namespace llm::app
