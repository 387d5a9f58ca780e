// Where errors point, and what a hostile template can use up.
#include "render.h"

using namespace llm;
using namespace llm::test;

namespace {

std::string repeated(const std::string& text, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("errors name line and column, counted in characters, and show the line's text", "[errors]") {
  const auto at = [](const std::string& source, const std::string& place, const std::string& problem) {
    const std::string error = error_of(source, R"({"d": {"k": 1}, "l": [1]})");
    INFO(error);
    CHECK(error.starts_with(place + ": "));
    CHECK(error.find(problem) != std::string::npos);
  };
  at("{{ x.y }}", "line 1, column 5", "'x' is undefined");
  at("a\nb\n  {{ d.nope.y }}", "line 3, column 12", "no attribute 'nope'");
  at("äöü🎉{{ 1 // 0 }}", "line 1, column 10", "division by zero");
  at("\r\n\r\n{{ l|nosuch }}", "line 3, column 6", "there is no filter named 'nosuch'");
  at("{{ l is nosuch }}", "line 1, column 9", "there is no test named 'nosuch'");
  at("{% if d %}\nx", "line 2, column 2", "looking for 'elif' or 'else' or 'endif'");
  at("{% if d == ‘k’ %}{% endif %}", "line 1, column 12", "unexpected character '‘' (U+2018)");
  at("{{ d\u200b }}", "line 1, column 5", "' (U+200B)");
  at("{{ ﬁ }}", "line 1, column 4", "the name 'ﬁ' is not supported, because it is not in Unicode's form NFKC");
  at("{{ dict(ｘ=1) }}", "line 1, column 9", "the name 'ｘ' is not supported");
  at("{{ (1 + 2 }}", "line 1, column 11", "unexpected '}', expected ')'");
  at("{% foo %}", "line 1, column 4", "unknown tag 'foo'");
  at("{% include 'x' %}", "line 1, column 4", "is not for chat templates");
  at("{{ ~ }}", "line 1, column 4", "unexpected '~', expected an expression");
  at("x\n{# y", "line 2, column 1", "missing end of comment");
  at("{{ 'abc }}", "line 1, column 4", "this string does not end");
  at("{{ l[0]('x') }}", "line 1, column 8", "'int' object is not callable");
  at("{% macro f(a) %}{{ a + 1 }}{% endmacro %}\n{{ f('x') }}", "line 1, column 22", "unsupported operand types for +");
  at("{{ 'abc'.encode() }}", "line 1, column 16", "this method of Python's is not supported");
  at("{{ 'abc'.translate({}) }}", "line 1, column 19", "this method of Python's is not supported");
  at("{{ (5).to_bytes(2) }}", "line 1, column 16", "this method of Python's is not supported");
  at("{{ raise_exception('Roles must alternate: ' ~ l) }}", "line 1, column 19", "Roles must alternate: [1]");
}

TEST_CASE("whether a macro has varargs goes by the order of Jinja's nodes", "[errors]") {
  // As Jinja 3.1.6: the condition of a loop comes behind its body, the filter of a block too, a target before all.
  const std::string head = "{% macro m() %}", tail = "{% endmacro %}{{ m(2) }}";
  CHECK(text_of(head + "{% for x in [1] if varargs %}{{ x }}{% endfor %}" + tail) == "1");
  for (const std::string& body :
       std::vector<std::string>{"{% for x in [1] if varargs %}{% set varargs = 0 %}{{ x }}{% endfor %}",
                                "{% for varargs in varargs %}{{ varargs }}{% endfor %}",
                                "{% filter replace(varargs|string, 'b') %}{% set varargs = 0 %}x{% endfilter %}"}) {
    INFO(body);
    CHECK(error_of(head + body + tail).find("macro 'm' takes not more than 0 argument") != std::string::npos);
  }
}

TEST_CASE("errors name the template, excerpt the line and never pass control characters on", "[errors]") {
  try {
    jinja::Template("first\nsecond \x1b {{ a b }} third", {"model.gguf", "key \"tokenizer.chat_template\""});
    FAIL("parsed");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) ==
          "model.gguf: key \"tokenizer.chat_template\", line 2, column 15: unexpected 'b', expected end of the print "
          "statement; at \"second \\x1b {{ a b }} third\"");
  }
  const std::string secret = error_of("{{ raise_exception(x) }}", "{\"x\": \"\\u001b[31m\"}");
  CHECK(secret.find('\x1b') == std::string::npos);
}

