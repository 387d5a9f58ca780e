// How rows of keys and values enter the cpu backend's cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/cache_layout.h"

namespace llm::cpu {

/// Stores rows of one side of a layer's cache. Quantised rows are those of the other backends, bit for bit.
class CacheWriter {
 public:
  CacheWriter(CacheSide, DType, std::int32_t head_dim, const Kernels&, CacheType::Access = CacheType::Access::Whole);
  const CacheLayout& layout() const { return layout_; }
  /// Rows of x that are `ldx` floats apart, at positions [begin, end) of one KV head's part of a block.
  void store(const float* x, std::int64_t ldx, std::byte* block, std::int32_t begin, std::int32_t end) const;

 private:
  void store_row(const float* x, std::byte* row) const;

  CacheLayout layout_;
  DType type_;
  std::int32_t head_dim_;
  StoreRowFn store_float_;  ///< nullptr for quantised types
};

}  // namespace llm::cpu
