#include "backend/cpu/cache_writer.h"

#include "backend/host/ops.h"

namespace llm::cpu {

CacheWriter::CacheWriter(CacheSide side, DType type, std::int32_t head_dim, const Kernels& kernels)
    : layout_(side, type, head_dim),
      type_(type),
      head_dim_(head_dim),
      store_float_(info(type).quantized() ? nullptr : kernels.store_row[static_cast<int>(cache_element(type))]) {}

void CacheWriter::store(const float* x, std::byte* block, std::int32_t position) const {
  std::byte* const in_place = layout_.whole_row(block, position);
  std::byte apart[kMaxHeadDim * sizeof(float)];
  std::byte* const row = in_place != nullptr ? in_place : apart;
  if (store_float_ != nullptr) {
    store_float_(x, row, head_dim_);
  } else {
    host::store_cache_row(type_, x, row, head_dim_);
  }
  if (in_place == nullptr) layout_.put(row, block, position, position + 1);
}

}  // namespace llm::cpu
