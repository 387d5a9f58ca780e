// How quantised keys lie in a cache: with positions in lanes, so that scores are integer dot products without any
// shuffling. One KV head's part of a block of kKeyBlock positions has, for the blocks of 32 elements of its rows,
//   codes   8 bits: [head_dim / 4][position][4]. 4 bits: [head_dim / 8][position][4], of elements 8 g + j in the low
//   half
//           of byte j and of elements 8 g + 4 + j in the high half
//   fifth   [head_dim / 32][position] 32 bits: bit i is bit 4 of element i
//   scales  [head_dim / 32][position] f16
//   mins    [head_dim / 32][position] f16
// one after another, as far as the type has them: the bits of its blocks in another order. Codes are unsigned, the
// value of an element is scale * (value of the code - offset) + min.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu {

enum class Part : std::uint8_t { Absent, Present };

struct KeyFormat {
  int code_bits;
  Part fifth, min;
  int offset;
};

[[gnu::always_inline]] constexpr KeyFormat key_format(CacheElement e) {
  switch (e) {
    case CacheElement::Q4_0:
      return {4, Part::Absent, Part::Absent, 8};
    case CacheElement::Q4_1:
      return {4, Part::Absent, Part::Present, 0};
    case CacheElement::Q5_0:
      return {4, Part::Present, Part::Absent, 16};
    case CacheElement::Q5_1:
      return {4, Part::Present, Part::Present, 0};
    case CacheElement::IQ4_NL:
      return {4, Part::Absent, Part::Absent, 128};  // of the table's values
    default:
      return {8, Part::Absent, Part::Absent, 128};
  }
}

/// Where each part begins.
struct KeyPlanes {
  std::size_t fifth, scales, mins;
};

[[gnu::always_inline]] constexpr KeyPlanes key_planes(CacheElement e, std::int32_t head_dim) {
  const KeyFormat f = key_format(e);
  const std::size_t elements = static_cast<std::size_t>(kKeyBlock) * static_cast<std::size_t>(head_dim);
  KeyPlanes p{};
  p.fifth = elements * static_cast<std::size_t>(f.code_bits) / 8;
  p.scales = p.fifth + (f.fifth == Part::Present ? elements / 8 : 0);
  p.mins = p.scales + elements / 32 * 2;
  return p;
}

}  // namespace llm::cpu
