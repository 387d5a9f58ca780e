// The codes that errors and warnings carry, for whoever matches on messages: they stay as they are while words change.
// THE list: docs/cli.md shows it, and a test holds the two together.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace llm::app {

/// Of errors: one per kind, and so per exit code.
struct ErrorCode {
  ErrorKind kind;
  std::string_view code;  ///< "E-CTX"
  std::string_view kind_name;
  std::string_view hint;  ///< what to do next, where the message itself does not say it; {} is the program's name
};
std::span<const ErrorCode> error_codes();
const ErrorCode& error_code(ErrorKind);

/// What to do about an error, in words; empty if its message says it.
std::string hint_for(const Error&, std::string_view program);

/// `PROGRAM: hint: ...` for the error that ends a program, in words only and not with -q.
void print_hint(const Error&);

struct WarningCode {
  std::string_view code, meaning;
};
std::span<const WarningCode> warning_codes();

}  // namespace llm::app
