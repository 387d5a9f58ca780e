// llm-run's conversation with a person, or with the lines of a pipe.
#pragma once

#include "options.h"

namespace llm::app {

/// Returns the exit code. Without a person at a terminal that of the first message that could not be answered.
int run_chat(const RunOptions&);

}  // namespace llm::app
