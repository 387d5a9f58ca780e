#include "backend/cpu/isa.h"

#include "support/catch.h"

namespace llm::cpu {

TEST_CASE("each instruction set that runs here has its own kernels") {
  for (const InstructionSet& set : instruction_sets()) {
    INFO(set.name);
    if (set.runs_here()) CHECK(kernels_of(set).isa == set.name);
  }
}

}  // namespace llm::cpu
