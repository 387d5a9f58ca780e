// Regular expressions and choices.
#include "constrain/regex.h"

#include <ctime>

#include "matching.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

struct RegexCase {
  const char* pattern;
  std::vector<std::string> in, out;
};

/// As `pattern` in JSON Schema matches, without the escapes of JSON.
Grammar anywhere(std::string_view pattern) {
  const SourceText source("pattern", pattern, {});
  Productions p;
  const RuleId root = p.declare("pattern");
  p.define(root,
           parse_regex(source, p, {RegexUse::Match::Anywhere, [&p](const CodePoints& s) { return p.characters(s); }}));
  return Grammar::compile(p, root);
}

}  // namespace

TEST_CASE("regular expressions match the whole text", "[regex]") {
  const RegexCase cases[] = {
      {"", {""}, {"a"}},
      {"a|b|", {"a", "b", ""}, {"ab"}},
      {"[0-9]{3}-[0-9]{4}", {"555-1234"}, {"555-123", "5555-1234", " 555-1234"}},
      {"^abc$", {"abc"}, {"ab", "abcd"}},
      {"(^a|^b)(c$|d$)", {"ac", "bd"}, {"a", "cc"}},
      {"(?<year>\\d{4})-(?<m>\\d\\d)", {"2024-12"}, {"24-12"}},
      // ECMA-262 2025: one name for groups of which one matches only.
      {"(?<a>x)|(?<a>y)(?<b>z)", {"x", "yz"}, {"y"}},
      {"\\x41\\u0042\\u{43}\\cJ\\0", {std::string("ABC\n\0", 5)}, {"ABC\n"}},
      {"\\uD83D\\uDE00+", {"😀", "😀😀"}, {""}},
      {"[\\w.-]+", {"a.b-c_9"}, {"é", "a b", ""}},
      {"[\\]\\[^-]", {"]", "[", "^", "-"}, {"a"}},
      {"[^\\d\\s]", {"a", "é"}, {"1", " ", "\xc2\xa0"}},
      {"\\p{Lu}\\p{Ll}+\\P{L}", {"Émile1", "Ab!"}, {"émile1", "AB!"}},
      {"\\p{General_Category=Decimal_Number}", {"7", "٣"}, {"a"}},
      // PropertyValueAliases.txt: gc ; Cc ; Control ; cntrl, and gc ; M ; Mark ; Combining_Mark.
      {"\\p{cntrl}\\p{gc=Control}", {"\x01\x7f"}, {"a\x01"}},
      {"a\\p{Combining_Mark}", {"a\xcc\x81"}, {"aa"}},
      {"\\p{Unassigned}\\p{Cn}", {"\xcd\xb8\xef\xbf\xbf"}, {"ab"}},  // U+0378 and the noncharacter U+FFFF
      {"[\\p{Cs}x]\\P{Surrogate}", {"xa"}, {"ab"}},                  // no text has half of a pair
      // Annex B of ECMA-262, as Node.js matches: behind a class the dash is plain, and what follows it.
      {"[\\d-a-c]", {"5", "-", "a", "c"}, {"b", "d"}},
      {"[\\w-.]", {"z", "-", "."}, {","}},
      {"[\\d-\\s-]", {"7", " ", "-"}, {"a"}},
      {"[\\p{Zl}-\\u{2030}]", {"\xe2\x80\xa8", "-", "\xe2\x80\xb0"}, {"\xe2\x80\xa9"}},
      {"a{,3}", {"a{,3}"}, {"a", "aaa"}},
      {"a{2}{", {"aa{"}, {"aa"}},
      {"}]", {"}]"}, {"}"}},
      {".", {"a", "😀"}, {"\n", "\r", "\xe2\x80\xa8"}},
      {"\\/\\-\\$", {"/-$"}, {}},
      {"(a{1,3}){2,3}", {"aa", "aaaaaaaaa"}, {"a", "aaaaaaaaaa"}},
      {"(a|b)*a(a|b){12}", {"abbbbbbbbbbbb", "babbbbbbbbbbbb"}, {"bbbbbbbbbbbbb"}},
  };
  for (const RegexCase& c : cases) {
    INFO(c.pattern);
    const Grammar g = grammar_from_regex(c.pattern);
    for (const std::string& text : c.in) CHECK((matches(g, text) ? text : "rejected: " + text) == text);
    for (const std::string& text : c.out) CHECK((matches(g, text) ? "accepted: " + text : text) == text);
  }
}

TEST_CASE("patterns match anywhere unless anchored", "[regex]") {
  const RegexCase cases[] = {
      {"b", {"b", "abc", "bb"}, {"", "ac"}},
      {"^a", {"a", "ab"}, {"ba", ""}},
      {"a$", {"a", "ba"}, {"ab", ""}},
      {"^a|b$", {"ax", "xb", "ab"}, {"xa", "bx"}},
      {"(^a|b)c", {"ac", "acx", "xbcx"}, {"xac", "c"}},
      {"", {"", "anything\nat all"}, {}},
      {"^$", {""}, {"a"}},
      {"^.*$", {"", "a b"}, {"a\nb"}},
  };
  for (const RegexCase& c : cases) {
    INFO(c.pattern);
    const Grammar g = anywhere(c.pattern);
    for (const std::string& text : c.in) CHECK((matches(g, text) ? text : "rejected: " + text) == text);
    for (const std::string& text : c.out) CHECK((matches(g, text) ? "accepted: " + text : text) == text);
  }
}

