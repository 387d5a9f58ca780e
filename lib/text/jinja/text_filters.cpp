// Filters on strings and numbers.
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/json.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

/// Python's str() of it, which is no Markup.
Str plain(Runtime& rt, const Value& v) { return str(rt, v).as_markup(false); }

template <Case to>
Value change(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "filter", given, {});
  return rt.string(change_case(str(rt, v), to));
}

Value capitalize(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "capitalize", given, {});
  return rt.string(capitalized(str(rt, v)));
}

/// The filter's words begin after white space, hyphens and opening brackets, unlike those of str.title.
Value title(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "title", given, {});
  const Str s = str(rt, v);
  const std::string_view view = s.view();
  const auto separates = [&](std::size_t at) {
    return std::string_view("-({[<").find(view[at]) != std::string_view::npos || is_space(character_at(view, at).code);
  };
  Str out;
  for (std::size_t at = 0; at < view.size();) {
    const bool separator = separates(at);
    std::size_t end = at;
    while (end < view.size() && separates(end) == separator) end = next_character(view, end);
    const std::size_t second = next_character(view, at);
    out.append(change_case(s.substr(at, second - at), Case::Upper));
    out.append(change_case(s.substr(second, end - second), Case::Lower));
    at = end;
  }
  return rt.string(std::move(out));
}

Value trim(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "trim", given, {"chars"});
  if (a.given(0)) (void)a.string(0);
  const Str s = str(rt, v);
  return Value::string(stripped(s, a.get(0, Value()), 3));
}

Value replace(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "replace", given, {"old", "new", "count"}, 2);
  return replaced(rt, plain(rt, v), plain(rt, a[0]), plain(rt, a[1]), a.given(2) ? a.integer(2, -1) : -1);
}

Value string(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "string", given, {});
  return v.is_string() ? v : rt.string(str(rt, v));
}

Value safe(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "safe", given, {});
  return rt.string(str(rt, v).as_markup(true));
}

Value escape(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "escape", given, {});
  return rt.string(html_escaped(str(rt, v)));
}

Value center(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "center", given, {"width"});
  return centered(rt, str(rt, v), a.integer(0, 80), Str(" "));
}

Value format(Runtime& rt, const Value& v, CallArguments& given) {
  if (given.keywords.empty()) return rt.string(printf_format(rt, str(rt, v), rt.tuple(given.positional)));
  if (!given.positional.empty()) rt.fail("format: positional and keyword arguments at the same time");
  auto named = std::make_shared<DictObject>();
  for (const auto& [key, value] : given.keywords) named->set(Value::string(key), value);
  return rt.string(printf_format(rt, str(rt, v), rt.dict(std::move(named))));
}

Value indent(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "indent", given, {"width", "first", "blank"});
  require_defined(rt, v);
  if (!v.is_string()) rt.fail("indent: a string is needed, not " + std::string(type_name(v)));
  Str indentation;
  if (a.has(0) && a[0].is_string()) {
    indentation = a[0].as_string();
  } else {
    const std::int64_t width = a.integer(0, 4);
    if (width > 10'000) rt.fail_limit("spaces of an indentation");
    indentation = Str(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
  }
  Str text = v.as_string();
  text.append("\n", Origin::Template);
  const std::vector<Value> lines = lines_of(rt, text, false);
  const bool blank = a.flag(2, false);
  Str out;
  if (a.flag(1, false)) out.append(indentation);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Str& line = lines[i].as_string();
    if (i > 0) out.append("\n", Origin::Template);
    if (i > 0 && (blank || !line.empty())) out.append(indentation);
    out.append(line);
    rt.limit_string(out);
  }
  return rt.string(std::move(out).as_markup(v.as_string().markup()));
}

Value truncate(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "truncate", given, {"length", "killwords", "end", "leeway"});
  const Str end = a.has(2) ? a.string(2) : Str("...");
  const auto end_length = static_cast<std::int64_t>(end.length());
  const std::int64_t most = a.integer(0, 255), leeway = a.given(3) ? a.integer(3, 5) : 5;
  if (most < end_length) rt.fail("truncate: length is less than that of `end`");
  if (leeway < 0) rt.fail("truncate: leeway is negative");
  const auto n = length(v);
  if (!n) rt.fail("object of type '" + std::string(type_name(v)) + "' has no len()");
  if (static_cast<std::int64_t>(*n) - leeway <= most) return v;
  if (!v.is_string()) rt.fail("truncate: a string is needed, not " + std::string(type_name(v)));
  const Str& s = v.as_string();
  Str out = s.substr(0, s.offset(static_cast<std::size_t>(most - end_length)));
  if (!a.flag(1, false)) {
    const std::size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out = out.substr(0, space);
  }
  out.append(end);
  return rt.string(std::move(out));
}

Value wordcount(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "wordcount", given, {});
  const Str s = str(rt, v);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < s.size();) {
    const Character c = character_at(s.view(), at);
    const bool word = c.code == '_' || is_alpha(c.code) || is_numeric(c.code);
    words += word && !inside ? 1 : 0;
    inside = word;
    at += c.length;
  }
  return Value::integer(words);
}

