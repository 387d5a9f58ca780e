// What programs read besides models: files of text or numbers, and stdin.
#pragma once

#include <string>

namespace llm::app {

/// All bytes of a file, or of stdin for "-". Throws ErrorKind::Usage for a file that cannot be read, ErrorKind::Io for
/// stdin.
std::string read_input(const std::string& path);

/// The texts of all files that a shell's pattern names, each under its path. Throws ErrorKind::Usage if it names none.
std::string read_matching(const std::string& pattern);

}  // namespace llm::app
