#include "backend/cpu/cache_writer.h"

#include <algorithm>

#include "backend/host/ops.h"

namespace llm::cpu {

CacheWriter::CacheWriter(CacheSide side, DType type, std::int32_t head_dim, const Kernels& kernels,
                         CacheType::Access access)
    : layout_(side, type, head_dim, access),
      type_(type),
      head_dim_(head_dim),
      store_float_(info(type).quantized() ? nullptr : kernels.store_row[static_cast<int>(cache_element(type))]) {}

void CacheWriter::store_row(const float* x, std::byte* row) const {
  if (store_float_ != nullptr) {
    store_float_(x, row, head_dim_);
  } else {
    host::store_cache_row(type_, x, row, head_dim_);
  }
}

void CacheWriter::store(const float* x, std::int64_t ldx, std::byte* block, std::int32_t begin,
                        std::int32_t end) const {
  constexpr std::int32_t kRows = 16;  // that are put in their places together
  std::byte apart[kRows * kMaxHeadDim * sizeof(float)];
  for (std::int32_t first = begin; first < end; first += kRows) {
    const std::int32_t last = std::min(first + kRows, end);
    for (std::int32_t p = first; p < last; ++p, x += ldx) {
      std::byte* const in_place = layout_.whole_row(block, p);
      store_row(x, in_place != nullptr ? in_place : apart + static_cast<std::size_t>(p - first) * layout_.row_bytes());
    }
    if (layout_.whole_row(block, first) == nullptr) layout_.put(apart, block, first, last);
  }
}

}  // namespace llm::cpu
