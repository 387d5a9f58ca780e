#include "constrain/json_text.h"

#include <utility>

namespace llm {
namespace {

constexpr std::pair<char32_t, std::string_view> kShortEscapes[] = {
    {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"}, {'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}};

CodePoints unescaped() { return CodePoints{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}.complement(); }

CodePoints hex_digit(std::uint32_t first, std::uint32_t last) {
  CodePoints set;
  for (std::uint32_t d = first; d <= last; ++d) {
    const char32_t c = d < 10 ? U'0' + d : U'a' + d - 10;
    set.add(c, c);
    if (d >= 10) set.add(U'A' + d - 10, U'A' + d - 10);
  }
  return set;
}

}  // namespace

template <class Body>
ExprId JsonText::once(std::optional<RuleId>& rule, const char* name, const Body& body) {
  if (!rule) {
    rule = p_.declare(name);
    p_.define(*rule, body());
  }
  return p_.call(*rule);
}

ExprId JsonText::space() {
  return once(space_, "white space", [&] {
    const ExprId indentation = p_.repeat(p_.characters({{' ', ' '}, {'\t', '\t'}}), 0, 20);
    return p_.optional(p_.choice({p_.literal(" "), p_.sequence({p_.literal("\n"), indentation})}));
  });
}

ExprId JsonText::string() {
  return once(string_, "string", [&] { return quoted(p_.repeat(any_character(), 0, kUnbounded)); });
}

ExprId JsonText::value() {
  return once(value_, "value", [&] {
    return p_.choice({object(), array(), string(), number(), boolean(), p_.literal("null")});
  });
}

ExprId JsonText::object() {
  return once(object_, "object", [&] {
    const ExprId member = p_.sequence({string(), colon(), value()});
    const ExprId more = p_.repeat(p_.sequence({comma(), member}), 0, kUnbounded);
    return bracketed("{", p_.optional(p_.sequence({member, more, space()})), "}");
  });
}

ExprId JsonText::array() {
  return once(array_, "array", [&] {
    const ExprId more = p_.repeat(p_.sequence({comma(), value()}), 0, kUnbounded);
    return bracketed("[", p_.optional(p_.sequence({value(), more, space()})), "]");
  });
}

ExprId JsonText::bracketed(std::string_view open, ExprId items, std::string_view close) {
  return p_.sequence({p_.literal(open), space(), items, p_.literal(close)});
}

ExprId JsonText::boolean() { return p_.choice({p_.literal("true"), p_.literal("false")}); }

ExprId JsonText::digit(char first, char last) {
  return p_.characters({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

ExprId JsonText::digits(std::uint64_t min, std::uint64_t max) { return p_.repeat(digit('0', '9'), min, max); }

ExprId JsonText::integer() {
  return once(integer_, "integer", [&] {
    return p_.sequence(
        {p_.optional(p_.literal("-")), p_.choice({p_.literal("0"), p_.sequence({digit('1', '9'), digits(0, 15)})})});
  });
}

/// No number is beyond doubles, the largest of which is 1.79e308: 16 digits before the point leave 292 for the
/// exponent.
ExprId JsonText::number() {
  return once(number_, "number", [&] {
    const ExprId fraction = p_.optional(p_.sequence({p_.literal("."), digits(1, 16)}));
    const auto with_exponent = [&](ExprId whole, ExprId hundreds) {
      const ExprId e =
          p_.sequence({p_.characters({{'E', 'E'}, {'e', 'e'}}), p_.optional(p_.characters({{'+', '+'}, {'-', '-'}})),
                       p_.choice({digits(1, 2), p_.sequence({digit('0', '1'), digits(2, 2)}), hundreds})});
      return p_.sequence({whole, fraction, p_.optional(e)});
    };
    const ExprId below_293 = p_.choice({p_.sequence({p_.literal("2"), digit('0', '8'), digit('0', '9')}),
                                        p_.sequence({p_.literal("29"), digit('0', '2')})});
    const ExprId below_308 =
        p_.choice({p_.sequence({p_.literal("2"), digits(2, 2)}), p_.sequence({p_.literal("30"), digit('0', '7')})});
    return p_.sequence({p_.optional(p_.literal("-")),
                        p_.choice({with_exponent(digit('0', '9'), below_308),
                                   with_exponent(p_.sequence({digit('1', '9'), digits(1, 15)}), below_293)})});
  });
}

/// Numbers first to last as n hexadecimal digits.
ExprId JsonText::hex_digits(std::uint32_t first, std::uint32_t last, int n) {
  const std::uint32_t low = (std::uint32_t{1} << (4 * (n - 1))) - 1;  // of the digits behind the first
  const auto leading = [&](std::uint32_t from, std::uint32_t to) { return p_.characters(hex_digit(from, to)); };
  if (n == 1) return leading(first, last);
  std::uint32_t a = first >> (4 * (n - 1)), b = last >> (4 * (n - 1));
  if (a == b) return p_.sequence({leading(a, a), hex_digits(first & low, last & low, n - 1)});
  std::vector<ExprId> parts;
  if ((first & low) != 0) {
    parts.push_back(p_.sequence({leading(a, a), hex_digits(first & low, low, n - 1)}));
    ++a;
  }
  if ((last & low) != low) {
    parts.push_back(p_.sequence({leading(b, b), hex_digits(0, last & low, n - 1)}));
    --b;
  }
  if (a <= b) parts.push_back(p_.sequence({leading(a, b), hex_digits(0, low, n - 1)}));
  return p_.choice(std::move(parts));
}

ExprId JsonText::any_character() {
  if (!any_character_) {
    const ExprId basic = p_.choice({hex_digits(0, 0xd7ff, 4), hex_digits(0xe000, 0xffff, 4)});
    const ExprId pair = p_.sequence({hex_digits(0xd800, 0xdbff, 4), p_.literal("\\u"), hex_digits(0xdc00, 0xdfff, 4)});
    const CodePoints after_backslash{{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                     {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    const ExprId escape =
        p_.choice({p_.characters(after_backslash), p_.sequence({p_.literal("u"), p_.choice({basic, pair})})});
    any_character_ = p_.choice({p_.characters(unescaped()), p_.sequence({p_.literal("\\"), escape})});
  }
  return *any_character_;
}

ExprId JsonText::character(const CodePoints& set) {
  std::vector<ExprId> spellings;
  if (const CodePoints plain = set.intersection(unescaped()); !plain.empty()) spellings.push_back(p_.characters(plain));
  for (const auto& [c, escape] : kShortEscapes) {
    if (set.contains(c)) spellings.push_back(p_.literal(escape));
  }
  for (char32_t c = 0; c < 0x20; ++c) {
    bool is_short = false;
    for (const auto& [other, escape] : kShortEscapes) is_short |= c == other;
    if (set.contains(c) && !is_short) spellings.push_back(p_.sequence({p_.literal("\\u00"), hex_digits(c, c, 2)}));
  }
  return p_.choice(std::move(spellings));
}

ExprId JsonText::content(std::string_view utf8) {
  std::vector<ExprId> items;
  for (std::size_t at = 0; at < utf8.size();) {
    const Character c = character_at(utf8, at);
    items.push_back(character(CodePoints::one(c.code)));
    at += c.bytes;
  }
  return p_.sequence(std::move(items));
}

}  // namespace llm
