// Rows that lie apart in the cache, packed into the blocks that the kernels of attention read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/cache_layout.h"
#include "graph/graph.h"

namespace llm::cpu {

/// Of a chunk of kKeyChunk keys.
inline constexpr std::int32_t kPackedBlocks = kKeyChunk / kKeyBlock;
inline constexpr std::array<std::int32_t, kPackedBlocks> kPackedInOrder{0, 1, 2, 3};
static_assert(kPackedInOrder.back() == kPackedBlocks - 1);

inline std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Of one side of a cache whose access is Selected, which has a row for each `stride` positions.
class RowPacker {
 public:
  RowPacker(CacheSide side, DType type, std::int32_t head_dim, std::int32_t stride = 1)
      : rows_(side, type, head_dim, CacheType::Access::Selected), packed_(side, type, head_dim), stride_(stride) {}
  std::size_t block_bytes() const { return packed_.block_bytes(); }

  /// The rows of these numbers, which ascend, n at most kKeyBlock, into one block; `staged` has room for as many rows.
  void pack(const std::byte* cache, std::int32_t kv_heads, std::int32_t kv_head, const std::int32_t* table,
            const std::int32_t* numbers, std::int32_t n, std::byte* block, std::byte* staged) const {
    const auto row = [&](std::int32_t number) {
      const std::int32_t position = (number + 1) * stride_ - 1;
      const std::size_t of =
          static_cast<std::size_t>(table[position / kKeyBlock]) * static_cast<std::size_t>(kv_heads) +
          static_cast<std::size_t>(kv_head);
      return cache + of * rows_.block_bytes() +
             static_cast<std::size_t>(position % kKeyBlock / stride_) * rows_.row_bytes();
    };
    const auto block_of = [&](std::int32_t number) { return ((number + 1) * stride_ - 1) / kKeyBlock; };
    if (block_of(numbers[n - 1]) == block_of(numbers[0]) && numbers[n - 1] - numbers[0] == n - 1)
      return packed_.put(row(numbers[0]), block, 0, n);  // side by side
    const bool in_place = packed_.whole_row(block, 0) != nullptr;
    std::byte* const to = in_place ? block : staged;
    for (std::int32_t i = 0; i < n; ++i)
      std::memcpy(to + static_cast<std::size_t>(i) * rows_.row_bytes(), row(numbers[i]), rows_.row_bytes());
    if (!in_place) packed_.put(staged, block, 0, n);
  }

 private:
  CacheLayout rows_, packed_;
  std::int32_t stride_;
};

}  // namespace llm::cpu
