// Which instruction sets this build has kernels for, which of them this machine runs, and which one a program gets.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu {

struct InstructionSet {
  std::string_view name;
  const Kernels& (*kernels)();
  bool (*runs_here)();
  std::string_view needs = {};  ///< features of the processor, by Linux's names
};

/// Those of this build, the slowest first.
std::span<const InstructionSet> instruction_sets();

/// The kernels of the set named by `forced`, by LLM_RUN_ISA, or the last one that runs here. Throws ErrorKind::Device
/// for a name that is unknown or cannot run here.
const Kernels& choose_kernels(std::string_view forced);

}  // namespace llm::cpu
