// What the tests of float and attention kernels share: tables of the instruction sets that this machine runs, random
// numbers, and a paged cache filled through the kernels' own store functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "base/half.h"
#include "quant_cases.h"

namespace llm::cpu::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline std::vector<float> random_floats(std::size_t n, std::mt19937& rng, float limit = 1) {
  std::uniform_real_distribution<float> uniform(-limit, limit);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(rng);
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

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

inline std::size_t element_bytes(CacheElement e) { return e == CacheElement::F32 ? 4 : 2; }
inline float read_element(CacheElement e, const std::byte* p) {
  if (e == CacheElement::F32) {
    float f;
    std::memcpy(&f, p, sizeof f);
    return f;
  }
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return e == CacheElement::F16 ? to_float(Half{bits}) : to_float(BFloat16{bits});
}

/// A cache of one layer whose blocks lie in random order; whatever no position has written is NaN (all bits set).
struct PagedCache {
  PagedCache(const Kernels& kernels, CacheElement element, int kv_heads, int head_dim, int positions, std::mt19937& rng)
      : kernels(kernels), element(element), kv_heads(kv_heads), head_dim(head_dim) {
    const int n = (positions + kKeyBlock - 1) / kKeyBlock;
    blocks.resize(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) blocks[static_cast<std::size_t>(i)] = i + 1;  // block 0 is somebody else's
    std::shuffle(blocks.begin(), blocks.end(), rng);
    bytes.assign(static_cast<std::size_t>((n + 1) * kv_heads * kKeyBlock * head_dim) * element_bytes(element),
                 std::byte{0xff});
  }
  std::byte* row(int head, int position) {
    const int block = blocks[static_cast<std::size_t>(position / kKeyBlock)];
    const int at = ((block * kv_heads + head) * kKeyBlock + position % kKeyBlock) * head_dim;
    return bytes.data() + static_cast<std::size_t>(at) * element_bytes(element);
  }
  void write(int head, int position, const float* x) {
    kernels.store_row[static_cast<int>(element)](x, row(head, position), head_dim);
  }
  double at(int head, int position, int d) {
    return static_cast<double>(
        read_element(element, row(head, position) + static_cast<std::size_t>(d) * element_bytes(element)));
  }

  const Kernels& kernels;
  CacheElement element;
  int kv_heads, head_dim;
  std::vector<std::int32_t> blocks;
  std::vector<std::byte> bytes;
};

}  // namespace llm::cpu::test
