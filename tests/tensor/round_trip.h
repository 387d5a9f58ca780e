// Values into a storage type and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/decode.h"
#include "tensor/quantize.h"

namespace llm::test {

inline std::vector<std::byte> encoded(DType t, const std::vector<float>& x) {
  std::vector<std::byte> bytes(x.size() / info(t).block_elems * info(t).block_bytes);
  encode(t, x.data(), bytes.data(), static_cast<std::int64_t>(x.size()));
  return bytes;
}

inline std::vector<float> round_trip(DType t, const std::vector<float>& x) {
  const auto bytes = encoded(t, x);
  std::vector<float> y(x.size());
  decode(t, bytes.data(), y.data(), static_cast<std::int64_t>(y.size()));
  return y;
}

}  // namespace llm::test
