// Characters as Python's str sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/str.h"

namespace llm::jinja {

struct Character {
  std::int32_t code;   ///< -1 for bytes that are not UTF-8
  std::size_t length;  ///< bytes up to the next character
};
/// The character that begins at `at` < text.size().
Character character_at(std::string_view text, std::size_t at);
void append_utf8(std::string& out, std::int32_t code);

bool is_space(std::int32_t code);
bool is_alpha(std::int32_t code);
bool is_decimal(std::int32_t code);
/// 0 to 9, of a character that is_decimal().
int decimal_value(std::int32_t code);
bool is_digit(std::int32_t code);
bool is_numeric(std::int32_t code);
bool is_upper(std::int32_t code);
bool is_lower(std::int32_t code);
bool is_title(std::int32_t code);
bool is_cased(std::int32_t code);
bool is_printable(std::int32_t code);
/// May begin an identifier, or go on with it: XID_Start with the low line, XID_Continue.
bool is_identifier_start(std::int32_t code);
bool is_identifier_part(std::int32_t code);
/// May go on with a name in a template: the same without the marks that are newer than Jinja2's list of them.
bool is_name_part(std::int32_t code);
/// Normalisation form NFKC leaves the text as it is.
bool is_nfkc(std::string_view text);

/// Bytes of white space at the beginning and at the end.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

enum class Case : std::uint8_t { Lower, Upper, Title, Fold };
/// By Unicode's full mappings; characters keep their origins.
Str change_case(const Str& s, Case to_case);
Str swap_case(const Str& s);
/// Words begin where a cased character follows one that is not.
Str title_case(const Str& s);

}  // namespace llm::jinja
