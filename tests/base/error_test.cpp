// Error lines, escaping, checked arithmetic and the table of environment variables.
#include "base/error.h"

#include <cstdlib>

#include "base/checked.h"
#include "base/environment.h"
#include "support/catch.h"

using namespace llm;

TEST_CASE("an error's line joins the parts that are known") {
  const Error full(ErrorKind::Model, ErrorParts{.file = "tiny.gguf",
                                                .offset = 0x2f4,
                                                .subject = key_subject("general.alignment"),
                                                .problem = "value 0 is not a power of two between 8 and 1048576"});
  CHECK(std::string(full.what()) ==
        "tiny.gguf: offset 0x2f4: key \"general.alignment\": value 0 is not a power of two between 8 and 1048576");
  CHECK(full.kind() == ErrorKind::Model);
  CHECK(full.parts().offset == 0x2f4u);

  CHECK(std::string(Error(ErrorKind::Usage, "no prompt").what()) == "no prompt");
  CHECK(std::string(Error(ErrorKind::Model, {.file = "a.gguf", .offset = 0, .problem = "bad magic"}).what()) ==
        "a.gguf: offset 0x0: bad magic");
}

TEST_CASE("nothing in an error's line can reach the terminal as a control character") {
  const Error e(ErrorKind::Model,
                {.file = "a\nb\x1b[2J.gguf", .subject = tensor_subject("w\"\n"), .problem = "found \x07 \xff here"});
  CHECK(std::string(e.what()) == R"(a\x0ab\x1b[2J.gguf: tensor "w\"\x0a": found \x07 \xff here)");
}

TEST_CASE("a long path is shown whole, a long name is not") {
  const std::string path(1000, 'p');
  CHECK(std::string(Error(ErrorKind::Model, {.file = path, .problem = "x"}).what()) == path + ": x");
  CHECK(tensor_subject(std::string(1000, 't')) == "tensor \"" + std::string(77, 't') + "...\"");
}

TEST_CASE("escaped text") {
  CHECK(escaped("") == "");
  CHECK(escaped("plain name.0") == "plain name.0");
  CHECK(escaped("tab\there") == R"(tab\x09here)");
  CHECK(escaped(std::string_view("\0", 1)) == R"(\x00)");
  CHECK(escaped("\x7f") == R"(\x7f)");
  CHECK(escaped(R"(a"b\c)") == R"(a\"b\\c)");
  CHECK(escaped("it's") == "it's");
  CHECK(escaped("\u00e9 \u4e2d \U0001f600") == "\u00e9 \u4e2d \U0001f600");
  CHECK(escaped("\u0080\u009f\u00a0") == "\\xc2\\x80\\xc2\\x9f\u00a0");  // C1 controls; a no-break space is not one
  CHECK(escaped("\u202e\u2028\u2066") == R"(\xe2\x80\xae\xe2\x80\xa8\xe2\x81\xa6)");  // bidirectional, line separator
}

TEST_CASE("bytes that are not UTF-8 are shown as bytes") {
  CHECK(escaped("\xff\xfe") == R"(\xff\xfe)");
  CHECK(escaped("\x80") == R"(\x80)");                          // a continuation alone
  CHECK(escaped("\xc3") == R"(\xc3)");                          // cut short
  CHECK(escaped("\xe4\xb8x") == R"(\xe4\xb8x)");                // cut short, then text
  CHECK(escaped("\xc0\xaf") == R"(\xc0\xaf)");                  // overlong
  CHECK(escaped("\xe0\x80\xaf") == R"(\xe0\x80\xaf)");          // overlong
  CHECK(escaped("\xf0\x80\x80\xaf") == R"(\xf0\x80\x80\xaf)");  // overlong
  CHECK(escaped("\xed\xa0\x80") == R"(\xed\xa0\x80)");          // a surrogate
  CHECK(escaped("\xf4\x90\x80\x80") == R"(\xf4\x90\x80\x80)");  // above U+10FFFF
  CHECK(escaped("\xf4\x8f\xbf\xbd") == "\xf4\x8f\xbf\xbd");     // below it
  CHECK(escaped("\xf8\x88\x80\x80\x80") == R"(\xf8\x88\x80\x80\x80)");
}

TEST_CASE("escaped text is cut between characters") {
  CHECK(escaped("12345678", 8) == "12345678");
  CHECK(escaped("123456789", 8) == "12345...");
  CHECK(escaped("1234\u00e9\u00e9\u00e9", 8) == "1234...");  // 4 + 6 bytes; the first é would end at 6
  CHECK(escaped("\n\n\n", 8) == R"(\x0a...)");
  CHECK(escaped(std::string(100'000, '\xff')).size() <= 80);
}

TEST_CASE("a broken invariant is an internal error that names its place") {
  CHECK_NOTHROW(check(true, "fine"));
  try {
    check(1 + 1 == 3, "arithmetic holds");
    FAIL("did not throw");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Internal);
    const std::string line = e.what();
    CHECK(line.starts_with("internal error at error_test.cpp:"));
    CHECK(line.ends_with(": arithmetic holds"));
  }
}

TEST_CASE("checked arithmetic") {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  CHECK(checked_add<std::uint64_t>(kMax - 1, 1) == kMax);
  CHECK_FALSE(checked_add<std::uint64_t>(kMax, 1).has_value());
  CHECK(checked_mul<std::uint64_t>(1u << 31, 1u << 31) == std::uint64_t{1} << 62);
  CHECK_FALSE(checked_mul<std::uint64_t>(std::uint64_t{1} << 32, std::uint64_t{1} << 32).has_value());
  CHECK_FALSE(checked_mul<std::int64_t>(INT64_MIN, -1).has_value());
  CHECK_FALSE(checked_add<std::int32_t>(INT32_MAX, 1).has_value());
  CHECK(checked_add<std::int32_t>(INT32_MIN, INT32_MAX) == -1);
  CHECK(checked_align<std::uint64_t>(0, 32) == 0u);
  CHECK(checked_align<std::uint64_t>(33, 32) == 64u);
  CHECK(checked_align<std::uint64_t>(64, 32) == 64u);
  CHECK(checked_align<std::uint64_t>(kMax - 31, 32) == kMax - 31);
  CHECK_FALSE(checked_align<std::uint64_t>(kMax - 30, 32).has_value());
}

TEST_CASE("environment variables") {
  for (const EnvironmentVariable& v : environment_variables()) {
    CHECK((v.name.starts_with("LLM_RUN_") || v.name.starts_with("OMP_")));
    CHECK_FALSE(v.meaning.empty());
  }
  const char* before = std::getenv("LLM_RUN_ISA");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("LLM_RUN_ISA", "portable", 1);
  CHECK(environment("LLM_RUN_ISA") == "portable");
  ::setenv("LLM_RUN_ISA", "", 1);
  CHECK_FALSE(environment("LLM_RUN_ISA").has_value());
  ::unsetenv("LLM_RUN_ISA");
  CHECK_FALSE(environment("LLM_RUN_ISA").has_value());
  if (before != nullptr) ::setenv("LLM_RUN_ISA", saved.c_str(), 1);
  CHECK_THROWS_AS(environment("PATH"), Error);
}
