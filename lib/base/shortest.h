// Numbers as texts that give them back.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace llm {

/// The shortest text that is read as this number: of an integer its digits, of 0.1f "0.1"; of a double
/// std::chars_format may say in which form.
template <class T, class... Format>
std::string shortest(T value, Format... format) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format...).ptr;
  return {buffer.data(), end};
}

}  // namespace llm
