// --tune: how many threads serve a model best on this machine, measured once and kept for the runs that follow.
#pragma once

#include "common/app.h"

namespace llm::app {

enum class Tune {
  TakeStored,  ///< what an earlier run has found, if there is any
  Measure,     ///< some seconds, then as above
};

/// Throws ErrorKind::Usage if threads that are to be measured are given.
void refuse_given_threads(const ModelOptions&);
/// Sets the threads of options that leave them open; true if it did. Says on stderr what they were set to. Only the cpu
/// backend has such a choice.
bool tune_threads(ModelOptions&, Tune);

}  // namespace llm::app