TEST_CASE("what hostile templates are for ends in an error", "[limits]") {
  const auto limited = [](const std::string& source) {
    const std::string error = error_of(source, R"({"messages": [{"role": "user", "content": "x"}]})");
    INFO(source.substr(0, 200));
    CHECK(error.find("template limit") != std::string::npos);
    CHECK(error.size() < 1000);
  };
  limited("{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}");
  // Long keys of equal dicts are read whenever those are compared.
  limited(
      "{% set s = 'x' * 8000000 %}{% set a = {s: 1} %}{% set b = {s: 1} %}"
      "{% for i in range(1000) %}{% if a == b %}{% endif %}{% endfor %}");
  limited("{% macro x() %}{{ caller is defined }}{% call x() %}{% endcall %}{% endmacro %}{{ x() }}");
  limited("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  limited("{% for i in range(1000000000) %}a{% endfor %}");
  limited("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
  limited("{{ " + std::string(100'000, '('));
  limited("{{ " + std::string(100'000, '['));
  limited("{{ " + repeated("{1:", 100'000));
  limited("{{ " + repeated("not ", 100'000) + "1 }}");
  limited("{{ " + repeated("-", 100'000) + "1 }}");
  limited("{{ 1" + repeated(" + 1", 100'000) + " }}");
  limited("{{ x" + repeated(".y", 100'000) + " }}");
  limited("{{ x" + repeated("|upper", 100'000) + " }}");
  limited("{{ 1" + repeated(" if 1 else 1", 100'000) + " }}");
  limited(repeated("{% if true %}", 100'000));
  limited(repeated("{% for x in y %}", 100'000));
  limited("{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}");
  limited("{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
  limited("{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}");
  limited(
      "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson "
      "}}");
  limited(
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(64) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] "
      "%}"
      "{% endfor %}{{ n.a == n.b }}");
  limited(
      "{% set n = namespace(a=(1,)) %}{% for i in range(64) %}{% set n.a = (n.a, n.a) %}{% endfor %}{{ {n.a: 1} }}");
  limited("{% set ns = namespace(s=[]) %}{% for i in range(1000) %}{% set ns.s = [ns.s] %}{% endfor %}");
  limited("{% set ns = namespace(s=[]) %}{% for i in range(1000) %}{% set ns.s = ns.s|map('upper') %}{% endfor %}");
  limited(
      "{% set ns = namespace(s=1) %}{% for i in range(1000) %}{% set ns.s = []|map('default', ns.s) %}{% endfor %}");
  limited(
      "{% set ns = namespace() %}{% for i in range(1000) %}{% set ns = namespace(x=ns) %}{% set m = ns %}{% endfor "
      "%}{{ m }}"
      "{% set ns.l = namespace() %}{% set k = namespace(x=ns) %}{% for i in range(1000) %}{% set k.x = [k.x] %}{% "
      "endfor %}");
  limited("{{ 'x' * 99999999 }}");
  limited("{{ 'x'.ljust(99999999) }}");
  limited("{{ '%99999999d' % 1 }}");
  limited("{{ '{:99999999}'.format(1) }}");
  limited("{{ ('x' * 9999999).replace('', 'yyyyyyyyy') }}");
  limited("{{ 9 ** (9 ** 9) }}");
  limited("{{ (9 ** 9) ** 9999 }}");
  limited("{{ 1" + repeated("0", 5000) + " }}");
  limited("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}");
  limited(std::string(5u << 20, 'x'));
}

TEST_CASE("what costs time or memory counts as steps", "[limits]") {
  const auto limited = [](const std::string& source) {
    const std::string error = error_of(source, R"({"messages": [{"role": "user", "content": "x"}]})");
    INFO(source.substr(0, 200));
    CHECK(error.find("template limit") != std::string::npos);
    CHECK(error.size() < 1000);
  };
  const auto for_ever = [](const std::string& before, const std::string& condition) {
    return before + "{% for i in range(99999) %}{% for j in range(99999) %}{% if " + condition +
           " %}{% endif %}{% endfor %}{% endfor %}";
  };
  const std::string two_texts = "{% set a = 'x' * 8000000 %}{% set b = 'x' * 8000000 %}";
  const std::string two_lists = "{% set a = [1] * 900000 %}{% set b = [1] * 900000 %}";
  // Expressions, and the integers in them.
  limited(for_ever("", "[" + repeated("1,", 300'000) + "]"));
  limited(for_ever("{% set a = 7 ** 2400 %}", "a * a" + repeated(" + a * a", 200)));
  limited(for_ever("{% set a = 7 ** 4900 %}", "a // 7" + repeated(" + a // 7", 200)));
  // Reading texts and lists.
  for (const char* condition : {"a == b", "a < b", "a.isascii()", "a is lower", "a.center(1)", "a.startswith(b)"}) {
    limited(for_ever(two_texts, condition));
  }
  limited(for_ever(two_texts + "{% set d = {a: 1} %}", "d[b]"));
  limited(for_ever(two_texts, "'%.0s%.0s' % (a, b)"));
  limited("{{ ('%.0s' * 400000) % (('x' * 8000000,) * 400000) }}");
  for (const char* condition : {"a == b", "a|min", "a|sum"}) limited(for_ever(two_lists, condition));
  limited(for_ever("{% set t = ('b',) * 900000 %}", "'a'.startswith(t)"));
  // Many pieces of one text.
  limited("{{ (',' * 16000000).split(',') }}");
  limited("{{ (' x' * 8000000).rsplit() }}");
  limited("{{ ('\\n' * 16000000)|indent|length }}");
  limited("{{ ((messages[0].content ~ 'y') * 8000000)|length }}");
  // Names and variables.
  std::string parameters, keywords, variables, more_names;
  for (int i = 0; i < 9000; ++i) {
    parameters += "a" + std::to_string(i) + ",";
    keywords += "a" + std::to_string(i) + "=1,";
    variables += "{% set a" + std::to_string(i) + " = 1 %}";
    more_names += "{{ b" + std::to_string(i) + " }}";
  }
  limited("{% macro f(" + parameters + "b) %}{% endmacro %}");
  limited("{{ f(" + keywords + "b=1) }}");
  limited("{{ dict(**dict(range(600)|map('string')|batch(2))) }}");
  limited("{{ " + std::string(2000, 'a') + " }}");
  limited(variables + repeated("{% if x %}", 100) + more_names);
  limited(for_ever(
      "{% macro f() %}{% if false %}" + variables + "{% endif %}{% macro g() %}{% endmacro %}{% endmacro %}", "f()"));
  limited(for_ever("", "true %}{% endif %}{% if false %}" + variables + "{% endif %}{% if true"));
  // Characters to strip, digits to group: these are quick.
  CHECK(text_of("{{ ('a' * 4000000).strip('b' * 4000000 ~ 'a') }}").empty());
  CHECK(text_of("{{ '{:01000000,}'.format(1)|length }}") == "1000001");
  CHECK(text_of("{{ '{:010,}|{:011,}|{:012,}|{:06_x}'.format(1, 1, 1, 1) }}") ==
        "00,000,001|000,000,001|0,000,000,001|0_0001");
}

TEST_CASE("changes of who wrote a text cost time and memory, too", "[limits]") {
  const auto limited = [](const std::string& source) {
    const std::string error = error_of(source, R"({"messages": [{"role": "user", "content": "x"}]})");
    CHECK(error.find("template limit") != std::string::npos);
  };
  const auto doubled = [](const std::string& first, int times) {
    return "{% set ns = namespace(s=" + first + ", l=[]) %}{% for i in range(" + std::to_string(times) +
           ") %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
  };
  const std::string mixed = doubled("messages[0].content ~ 'y'", 19), all_its_own = doubled("'xy'", 19);
  for (const std::string repeated : {"{% set ns.l = ns.l + [ns.s ~ 'a'] %}", "{% set t = ns.s|upper %}",
                                     "{% set t = ns.s|reverse %}", "{% set t = ns.s[1:] %}"}) {
    CAPTURE(repeated);
    const std::string often = "{% for i in range(100) %}" + repeated + "{% endfor %}";
    limited(mixed + often);
    CHECK(text_of(all_its_own + often + "{{ ns.s|length }}") == "1048576");
  }
  limited(mixed + "{{ ([ns.s] * 10)|join }}");
}

TEST_CASE("numbers at the ends of 64 bits", "[limits]") {
  CHECK(text_of("{{ 'abc'.zfill(-9223372036854775807) }}") == "abc");
  CHECK(text_of("{{ 'hello big world'|truncate(9223372036854775807) }}") == "hello big world");
  CHECK(text_of("{{ range(0, 9000000000000000000, 4000000000000000000)[1:2] }}") ==
        "range(4000000000000000000, 8000000000000000000, 4000000000000000000)");
  for (const char* source :
       {"{{ '%*d' % (-9223372036854775807 - 1, 3) }}", "{{ 1|round(-9223372036854775807, 'ceil') }}",
        "{{ range(0, 9000000000000000000, 4000000000000000000)[3:] }}"}) {
    CHECK(error_of(source).find("template limit") != std::string::npos);
  }
}

TEST_CASE("limits can be set, and what stays below them renders", "[limits]") {
  const jinja::Limits few{.steps = 100};
  CHECK(error_of("{% for i in range(100) %}x{% endfor %}", "{}", few).find("steps") != std::string::npos);
  CHECK(render("{% for i in range(20) %}x{% endfor %}", "{}", few).text == std::string(20, 'x'));
  // Each power asks whether all that is left of it is constant.
  const std::string powers = "{{ [" + repeated("1,", 1000) + "]|length" + repeated(" ** a", 400) + " }}";
  const jinja::Limits some{.steps = 1000};
  CHECK(error_of(powers, R"({"a": 1})", some).find("steps") != std::string::npos);
  CHECK(render(powers, R"({"a": 1})").text == "1000");
  const jinja::Limits small{.output_bytes = 10};
  CHECK(error_of("{{ 'x' * 11 }}", "{}", small).find("output") != std::string::npos);
  CHECK(render("{{ 'x' * 10 }}", "{}", small).text == "xxxxxxxxxx");
  CHECK(text_of("{{ " + repeated("(", 100) + "1" + repeated(")", 100) + " }}") == "1");
  CHECK(text_of("{{ 0" + repeated(" + 1", 400) + " }}") == "400");
  CHECK(text_of("{% macro r(n) %}{{ n }}{% if n %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(9) }}") == "9876543210");
}

TEST_CASE("values that hold themselves go away with the rendering", "[limits]") {
  CHECK(text_of("{% set a = namespace() %}{% set a.a = a %}{{ a }}") == "<Namespace {'a': <Namespace {...}>}>");
  CHECK(text_of("{% set a = namespace() %}{% set b = namespace(a=[a]) %}{% set a.b = {'b': b} %}{{ b.a[0].b.b is "
                "defined }}") == "True");
  CHECK(text_of("{% macro f() %}{{ g is defined }}{% endmacro %}{% set g = [f] %}{{ g[0]() }}") == "True");
  CHECK(text_of("{% for x in [1] if x %}{{ loop.changed(loop) }}{% set y = loop %}{% endfor %}") == "True");
}
