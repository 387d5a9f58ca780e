// Hashes of the sequences of numbers that automata and stacks are found by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llm {

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  // The multiplier and the shift of MurmurHash3's finalizer.
  hash = (hash ^ value) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

struct HashOfVector {
  std::size_t operator()(const std::vector<std::uint32_t>& values) const {
    std::uint64_t hash = values.size();
    for (const std::uint32_t v : values) hash = mix(hash, v);
    return static_cast<std::size_t>(hash);
  }
};

}  // namespace llm
