// Escapes in text that is given on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llm::app {

enum class Escapes : std::uint8_t { Processed, Kept };

/// \n \r \t \' \" \\ and \xHH become what they stand for; any other backslash stays, as in llama.cpp.
std::string process_escapes(std::string_view text);

}  // namespace llm::app
