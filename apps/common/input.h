// What programs read besides models: files of text or numbers, and stdin.
#pragma once

#include <string>

namespace llm::app {

/// All bytes of a file, or of stdin for "-". Throws ErrorKind::Usage for a file that cannot be read, ErrorKind::Io for
/// stdin.
std::string read_input(const std::string& path);

}  // namespace llm::app