/// Bytes that are no letters, digits or `safe` as %XX; in queries a space becomes a plus.
Str url_quoted(Runtime& rt, const Value& v, bool query) {
  const Str s = str(rt, v);
  Str out;
  std::size_t at = 0;
  for (const Run& run : s.runs()) {
    std::string text;
    for (; at < run.end; ++at) {
      const auto c = static_cast<unsigned char>(s.view()[at]);
      constexpr std::string_view kSafe = "_.-~";
      if (c < 0x80 && (std::isalnum(c) != 0 || kSafe.find(static_cast<char>(c)) != std::string_view::npos ||
                       (c == '/' && !query))) {
        text += static_cast<char>(c);
      } else if (c == ' ' && query) {
        text += '+';
      } else {
        constexpr std::string_view kHex = "0123456789ABCDEF";
        text += '%';
        text += kHex[c >> 4];
        text += kHex[c & 15];
      }
    }
    out.append(text, run.origin);
  }
  return out;
}

Value urlencode(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "urlencode", given, {});
  if (v.is_string() || !is_iterable(v)) return rt.string(url_quoted(rt, v, false));
  std::vector<Value> pairs = v.is_dict() ? std::vector<Value>() : to_items(rt, v);
  if (v.is_dict()) {
    for (const auto& [key, value] : v.as<DictObject>().entries()) pairs.push_back(rt.tuple({key, value}));
  }
  Str out;
  for (const Value& pair : pairs) {
    const std::vector<Value> two = to_items(rt, pair);
    if (two.size() != 2) rt.fail("urlencode: pairs are needed");
    if (!out.empty()) out.append("&", Origin::Template);
    out.append(url_quoted(rt, two[0], true));
    out.append("=", Origin::Template);
    out.append(url_quoted(rt, two[1], true));
    rt.limit_string(out);
  }
  return rt.string(std::move(out));
}

Value xmlattr(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "xmlattr", given, {"autospace"});
  require_defined(rt, v);
  if (!v.is_dict()) rt.fail("xmlattr: a mapping is needed, not " + std::string(type_name(v)));
  Str out;
  for (const auto& [key, value] : v.as<DictObject>().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string() || key.as_string().view().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      rt.fail("xmlattr: invalid attribute name " + short_repr(key));
    }
    if (!out.empty() || a.flag(0, true)) out.append(" ", Origin::Template);
    out.append(html_escaped(key.as_string()));
    out.append("=\"", Origin::Template);
    out.append(html_escaped(str(rt, value)));
    out.append("\"", Origin::Template);
    rt.limit_string(out);
  }
  return rt.string(std::move(out));
}

Value to_integer(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "int", given, {"default", "base"});
  require_defined(rt, v);
  const Value fallback = a.get(0, Value::integer(0));
  std::optional<double> real;
  if (v.is_integer()) return v.is(Kind::Bool) ? Value::integer(v.as_int(), v.origin()) : v;
  const Origin origin = v.is_string() ? v.as_string().origin() : v.origin();
  if (v.is_string()) {
    const std::int64_t base = a.integer(1, 10);
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const auto n = parse_integer(v.as_string().view(), static_cast<int>(base))) return Value::integer(*n, origin);
    }
    real = parse_float(v.as_string().view());
  } else if (v.is(Kind::Float)) {
    real = v.as_float();
  }
  if (!real || !std::isfinite(*real)) return fallback;
  return Value::integer(mpz_class(std::trunc(*real)), origin);
}

Value to_float(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "float", given, {"default"});
  require_defined(rt, v);
  if (v.is_number()) return Value::real(to_double(rt, v), v.origin());
  if (v.is_string()) {
    if (const auto f = parse_float(v.as_string().view())) return Value::real(*f, v.as_string().origin());
  }
  return a.get(0, Value::real(0));
}

Value absolute(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "abs", given, {});
  require_defined(rt, v);
  if (!v.is_number()) rt.fail("bad operand type for abs(): '" + std::string(type_name(v)) + "'");
  if (v.is(Kind::Float)) return Value::real(std::abs(v.as_float()), v.origin());
  return Value::integer(mpz_class(abs(v.as_big())), v.origin());
}

Value round_integer(const Value& v, std::int64_t decimals) {
  if (decimals >= 0) return Value::integer(v.as_big(), v.origin());
  if (decimals < -5000) return Value::integer(0, v.origin());
  mpz_class unit;
  mpz_ui_pow_ui(unit.get_mpz_t(), 10, static_cast<unsigned long>(-decimals));
  const mpz_class n = v.as_big();
  mpz_class quotient, rest;
  mpz_fdiv_qr(quotient.get_mpz_t(), rest.get_mpz_t(), n.get_mpz_t(), unit.get_mpz_t());
  const int half = cmp(mpz_class(2 * rest), unit);
  if (half > 0 || (half == 0 && mpz_odd_p(quotient.get_mpz_t()))) quotient += 1;
  return Value::integer(mpz_class(quotient * unit), v.origin());
}

