// What programs say to people, on stderr: notes and warnings through the log, errors by one write(2) of the whole line.
// Errors and warnings carry a code each: message_codes.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "runtime/figures.h"

namespace llm::app {

enum class Verbosity : std::uint8_t {
  Quiet,  ///< errors only
  Warnings,
  Normal,
  Verbose,
};
enum class ErrorFormat : std::uint8_t { Text, Json };
enum class LogFormat : std::uint8_t { Text, Json };

/// The name that begins every line; called by run().
void set_program(std::string_view name);
std::string_view program();
void set_verbosity(Verbosity);
Verbosity verbosity();
void set_error_format(ErrorFormat);
/// Json: a line on stderr is an object with time, level, program and message, errors too.
void set_log_format(LogFormat);
bool log_is_json();
/// From here on everything that could be said goes to this file as well, whatever is shown. Throws ErrorKind::Io.
void open_log_file(const std::string& path);

void print_warnings(const Warnings&);
/// Warnings given to print_warnings() so far, shown or not.
std::size_t warnings_printed();
void note(std::string_view text);  ///< `PROGRAM: note: text`
/// What note() would write to stderr, for who cannot call it; empty if that is nothing.
std::string note_line(std::string_view text);
/// What an option asks for: shown whatever the verbosity.
void show(std::string_view text);
void say(std::string_view text);      ///< a plain line, nothing with -q: timing, progress
void verbose(std::string_view text);  ///< one or more plain lines with -v
/// What was asked for and is no result: whole lines as they are, with -q, too.
void print_text(std::string_view text);
/// `PROGRAM: error[E-CODE]: ...`, or a JSON object with the same parts on one line. What ends a program may have a hint
/// behind it: print_hint() in message_codes.h.
void print_error(const Error&);

/// Text as it may go to a terminal: control characters, escapes and bidirectional controls become visible as `\x1b`;
/// line feed and tab stay. Expects whole UTF-8 sequences.
std::string terminal_safe(std::string_view text);

using llm::bytes_text;
using llm::fixed_text;
using llm::number_text;

}  // namespace llm::app
