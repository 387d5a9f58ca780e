// GBNF: the notation, its errors, and grammars for known formats.
#include "matching.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

struct GbnfCase {
  const char* grammar;
  std::vector<std::string> in, out;
};

void check_case(const GbnfCase& c) {
  INFO(c.grammar);
  const Grammar g = grammar_from_gbnf(c.grammar);
  for (const std::string& text : c.in) CHECK((matches(g, text) ? text : "rejected: " + text) == text);
  for (const std::string& text : c.out) CHECK((matches(g, text) ? "accepted: " + text : text) == text);
}

constexpr const char* kJson = R"gbnf(
# RFC 8259
root   ::= ws value ws
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( member ( "," ws member )* )? "}"
member ::= string ws ":" ws value ws
array  ::= "[" ws ( value ws ( "," ws value ws )* )? "]"
string ::= "\"" char* "\""
char   ::= [^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )
number ::= "-"? ( "0" | [1-9] [0-9]* ) ( "." [0-9]+ )? ( [eE] [-+]? [0-9]+ )?
ws     ::= [ \t\n\r]*
)gbnf";

constexpr const char* kArithmetic = R"gbnf(
root ::= expr "\n"
expr ::= term ( [-+] term )*
term ::= factor ( [*/] factor )*
factor ::= [0-9]+ | [a-z] | "(" expr ")"
)gbnf";

constexpr const char* kChess = R"gbnf(
root ::= (
    "1. " move " " move "\n"
    ( [1-9] [0-9]? ". " move " " move "\n" )*
)
move ::= ( pawn | piece | castle ) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ( [a-h] "x" )? [a-h] [1-8] ( "=" [NBKQR] )?
castle ::= "O-O" "-O"?
)gbnf";

}  // namespace

