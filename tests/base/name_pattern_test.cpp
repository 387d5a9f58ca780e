// Regular expressions over names: ECMAScript's grammar, in time that a name's length and a pattern's size bound.
#include "base/name_pattern.h"

#include "base/error.h"
#include "support/catch.h"

using namespace llm;

TEST_CASE("a pattern is looked for anywhere in a name", "[pattern]") {
  const std::string name = "blk.12.ffn_gate_exps.weight";
  for (const char* found : {"exps", "^blk\\.", "\\.(1|12)\\.", "ffn_(up|gate)_exps\\.weight$", "blk\\.\\d{1,2}\\.",
                            "(?=blk)b", "b.k(?!x)", "[[:digit:]]", "ff*n?_", ""}) {
    CAPTURE(found);
    CHECK(NamePattern(found).matches(name));
  }
  for (const char* missing : {"Exps", "^ffn", "blk\\.1\\.", "weigh$", "[^a-z0-9._]", "\\s"}) {
    CAPTURE(missing);
    CHECK_FALSE(NamePattern(missing).matches(name));
  }
}

TEST_CASE("repetitions in one another take no longer than others", "[pattern]") {
  const std::string name(64, 'a');
  for (const char* pattern : {"((((a|b|[a-z])*)*)*)*!", "(a+)+$b", "(.*)*(.*)*(.*)*x!"}) {
    CAPTURE(pattern);
    CHECK_FALSE(NamePattern(pattern).matches(name));
  }
}

TEST_CASE("what is no pattern is refused with its text", "[pattern]") {
  CHECK_THROWS_WITH(NamePattern("(a"), contains("\"(a\" is not a regular expression"));
  CHECK_THROWS_WITH(NamePattern("(a)\\1"), contains("has a back reference, which is not supported"));
  CHECK_THROWS_WITH(NamePattern(std::string(1001, 'a')), contains("longer than 1000"));
}
