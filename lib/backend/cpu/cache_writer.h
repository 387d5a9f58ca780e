// How rows of keys and values enter the cpu backend's cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "tensor/dtype.h"

namespace llm::cpu {

CacheElement cache_element(DType);

enum class CacheSide : std::uint8_t { Keys, Values };

/// Stores rows of one side of a layer's cache: values position after position, keys with positions in lanes
/// (kernels.h, cache_planes.h). Quantised rows are those of the other backends, bit for bit.
class CacheWriter {
 public:
  CacheWriter(CacheSide, DType, std::int32_t head_dim, const Kernels&);
  /// Bytes of one KV head's part of a block.
  std::size_t block_bytes() const { return static_cast<std::size_t>(kKeyBlock) * row_bytes_; }
  /// `block` is one KV head's part of a block, `position` below kKeyBlock.
  void store(const float* x, std::byte* block, std::int32_t position) const;

 private:
  void store_float_key(const float* x, std::byte* block, std::int32_t position) const;
  void store_quantized(const float* x, std::byte* block, std::int32_t position) const;
  CacheSide side_;
  DType type_;
  CacheElement element_;
  std::int32_t head_dim_;
  std::size_t row_bytes_;
  StoreRowFn store_float_;  ///< nullptr for quantised types
};

}  // namespace llm::cpu
