// What differs between two steps, in device memory, where kernels read it: nothing of it is a kernel's argument, so
// that a recorded step can be replayed. Rows beyond a step's own are filled so that they do no harm: token 0, slot -1,
// sequence -1.
#pragma once

#include <cstdint>

namespace llm::cuda {

struct DeviceRule;

/// Tokens of one sequence in a step, and the slots of its recurrent states (StateMove); without tokens it is none.
struct SequenceRun {
  std::int32_t first_token = 0, n_tokens = 0, from = -1, to = -1;
};

struct StepView {
  const std::int32_t* tokens = nullptr;       ///< [capacity]; ~i stands for drawn[i]
  const std::int32_t* positions = nullptr;    ///< [capacity]
  const std::int32_t* slots = nullptr;        ///< [capacity]: block * 64 + offset; -1 stores nothing
  const std::int32_t* sequence = nullptr;     ///< [capacity]: row of block_table that the token's keys are in; -1: none
  const std::int32_t* out_rows = nullptr;     ///< [output capacity]
  const std::int32_t* block_table = nullptr;  ///< [sequences][table_stride]: physical block of each logical block
  const SequenceRun* runs = nullptr;          ///< [sequence capacity], of graphs with recurrent states
  const std::int32_t* counts = nullptr;       ///< {tokens, outputs}
  const DeviceRule* rules = nullptr;          ///< [output capacity], of steps that draw
  const std::int32_t* drawn = nullptr;        ///< DrawMemory::drawn
  int table_stride = 0;                       ///< fixed for a session
};

}  // namespace llm::cuda
