#include "gguf/byte_order.h"

#include <array>

#include "base/error.h"
#include "tensor/blocks.h"

namespace llm {
namespace {

/// A run of numbers inside a block.
struct Field {
  std::size_t offset, width, count;
};

struct Layout {
  std::array<Field, 2> fields;
};

/// Where a block of a quantised type holds numbers wider than a byte.
Layout block_layout(DType t) {
  constexpr Field kNone{0, 2, 0};
  switch (t) {
    case DType::Q4_0:
      return {{Field{offsetof(BlockQ4_0, d), 2, 1}, kNone}};
    case DType::Q4_1:
      return {{Field{offsetof(BlockQ4_1, d), 2, 2}, kNone}};
    case DType::Q5_0:
      return {{Field{offsetof(BlockQ5_0, d), 2, 1}, kNone}};
    case DType::Q5_1:
      return {{Field{offsetof(BlockQ5_1, d), 2, 2}, kNone}};
    case DType::Q8_0:
      return {{Field{offsetof(BlockQ8_0, d), 2, 1}, kNone}};
    case DType::Q8_1:
      return {{Field{offsetof(BlockQ8_1, d), 2, 2}, kNone}};
    case DType::Q2_K:
      return {{Field{offsetof(BlockQ2_K, d), 2, 2}, kNone}};
    case DType::Q3_K:
      return {{Field{offsetof(BlockQ3_K, d), 2, 1}, kNone}};
    case DType::Q4_K:
      return {{Field{offsetof(BlockQ4_K, d), 2, 2}, kNone}};
    case DType::Q5_K:
      return {{Field{offsetof(BlockQ5_K, d), 2, 2}, kNone}};
    case DType::Q6_K:
      return {{Field{offsetof(BlockQ6_K, d), 2, 1}, kNone}};
    case DType::Q8_K:
      return {{Field{offsetof(BlockQ8_K, d), 4, 1}, Field{offsetof(BlockQ8_K, bsums), 2, 16}}};
    case DType::IQ2_XXS:
      return {{Field{offsetof(BlockIQ2_XXS, d), 2, 1}, Field{offsetof(BlockIQ2_XXS, qs), 2, 32}}};
    case DType::IQ2_XS:
      return {{Field{offsetof(BlockIQ2_XS, d), 2, 1}, Field{offsetof(BlockIQ2_XS, qs), 2, 32}}};
    case DType::IQ2_S:
      return {{Field{offsetof(BlockIQ2_S, d), 2, 1}, kNone}};
    case DType::IQ3_XXS:
      return {{Field{offsetof(BlockIQ3_XXS, d), 2, 1}, Field{offsetof(BlockIQ3_XXS, signs), 4, 8}}};
    case DType::IQ3_S:
      return {{Field{offsetof(BlockIQ3_S, d), 2, 1}, kNone}};
    case DType::IQ1_S:
      return {{Field{offsetof(BlockIQ1_S, d), 2, 1}, Field{offsetof(BlockIQ1_S, qh), 2, 8}}};
    case DType::IQ1_M:
      return {{Field{offsetof(BlockIQ1_M, scales), 2, 4}, kNone}};
    case DType::IQ4_NL:
      return {{Field{offsetof(BlockIQ4_NL, d), 2, 1}, kNone}};
    case DType::IQ4_XS:
      return {{Field{offsetof(BlockIQ4_XS, d), 2, 1}, Field{offsetof(BlockIQ4_XS, scales_h), 2, 1}}};
    case DType::TQ1_0:
      return {{Field{offsetof(BlockTQ1_0, d), 2, 1}, kNone}};
    case DType::TQ2_0:
      return {{Field{offsetof(BlockTQ2_0, d), 2, 1}, kNone}};
    case DType::Q1_0:
      return {{Field{offsetof(BlockQ1_0, d), 2, 1}, kNone}};
    case DType::Q2_0:
      return {{Field{offsetof(BlockQ2_0, d), 2, 1}, kNone}};
    case DType::MXFP4:
    case DType::NVFP4:
      return {{kNone, kNone}};
    default:
      break;
  }
  check(false, "block_layout: a quantised type whose numbers are not listed");
  return {};
}

template <class Bits>
void swap_all(std::byte* p, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, p += sizeof(Bits)) {
    const Bits v = load<Bits>(p, true);
    std::memcpy(p, &v, sizeof v);
  }
}

void swap_run(std::byte* p, std::size_t width, std::size_t count) {
  switch (width) {
    case 1:
      return;
    case 2:
      return swap_all<std::uint16_t>(p, count);
    case 4:
      return swap_all<std::uint32_t>(p, count);
    case 8:
      return swap_all<std::uint64_t>(p, count);
    default:
      check(false, "swap_run: a number of 1, 2, 4 or 8 bytes");
  }
}

}  // namespace

void swap_numbers(std::span<std::byte> data, std::size_t width) { swap_run(data.data(), width, data.size() / width); }

void swap_tensor(DType t, std::span<std::byte> data) {
  const DTypeInfo& type = info(t);
  if (!type.quantized()) return swap_numbers(data, type.block_bytes);
  const Layout layout = block_layout(t);
  for (std::size_t at = 0; at + type.block_bytes <= data.size(); at += type.block_bytes)
    for (const Field& f : layout.fields) swap_run(data.data() + at + f.offset, f.width, f.count);
}

}  // namespace llm
