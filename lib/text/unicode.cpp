#include "text/unicode.h"

#include <utf8proc.h>

#include "base/error.h"

namespace llm::unicode {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_punctuation(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_other(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

std::string_view category_name(char32_t c) { return utf8proc_category_string(static_cast<utf8proc_int32_t>(c)); }

char32_t to_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

void append_decomposed(char32_t c, std::u32string& out) {
  constexpr int kMost = 8;  // no canonical decomposition is longer than 4
  utf8proc_int32_t parts[kMost];
  int boundary_class = 0;
  const auto n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, kMost, UTF8PROC_DECOMPOSE, &boundary_class);
  check(n >= 0 && n <= kMost, "decomposition of a character");
  out.append(parts, parts + n);
}

}  // namespace llm::unicode
