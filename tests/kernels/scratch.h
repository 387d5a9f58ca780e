// What a thread gives a kernel to work in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::test {

/// 64-byte aligned scratch of one thread, filled with NaN so that nothing is read before it is written.
class Scratch {
 public:
  Scratch() : bytes_(kScratchBytes + 64, std::byte{0xff}) {}
  std::byte* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + ((64 - address % 64) % 64);
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace llm::cpu::test
