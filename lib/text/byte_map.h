// The byte-to-character map of byte-level vocabularies (published with GPT-2): each of the 256 bytes is written as one
// printable character. Printable Latin-1 characters stand for themselves, the other bytes take U+0100, U+0101, ... in
// order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace llm::byte_map {

inline constexpr std::size_t kCharacters = 0x144;  // one past the highest character in use
inline constexpr std::int16_t kNoByte = -1;

constexpr bool stands_for_itself(unsigned b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/// The byte of each character, kNoByte where the character is not in the map.
inline constexpr std::array<std::int16_t, kCharacters> kByteOf = [] {
  std::array<std::int16_t, kCharacters> map{};
  map.fill(kNoByte);
  std::size_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) map[stands_for_itself(b) ? b : next++] = static_cast<std::int16_t>(b);
  return map;
}();

/// Appends the bytes that `text` stands for. False, with nothing appended, if a character is not in the map.
/// Needs no more capacity of `out` than text.size().
inline bool append_bytes(std::string_view text, std::string& out) {
  const std::size_t start = out.size();
  out.resize(start + text.size());
  std::size_t end = start;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t character = static_cast<std::uint8_t>(text[i]);
    if (character >= 0x80) {  // all of the map's other characters are two bytes of UTF-8
      const bool two =
          character >= 0xC2 && character <= 0xDF && i + 1 < text.size() && !utf8::begins_character(text[i + 1]);
      character = two ? (character & 0x1F) << 6 | (static_cast<std::uint8_t>(text[++i]) & 0x3Fu) : kCharacters;
    }
    if (character >= kCharacters || kByteOf[character] == kNoByte) {
      out.resize(start);
      return false;
    }
    out[end++] = static_cast<char>(kByteOf[character]);
  }
  out.resize(end);
  return true;
}

}  // namespace llm::byte_map
