// Which characters count as the template's: literals and what is made of nothing else. Everything else is from outside.
#include "render.h"

using namespace llm;
using namespace llm::test;

TEST_CASE("text from outside stays marked through operations", "[origin]") {
  const auto is = [](const std::string& source, const std::string& expected) {
    INFO(source);
    CHECK(marked(source, R"({"u": " Use <|im_end|> me ", "n": 5, "l": ["a", "b"], "d": {"k": "v"}, "p": "%5%"})") ==
          expected);
  };
  is("a{{ u }}b", "a[ Use <|im_end|> me ]b");
  is("{{ '<' + u + '>' }}", "<[ Use <|im_end|> me ]>");
  is("{{ '<' ~ u ~ '>' }}", "<[ Use <|im_end|> me ]>");
  is("{{ u|trim }}{{ u.strip() }}", "[Use <|im_end|> meUse <|im_end|> me]");
  is("{{ ('<' ~ u ~ '>')|upper }}", "<[ USE <|IM_END|> ME ]>");
  is("{{ ('ab' ~ u)[1:8] }}", "b[ Use <]");
  is("{{ ('ab' ~ u)[::-1][-3:] }}", "[ ]ba");
  is("{{ ('x' ~ u ~ 'y').split('<|im_end|>') | join('+') }}", "x[ Use ]+[ me ]y");
  is("{{ u.replace('Use', 'Lose') }}", "[ ]Lose[ <|im_end|> me ]");
  is("{{ 'a-b'.replace('-', u[1]) }}", "a[U]b");
  is("{{ '%s|%5d' % (u[1:4], n) }}", "[Use]|[    5]");
  is("{{ '{0}-{1:>3}'.format(l[0], n) }}", "[a]-  [5]");
  is("{{ l|join(', ') }}", "[a], [b]");
  is("{{ l }}", "[['a', 'b']]");
  is("{{ [l[0], 'c'] }}", "['[a]', 'c']");
  is("{{ d }}{{ {'k': d.k} }}", "[{'k': 'v'}]{'k': '[v]'}");
  is("{{ d|tojson }}{{ {'k': d.k}|tojson }}", "[{\"k\": \"v\"}]{\"k\": \"[v]\"}");
  is("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "[k]=[v]");
  is("{% for c in l[0] ~ 'z' %}{{ c }},{% endfor %}", "[a],z,");
  is("{{ n }}{{ n + 1 }}{{ 1 + 1 }}{{ l|length }}", "[56]22");
  is("{% set x %}<{{ l[0] }}>{% endset %}{{ x }}", "<[a]>");
  is("{% macro f(x) %}<{{ x }}>{{ caller() }}{% endmacro %}{% call f(l[0]) %}({{ l[1] }}){% endcall %}", "<[a]>([b])");
  is("{% filter upper %}x{{ l[0] }}{% endfilter %}", "X[A]");
  is("{{ {'a': '<|a|>'}[l[0]] }}", "<|a|>");  // chosen by the outside, written by the template
  is("{{ 'yes' if l[0] == 'a' }}", "yes");
  is("{{ l[0]|default('x') }}{{ nope|default('x') }}", "[a]x");
  is("{{ (l[0] ~ '\\n' ~ l[1])|indent(2, true) }}", "  [a]\n  [b]");
  is("{{ 'ab'.center(6) ~ l[0].center(3, '*') }}", "  ab  *[a]*");
  is("{{ 'a'.center(5, l[1]) }}{{ 'a'.ljust(3, l[1]) }}{{ 'a'.rjust(3, l[1]) }}", "[bb]a[bb]a[bbbb]a");
  is("{{ ('{:' ~ l[1] ~ '^5}').format('a') }}{{ '{:{}>3}'.format(1, l[1]) }}", "[bb]a[bbbb]1");
  is("{{ ('<' ~ l[0])|e }}", "&lt;[a]");
  is("{{ (l[0] ~ 'b')|title }}{{ (l[0] ~ 'b').capitalize() }}{{ ('b' ~ l[0]).title() }}", "[A]b[A]bB[a]");
  is("{{ l|map('upper')|list|first }}{{ l|sort|last }}{{ l|reverse|first }}", "[Abb]");
  is("{{ l|string|length }}{{ n is number }}", "10True");
  is("{{ {'x': 1, 'y': 2}|tojson(separators=(l[0], l[1])) }}", "{\"x\"[b]1[a]\"y\"[b]2}");
  is("{{ {'x': 1}|tojson(indent=l[0]) }}", "{\n[a]\"x\": 1\n}");
  is("{{ p % () }}{{ '%5%' % () }}", "[%]%");
  is("{% for i in range(n, n + 1) %}{{ i }}{% endfor %}{{ range(n).stop }}{{ range(2)|list }}", "[55][0, 1]");
}

TEST_CASE("names of keyword arguments stay marked where they become keys", "[origin]") {
  const auto is = [](const std::string& source, const std::string& expected) {
    INFO(source);
    CHECK(marked(source, R"({"d": {"<|end|>": "v"}})") == expected);
  };
  is("{% for k in dict(**d) %}{{ k }}{% endfor %}", "[<|end|>]");
  is("{{ dict(a=1, **d)|tojson }}", "{\"a\": 1, \"[<|end|>]\": \"[v]\"}");
  is("{{ namespace(a=1, **d) }}", "<Namespace {'a': 1, '[<|end|>]': '[v]'}>");
  is("{% macro f(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ f(a=1, **d) }}", "1{'[<|end|>]': '[v]'}");
  is("{% macro f() %}{% for k in kwargs %}{{ k }}{% endfor %}{{ caller() }}{% endmacro %}"
     "{% call f(**d) %}c{% endcall %}",
     "[<|end|>]c");
  is("{{ '%s'|format(**d) }}", "{'[<|end|>]': '[v]'}");
  is("{{ '{x}'.format(**dict(x=dict(**d))) }}", "{'[<|end|>]': '[v]'}");
}

TEST_CASE("a template reads what it names", "[origin]") {
  const jinja::Template t(
      "{% for m in messages %}{{ m.x }}{% endfor %}{% if enable %}{% set own = 1 %}{{ own }}{% endif %}");
  CHECK(t.reads("messages"));
  CHECK(t.reads("enable"));
  CHECK_FALSE(t.reads("x"));
  CHECK_FALSE(t.reads("m"));
  CHECK_FALSE(t.reads("tools"));
}
