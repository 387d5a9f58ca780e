// Numbers as texts that give them back.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace llm {

/// The shortest text that is read as this number: of an integer its digits, of 0.1f "0.1".
template <class T>
std::string shortest(T value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

}  // namespace llm
