// How long a batch would take here, for --dry-run.
#pragma once

#include <span>

#include "runtime/scheduler.h"
#include "runtime/session.h"

namespace llm::app {

/// Loads what the model lacks, measures steps of the sizes that such a session would run, and prints what the whole
/// batch takes: at least, if every row ends with its first token, and at most, if each generates all that it may.
void print_time_plan(Model&, const SessionOptions&, std::span<const BatchRow>, RowOrder, int parallel);

}  // namespace llm::app
