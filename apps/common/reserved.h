// Options that are known and not supported: those of llama.cpp that this version does not have, and names that a later
// version will have. They are refused by name, never ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm::app {

enum class LlamaProgram : std::uint8_t {
  Run,  ///< programs that llm-run stands for
  Server,
  Tools,
};
/// One option of llama.cpp's; names are separated by spaces.
struct LlamaOption {
  std::string_view names;
  std::string_view off;       ///< names that switch it off
  std::string_view variable;  ///< its environment variable
  LlamaProgram program;
};
std::span<const LlamaOption> llama_options();
/// Those of earlier releases whose environment variables may still be set.
std::span<const LlamaOption> earlier_llama_options();
bool has_name(std::string_view names, std::string_view name);

/// What to say of an option that this program does not have; nothing if nobody knows its name.
std::optional<std::string> reserved_because(std::string_view name);

}  // namespace llm::app
