#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <memory>

namespace llm::jinja {
namespace {

struct SpecialCase {
  std::int32_t code;
  Case to;
  std::string_view text;
};
struct CodeRange {
  std::int32_t first, last;
};
#include "text/jinja/unicode_tables.inc"

template <std::size_t N>
bool in(const CodeRange (&ranges)[N], std::int32_t code) {
  const auto* after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                       [](std::int32_t c, const CodeRange& r) { return c < r.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

utf8proc_category_t category(std::int32_t code) { return code < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code); }

constexpr std::int32_t kSigma = 0x3a3, kFinalSigma = 0x3c2, kSmallSigma = 0x3c3;

/// Characters that are looked through where a word's end is sought (Unicode's Case_Ignorable, as far as text has them).
bool is_case_ignorable(std::int32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code == '\'' || code == '.' || code == ':' || code == 0xb7 || code == 0x387 || code == 0x55f ||
             code == 0x5f4 || code == 0x2018 || code == 0x2019 || code == 0x2024 || code == 0x2027;
  }
}

/// A sigma ends a word if a cased letter stands before it and none after it.
bool is_final_sigma(std::string_view text, std::size_t at) {
  bool after_letter = false;
  for (std::size_t i = at; i > 0 && !after_letter;) {
    i = previous_character(text, i);
    const std::int32_t c = character_at(text, i).code;
    if (is_case_ignorable(c)) continue;
    if (!is_cased(c)) return false;
    after_letter = true;
  }
  if (!after_letter) return false;
  for (std::size_t i = next_character(text, at); i < text.size(); i = next_character(text, i)) {
    const std::int32_t c = character_at(text, i).code;
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_fold(std::int32_t code, std::string& out) {
  std::array<utf8proc_int32_t, 8> folded;
  int boundary = 0;
  const utf8proc_ssize_t n = utf8proc_decompose_char(code, folded.data(), static_cast<utf8proc_ssize_t>(folded.size()),
                                                     UTF8PROC_CASEFOLD, &boundary);
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, folded[static_cast<std::size_t>(i)]);
}

void append_mapped(std::string_view text, std::size_t at, std::int32_t code, Case to, std::string& out) {
  if (code < 0x80) {
    const bool lower = code >= 'a' && code <= 'z', upper = code >= 'A' && code <= 'Z';
    const bool flip = (to == Case::Upper || to == Case::Title) ? lower : upper;
    out += static_cast<char>(flip ? code ^ 0x20 : code);
    return;
  }
  if (to == Case::Fold) return append_fold(code, out);
  if (to == Case::Lower && code == kSigma)
    return append_utf8(out, is_final_sigma(text, at) ? kFinalSigma : kSmallSigma);
  for (const SpecialCase& special : kSpecialCases) {
    if (special.code != code || special.to != to) continue;
    out += special.text;
    return;
  }
  append_utf8(out, to == Case::Lower   ? utf8proc_tolower(code)
                   : to == Case::Upper ? utf8proc_toupper(code)
                                       : utf8proc_totitle(code));
}

/// Calls `map(character, offset, out)` for each character; what it appends keeps the character's origin.
template <class Map>
Str map_characters(const Str& s, Map map) {
  Str out;
  std::string mapped;
  std::size_t at = 0;
  for (const Run& run : s.runs()) {
    mapped.clear();
    while (at < run.end) {
      const Character c = character_at(s.view(), at);
      if (c.code < 0) {
        mapped.append(s.view().substr(at, c.length));
      } else {
        map(c, at, mapped);
      }
      at += c.length;
    }
    out.append(mapped, run.origin);
  }
  return std::move(out).as_markup(s.markup());
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = next_character(text, at) - at;
  if (lead < 0x80 && length == 1) return {lead, 1};
  utf8proc_int32_t code = -1;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const utf8proc_ssize_t read = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(length), &code);
  return {read == static_cast<utf8proc_ssize_t>(length) ? code : -1, length};
}

void append_utf8(std::string& out, std::int32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(code, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(std::max<utf8proc_ssize_t>(n, 0)));
}

bool is_space(std::int32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(std::int32_t c) {
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(std::int32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

/// Every script's ten digits are neighbours in their order, and so are their styles in mathematics.
int decimal_value(std::int32_t c) {
  std::int32_t zero = c;
  while (is_decimal(zero - 1)) --zero;
  return (c - zero) % 10;
}

bool is_digit(std::int32_t c) { return is_decimal(c) || in(kDigits, c); }

bool is_numeric(std::int32_t c) {
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO || in(kNumerals, c);
}

bool is_upper(std::int32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in(kUpper, c); }
bool is_lower(std::int32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || in(kLower, c); }
bool is_title(std::int32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(std::int32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_printable(std::int32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_identifier_start(std::int32_t c) {
  const bool letter = is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
  return c == '_' || in(kIdentifierStart, c) || (letter && !in(kNoIdentifierStart, c));
}

bool is_identifier_part(std::int32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return !in(kNoIdentifierPart, c);
    default:
      return in(kIdentifierPart, c);
  }
}

bool is_name_part(std::int32_t c) { return is_identifier_part(c) && !in(kNoNamePart, c); }

bool is_nfkc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return true;
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &bytes, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, std::free);
  return n >= 0 && text == std::string_view(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!is_space(c.code)) break;
    at += c.length;
  }
  return at;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t before = previous_character(text, end);
    if (!is_space(character_at(text, before).code)) break;
    end = before;
  }
  return text.size() - end;
}

Str change_case(const Str& s, Case to_case) {
  return map_characters(
      s, [&](Character c, std::size_t at, std::string& out) { append_mapped(s.view(), at, c.code, to_case, out); });
}

Str swap_case(const Str& s) {
  return map_characters(s, [&](Character c, std::size_t at, std::string& out) {
    if (is_upper(c.code)) return append_mapped(s.view(), at, c.code, Case::Lower, out);
    if (is_lower(c.code)) return append_mapped(s.view(), at, c.code, Case::Upper, out);
    out.append(s.view().substr(at, c.length));
  });
}

Str title_case(const Str& s) {
  bool in_word = false;
  return map_characters(s, [&](Character c, std::size_t at, std::string& out) {
    append_mapped(s.view(), at, c.code, in_word ? Case::Lower : Case::Title, out);
    in_word = is_cased(c.code);
  });
}

}  // namespace llm::jinja
