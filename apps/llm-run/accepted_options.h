// Options of llama.cpp's that ask for what this program does anyway: command lines that were written for it keep
// working. Asked for anything else, they are refused with the reason.
#pragma once

#include "common/command.h"

namespace llm::app {

void add_accepted_options(Command&);

}  // namespace llm::app
