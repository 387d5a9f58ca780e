// `llm-run doctor`: what this machine offers, what of it is used and why, and whether its speed is what its processor's
// features lead one to expect.
#pragma once

#include "common/command.h"

namespace llm::app {

struct DoctorOptions {
  bool json = false;
};
Command* add_doctor_command(Command&, DoctorOptions&);

/// Prints a line per finding. Returns 0, or 1 if something is wrong that a run would suffer from. `threads` 0: as a run
/// would choose. Takes about three seconds.
int run_doctor(const DoctorOptions&, int threads);

}  // namespace llm::app
