// Loops of independent multiply-adds over registers, written in assembly: a compiler's own loop over intrinsics spills
// or chains and shows less than half of what the units can do.
#pragma once

#include <cstdint>

namespace llm::app {

/// One kind of loop; `run` may be empty where this machine has no such instructions.
struct PeakLoop {
  void (*run)(std::int64_t iterations) = nullptr;
  double ops_per_iteration = 0;  ///< a multiply-add counts twice
  double ops_per_cycle = 0;      ///< what one unit of a core does
  int usual_units = 2;           ///< of most cores
};

/// The widest int8 dot product of this machine: AMX tiles, AVX-512 VNNI, AVX-VNNI, or the byte multiply-add of AVX2.
/// The last one leaves out the additions that widen its 16-bit sums: it is a bound, not what a whole dot product
/// reaches.
PeakLoop int8_peak_loop();
/// Dot products of bfloat16 pairs by AMX tiles or AVX-512 BF16; f32_peak_loop() without them, since that is what
/// replaces them.
PeakLoop bf16_peak_loop();
/// f32 fused multiply-adds, AVX-512 or AVX2.
PeakLoop f32_peak_loop();
/// A chain of operations that depend on each other, each of which takes a known number of cycles; they are its "ops".
PeakLoop clock_loop();

}  // namespace llm::app
