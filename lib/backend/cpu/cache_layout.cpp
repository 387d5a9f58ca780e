#include "backend/cpu/cache_layout.h"

#include <cstring>

#include "backend/cpu/kernels/cache_planes.h"
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

/// Calls f with a block of the element's type.
template <class F>
void with_block(CacheElement e, const F& f) {
  switch (e) {
    case CacheElement::Q4_0:
      return f(BlockQ4_0{});
    case CacheElement::Q4_1:
      return f(BlockQ4_1{});
    case CacheElement::Q5_0:
      return f(BlockQ5_0{});
    case CacheElement::Q5_1:
      return f(BlockQ5_1{});
    case CacheElement::IQ4_NL:
      return f(BlockIQ4_NL{});
    default:
      return f(BlockQ8_0{});
  }
}

BlockParts take_apart(CacheElement e, const std::byte* from) {
  BlockParts parts;
  with_block(e, [&](auto b) {
    std::memcpy(&b, from, sizeof b);
    std::memcpy(parts.codes, b.qs, sizeof b.qs);
    parts.scale = b.d.bits;
    if constexpr (requires { b.m; }) parts.min = b.m.bits;
    if constexpr (requires { b.qh; }) std::memcpy(&parts.fifth, b.qh, sizeof parts.fifth);
  });
  return parts;
}

