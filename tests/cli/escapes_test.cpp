// Escapes on the command line.
#include "common/escapes.h"

#include "support/catch.h"

using llm::app::process_escapes;
using namespace std::string_literals;

TEST_CASE("escapes become what they stand for") {
  CHECK(process_escapes("") == "");
  CHECK(process_escapes("plain") == "plain");
  CHECK(process_escapes(R"(a\nb\tc\rd)") == "a\nb\tc\rd");
  CHECK(process_escapes(R"(\'\"\\)") == "'\"\\");
  CHECK(process_escapes(R"(\\n)") == "\\n");
  CHECK(process_escapes(R"(\x41\x0a\xFf)") == "A\n\xff");
  CHECK(process_escapes(R"(\x00.)") == "\0."s);
  CHECK(process_escapes(R"(\x414)") == "A4");
}

TEST_CASE("other backslashes stay") {
  CHECK(process_escapes(R"(C:\dir \q)") == R"(C:\dir \q)");
  CHECK(process_escapes(R"(end\)") == R"(end\)");
  CHECK(process_escapes(R"(\x)") == R"(\x)");
  CHECK(process_escapes(R"(\x4)") == R"(\x4)");
  CHECK(process_escapes(R"(\xg1\x1g\x-1\x+1)") == R"(\xg1\x1g\x-1\x+1)");
}
