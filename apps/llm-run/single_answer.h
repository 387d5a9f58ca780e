// One prompt, one answer.
#pragma once

#include "base/clock.h"
#include "options.h"

namespace llm::app {

/// Returns the exit code. `start`: when the program began.
int answer_prompt(const RunOptions&, Clock::time_point start);

}  // namespace llm::app
