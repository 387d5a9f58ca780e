// How a row of numbers becomes a row of the cache, on every backend over host memory.
#include <algorithm>
#include <cmath>

#include "backend/host/ops.h"
#include "tensor/quantize.h"

namespace llm::host {

void store_cache_row(DType type, const float* x, std::byte* row, std::int64_t n) {
  encode(type, x, row, n);
  if (!info(type).quantized()) return;
  const std::int64_t elems = info(type).block_elems;
  for (std::int64_t i = 0; i < n; i += elems, row += info(type).block_bytes) {
    if (std::all_of(x + i, x + i + elems, [](float f) { return std::isfinite(f); })) continue;
    std::fill_n(row, info(type).block_bytes, std::byte{0xff});  // the f16 scale of every type is NaN then
  }
}

}  // namespace llm::host
