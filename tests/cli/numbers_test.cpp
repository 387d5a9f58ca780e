// Numbers on the command line.
#include "common/numbers.h"

#include "base/error.h"
#include "common/columns.h"
#include "common/messages.h"
#include "common/status_line.h"
#include "support/catch.h"

namespace llm::app {
namespace {

std::string refusal(std::string_view text, std::int64_t min, std::int64_t max) {
  try {
    parse_integer("-x", text, min, max);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("whole numbers with suffixes") {
  CHECK(parse_integer("-x", "0", 0, kMaxInt32) == 0);
  CHECK(parse_integer("-x", "-1", -1, kMaxInt32) == -1);
  CHECK(parse_integer("-x", "2147483647", 0, kMaxInt32) == 2147483647);
  CHECK(parse_integer("-x", "32k", 0, kMaxInt32) == 32000);
  CHECK(parse_integer("-x", "32K", 0, kMaxInt32) == 32000);
  CHECK(parse_integer("-x", "32Ki", 0, kMaxInt32) == 32768);
  CHECK(parse_integer("-x", "5G", 0, std::int64_t{1} << 40) == 5'000'000'000);
  CHECK(parse_integer("-x", "3Gi", 0, std::int64_t{1} << 40) == 3'221'225'472);
  CHECK(parse_integer("-x", "2M", 0, kMaxInt32) == 2000000);
  CHECK(parse_integer("-x", "1Mi", 0, kMaxInt32) == 1048576);
}

TEST_CASE("what is not a whole number in range is refused with the limits") {
  for (const char* text : {"", " 5", "5 ", "5x", "1e9", "0x10", "k", "5kk", "+5", "--5", "2147483648",
                           "9223372036854775808", "9223372036854775807k", "-1", "3M k"}) {
    INFO(text);
    const std::string message = refusal(text, 0, kMaxInt32);
    CHECK(message.find("option -x") != std::string::npos);
    CHECK(message.find("from 0 to 2147483647") != std::string::npos);
  }
  CHECK(refusal("0", 1, 8).find("from 1 to 8") != std::string::npos);
}

TEST_CASE("a suffix that there is not is answered with those that there are") {
  const std::string suffixes = "; it may end in k, K, M, G (powers of 1000), Ki, Mi, Gi (powers of 1024)";
  for (const char* text : {"4kb", "4KB", "4 k", "1e9", "-4x"}) CHECK(refusal(text, 0, kMaxInt32).ends_with(suffixes));
  for (const char* text : {"", "k", "four", "4", "9k"}) CHECK(refusal(text, 0, 3).ends_with("from 0 to 3"));
  CHECK(refusal("9223372036854775807k", 0, kMaxInt32).ends_with("from 0 to 2147483647"));
}

TEST_CASE("real numbers") {
  CHECK(parse_real("-x", "0.8", 0, 1) == 0.8);
  CHECK(parse_real("-x", "1e-3", 0, 1) == 1e-3);
  CHECK(parse_real("-x", "1", 0, 1) == 1);
  for (const char* text : {"", " 1", "1 ", "0,5", "nan", "inf", "1e400", "1.5", "-0.1", "x"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_real("-x", text, 0, 1), Error);
  }
}

TEST_CASE("a terminal gets no control characters") {
  CHECK(terminal_safe("plain text\n\twith breaks, caf\xc3\xa9 \xf0\x9f\x98\x80") ==
        "plain text\n\twith breaks, caf\xc3\xa9 \xf0\x9f\x98\x80");
  CHECK(terminal_safe("\x1b]52;c;x\x07") == "\\x1b]52;c;x\\x07");
  CHECK(terminal_safe("a\rb\x7f") == "a\\x0db\\x7f");
  CHECK(terminal_safe("\xc2\x9b"
                      "31m") ==
        "\\xc2\\x9b"
        "31m");                                                 // C1 control sequence introducer
  CHECK(terminal_safe("\xe2\x80\xae") == "\\xe2\\x80\\xae");    // right-to-left override
  CHECK(terminal_safe("\xe2\x81\xa6x") == "\\xe2\\x81\\xa6x");  // isolate
}

TEST_CASE("figures for people") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(std::uint64_t{49} << 30) == "49.0 GiB");
  CHECK(number_text(0) == "0");
  CHECK(number_text(999) == "999");
  CHECK(number_text(5120) == "5,120");
  CHECK(number_text(-1234567) == "-1,234,567");
  CHECK(fixed_text(96.14, 1) == "96.1");
}

TEST_CASE("a line that is drawn again never wraps") {
  CHECK(fitted_to("reading 55%", 0) == "reading 55%");
  CHECK(fitted_to("reading 55%", 12) == "reading 55%");
  CHECK(fitted_to("reading 55%", 11) == "reading 55");
  CHECK(fitted_to("a · b", 4) == "a \u00b7");  // one column, two bytes
  CHECK(fitted_to("a · b", 3) == "a ");
  CHECK(fitted_to("abc", 1).empty());
  CHECK(fitted_to("\u4e2d\u6587 55%", 4) == "\u4e2d");  // two columns each
}

TEST_CASE("columns of a terminal, by the widths of Unicode's East Asian Width") {
  CHECK(columns_of("") == 0);
  CHECK(columns_of("abc \u00b7 \u00e9") == 7);
  CHECK(columns_of("\u4e2d\u6587") == 4);  // wide
  CHECK(columns_of("\U0001f600") == 2);    // wide, an emoji
  CHECK(columns_of("e\u0301") == 1);       // joins the letter before
  CHECK(columns_of("\xff\xe4\xb8") == 2);  // no UTF-8: a replacement for each maximal part
  CHECK(escaped_to_fit("abcdef", 6) == "abcdef");
  CHECK(escaped_to_fit("abcdefg", 6) == "abc...");
  CHECK(escaped_to_fit("\u4e2d\u6587\u4e2d", 6) == "\u4e2d\u6587\u4e2d");
  CHECK(escaped_to_fit("\u4e2d\u6587\u4e2d\u6587", 6) == "\u4e2d...");
  CHECK(escaped_to_fit("\u00e9\u00e9\u00e9\u00e9", 4) == "\u00e9\u00e9\u00e9\u00e9");
  CHECK(escaped_to_fit("a\nbcd", 7) == "a...");  // an escape stays whole
}

TEST_CASE("words stand in as many columns as a line holds, read downwards") {
  const std::vector<std::string> words{"a", "bb", "\u4e2d", "d", "e"};
  CHECK(columned(words, 10) == "a   \u4e2d  e\nbb  d\n");
  CHECK(columned(words, 9) == "a   d\nbb  e\n\u4e2d\n");
  CHECK(columned(words, 2) == "a\nbb\n\u4e2d\nd\ne\n");
  CHECK(columned({}, 10).empty());
}

TEST_CASE("text is folded behind spaces, commas and semicolons, and nothing of it is lost") {
  CHECK(folded("", 10, 4).empty());
  CHECK(folded("abcdef", 10, 4) == "abcdef");
  CHECK(folded("ab cdef", 10, 4) == "ab \n    cdef");
  CHECK(folded("ab,c;d  e", 10, 4) == "ab,c;\n    d  e");
  CHECK(folded("abcdefgh", 10, 4) == "abcdef\n    gh");
  CHECK(folded("\u4e2d\u6587\u4e2d\u6587", 10, 4) == "\u4e2d\u6587\u4e2d\n    \u6587");
  CHECK(folded("\u4e2d\u6587", 5, 4) == "\u4e2d\n    \u6587");  // wider than a line
}

}  // namespace llm::app
