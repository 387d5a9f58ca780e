// The options of a program as rows. A program's Command is the only table of them: help, manual pages, completions,
// environment variables and configuration files are read from it, through here.
//
// A value's type is written for people: FILE, N, text|json. What is in lower case is the word itself, upper case stands
// for something; FILE is completed by names of files, MODEL by those of GGUF files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/command.h"

namespace llm::app {

/// Another spelling of an option, for what CLI11 cannot declare: long names after one dash ("-no-cnv", "-np").
struct Alias {
  std::string_view given, meant;
};

/// The name that CLI11 knows for what is given: an alias of the program's or of all of them, or the name itself.
std::string_view meant_by(std::string_view name, std::span<const Alias> aliases);

/// What a program says of itself beside its options, and where they may come from.
struct Page {
  std::span<const Alias> aliases = {};
  std::string_view usage = {};                    ///< lines of "llm-run ..."; empty: made of the positional arguments
  std::span<const std::string_view> common = {};  ///< options that --help shows; empty: all
  enum class Settings : std::uint8_t { None, FromElsewhere } settings = Settings::None;  ///< variables and --config
  /// Options whose files are written, those of all others are read; and the one of them for which - is stdout.
  std::span<const std::string_view> written = {};
  std::string_view takes_stdout = {};
  std::span<const std::string_view> switches = {};  ///< flags that may have 0 or 1 behind them, as llama-bench's have
  /// From elsewhere, options of this group count only beside this option.
  struct Gate {
    std::string_view group, option;
  } gate = {};
};

struct OptionRow {
  const CLI::Option* option;
  std::vector<std::string> names;       ///< as they are given, the shortest first
  std::string value = {};               ///< type of the value; empty for a flag
  std::vector<std::string> words = {};  ///< the values that are words
  bool takes_model = false, takes_file = false;
  bool required = false;
  bool asks_for_help = false;
  const std::string& meaning() const;
};
struct OptionGroup {
  std::string name;
  std::vector<OptionRow> rows;
};

/// A row of one option, whose command it is of.
OptionRow option_row(const Command&, const CLI::Option&, std::span<const Alias> aliases);
/// An option that prints something and ends, such as --version: no setting.
bool asks_for_page(const CLI::App&, const CLI::Option&);
/// In the order of their declaration, without what is hidden (of the empty group) and without positional arguments.
std::vector<OptionGroup> option_groups(const Command&, std::span<const Alias> aliases);
/// The arguments that have no name.
std::vector<OptionRow> positionals(const Command&);
/// "llm-inspect split"
std::string full_name(const Command&);

/// A program's description in its parts: what it does, more sections ("Types:"), the examples.
struct Description {
  std::string intro, sections, examples;
};
Description description(const Command&);
/// A sentence about numbers, in help and manual of every program.
std::string numbers_text();
struct ExitCode {
  int code;
  std::string_view meaning;
};
std::span<const ExitCode> exit_codes();
/// LLM_RUN_CTX_SIZE, for --ctx-size
std::string variable_of(std::string_view long_name);

}  // namespace llm::app
