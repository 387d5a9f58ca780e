// Options that choose the processors a program's threads may run on.
#pragma once

#include "common/command.h"

namespace llm::app {

/// -C, -Cr. They act at once: the default number of threads is that of the cores that are left.
void add_affinity_options(Command&);

}  // namespace llm::app
