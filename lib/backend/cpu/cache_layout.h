// Where the elements of keys and values lie in the cpu backend's cache: values position after position, keys with
// positions in lanes (kernels.h, cache_planes.h). Where selections choose the positions, both lie row by row, so that a
// row can be read alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "graph/graph.h"
#include "tensor/dtype.h"

namespace llm::cpu {

CacheElement cache_element(DType);

enum class CacheSide : std::uint8_t { Keys, Values };

/// Of one side of a layer's cache. A row is a head's elements at one position, in the storage type's own blocks.
class CacheLayout {
 public:
  CacheLayout(CacheSide, DType, std::int32_t head_dim, CacheType::Access = CacheType::Access::Whole);
  std::size_t row_bytes() const { return row_bytes_; }
  /// Of one KV head's part of a block.
  std::size_t block_bytes() const { return static_cast<std::size_t>(kKeyBlock) * row_bytes_; }
  /// Where the row of a position lies as it is; nullptr where its elements lie apart.
  std::byte* whole_row(std::byte* block, std::int32_t position) const;
  /// Rows of positions [begin, end), one after another, into one KV head's part of a block and out of it.
  void put(const std::byte* rows, std::byte* block, std::int32_t begin, std::int32_t end) const;
  void get(const std::byte* block, std::byte* rows, std::int32_t begin, std::int32_t end) const;

 private:
  template <class Element>
  void put_float_keys(const std::byte* rows, std::byte* block, std::int32_t begin, std::int32_t end) const;
  template <class Element>
  void get_float_keys(const std::byte* block, std::byte* rows, std::int32_t begin, std::int32_t end) const;
  void put_quantized(const std::byte* row, std::byte* block, std::int32_t position) const;
  void get_quantized(const std::byte* block, std::byte* row, std::int32_t position) const;

  CacheSide side_;
  DType type_;
  CacheElement element_;
  std::int32_t head_dim_;
  std::size_t row_bytes_;
  bool in_rows_;  ///< as they are, position after position
};

}  // namespace llm::cpu
