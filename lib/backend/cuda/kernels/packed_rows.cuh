// Rows of the cache on their way into one of their own, which attend() reads as if each token were a sequence.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm::cuda {
namespace {

struct PackedSide {
  const unsigned char* from;
  unsigned char* to;
  int row_bytes;
};

/// By words where rows are of these.
__device__ void copy_row(const PackedSide& s, std::size_t from_row, std::size_t to_row, int lane) {
  const unsigned char* const from = s.from + from_row * static_cast<std::size_t>(s.row_bytes);
  unsigned char* const to = s.to + to_row * static_cast<std::size_t>(s.row_bytes);
  if (s.row_bytes % 4 == 0) {
    for (int i = lane * 4; i < s.row_bytes; i += 128)
      *reinterpret_cast<std::uint32_t*>(to + i) = __ldcg(reinterpret_cast<const std::uint32_t*>(from + i));
  } else {
    for (int i = lane; i < s.row_bytes; i += 32) to[i] = __ldcg(from + i);
  }
}

}  // namespace
}  // namespace llm::cuda
