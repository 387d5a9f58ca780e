// stdout: every byte goes out at once and every failure is seen.
#pragma once

#include <string_view>

namespace llm::app {

/// Thrown when the reader of stdout has gone; run() ends quietly with 141.
struct BrokenPipe {};

/// Writes all of `bytes` to stdout, unbuffered. Throws BrokenPipe, or ErrorKind::Io with the system's reason.
void write_stdout(std::string_view bytes);
bool stdout_is_terminal();
bool stderr_is_terminal();

}  // namespace llm::app
