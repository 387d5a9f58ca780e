// What an answer took, in words, of one answer and of a chat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/generator.h"

namespace llm::app {

/// "prompt 1,012 tok 84.2 t/s (cached 57) · gen 60 tok (12 thinking) 91.0 t/s · TTFT 0.01s"; `cached`: tokens of the
/// prompt that were in the cache, where that is to be said.
std::string timing_text(const GenerateResult&, std::optional<std::int64_t> cached);

}  // namespace llm::app
