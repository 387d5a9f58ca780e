#include <utf8proc.h>

#include <random>
#include <string>

#include "base/utf8.h"
#include "support/catch.h"

using namespace llm;

namespace {

/// Length of the code point at the front by another implementation; 0 if there is none.
std::size_t other_length(std::string_view s) {
  utf8proc_int32_t c = 0;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(s.data()),
                                  static_cast<utf8proc_ssize_t>(s.size()), &c);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

bool agrees(std::string_view s) {
  const utf8::Unit unit = utf8::unit_at(s, 0);
  const std::size_t other = other_length(s);
  if ((unit.form == utf8::Form::Valid) != (other > 0)) return false;
  return other == 0 ? unit.length <= s.size() : unit.length == other;
}

}  // namespace

TEST_CASE("UTF-8 units agree with utf8proc on every sequence of up to three bytes", "[utf8]") {
  std::size_t wrong = 0;
  for (unsigned i = 0; i < 1u << 24; ++i) {
    const char bytes[] = {static_cast<char>(i >> 16), static_cast<char>(i >> 8), static_cast<char>(i)};
    wrong += agrees({bytes, 3}) ? 0 : 1;
    if ((i & 0xFF) == 0) wrong += agrees({bytes, 2}) ? 0 : 1;
    if ((i & 0xFFFF) == 0) wrong += agrees({bytes, 1}) ? 0 : 1;
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("UTF-8 units agree with utf8proc on four-byte sequences", "[utf8]") {
  std::size_t wrong = 0;
  for (unsigned lead = 0xEF; lead <= 0xFF; ++lead) {
    for (unsigned second = 0; second < 256; ++second) {
      for (const unsigned third : {0x00u, 0x7Fu, 0x80u, 0xA5u, 0xBFu, 0xC0u}) {
        for (const unsigned fourth : {0x7Fu, 0x80u, 0xBFu, 0xFFu}) {
          const char bytes[] = {static_cast<char>(lead), static_cast<char>(second), static_cast<char>(third),
                                static_cast<char>(fourth)};
          wrong += agrees({bytes, 4}) ? 0 : 1;
        }
      }
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("a cut sequence is incomplete, an impossible one invalid", "[utf8]") {
  using utf8::Form;
  const auto form = [](std::string_view s) { return utf8::unit_at(s, 0).form; };
  CHECK(form("\xE2\x82") == Form::Incomplete);
  CHECK(form("\xF0\x9F\x98") == Form::Incomplete);
  CHECK(form("\xF4") == Form::Incomplete);
  CHECK(form("\xED\xA0") == Form::Invalid);  // would be a surrogate
  CHECK(form("\xC0\x80") == Form::Invalid);  // overlong
  CHECK(form("\xF4\x90") == Form::Invalid);  // above U+10FFFF
  CHECK(form("\xE2\x82 ") == Form::Invalid);
  CHECK(utf8::unit_at("\xE2\x82 ", 0).length == 2);
}

TEST_CASE("characters are counted by the bytes that begin them", "[utf8]") {
  CHECK(utf8::count_characters("") == 0);
  CHECK(utf8::count_characters("a\u00e9\u20ac\U0001f600") == 4);
  CHECK(utf8::begins_character('\xf0'));
  CHECK_FALSE(utf8::begins_character('\x80'));
  CHECK_FALSE(utf8::begins_character('\xbf'));
  CHECK(utf8::begins_character('\xc0'));
}

TEST_CASE("the valid prefix ends at the first bad byte at any position", "[utf8]") {
  for (std::size_t at = 0; at < 40; ++at) {
    std::string text;
    while (text.size() < at) text += text.size() + 2 <= at && text.size() % 3 == 0 ? "\u00e9" : "x";
    CHECK(utf8::valid_prefix(text) == text.size());
    CHECK(utf8::valid_prefix(text + "\xFF tail") == text.size());
    CHECK(utf8::valid_prefix(text + "\xE2\x82") == text.size());
  }
}

TEST_CASE("code points and their bytes are what utf8proc says", "[utf8]") {
  std::size_t wrong = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    utf8proc_uint8_t bytes[4];
    const auto n = static_cast<std::size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes));
    const std::string_view expected(reinterpret_cast<const char*>(bytes), n);
    wrong += utf8::encoded(c) == expected && utf8::code_point(expected) == c ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("which bytes are inside of a character", "[utf8]") {
  const std::string text = "a\u00e9\U0001F600\x80\xE2\x82z";
  std::string inside;
  for (std::size_t i = 0; i < text.size(); ++i) inside += utf8::is_inside(text, i) ? 'i' : '.';
  CHECK(inside == "..i.iii....");
}
