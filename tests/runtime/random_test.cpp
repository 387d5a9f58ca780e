// The counter-based numbers against the published ones.
#include "runtime/random.h"

#include <cmath>

#include "support/catch.h"

using namespace llm;

TEST_CASE("Philox4x32-10 gives its published numbers") {
  using Counter = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("each draw has 53 bits of its own of the counter's block") {
  const std::uint64_t seed = 0x299f31d0a4093822, row = 0x85a308d3243f6a88, index = 0x0370734413198a2e;
  const std::uint64_t token = 0x94fdcceb'd16cfe09u >> 11, xtc = 0x24126ea1'5001e420u >> 11;
  CHECK(counter_uniform(seed, row, index) == std::ldexp(static_cast<double>(token), -53));
  CHECK(counter_uniform(seed, row, index, Draw::Xtc) == std::ldexp(static_cast<double>(xtc), -53));
}
