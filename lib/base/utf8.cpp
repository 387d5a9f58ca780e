#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace llm::utf8 {
namespace {

std::uint8_t byte(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

/// Length of the sequence that a lead byte announces and the range of its second byte; length 0: not a lead byte.
struct Lead {
  std::size_t length;
  std::uint8_t low, high;
};

Lead lead(std::uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Unit unit_at(std::string_view text, std::size_t at) {
  const Lead l = lead(byte(text, at));
  if (l.length == 0) return {1, Form::Invalid};
  for (std::size_t i = 1; i < l.length; ++i) {
    if (at + i == text.size()) return {i, Form::Incomplete};
    const std::uint8_t b = byte(text, at + i);
    const bool fits = i == 1 ? (b >= l.low && b <= l.high) : !begins_character(text[at + i]);
    if (!fits) return {i, Form::Invalid};
  }
  return {l.length, Form::Valid};
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

bool is_inside(std::string_view text, std::size_t at) {
  for (std::size_t back = 1; back <= 3 && back <= at; ++back) {
    if (!begins_character(text[at - back])) continue;
    const Unit unit = unit_at(text, at - back);
    return unit.form == Form::Valid && unit.length > back;
  }
  return false;
}

char32_t code_point(std::string_view unit) {
  const char32_t lead = byte(unit, 0);
  if (unit.size() == 1) return lead;
  char32_t c = lead & (0xFFu >> (unit.size() + 1));
  for (std::size_t i = 1; i < unit.size(); ++i) c = c << 6 | (byte(unit, i) & 0x3Fu);
  return c;
}

std::string encoded(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  const auto more = [c](unsigned shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), more(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), more(6), more(0)};
  return {static_cast<char>(0xF0 | c >> 18), more(12), more(6), more(0)};
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    while (at + sizeof eight <= text.size()) {  // ASCII, eight bytes at a time
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) != 0) break;
      at += sizeof eight;
    }
    if (at == text.size()) break;
    const Unit unit = unit_at(text, at);
    if (unit.form != Form::Valid) break;
    at += unit.length;
  }
  return at;
}

}  // namespace llm::utf8
