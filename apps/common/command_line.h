// The command line of a program: its words are checked and joined with what environment and configuration file set,
// then CLI11 takes them.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "common/command.h"
#include "common/option_table.h"

namespace llm::app {

/// Thrown by the callback of an option that is answered by a text on stdout, and that was all there was to do.
struct TextAsked {
  std::string text;
};

/// Parses the command line. Returns the exit code if that is all there was to do (--help, --version). Throws
/// ErrorKind::Usage: unknown options with the nearest known one, options of llama.cpp's that are not built yet as such.
std::optional<int> parse(Command&, int argc, char** argv, const Page& = {});

/// The same of the option by the name that was typed, where the error is one of an option.
Error as_typed(const Error&);

/// -h, --help-all, --version, -q, -v, --error-format, --completion-bash: the last options of every program.
void add_common_options(Command&);

/// The command `completion SHELL`.
void add_completion_command(Command&);

/// The options that are added from here on belong to this group.
void begin_group(Command&, const std::string& name);

}  // namespace llm::app
