// How a model's files come into memory: mapped, read whole, kept there.
#pragma once

#include "common/command.h"
#include "runtime/model.h"

namespace llm::app {

struct FileLoading {
  LoadOptions::Files files = LoadOptions::Files::Mapped;
  bool lock = false;
};
/// --mlock, --mmap, --no-mmap, and --load-mode, which can ask for the same.
void add_file_loading_options(Command&, FileLoading&);

/// Keeps the pages of the model's files in memory, as far as the system allows it: a warning says how far.
void lock_in_memory(Model&);

}  // namespace llm::app
