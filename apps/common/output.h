// What programs write to stdout, where every byte goes out at once and every failure is seen.
#pragma once

#include <string>
#include <string_view>

namespace llm::app {

/// Thrown when the reader of stdout has gone; run() ends quietly with 141.
struct BrokenPipe {};

/// Writes all of `bytes` to stdout, unbuffered. Throws BrokenPipe, or ErrorKind::Io with the system's reason.
void write_stdout(std::string_view bytes);
/// The same to stderr, where nothing that goes wrong is told.
void write_stderr(std::string_view bytes);
/// From here on stdout is this file, which loses what it held; the empty name and "-" change nothing. Throws
/// ErrorKind::Io.
void redirect_stdout(const std::string& path);
bool stdout_is_terminal();
bool stderr_is_terminal();

/// Whether two names are one file, or would be if it were made. The empty name, "-", devices and pipes
/// are none.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace llm::app
