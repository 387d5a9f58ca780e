// --mlock: weights that stay in memory.
#pragma once

#include "common/command.h"
#include "runtime/model.h"

namespace llm::app {

/// --mlock, and --load-mode, which can ask for the same.
void add_memory_lock_options(Command&, bool& lock);

/// Reads the model's files and keeps their pages in memory, as far as the system allows it: a warning says how far.
void lock_in_memory(const Model&);

}  // namespace llm::app
