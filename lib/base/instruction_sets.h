// The instruction sets that kernels are compiled for: those of this build, which of them this machine runs, and which
// one a program gets.
#pragma once

#include <span>
#include <string_view>

namespace llm {

struct InstructionSet {
  std::string_view name;
  std::string_view narrower;  ///< a set that every machine with this one runs as well; the plainest has none
  bool (*runs_here)();
  std::string_view needs = {};  ///< features of the processor, by Linux's names
};

/// Those of this build, the slowest first. The first one runs everywhere.
std::span<const InstructionSet> instruction_sets();

/// The set named by `forced`, by LLM_RUN_ISA, or the last one that runs here. Throws ErrorKind::Device for a name that
/// is unknown or cannot run here.
const InstructionSet& choose_instruction_set(std::string_view forced = {});

/// Whether `narrow` is `wide`, the plainest set, or reached from `wide` by InstructionSet::narrower.
bool includes(const InstructionSet& wide, std::string_view narrow);

}  // namespace llm
