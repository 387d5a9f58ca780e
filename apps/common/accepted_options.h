// Options of llama.cpp's that ask for what these programs do anyway: command lines that were written for it keep
// working. Asked for anything else, they are refused with the reason.
#pragma once

#include <string>

#include "common/command.h"

namespace llm::app {

/// Those of every program that runs a model; they are in a group of their own, and so is what is added behind them.
void add_accepted_options(Command&);
/// Those of llama-bench's that have 0 or 1 behind them.
void add_accepted_switches(Command&);
/// One that has its meaning in some programs alone.
void add_accepted_flag(Command&, const std::string& names, const std::string& meaning);

inline constexpr const char* kNoWarmUp = "there is no warm-up";

}  // namespace llm::app
