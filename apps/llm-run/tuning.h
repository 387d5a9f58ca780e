// --tune: how many threads serve a model best on this machine, measured once and kept for the runs that follow.
#pragma once

#include "common/app.h"

namespace llm::app {

enum class Tune {
  TakeStored,  ///< what an earlier run has found, if there is any
  Measure,     ///< some seconds, then as above
};

/// Sets the threads of options that leave them open; true if it did. Says on stderr what they were set to. Only the cpu
/// backend has such a choice. Throws ErrorKind::Usage if they are to be measured and are given.
bool tune_threads(ModelOptions&, Tune);

}  // namespace llm::app
