// main's frame, and the walk over the command line that comes before CLI11's.
#include "common/app.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "backend/registry/registry.h"
#include "base/environment.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/reserved.h"
#include "common/signals.h"

namespace llm::app {
namespace {

constexpr int kBrokenPipeExit = 128 + SIGPIPE;
constexpr int kMaxThreads = 1024;

/// A closed standard stream is opened on something that refuses what we do with it; otherwise the next file that is
/// opened would take its number and get our output.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void ignore(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(signal, &action, nullptr);
}

/// Errors of parsing itself are printed in the format asked for, wherever on the line it is.
void find_error_format(std::span<char*> args) {
  for (std::size_t i = 1; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    const bool json = arg == "--error-format=json" ||
                      (arg == "--error-format" && i + 1 < args.size() && std::string_view(args[i + 1]) == "json");
    if (json) set_error_format(ErrorFormat::Json);
  }
}

int report(const Error& error) {
  print_error(error);
  return static_cast<int>(error.kind());
}

[[noreturn]] void usage_error(std::string problem) { throw Error(ErrorKind::Usage, problem + " (see --help)"); }

std::vector<std::string> option_names(const CLI::App& cli) {
  std::vector<std::string> names;
  for (const CLI::Option* option : cli.get_options()) {
    for (const std::string& s : option->get_snames()) names.push_back("-" + s);
    for (const std::string& l : option->get_lnames()) names.push_back("--" + l);
  }
  return names;
}

[[noreturn]] void unknown_option(const CLI::App& cli, std::string_view name) {
  std::vector<std::string> names = option_names(cli);
  if (name.size() > 2) std::erase_if(names, [](const std::string& n) { return n.size() == 2; });
  const std::string nearest = nearest_name(name, names);
  usage_error("unknown option " + escaped(name) + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

/// An option of a subcommand, or of what it belongs to where that one lets its options follow the subcommand.
const CLI::Option* find_option(const CLI::App& cli, std::string_view name) {
  const CLI::Option* option = cli.get_option_no_throw(std::string(name));
  if (option != nullptr || cli.get_parent() == nullptr || !cli.get_fallthrough()) return option;
  return find_option(*cli.get_parent(), name);
}

bool has_option(const CLI::App& cli, std::string_view name) { return find_option(cli, name) != nullptr; }

/// "-n128" and "-qv": what CLI11 reads as a short option with its value, or several flags.
bool is_short_group(const CLI::App& cli, std::string_view arg) {
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
  ArgumentWalk(const CLI::App& root, std::span<const Alias> aliases) : app_(&root), aliases_(aliases) {}

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
      out.push_back(option(arg));
      if (takes_next(out.back()) && i + 1 < args.size()) out.emplace_back(args[++i]);
    }
    return out;
  }

 private:
  void enter_subcommand(const std::string& word) {
    for (const CLI::App* sub : app_->get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_name() == word) {
        app_ = sub;
        return;
      }
    }
  }

  std::string option(const std::string& arg) const {
    const std::string name = arg.substr(0, arg.find('='));
    const auto alias = std::find_if(aliases_.begin(), aliases_.end(), [&](const Alias& a) { return a.given == name; });
    if (alias != aliases_.end()) return std::string(alias->meant) + arg.substr(name.size());
    if (has_option(*app_, name)) return arg;
    if (is_reserved_option(name)) usage_error("option " + escaped(name) + " is recognised, not supported yet");
    if (is_short_group(*app_, arg)) return arg;
    unknown_option(*app_, name);
  }

  bool takes_next(const std::string& arg) const {
    const CLI::Option* option = find_option(*app_, arg);
    return option != nullptr && option->get_items_expected_min() > 0;
  }

  const CLI::App* app_;
  std::span<const Alias> aliases_;
};

std::string help_footer() {
  std::string text =
      "Numbers take the suffixes k, K, M, G (powers of 1000) and Ki, Mi, Gi (powers of 1024).\nEnvironment:\n";
  for (const EnvironmentVariable& v : environment_variables()) {
    text += "  " + std::string(v.name) + "  " + std::string(v.meaning) + "\n";
  }
  text +=
      "Exit codes: 0 done, 1 other failure, 2 usage, 3 model file, 4 memory, 5 context, 6 grammar or schema,\n"
      "  8 input or output, 9 device, 10 a warning with --strict, 11 NaN, 70 our bug, 124 --max-time, 130 "
      "interrupted,\n"
      "  141 the reader of stdout has gone, 143 terminated";
  return text;
}

