#include "runtime/random.h"

namespace llm {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr std::uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiply0 * counter[0], p1 = kMultiply1 * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double counter_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t index, Draw what) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words = philox4x32({low(row), high(row), low(index), high(index)}, {low(seed), high(seed)});
  const std::size_t first = what == Draw::Token ? 0 : 2;
  const std::uint64_t bits = (std::uint64_t{words[first + 1]} << 32 | words[first]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace llm
