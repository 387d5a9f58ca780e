#include "backend/cpu/cache_writer.h"

#include <cstring>

#include "backend/cpu/kernels/cache_planes.h"
#include "backend/host/ops.h"
#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

namespace llm::cpu {
namespace {

/// One block of 32 elements taken apart.
struct BlockParts {
  std::uint8_t codes[32];  ///< 32 signed bytes, or 16 bytes of two codes each
  std::uint32_t fifth = 0;
  std::uint16_t scale = 0, min = 0;

  /// Code i of 4 bits.
  std::uint8_t nibble(int i) const { return static_cast<std::uint8_t>(i < 16 ? codes[i] & 15 : codes[i - 16] >> 4); }
};

template <class Block>
BlockParts take_apart(const std::byte* from) {
  Block b;
  std::memcpy(&b, from, sizeof b);
  BlockParts parts;
  std::memcpy(parts.codes, b.qs, sizeof b.qs);
  parts.scale = b.d.bits;
  if constexpr (requires { b.m; }) parts.min = b.m.bits;
  if constexpr (requires { b.qh; }) std::memcpy(&parts.fifth, b.qh, sizeof parts.fifth);
  return parts;
}

BlockParts take_apart(CacheElement e, const std::byte* block) {
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

/// Codes of one block of a key: `to` is the position's place in the first group of the block.
void store_key_codes(const BlockParts& parts, int bits, std::uint8_t* to) {
  for (int g = 0; g < bits; ++g, to += kKeyBlock * 4) {
    for (int j = 0; j < 4; ++j) {
      to[j] = bits == 8 ? static_cast<std::uint8_t>(parts.codes[4 * g + j] + 128)
                        : static_cast<std::uint8_t>(parts.nibble(8 * g + j) | parts.nibble(8 * g + 4 + j) << 4);
    }
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

void CacheWriter::store(const float* x, std::byte* block, std::int32_t position) const {
  if (store_float_ == nullptr) {
    store_quantized(x, block, position);
  } else if (side_ == CacheSide::Values) {
    store_float_(x, block + static_cast<std::size_t>(position) * row_bytes_, head_dim_);
  } else {
    store_float_key(x, block, position);
  }
}

void CacheWriter::store_float_key(const float* x, std::byte* block, std::int32_t position) const {
  std::byte row[kMaxHeadDim * sizeof(float)];
  store_float_(x, row, head_dim_);
  const std::size_t element = info(type_).block_bytes;
  for (std::int32_t d = 0; d < head_dim_; ++d) {
    std::byte* const to = block + static_cast<std::size_t>(d * kKeyBlock + position) * element;
    std::memcpy(to, row + static_cast<std::size_t>(d) * element, element);
  }
}

void CacheWriter::store_quantized(const float* x, std::byte* block, std::int32_t position) const {
  std::byte row[kMaxHeadDim * sizeof(float)];
  host::store_cache_row(type_, x, row, head_dim_);
  const CodeFormat format = code_format(element_);
  const Planes planes = planes_of(element_, head_dim_);
  auto* const codes = reinterpret_cast<std::uint8_t*>(block);
  const std::int32_t blocks = head_dim_ / 32, bytes = 4 * format.code_bits;  // of the codes of 32 elements
  for (std::int32_t b = 0; b < blocks; ++b) {
    const BlockParts parts = take_apart(element_, row + static_cast<std::size_t>(b) * info(type_).block_bytes);
    const std::int32_t by_block = b * kKeyBlock + position, by_position = position * blocks + b;
    if (side_ == CacheSide::Keys) {
      store_key_codes(parts, format.code_bits, codes + b * kKeyBlock * bytes + position * 4);
    } else if (format.code_bits == 8) {
      std::uint8_t* const to = codes + (position / 2 * head_dim_ + 32 * b) * 2 + position % 2;
      for (int i = 0; i < 32; ++i) to[2 * i] = parts.codes[i];
    } else {
      std::memcpy(codes + by_position * bytes, parts.codes, static_cast<std::size_t>(bytes));
    }
    if (format.fifth == Part::Present) {
      const std::int32_t at = side_ == CacheSide::Keys ? by_block : by_position;
      std::memcpy(codes + planes.fifth + 4 * at, &parts.fifth, 4);
    }
    std::memcpy(codes + planes.scales + 2 * by_block, &parts.scale, 2);
    if (format.min == Part::Present) std::memcpy(codes + planes.mins + 2 * by_block, &parts.min, 2);
  }
}

}  // namespace llm::cpu