void put_together(CacheElement e, const BlockParts& parts, std::byte* to) {
  with_block(e, [&](auto b) {
    std::memcpy(b.qs, parts.codes, sizeof b.qs);
    b.d.bits = parts.scale;
    if constexpr (requires { b.m; }) b.m.bits = parts.min;
    if constexpr (requires { b.qh; }) std::memcpy(b.qh, &parts.fifth, sizeof parts.fifth);
    std::memcpy(to, &b, sizeof b);
  });
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

void load_key_codes(const std::uint8_t* from, int bits, BlockParts& parts) {
  std::uint8_t codes[32];
  for (int g = 0; g < bits; ++g, from += kKeyBlock * 4) {
    for (int j = 0; j < 4; ++j) {
      if (bits == 8) {
        codes[4 * g + j] = static_cast<std::uint8_t>(from[j] - 128);
      } else {
        codes[8 * g + j] = from[j] & 15;
        codes[8 * g + 4 + j] = from[j] >> 4;
      }
    }
  }
  for (int i = 0; i < 4 * bits; ++i)
    parts.codes[i] = bits == 8 ? codes[i] : static_cast<std::uint8_t>(codes[i] | codes[16 + i] << 4);
}

/// Where the parts of one block of 32 elements lie.
struct Places {
  std::size_t codes, fifth, scale, min;
};

Places places_of(CacheSide side, CacheElement e, std::int32_t head_dim, std::int32_t b, std::int32_t position) {
  const CodeFormat format = code_format(e);
  const Planes planes = planes_of(e, head_dim);
  const std::int32_t blocks = head_dim / 32, bytes = 4 * format.code_bits;  // of the codes of 32 elements
  const std::int32_t by_block = b * kKeyBlock + position, by_position = position * blocks + b;
  const std::int32_t codes = side == CacheSide::Keys ? b * kKeyBlock * bytes + position * 4
                             : format.code_bits == 8 ? (position / 2 * head_dim + 32 * b) * 2 + position % 2
                                                     : by_position * bytes;
  const auto at = [](std::size_t plane, std::int32_t bytes_there) {
    return plane + static_cast<std::size_t>(bytes_there);
  };
  return {at(0, codes), at(planes.fifth, 4 * (side == CacheSide::Keys ? by_block : by_position)),
          at(planes.scales, 2 * by_block), at(planes.mins, 2 * by_block)};
}

/// Calls f with as many bits as an element of a float type has.
template <class F>
void with_bits(DType t, const F& f) {
  switch (info(t).block_bytes) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    default:
      return f(std::uint32_t{});
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
    case DType::F8_E4M3:
      return CacheElement::F8_E4M3;
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

CacheLayout::CacheLayout(CacheSide side, DType type, std::int32_t head_dim, CacheType::Access access)
    : side_(side),
      type_(type),
      element_(cache_element(type)),
      head_dim_(head_dim),
      row_bytes_(TensorType{type, {head_dim}}.bytes()),
      in_rows_(access == CacheType::Access::Selected || (side == CacheSide::Values && !info(type).quantized())) {}

std::byte* CacheLayout::whole_row(std::byte* block, std::int32_t position) const {
  if (!in_rows_) return nullptr;
  return block + static_cast<std::size_t>(position) * row_bytes_;
}

void CacheLayout::put(const std::byte* rows, std::byte* block, std::int32_t begin, std::int32_t end) const {
  if (begin == end) return;  // then there may be no memory at all
  if (in_rows_) {
    std::memcpy(whole_row(block, begin), rows, static_cast<std::size_t>(end - begin) * row_bytes_);
  } else if (info(type_).quantized()) {
    for (std::int32_t p = begin; p < end; ++p, rows += row_bytes_) put_quantized(rows, block, p);
  } else {
    with_bits(type_, [&]<class Element>(Element) { put_float_keys<Element>(rows, block, begin, end); });
  }
}

void CacheLayout::get(const std::byte* block, std::byte* rows, std::int32_t begin, std::int32_t end) const {
  if (begin == end) return;  // then there may be no memory at all
  if (in_rows_) {
    std::memcpy(rows, block + static_cast<std::size_t>(begin) * row_bytes_,
                static_cast<std::size_t>(end - begin) * row_bytes_);
  } else if (info(type_).quantized()) {
    for (std::int32_t p = begin; p < end; ++p, rows += row_bytes_) get_quantized(block, rows, p);
  } else {
    with_bits(type_, [&]<class Element>(Element) { get_float_keys<Element>(block, rows, begin, end); });
  }
}

// Float keys: the rows of a head's positions, transposed. A square of N x N elements is in N registers of 16 bytes.
namespace {

template <class Element>
inline constexpr int kSquare = 16 / sizeof(Element);

template <class Element>
struct Square {
  using Row [[gnu::vector_size(16)]] = Element;
  Row rows[kSquare<Element>];
};

/// Rows i and i + N / 2 give rows 2 i and 2 i + 1, their elements in turns: log2(N) times that is a transposition.
template <class Element>
void shuffle_rows(Square<Element>& s) {
  constexpr int kN = kSquare<Element>;
  Square<Element> t;
  for (int i = 0; i < kN / 2; ++i) {
    if constexpr (kN == 16) {
      t.rows[2 * i] =
          __builtin_shufflevector(s.rows[i], s.rows[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      t.rows[2 * i + 1] = __builtin_shufflevector(s.rows[i], s.rows[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                  29, 14, 30, 15, 31);
    } else if constexpr (kN == 8) {
      t.rows[2 * i] = __builtin_shufflevector(s.rows[i], s.rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      t.rows[2 * i + 1] = __builtin_shufflevector(s.rows[i], s.rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    } else {
      t.rows[2 * i] = __builtin_shufflevector(s.rows[i], s.rows[i + 2], 0, 4, 1, 5);
      t.rows[2 * i + 1] = __builtin_shufflevector(s.rows[i], s.rows[i + 2], 2, 6, 3, 7);
    }
  }
  s = t;
}

/// A matrix of rows that are `from_bytes` and, transposed, `to_bytes` apart.
template <class Element>
void transpose(const std::byte* from, std::size_t from_bytes, int n_rows, int n_columns, std::byte* to,
               std::size_t to_bytes) {
  constexpr int kN = kSquare<Element>;
  const auto at = [](auto* p, int row, std::size_t row_bytes, int column) {
    return p + static_cast<std::size_t>(row) * row_bytes + static_cast<std::size_t>(column) * sizeof(Element);
  };
  const int whole_rows = n_rows / kN * kN, whole_columns = n_columns / kN * kN;
  for (int r = 0; r < whole_rows; r += kN) {
    for (int c = 0; c < whole_columns; c += kN) {
      Square<Element> s;
      for (int i = 0; i < kN; ++i) std::memcpy(&s.rows[i], at(from, r + i, from_bytes, c), 16);
      for (int step = 1; step < kN; step *= 2) shuffle_rows(s);
      for (int i = 0; i < kN; ++i) std::memcpy(at(to, c + i, to_bytes, r), &s.rows[i], 16);
    }
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int c = r < whole_rows ? whole_columns : 0; c < n_columns; ++c)
      std::memcpy(at(to, c, to_bytes, r), at(from, r, from_bytes, c), sizeof(Element));
  }
}

}  // namespace

template <class Element>
void CacheLayout::put_float_keys(const std::byte* rows, std::byte* block, std::int32_t begin, std::int32_t end) const {
  transpose<Element>(rows, row_bytes_, end - begin, head_dim_,
                     block + static_cast<std::size_t>(begin) * sizeof(Element), kKeyBlock * sizeof(Element));
}

template <class Element>
void CacheLayout::get_float_keys(const std::byte* block, std::byte* rows, std::int32_t begin, std::int32_t end) const {
  transpose<Element>(block + static_cast<std::size_t>(begin) * sizeof(Element), kKeyBlock * sizeof(Element), head_dim_,
                     end - begin, rows, row_bytes_);
}

void CacheLayout::put_quantized(const std::byte* row, std::byte* block, std::int32_t position) const {
  const CodeFormat format = code_format(element_);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(block);
  for (std::int32_t b = 0; b < head_dim_ / 32; ++b, row += info(type_).block_bytes) {
    const BlockParts parts = take_apart(element_, row);
    const Places at = places_of(side_, element_, head_dim_, b, position);
    if (side_ == CacheSide::Keys) {
      store_key_codes(parts, format.code_bits, bytes + at.codes);
    } else if (format.code_bits == 8) {
      for (int i = 0; i < 32; ++i) bytes[at.codes + static_cast<std::size_t>(2 * i)] = parts.codes[i];
    } else {
      std::memcpy(bytes + at.codes, parts.codes, 16);
    }
    if (format.fifth == Part::Present) std::memcpy(bytes + at.fifth, &parts.fifth, 4);
    std::memcpy(bytes + at.scale, &parts.scale, 2);
    if (format.min == Part::Present) std::memcpy(bytes + at.min, &parts.min, 2);
  }
}

void CacheLayout::get_quantized(const std::byte* block, std::byte* row, std::int32_t position) const {
  const CodeFormat format = code_format(element_);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(block);
  for (std::int32_t b = 0; b < head_dim_ / 32; ++b, row += info(type_).block_bytes) {
    BlockParts parts;
    const Places at = places_of(side_, element_, head_dim_, b, position);
    if (side_ == CacheSide::Keys) {
      load_key_codes(bytes + at.codes, format.code_bits, parts);
    } else if (format.code_bits == 8) {
      for (int i = 0; i < 32; ++i) parts.codes[i] = bytes[at.codes + static_cast<std::size_t>(2 * i)];
    } else {
      std::memcpy(parts.codes, bytes + at.codes, 16);
    }
    if (format.fifth == Part::Present) std::memcpy(&parts.fifth, bytes + at.fifth, 4);
    std::memcpy(&parts.scale, bytes + at.scale, 2);
    if (format.min == Part::Present) std::memcpy(&parts.min, bytes + at.min, 2);
    put_together(element_, parts, row);
  }
}

}  // namespace llm::cpu
