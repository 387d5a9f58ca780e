// One prompt, one answer.
#pragma once

#include "base/clock.h"
#include "options.h"

namespace llm::app {

/// Returns the exit code. `start`: when the program began.
int answer_prompt(const RunOptions&, Clock::time_point start);

/// --dry-run, without weights: the prompt, if one is given, against the context, and what the run would take.
int plan_answer(const RunOptions&);

}  // namespace llm::app
