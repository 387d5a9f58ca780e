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

/// In which this processor is fastest, by kernels of a set.
Ways best_ways(const Kernels&);

}  // namespace llm::cpu
