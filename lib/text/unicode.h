// Properties of characters, from utf8proc's tables.
#pragma once

#include <string>
#include <string_view>

namespace llm::unicode {

bool is_white_space(char32_t);  ///< Unicode's White_Space
bool is_punctuation(char32_t);  ///< categories P*
bool is_other(char32_t);        ///< categories Cc, Cf, Co: controls, formats, private use
bool is_nonspacing_mark(char32_t);

/// The general category in two letters: "Lu", "Nd", "Cn".
std::string_view category_name(char32_t);

/// Of one character; a single character, except for U+0130, whose small letter is "i" and U+0307.
char32_t to_lower(char32_t);

/// Appends the canonical decomposition of one character.
void append_decomposed(char32_t, std::u32string& out);

}  // namespace llm::unicode
