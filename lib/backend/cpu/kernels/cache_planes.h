// How quantised keys and values lie in a cache. One KV head's part of a block of kKeyBlock positions has the planes
//   codes
//   fifth   bit 4 of the codes of types with 5 bits: 32 bits for 32 elements
//   scales  f16 [head_dim / 32][position]
//   mins    f16 [head_dim / 32][position]
// one after another, as far as the type has them: the bits of its blocks of 32 elements in another order. The value of
// an element is scale * (value of the code - offset) + min.
//
// Values lie position after position, two and two:
//   codes   of 8 bits: [position / 2][head_dim][2], signed
//           of 4 bits: [position][head_dim / 32][16], low half of byte i element i, high half element 16 + i
//   fifth   [position][head_dim / 32]
//
// Keys lie with positions in lanes, so that scores are dot products of integers without any shuffling:
//   codes   of 8 bits: [head_dim / 4][position][4], unsigned, 128 added
//           of 4 bits: [head_dim / 8][position][4], elements 8 g + j in the low half of byte j, 8 g + 4 + j in the high
//           half
//   fifth   [head_dim / 32][position]
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu {

enum class Part : std::uint8_t { Absent, Present };

struct CodeFormat {
  int code_bits;
  Part fifth, min;
  int offset;  ///< of unsigned codes, after the table for types with one
};

[[gnu::always_inline]] constexpr CodeFormat code_format(CacheElement e) {
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
struct Planes {
  std::size_t fifth, scales, mins;
};

[[gnu::always_inline]] constexpr Planes planes_of(CacheElement e, std::int32_t head_dim) {
  const CodeFormat f = code_format(e);
  const std::size_t elements = static_cast<std::size_t>(kKeyBlock) * static_cast<std::size_t>(head_dim);
  Planes p{};
  p.fifth = elements * static_cast<std::size_t>(f.code_bits) / 8;
  p.scales = p.fifth + (f.fifth == Part::Present ? elements / 8 : 0);
  p.mins = p.scales + elements / 32 * 2;
  return p;
}

}  // namespace llm::cpu
