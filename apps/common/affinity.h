// Options that choose the processors a program's threads may run on.
#pragma once

#include "common/command.h"

namespace llm::app {

/// Where OpenMP's variables (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY) bind each thread to a place, this one before
/// main(), the CPUs of all places count for the default number of threads.
void count_all_places();

/// -C, -Cr, which are refused beside such variables. They act at once: the default number of threads is that of the
/// cores that are left.
void add_affinity_options(Command&);

}  // namespace llm::app
