#include "backend/cpu/cache_writer.h"

#include <cstring>

#include "backend/cpu/kernels/key_planes.h"
#include "backend/host/ops.h"
#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

namespace llm::cpu {
namespace {

/// One block of 32 elements taken apart.
struct Codes {
  std::uint8_t code[32];  ///< of 8 or of the low 4 bits
  std::uint32_t fifth = 0;
  std::uint16_t scale = 0, min = 0;
};

void unpack_nibbles(const std::uint8_t* qs, std::uint8_t* code) {
  for (int i = 0; i < 16; ++i) {
    code[i] = qs[i] & 15;
    code[16 + i] = static_cast<std::uint8_t>(qs[i] >> 4);
  }
}

template <class Block>
Codes take_apart(const std::byte* from) {
  Block b;
  std::memcpy(&b, from, sizeof b);
  Codes c;
  c.scale = b.d.bits;
  if constexpr (requires { b.m; }) c.min = b.m.bits;
  if constexpr (requires { b.qh; }) std::memcpy(&c.fifth, b.qh, sizeof c.fifth);
  if constexpr (sizeof b.qs == 32) {
    for (int i = 0; i < 32; ++i) c.code[i] = static_cast<std::uint8_t>(b.qs[i] + 128);
  } else {
    unpack_nibbles(b.qs, c.code);
  }
  return c;
}

Codes take_apart(CacheElement e, const std::byte* block) {
  switch (e) {
    case CacheElement::Q4_0:
      return take_apart<BlockQ4_0>(block);
    case CacheElement::Q4_1:
      return take_apart<BlockQ4_1>(block);
    case CacheElement::Q5_0:
      return take_apart<BlockQ5_0>(block);
    case CacheElement::Q5_1:
      return take_apart<BlockQ5_1>(block);
    case CacheElement::IQ4_NL:
      return take_apart<BlockIQ4_NL>(block);
    default:
      return take_apart<BlockQ8_0>(block);
  }
}

}  // namespace

CacheElement cache_element(DType t) {
  switch (t) {
    case DType::F32:
      return CacheElement::F32;
    case DType::F16:
      return CacheElement::F16;
    case DType::BF16:
      return CacheElement::BF16;
    case DType::Q8_0:
      return CacheElement::Q8_0;
    case DType::Q4_0:
      return CacheElement::Q4_0;
    case DType::Q4_1:
      return CacheElement::Q4_1;
    case DType::Q5_0:
      return CacheElement::Q5_0;
    case DType::Q5_1:
      return CacheElement::Q5_1;
    case DType::IQ4_NL:
      return CacheElement::IQ4_NL;
    default:
      check(false, "a cache's type is one of kCacheTypes");
      return {};
  }
}

CacheWriter::CacheWriter(CacheSide side, DType type, std::int32_t head_dim, const Kernels& kernels)
    : side_(side),
      type_(type),
      element_(cache_element(type)),
      head_dim_(head_dim),
      row_bytes_(TensorType{type, {head_dim}}.bytes()),
      store_float_(info(type).quantized() ? nullptr : kernels.store_row[static_cast<int>(element_)]) {}

void CacheWriter::encode_row(const float* x, std::byte* row) const {
  if (store_float_ != nullptr) {
    store_float_(x, row, head_dim_);
  } else {
    host::store_cache_row(type_, x, row, head_dim_);
  }
}

void CacheWriter::store(const float* x, std::byte* block, std::int32_t position) const {
  if (side_ == CacheSide::Values) {
    encode_row(x, block + static_cast<std::size_t>(position) * row_bytes_);
    return;
  }
  std::byte row[kMaxHeadDim * sizeof(float)];
  encode_row(x, row);
  if (store_float_ == nullptr) {
    store_quantized_key(row, block, position);
    return;
  }
  const std::size_t element = info(type_).block_bytes;
  for (std::int32_t d = 0; d < head_dim_; ++d) {
    std::byte* const to = block + static_cast<std::size_t>(d * kKeyBlock + position) * element;
    std::memcpy(to, row + static_cast<std::size_t>(d) * element, element);
  }
}

void CacheWriter::store_quantized_key(const std::byte* row, std::byte* block, std::int32_t position) const {
  const KeyFormat format = key_format(element_);
  const KeyPlanes planes = key_planes(element_, head_dim_);
  auto* const codes = reinterpret_cast<std::uint8_t*>(block);
  for (std::int32_t b = 0; b < head_dim_ / 32; ++b) {
    const Codes c = take_apart(element_, row + static_cast<std::size_t>(b) * info(type_).block_bytes);
    const int groups = format.code_bits;  // of 4 bytes: 8 or 4 in a block
    for (int g = 0; g < groups; ++g) {
      std::uint8_t* const to = codes + ((b * groups + g) * kKeyBlock + position) * 4;
      for (int j = 0; j < 4; ++j) {
        to[j] = format.code_bits == 8 ? c.code[4 * g + j]
                                      : static_cast<std::uint8_t>(c.code[8 * g + j] | c.code[8 * g + 4 + j] << 4);
      }
    }
    const auto at = static_cast<std::size_t>(b * kKeyBlock + position);
    if (format.fifth == Part::Present) std::memcpy(block + planes.fifth + at * 4, &c.fifth, 4);
    std::memcpy(block + planes.scales + at * 2, &c.scale, 2);
    if (format.min == Part::Present) std::memcpy(block + planes.mins + at * 2, &c.min, 2);
  }
}

}  // namespace llm::cpu
