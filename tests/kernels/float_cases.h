// What the tests of float and attention kernels share: tables of the instruction sets that this machine runs, random
// numbers, and a paged cache filled through the backend's own writer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cache_writer.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/half.h"
#include "quant_cases.h"
#include "tensor/decode.h"
#include "tensor/quantize.h"
#include "tensor/tensor.h"

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

/// One side of a cache of one layer, whose blocks lie in random order; whatever no position has written is NaN (all
/// bits set).
struct PagedCache {
  PagedCache(const Kernels& kernels, CacheSide side, DType type, int kv_heads, int head_dim, int positions,
             std::mt19937& rng)
      : writer(side, type, head_dim, kernels),
        type(type),
        kv_heads(kv_heads),
        head_dim(head_dim),
        decoded(static_cast<std::size_t>(kv_heads * positions * head_dim), kNan) {
    const int n = (positions + kKeyBlock - 1) / kKeyBlock;
    blocks.resize(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) blocks[static_cast<std::size_t>(i)] = i + 1;  // block 0 is somebody else's
    std::shuffle(blocks.begin(), blocks.end(), rng);
    bytes.assign(static_cast<std::size_t>((n + 1) * kv_heads) * writer.layout().block_bytes(), std::byte{0xff});
  }
  void write(int head, int position, const float* x) {
    const int block = blocks[static_cast<std::size_t>(position / kKeyBlock)];
    writer.store(x, head_dim,
                 bytes.data() + static_cast<std::size_t>(block * kv_heads + head) * writer.layout().block_bytes(),
                 position % kKeyBlock, position % kKeyBlock + 1);
    // What the type's own encoder and decoder make of it.
    std::vector<std::byte> row(TensorType{type, {head_dim}}.bytes());
    encode(type, x, row.data(), head_dim);
    decode(type, row.data(), decoded.data() + index(head, position, 0), head_dim);
  }
  double at(int head, int position, int d) const { return static_cast<double>(decoded[index(head, position, d)]); }
  std::size_t index(int head, int position, int d) const {
    return (static_cast<std::size_t>(position) * static_cast<std::size_t>(kv_heads) + static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(head_dim) +
           static_cast<std::size_t>(d);
  }

  CacheWriter writer;
  DType type;
  int kv_heads, head_dim;
  std::vector<float> decoded;  ///< [position][head][d]
  std::vector<std::int32_t> blocks;
  std::vector<std::byte> bytes;
};

}  // namespace llm::cpu::test