TEST_CASE("GBNF's notation", "[gbnf]") {
  const GbnfCase cases[] = {
      {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
      {"root ::= \"a\" | \"bc\"\n", {"a", "bc"}, {"abc", "b", "c"}},
      {"root ::=\n  \"a\" |\n  \"b\"\n\n# end", {"a", "b"}, {"ab"}},
      {"root ::= (\"a\"\n  \"b\")\r\nx ::= root", {"ab"}, {"a"}},
      {"root ::= a-1 b_2\na-1 ::= \"x\"\nb_2 ::= \"y\"", {"xy"}, {"x"}},
      {"root ::= [a-c]", {"a", "b", "c"}, {"d", "-", "A"}},
      {"root ::= [a-]", {"a", "-"}, {"b"}},
      {"root ::= [^a-c]", {"d", "\n", "é", "😀"}, {"a", "b", "c", "\xc3"}},
      {"root ::= [\\]\\\\\\-x]", {"]", "\\", "-", "x"}, {"["}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\"", {"Aé😀\t\""}, {"A\xe9😀\t\""}},
      {"root ::= [ぁ-ゟ]+", {"ぁ", "ひらがな"}, {"", "カ", "あア"}},
      {"root ::= . .", {"ab", "a\n", "éé", "😀a"}, {"a", "é", "abc", "a\xff"}},
      {"root ::= \"a\"*", {"", "a", "aaaa"}, {"b", "ab"}},
      {"root ::= \"ab\"+", {"ab", "abab"}, {"", "aba"}},
      {"root ::= \"a\"?", {"", "a"}, {"aa"}},
      {"root ::= \"a\"{2}", {"aa"}, {"a", "aaa"}},
      {"root ::= \"a\"{2,}", {"aa", "aaaaa"}, {"", "a"}},
      {"root ::= \"a\"{1,3}", {"a", "aa", "aaa"}, {"", "aaaa"}},
      {"root ::= \"a\"{ 0 , 2 }", {"", "a", "aa"}, {"aaa"}},
      {"root ::= \"a\"{0}\"b\"", {"b"}, {"ab"}},
      {"root ::= (\"a\" | \"b\" \"c\"){2}", {"aa", "abc", "bca", "bcbc"}, {"bc", "a", "bcc"}},
      {"root ::= \"a\"{2}{2}", {"aaaa"}, {"aaa", "aaaaa"}},
      {"root ::= \"\" | \"x\" root", {"", "x", "xxx"}, {"y"}},
      {"root ::= | \"x\"", {"", "x"}, {"xx"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", ")", "(()", "())"}},
      {"root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?", {"", "a", "abba", "ababa", "aaaaaaaa"}, {"ab", "abab"}},
  };
  for (const GbnfCase& c : cases) check_case(c);
}

TEST_CASE("grammars of known formats", "[gbnf]") {
  check_case({kJson,
              {"{}", "[]", "null", " [1, 2.5e-3, \"a\\u00e9\\n\", {\"k\": [true, false]}] ", "-0", "\"é😀\"",
               "[[[[[[[[]]]]]]]]"},
              {"", "{", "[1,]", "{\"a\"}", "01", "1.", "\"\n\"", "nul", "[}", "{\"a\":1,}", "\"\\x\"", "\"\\u12g4\""}});
  check_case({kArithmetic, {"1\n", "1+2*3\n", "(a+b)*(c-12)\n", "((((x))))\n"}, {"1", "1+\n", "()\n", "(1\n", "ab\n"}});
  check_case({kChess,
              {"1. e4 e5\n", "1. e4 e5\n2. Nf3 Nc6\n3. O-O Qxh7#\n", "1. exd8=Q+ O-O-O\n"},
              {"1. e4\n", "2. e4 e5\n", "1. e9 e5\n", "1. e4 e5\n100. e4 e5\n"}});
}

TEST_CASE("long repetitions are counted exactly", "[gbnf]") {
  // 3 letters or an escape, up to 5000 times, between quotes: counted, not unrolled.
  const Grammar g = grammar_from_gbnf("root ::= \"'\" ([a-y]{3} | \"zé\"){1000,5000} \"'\" rest*\nrest ::= \"!\"{600}");
  CHECK(g.states().size() < 100);
  const auto text = [](std::size_t n, std::size_t m) {
    std::string s = "'";
    for (std::size_t i = 0; i < n; ++i) s += i % 7 == 3 ? "zé" : "abc";
    return s + "'" + std::string(m, '!');
  };
  CHECK(matches(g, text(1000, 0)));
  CHECK(matches(g, text(5000, 0)));
  CHECK(matches(g, text(3000, 1200)));
  CHECK_FALSE(matches(g, text(999, 0)));
  CHECK_FALSE(matches(g, text(5001, 0)));
  CHECK_FALSE(matches(g, text(2000, 599)));
  CHECK_FALSE(matches(g, text(2000, 601)));
  const Grammar nested = grammar_from_gbnf("root ::= ((\"ab\"{40} \",\"){30} \";\"){20,}");
  std::string line, all;
  for (int i = 0; i < 40; ++i) line += "ab";
  for (int i = 0; i < 30; ++i) all += line + ",";
  all += ";";
  std::string twenty;
  for (int i = 0; i < 20; ++i) twenty += all;
  CHECK(nested.states().size() < 200);
  CHECK(matches(nested, twenty));
  CHECK(matches(nested, twenty + all));
  CHECK_FALSE(matches(nested, twenty.substr(all.size())));
  CHECK_FALSE(matches(nested, twenty + "ab"));
}

TEST_CASE("ambiguity does not multiply stacks", "[gbnf]") {
  // Exponentially many derivations each; thousands of bytes must go through.
  const Grammar pairs = grammar_from_gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root | \"\"");
  CHECK(matches(pairs, std::string(150, 'a') + std::string(150, 'b')));
  CHECK_FALSE(matches(pairs, std::string(150, 'a') + std::string(151, 'b')));
  const Grammar words = grammar_from_gbnf("root ::= (word word?)*\nword ::= [a-z]+ | [a-m] word | \"a\"{1,9}");
  CHECK(matches(words, std::string(500, 'a')));
  const Grammar palindrome = grammar_from_gbnf("root ::= [ab] root [ab] | [ab]?");
  CHECK(matches(palindrome, std::string(300, 'a') + std::string(200, 'b')));
}

TEST_CASE("repetitions of repetitions stay small, or are refused", "[gbnf]") {
  // Two ways to go on after each letter, 9 times 9 times 9: too many copies to be made one by one.
  const Grammar nested = grammar_from_gbnf("root ::= ([a-z] | [a-z]+ \"0\"){9}{9}{9}");
  CHECK(matches(nested, std::string(729, 'a')));
  CHECK(matches(nested, std::string(728, 'a') + "bb0"));
  CHECK_FALSE(matches(nested, std::string(728, 'a')));
  // What may be empty has no least number; each of 60,000 places may be left out.
  const Grammar optional = grammar_from_gbnf("root ::= (\"a\"?){60000} (\"bc\"*){50} (\"\" | \"\"){20}");
  CHECK(optional.states().size() < 300);
  for (const std::size_t n : {0u, 1u, 60000u}) CHECK(matches(optional, std::string(n, 'a') + "bcbc"));
  CHECK_FALSE(matches(optional, std::string(60001, 'a')));
  CHECK_FALSE(matches(optional, "aab"));
  const auto error = [](const std::string& text) { return grammar_error([&] { grammar_from_gbnf(text); }); };
  std::string deep = "\"a\"";
  for (int i = 0; i < 150; ++i) deep = "(" + deep + ")" + std::string(150, '*');
  CHECK_THAT(error("root ::= " + deep), contains("nested more than 1000 deep"));
}

TEST_CASE("errors in grammars name line and column", "[gbnf]") {
  const auto error = [](std::string_view text) { return grammar_error([&] { grammar_from_gbnf(text, "g.gbnf"); }); };
  CHECK(error("root = \"a\"") ==
        "g.gbnf: grammar, line 1, column 6: expected \"::=\" after the rule's name, at \"= \\\"a\\\"\"");
  CHECK(error("root ::= \"é\" x\n\nx ::= [a-z\n") ==
        "g.gbnf: grammar, line 3, column 7: this bracket is never closed, at \"[a-z\"");
  CHECK(error("root ::= \"é\" y") == "g.gbnf: grammar, line 1, column 14: the rule \"y\" is not defined, at \"y\"");
  CHECK_THAT(error("root ::= \"a\"\nroot ::= \"b\""),
             contains("line 2, column 1: the rule \"root\" is defined twice, first in line 1"));
  CHECK_THAT(error("x ::= \"a\""), contains("there is no rule \"root\""));
  CHECK_THAT(error(""), contains("there is no rule \"root\""));
  CHECK_THAT(error("root ::= \"a"), contains("line 1, column 10: this quote is never closed"));
  CHECK_THAT(error("root ::= \"\\q\""), contains("column 11: this is not an escape of grammars"));
  CHECK_THAT(error("root ::= \"\\u12\""), contains("takes 4 hexadecimal digits"));
  CHECK_THAT(error("root ::= \"\\uD800\""), contains("not the number of a Unicode character"));
  CHECK_THAT(error("root ::= [z-a]"), contains("ends before it begins"));
  CHECK_THAT(error("root ::= []"), contains("a class without characters"));
  CHECK_THAT(error("root ::= *"), contains("nothing to repeat"));
  CHECK_THAT(error("root ::= \"a\"{3,2}"), contains("at most 2 but at least 3 times"));
  CHECK_THAT(error("root ::= \"a\"{x}"), contains("expected a number of repetitions"));
  CHECK_THAT(error("root ::= \"a\"{99999999999}"), contains("more than 1000000000 repetitions"));
  CHECK_THAT(error("root ::= (\"a\""), contains("expected \")\""));
  CHECK_THAT(error("root ::= \"a\")"), contains("this parenthesis closes nothing"));
  CHECK_THAT(error("root ::= \"a\" ?= 3"), contains("expected an item, or the end of the line"));
  CHECK_THAT(error("root ::= \"\xff\""), contains("this is not UTF-8"));
  CHECK_THAT(error("root ::= <think> .*"), contains("column 10: tokens in grammars are not supported"));
  CHECK_THAT(error("root ::= !<[12]>"), contains("tokens in grammars are not supported"));
  CHECK_THAT(error("root ::= " + std::string(1000, '(')), contains("nested more than 200 deep"));
  CHECK_THAT(error("root ::= root \"a\" | \"b\""), contains("left recursion (root, line 1 -> root, line 1)"));
  CHECK_THAT(error("root ::= x? y\ny ::= x* root \"a\" | \"c\"\nx ::= \"x\""),
             contains("left recursion (root, line 1 -> y, line 2 -> root"));
  CHECK_THAT(error("root ::= \"(\" root \")\""), contains("no finite text matches"));
  CHECK_THAT(error("root ::= \"a\" big\nbig ::= ([a-z] | [a-z]+ \"x\"){1000000}"),
             contains("more than 400000 states, most for \"big, line 2\""));
}
