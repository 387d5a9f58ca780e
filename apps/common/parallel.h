// Loops of OpenMP in programs that run models as well.
#pragma once

#include <omp.h>

namespace llm::app {

/// Behind a parallel loop: its threads would look for work for milliseconds, on the processors that the backend's own
/// want next.
inline void end_parallel() { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }

}  // namespace llm::app
