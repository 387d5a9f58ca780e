// The context: how long, in what format it is cached, and what happens when it is full.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "common/command.h"
#include "common/numbers.h"

namespace llm::app {

enum class Overflow : std::uint8_t {
  Error,     ///< a prompt that does not fit is refused; an answer ends where the context does
  Shift,     ///< the same for a prompt; an answer goes on without the older half of the text
  Truncate,  ///< a prompt that does not fit loses its beginning; an answer ends where the context does
};

struct ContextOptions {
  std::optional<std::int64_t> size;  ///< 0: the model's whole one
  std::int64_t keep = 0;             ///< tokens of the prompt's beginning that are never dropped; -1: all
  Overflow overflow = Overflow::Error;
  CacheFormat cache;
  std::int64_t batch = kMaxInt32, ubatch = kMaxInt32;

  /// Most tokens of a step.
  int batch_tokens() const { return static_cast<int>(std::min(batch, ubatch)); }
};

void add_context_options(Command&, ContextOptions&);

}  // namespace llm::app