std::string version_text() {
  const auto backend = make_backend("cpu", BackendOptions{.threads = default_threads().threads, .isa = {}});
  return std::string(program()) + " " + LLM_VERSION + " (" + backend->describe() + ")";
}

struct VersionAsked {};

}  // namespace

int run(std::string_view program, int argc, char** argv, const std::function<int()>& body) {
  open_standard_streams();
  ignore(SIGPIPE);
  ignore(SIGXFSZ);  // a file size limit is then an error of write
  set_program(program);
  report_lost_files();
  find_error_format({argv, static_cast<std::size_t>(argc)});
  try {
    return body();
  } catch (const BrokenPipe&) {
    return kBrokenPipeExit;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorKind::Memory, "out of memory"));
  } catch (const std::exception& error) {
    return report(Error(ErrorKind::Internal, std::string("unexpected: ") + error.what()));
  } catch (...) {
    return report(Error(ErrorKind::Internal, "unexpected exception"));
  }
}

std::optional<int> parse(CLI::App& cli, int argc, char** argv, std::span<const Alias> aliases) {
  cli.name(std::string(program()));
  cli.footer(help_footer());
  std::span<char*> args(argv, static_cast<std::size_t>(argc));
  std::vector<std::string> words = ArgumentWalk(cli, aliases).walk(args.empty() ? args : args.subspan(1));
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    cli.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    // A subcommand that was entered prints its own help.
    const CLI::App* shown = &cli;
    for (auto entered = cli.get_subcommands(); !entered.empty(); entered = shown->get_subcommands())
      shown = entered.front();
    write_stdout(shown == &cli ? cli.help() : shown->help(std::string(program())));
    return 0;
  } catch (const VersionAsked&) {
    write_stdout(version_text() + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    usage_error(error.what());
  }
  return std::nullopt;
}

void add_common_options(CLI::App& cli) {
  cli.add_flag_callback(
      "-q,--quiet", [] { set_verbosity(Verbosity::Quiet); }, "errors only on stderr");
  cli.add_flag_callback(
      "-v,--verbose", [] { set_verbosity(Verbosity::Verbose); }, "say what was chosen and compiled");
  const auto error_format = [](const std::string& text) {
    if (text != "text" && text != "json") {
      throw Error(ErrorKind::Usage, "option --error-format: \"" + escaped(text) + "\" is not text or json");
    }
    set_error_format(text == "json" ? ErrorFormat::Json : ErrorFormat::Text);
  };
  cli.add_option_function<std::string>("--error-format", error_format, "text, or json: one object per error")
      ->type_name("FORMAT")
      ->take_last();
  cli.add_flag_callback(
         "--version", [] { throw VersionAsked{}; }, "print version and instruction set")
      ->trigger_on_parse();
}

void add_threads_option(CLI::App& cli, int& threads) {
  add_integer(cli, "-t,--threads", threads, 1, kMaxThreads, "threads (default: physical cores, within the CPU quota)");
}

void add_model_options(CLI::App& cli, ModelOptions& options) {
  cli.add_option("-m,--model", options.path, "GGUF file; of a split model, any part")
      ->type_name("FILE")
      ->required()
      ->take_last();
  add_threads_option(cli, options.threads);
  std::string names;
  for (const std::string_view name : backend_names()) names += (names.empty() ? "" : "|") + std::string(name);
  cli.add_option("--backend", options.backend, names + " (default cpu)")->type_name("NAME")->take_last();
}

std::unique_ptr<Model> load_model(const ModelOptions& options, LoadOptions::Weights weights) {
  Warnings warnings;
  std::unique_ptr<Model> model;
  {
    Progress progress("loading");
    model = Model::load({.path = options.path,
                         .backend = options.backend,
                         .threads = options.threads,
                         .weights = weights,
                         .progress = [&](double fraction) { progress.update(fraction); }},
                        warnings);
  }
  print_warnings(warnings);
  return model;
}

}  // namespace llm::app