TEST_CASE("what no automaton can follow is refused by name and place", "[regex]") {
  const auto error = [](std::string_view pattern) { return grammar_error([&] { grammar_from_regex(pattern); }); };
  CHECK(error("ab(?=c)") ==
        "regular expression, line 1, column 3: look-around is not supported: an automaton cannot follow it, at "
        "\"(?=c)\"");
  CHECK_THAT(error("(a)\\1"), contains("column 4: back references"));
  CHECK_THAT(error("\\bword"), contains("column 1: word boundaries"));
  CHECK_THAT(error("(?i)a"), contains("flags"));
  CHECK_THAT(error("a^b"), contains("column 2: ^ is supported at the beginning only"));
  CHECK_THAT(error("a$b"), contains("column 2: $ is supported at the end only"));
  CHECK_THAT(error("(^a)*"), contains("anchors cannot be repeated"));
  CHECK_THAT(error("(a"), contains("column 1: this parenthesis is never closed"));
  CHECK_THAT(error("a)"), contains("column 2: this parenthesis closes nothing"));
  CHECK_THAT(error("[a"), contains("never closed"));
  CHECK_THAT(error("[]a]"), contains("a class without characters"));
  CHECK_THAT(error("[[:alpha:]]"), contains("POSIX classes"));
  CHECK_THAT(error("*a"), contains("nothing to repeat"));
  CHECK_THAT(error("a++"), contains("column 3: a repetition of a repetition"));
  CHECK_THAT(error("a{3,2}"), contains("at most 2 but at least 3"));
  CHECK_THAT(error("\\q"), contains("this escape is not known"));
  CHECK_THAT(error("\\p{Greek}"), contains("only general categories"));
  CHECK_THAT(error("\\p{Qq}"), contains("only general categories"));
  CHECK_THAT(error("\\p{Cs}"), contains("no finite text matches"));
  CHECK_THAT(error("\\uD83D"), contains("not the number of a Unicode character"));
  CHECK_THAT(error("a\\u{}"), contains("column 2: expected the number of a character in braces"));
  CHECK_THAT(error("[a-\\d]"), contains("column 2: a range that ends in a class"));
  CHECK_THAT(error("[\\x20-\\p{Zl}]"), contains("column 2: a range that ends in a class"));
  CHECK_THAT(error("(?P<a>x)"), contains("column 1: ECMAScript writes a group with a name as (?<name>...)"));
  CHECK_THAT(error("(?<a>x)(?<a>y)"), contains("column 8: another group has this name as well"));
  CHECK_THAT(error("(?<a>x(?<a>y))"), contains("column 7: another group has this name"));
  CHECK_THAT(error("((?<a>x)|(?<b>y))(?<a>z)"), contains("column 18: another group has this name"));
  CHECK_THAT(error("(?<>x)"), contains("column 1: a group's name has letters"));
  CHECK_THAT(error("(?<1a>x)"), contains("column 1: a group's name has letters"));
  CHECK_THAT(error("a\\"), contains("it ends too early"));
  CHECK_THAT(error("\xff"), contains("not UTF-8"));
  CHECK_THAT(error(std::string(500, '(')), contains("nested more than 200 deep"));
}

TEST_CASE("choices are exact texts", "[regex]") {
  const std::vector<std::string> choices{"yes", "no", "a.c", "né", "yesterday"};
  const Grammar g = grammar_from_choices(choices);
  for (const std::string& c : choices) CHECK(matches(g, c));
  for (const char* c : {"", "ye", "yess", "abc", "yes no", "yester"}) CHECK_FALSE(matches(g, c));
  CHECK_THAT(grammar_error([] { grammar_from_choices({}); }), contains("no choices"));
  const std::vector<std::string> empty{"a", ""};
  CHECK_THAT(grammar_error([&] { grammar_from_choices(empty); }), contains("empty"));
}

TEST_CASE("many repetitions of what may be empty compile in time that grows with their number", "[regex]") {
  const std::clock_t begin = std::clock();
  const std::vector<std::pair<const char*, char>> cases{{"([a-z]{0,300},?){0,4000}", ','},
                                                        {"([a-z]{0,300} {0,300}){0,4000}", ' '}};
  for (const auto& [pattern, between] : cases) {
    INFO(pattern);
    const Grammar g = grammar_from_regex(pattern);
    CHECK(g.states().size() > 8000);
    // Every repetition may be followed by another one, and by the end.
    for (const Grammar::Rule& rule : g.rules()) {
      if (!rule.counted) continue;
      CHECK(rule.follow['a']);
      CHECK(rule.follow[static_cast<unsigned char>(between)]);
      CHECK_FALSE(rule.follow['.']);
    }
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(seconds < 20);  // some 0.03; minutes where each call looks through all that follow
}
