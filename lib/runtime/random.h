// Random numbers as a function of counters: no state, so a position can be drawn again and no draw depends on what else
// runs.
#pragma once

#include <array>
#include <cstdint>

namespace llm {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011).
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// What a number is for: each has its own, whether the others are drawn or not.
enum class Draw : std::uint8_t {
  Token,  ///< words 0 and 1 of the counter's block
  Xtc,    ///< words 2 and 3
};

/// Uniform in [0, 1) with 53 bits: key = seed, counter = (row, index), low words first.
double counter_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t index, Draw what = Draw::Token);

}  // namespace llm
