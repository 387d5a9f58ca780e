// GGUF files that programs write: never over one that exists unless asked to, whole or not at all, whatever ends the
// program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "gguf/writer.h"

namespace llm::app {

enum class Existing : std::uint8_t { Refuse, Replace };

/// Throws ErrorKind::Usage for a file that is there already, ErrorKind::Io for one whose folder is not: to be called
/// before the work is done.
void check_outputs(std::span<const std::filesystem::path>, Existing);

/// Writes the files with progress on stderr (`what` is its label) and puts them in place together.
void write_models(std::span<const GgufWriter>, std::span<const std::filesystem::path>, const std::string& what);

}  // namespace llm::app
