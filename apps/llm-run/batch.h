// llm-run --batch: many prompts, a line of JSON for each.
#pragma once

#include "options.h"

namespace llm::app {

/// Runs a batch; the exit code: 0, 7 if rows failed, 128 + the signal's number if one ended it.
int run_batch_mode(const RunOptions&);

}  // namespace llm::app
