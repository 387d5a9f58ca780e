// UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llm::utf8 {

enum class Form : std::uint8_t {
  Valid,       ///< one whole code point
  Incomplete,  ///< the text ends inside a sequence that more bytes could complete
  Invalid,     ///< bytes that no continuation makes valid
};

struct Unit {
  std::size_t length;  ///< bytes, at least 1; for Invalid the maximal subpart that stands for one U+FFFD
  Form form;
};

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What starts at `at`, which must be inside the text.
Unit unit_at(std::string_view text, std::size_t at);

/// Of valid UTF-8 every byte does but those that continue a character.
constexpr bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }
/// Bytes that begin one.
std::size_t count_characters(std::string_view text);

/// Whether the byte at `at` belongs to a valid unit that begins before it.
bool is_inside(std::string_view text, std::size_t at);

/// Bytes at the front of the text that are valid UTF-8 up to the first unit that is not.
std::size_t valid_prefix(std::string_view text);

/// The code point of a unit that is Valid.
char32_t code_point(std::string_view unit);

/// A code point as bytes.
std::string encoded(char32_t);

inline bool valid(std::string_view text) { return valid_prefix(text) == text.size(); }

}  // namespace llm::utf8
