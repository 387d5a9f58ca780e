// The kernels of each instruction set of base/instruction_sets.h.
#pragma once

#include <string_view>

#include "backend/cpu/kernels/kernels.h"
#include "base/instruction_sets.h"

namespace llm::cpu {

/// Of a set of this build.
const Kernels& kernels_of(const InstructionSet&);

/// Those of choose_instruction_set(forced).
const Kernels& choose_kernels(std::string_view forced);

/// What this processor's memory is read fastest by, by kernels of a set (docs/performance.md).
Streams best_streams(const Kernels&);

}  // namespace llm::cpu