Value round_to_integer(Runtime& rt, const Value& v) {
  if (v.is_integer()) return round_integer(v, 0);
  if (!std::isfinite(v.as_float())) rt.fail("cannot convert float infinity or NaN to integer");
  return Value::integer(mpz_class(std::nearbyint(v.as_float())), v.origin());
}

/// ceil and floor: of the value times 10**decimals, divided by that again.
Value round_by(Runtime& rt, const Value& v, std::int64_t decimals, bool up) {
  if (decimals < -400 || decimals > 400) rt.fail_limit("decimals");
  const Value unit = binary(rt, BinaryOp::Pow, Value::integer(10), Value::integer(decimals));
  const Value scaled = binary(rt, BinaryOp::Mul, v, unit);
  Value whole = scaled;
  if (scaled.is(Kind::Float)) {
    if (!std::isfinite(scaled.as_float())) rt.fail("cannot convert float infinity or NaN to integer");
    whole = Value::integer(mpz_class(up ? std::ceil(scaled.as_float()) : std::floor(scaled.as_float())), v.origin());
  }
  return binary(rt, BinaryOp::Div, whole, unit);
}

Value round(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "round", given, {"precision", "method"});
  const std::string method = a.has(1) ? str(rt, a[1]).bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    rt.fail("round: method must be common, ceil or floor");
  require_defined(rt, v);
  if (!v.is_number()) rt.fail("round: a number is needed, not " + std::string(type_name(v)));
  if (method != "common") return round_by(rt, v, a.integer(0, 0), method == "ceil");
  if (a.has(0) && a[0].is_none()) return round_to_integer(rt, v);
  const std::int64_t decimals = a.integer(0, 0);
  if (v.is_integer()) return round_integer(v, decimals);
  const double r = rounded(v.as_float(), static_cast<int>(std::clamp<std::int64_t>(decimals, -400, 400)));
  if (std::isinf(r) && std::isfinite(v.as_float())) rt.fail("rounded value too large to represent");
  return Value::real(r, v.origin());
}

Value filesizeformat(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "filesizeformat", given, {"binary"});
  require_defined(rt, v);
  const auto number = v.is_string()   ? parse_float(v.as_string().view())
                      : v.is_number() ? std::optional(to_double(rt, v))
                                      : std::nullopt;
  if (!number) rt.fail("filesizeformat: a number is needed");
  const bool binary_units = a.flag(0, false);
  const double base = binary_units ? 1024 : 1000;
  const Origin origin = v.is_string() ? v.as_string().origin() : v.origin();
  if (*number == 1) return rt.string("1 Byte", origin);
  if (*number < base) {
    if (!std::isfinite(*number)) rt.fail("cannot convert float infinity to integer");
    return rt.string(mpz_class(std::trunc(*number)).get_str() + " Bytes", origin);
  }
  constexpr std::array kPrefixes{"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base;
  std::size_t i = 0;
  for (; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (*number < unit) break;
  }
  i = std::min(i, kPrefixes.size() - 1);
  const std::string prefix = binary_units && i == 0 ? "K" : kPrefixes[i];
  const double shown = base * *number / unit;
  const std::string digits = std::isfinite(shown) ? fixed_digits(shown, 1) : float_text(shown);
  return rt.string(digits + " " + prefix + (binary_units ? "iB" : "B"), origin);
}

Value tojson(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = a.flag(0, false);
  if (a.given(1)) {
    if (a[1].is_string()) {
      style.indent = a[1].as_string();
    } else {
      const std::int64_t width = a.integer(1, 0);
      if (width > 1000) rt.fail_limit("spaces of an indentation");
      style.indent = Str(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
    }
    style.item_separator = Str(",");
  }
  if (a.given(2)) {
    const std::vector<Value> two = to_items(rt, a[2]);
    if (two.size() != 2 || !two[0].is_string() || !two[1].is_string())
      rt.fail("tojson: separators must be two strings");
    style.item_separator = two[0].as_string();
    style.key_separator = two[1].as_string();
  }
  style.sort_keys = a.flag(3, false);
  return rt.string(to_json(rt, v, style));
}

}  // namespace

std::span<const detail::FilterRow> detail::text_filters() {
  static constexpr FilterRow kRows[] = {
      {"abs", absolute},
      {"capitalize", capitalize},
      {"center", center},
      {"e", escape},
      {"escape", escape},
      {"filesizeformat", filesizeformat},
      {"float", to_float},
      {"forceescape", escape},
      {"format", format},
      {"indent", indent},
      {"int", to_integer},
      {"lower", change<Case::Lower>},
      {"replace", replace},
      {"round", round},
      {"safe", safe},
      {"string", string},
      {"title", title},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", change<Case::Upper>},
      {"urlencode", urlencode},
      {"wordcount", wordcount},
      {"xmlattr", xmlattr},
  };
  return kRows;
}

}  // namespace llm::jinja
