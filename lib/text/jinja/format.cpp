#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja/attributes.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

constexpr int kMaxWidth = 1 << 20;

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

/// A number in `text` at `at`, which moves behind it.
int read_number(Runtime& rt, std::string_view text, std::size_t& at) {
  int n = 0;
  for (; at < text.size() && is_ascii_digit(text[at]); ++at) {
    n = n * 10 + (text[at] - '0');
    if (n > kMaxWidth) rt.fail_limit("widths of formatted values");
  }
  return n;
}

std::string grouped(std::string_view digits, char separator, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

/// %g: the shorter of fixed and scientific, without the zeros at the end unless `alternate`.
std::string general_digits(double f, int precision, bool alternate, bool with_point) {
  precision = std::max(precision, 1);
  const std::string scientific = exponent_digits(f, precision - 1);
  const std::size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  // Without a type, a value as long as the precision has a form with an exponent, so that it can show ".0".
  const bool fixed = exponent >= -4 && exponent < (with_point ? precision - 1 : precision);
  std::string digits = fixed ? fixed_digits(f, std::max(precision - 1 - exponent, 0)) : scientific.substr(0, e);
  if (!alternate && digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
  }
  if (fixed && with_point && digits.find('.') == std::string::npos) digits += ".0";
  return fixed ? digits : digits + scientific.substr(e);
}

std::string with_point(std::string digits) {
  if (digits.find('.') == std::string::npos) digits.insert(std::min(digits.find('e'), digits.size()), ".");
  return digits;
}

std::string float_digits(double f, const NumberStyle& style) {
  const char type = style.type == 0 || style.type == 'n' ? 'g' : style.type;
  const int precision = style.precision < 0 ? 6 : style.precision;
  std::string digits;
  switch (type | 0x20) {
    case 'f':
      digits = fixed_digits(f, precision);
      break;
    case 'e':
      digits = exponent_digits(f, precision);
      break;
    case '%' | 0x20:
      digits = fixed_digits(f * 100, precision);
      break;
    default:
      if (style.type == 0 && style.precision < 0) return float_text(std::abs(f));
      digits = general_digits(f, precision, style.alternate, style.type == 0);
  }
  return style.alternate ? with_point(std::move(digits)) : digits;
}

// ---- text % values

class Printf {
 public:
  Printf(Runtime& rt, const Str& format, const Value& values) : rt_(rt), format_(format), values_(values) {}

  Str run() {
    const std::string_view text = format_.view();
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t percent = std::min(text.find('%', at), text.size());
      out_.append(format_, at, percent - at);
      at = percent;
      if (at < text.size()) conversion(++at);
      rt_.require_string(out_.size() - done_);
      done_ = out_.size();
    }
    const bool mapping =
        values_.is(Kind::List) || values_.is_dict() || values_.is(Kind::Range) || values_.is_undefined();
    const std::size_t given = values_.is(Kind::Tuple) ? values_.items().size() : 1;
    if (!mapping && !named_ && used_ < given) rt_.fail("not all arguments converted during string formatting");
    return std::move(out_).as_markup(format_.markup());
  }

 private:
  struct Flags {
    bool left = false, plus = false, space = false, alternate = false, zero = false;
    int width = 0, precision = -1;
  };

  Value next() {
    if (named_) return *named_;
    if (!values_.is(Kind::Tuple)) {
      if (used_++ > 0) rt_.fail("not enough arguments for format string");
      return values_;
    }
    if (used_ >= values_.items().size()) rt_.fail("not enough arguments for format string");
    return values_.items()[used_++];
  }

  int count(std::size_t& at) {
    if (format_.view()[at] != '*') return read_number(rt_, format_.view(), at);
    ++at;
    const Value n = next();
    if (!n.is_integer()) rt_.fail("* wants int");
    const std::int64_t width = as_index(rt_, n, "a width");
    if (width < -kMaxWidth || width > kMaxWidth) rt_.fail_limit("widths of formatted values");
    return static_cast<int>(width);
  }

  char peek(std::size_t at) const {
    if (at >= format_.size()) rt_.fail("incomplete format");
    return format_.view()[at];
  }

  void name(std::size_t& at) {
    named_.reset();
    if (peek(at) != '(') return;
    int open = 1;
    std::size_t end = at + 1;
    for (; open > 0; ++end) {
      const char c = peek(end);
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (!values_.is_dict()) rt_.fail("format requires a mapping");
    const Value key = Value::string(format_.view().substr(at + 1, end - at - 2));
    const Value* found = values_.as<DictObject>().find(key);
    if (found == nullptr) rt_.fail("format: the mapping has no key " + short_repr(key));
    named_ = *found;
    at = end;
  }

  void conversion(std::size_t& at) {
    if (peek(at) == '%') {
      out_.append(format_, at++, 1);
      return;
    }
    name(at);
    Flags f;
    for (bool more = true; more;) {
      switch (peek(at)) {
        case '-':
          f.left = true;
          break;
        case '+':
          f.plus = true;
          break;
        case ' ':
          f.space = true;
          break;
        case '#':
          f.alternate = true;
          break;
        case '0':
          f.zero = true;
          break;
        default:
          more = false;
      }
      if (more) ++at;
    }
    f.width = count(at);
    if (f.width < 0) f.left = true;
    f.width = std::abs(f.width);
    if (peek(at) == '.') {
      ++at;
      (void)peek(at);
      f.precision = std::max(count(at), 0);
    }
    while (peek(at) == 'h' || peek(at) == 'l' || peek(at) == 'L') ++at;
    const char type = peek(at++);
    if (type == '%') {
      out_.append(format_, at - 1, 1);
      return;
    }
    convert(type, f, next());
  }

  void convert(char type, const Flags& f, const Value& v) {
    rt_.step();
    rt_.charge_reading(v);
    switch (type) {
      case 's':
        return text(str(rt_, v), f);
      case 'r':
        return text(repr(rt_, v), f);
      case 'a':
        return text(ascii(rt_, v), f);
      case 'c':
        return text(character(v), f);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return number(integer(type, f, v), f, v.origin());
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return number(real(type, f, v), f, v.origin());
      default:
        rt_.fail("unsupported format character '" + escaped(std::string(1, type)) + "'");
    }
  }

  Str character(const Value& v) {
    if (v.is_string() && v.as_string().length() == 1) return v.as_string();
    if (!v.is_integer()) rt_.fail("%c requires int or char");
    std::string out;
    const std::int64_t code = as_index(rt_, v, "%c");
    if (code < 0 || code > 0x10ffff) rt_.fail("%c arg not in range(0x110000)");
    append_utf8(out, static_cast<std::int32_t>(code));
    return Str(out, v.origin());
  }

  NumberStyle style(char type, const Flags& f) const {
    return {.type = type,
            .precision = f.precision,
            .sign = f.plus    ? '+'
                    : f.space ? ' '
                              : '-',
            .alternate = f.alternate};
  }

  NumberText integer(char type, const Flags& f, const Value& v) {
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!v.is_number() || (v.is(Kind::Float) && !decimal)) {
      require_defined(rt_, v);
      rt_.fail(std::string("%") + type + " format: a number is required, not " + std::string(type_name(v)));
    }
    Value whole = v;
    if (v.is(Kind::Float)) {
      if (!std::isfinite(v.as_float())) rt_.fail("cannot convert float infinity or NaN to integer");
      whole = Value::integer(mpz_class(std::trunc(v.as_float())));
    }
    NumberStyle s = style(decimal ? 'd' : type, f);
    s.precision = -1;
    NumberText n = format_integer(rt_, whole, s);
    const auto least = static_cast<std::size_t>(std::max(f.precision, 0));
    if (n.digits.size() < least) n.digits.insert(0, least - n.digits.size(), '0');
    return n;
  }

  NumberText real(char type, const Flags& f, const Value& v) {
    require_defined(rt_, v);
    if (!v.is_number()) rt_.fail("must be real number, not " + std::string(type_name(v)));
    return format_float(rt_, to_double(rt_, v), style(type, f));
  }

  void text(const Str& s, const Flags& f) {
    const Str cut = f.precision < 0 ? s : s.substr(0, s.offset(static_cast<std::size_t>(f.precision)));
    const std::size_t n = cut.length(), width = static_cast<std::size_t>(f.width);
    const std::string padding(width > n ? width - n : 0, ' ');
    if (!f.left) out_.append(padding, Origin::Template);
    out_.append(format_.markup() ? html_escaped(cut) : cut);
    if (f.left) out_.append(padding, Origin::Template);
  }

  void number(NumberText n, const Flags& f, Origin origin) {
    const std::size_t size = n.prefix.size() + n.digits.size(), width = static_cast<std::size_t>(f.width);
    const std::size_t padding = width > size ? width - size : 0;
    std::string out = n.prefix;
    if (f.zero && !f.left) out.append(padding, '0');
    out += n.digits;
    if (f.left) out.append(padding, ' ');
    if (!f.left && !f.zero) out.insert(0, padding, ' ');
    out_.append(out, origin);
  }

  Runtime& rt_;
  const Str& format_;
  const Value& values_;
  Str out_;
  std::size_t used_ = 0, done_ = 0;
  std::optional<Value> named_;
};

// ---- text.format()

struct Spec {
  Str fill = Str(" ");
  char align = 0;
  bool zero = false;
  int width = 0;
  NumberStyle number;
};

void require_grouping(Runtime& rt, const NumberStyle& style) {
  if (style.grouping == 0 || style.type == 0) return;
  const std::string_view with = style.grouping == '_' ? "deEfFgG%boxX" : "deEfFgG%";
  if (with.find(style.type) != std::string_view::npos) return;
  rt.fail(std::string("Cannot specify '") + style.grouping + "' with '" + escaped(std::string(1, style.type)) + "'");
}

Spec parse_spec(Runtime& rt, const Str& text) {
  Spec spec;
  const std::string_view s = text.view();
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  std::size_t at = 0;
  const std::size_t second = s.empty() ? 0 : next_character(s, 0);
  if (second < s.size() && is_align(s[second])) {
    spec.fill = text.substr(0, second);
    spec.align = s[second];
    at = second + 1;
  } else if (!s.empty() && is_align(s[0])) {
    spec.align = s[at++];
  }
  const auto take = [&](std::string_view any) {
    const bool hit = at < s.size() && any.find(s[at]) != std::string_view::npos;
    return hit ? s[at++] : '\0';
  };
  if (const char sign = take("+- ")) spec.number.sign = sign;
  const bool coerce_zero = take("z") != 0;
  spec.number.alternate = take("#") != 0;
  if (take("0") != 0) {
    spec.zero = true;
    if (spec.align == 0) {
      spec.fill = Str("0");
      spec.align = '=';
    }
  }
  spec.width = read_number(rt, s, at);
  spec.number.grouping = take(",_");
  if (take(".") != 0) {
    if (at >= s.size() || !is_ascii_digit(s[at])) rt.fail("Format specifier missing precision");
    spec.number.precision = read_number(rt, s, at);
  }
  if (at < s.size()) spec.number.type = s[at++];
  if (at < s.size() || coerce_zero) rt.fail("Invalid format specifier");
  require_grouping(rt, spec.number);
  return spec;
}

/// `prefix` stays before the padding of align '='.
void append_aligned(const Str& prefix, const Str& body, const Spec& spec, char default_align, Str& out) {
  const std::size_t size = prefix.length() + body.length(), width = static_cast<std::size_t>(spec.width);
  const std::size_t padding = width > size ? width - size : 0;
  const char align = spec.align == 0 ? default_align : spec.align;
  const auto pad = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out.append(spec.fill);
  };
  const std::size_t left = align == '>' ? padding : align == '^' ? padding / 2 : 0;
  pad(left);
  out.append(prefix);
  if (align == '=') pad(padding);
  out.append(body);
  if (align == '<' || align == '^') pad(padding - left);
}

void format_text(Runtime& rt, const Str& s, const Spec& spec, Str& out) {
  if ((spec.number.type != 0 && spec.number.type != 's') || spec.number.sign != '-' || spec.number.alternate ||
      spec.number.grouping != 0 || (spec.align == '=' && !spec.zero)) {
    rt.fail("Invalid format specifier for a string");
  }
  Spec adjusted = spec;
  if (spec.align == '=') adjusted.align = '<';
  const int precision = spec.number.precision;
  append_aligned(Str(), precision < 0 ? s : s.substr(0, s.offset(static_cast<std::size_t>(precision))), adjusted, '<',
                 out);
}

/// Grouped digits filled with zeros up to the width are grouped as a whole: those before a point or an exponent, which
/// integers do not have, and none of inf and nan.
std::string zero_filled(std::string digits, const Spec& spec, std::size_t prefix, bool is_float) {
  if (spec.fill.view() != "0" || spec.align != '=' || spec.number.grouping == 0) return digits;
  const auto belongs = [&](char c) { return !is_float || is_ascii_digit(c) || c == spec.number.grouping; };
  const auto whole_end =
      static_cast<std::size_t>(std::find_if_not(digits.begin(), digits.end(), belongs) - digits.begin());
  if (whole_end == 0) return digits;
  std::string whole = digits.substr(0, whole_end);
  std::erase(whole, spec.number.grouping);
  const std::string rest = digits.substr(whole_end);
  const char t = spec.number.type;
  const std::size_t size = t == 'b' || t == 'o' || t == 'x' || t == 'X' ? 4 : 3;
  std::size_t n = whole.size();
  while (prefix + n + (n - 1) / size + rest.size() < static_cast<std::size_t>(spec.width)) ++n;
  whole.insert(0, n - whole.size(), '0');
  return grouped(whole, spec.number.grouping, size) + rest;
}

void format_number(Runtime& rt, const Value& v, const Spec& spec, Str& out) {
  const char type = spec.number.type;
  const bool as_float =
      v.is(Kind::Float) || (type != 0 && std::string_view("eEfFgG%").find(type) != std::string_view::npos);
  NumberText n = as_float ? format_float(rt, to_double(rt, v), spec.number) : format_integer(rt, v, spec.number);
  n.digits = zero_filled(std::move(n.digits), spec, n.prefix.size(), as_float);
  append_aligned(Str(n.prefix, v.origin()), Str(n.digits, v.origin()), spec, '>', out);
}

void format_value(Runtime& rt, const Value& v, const Str& spec, Str& out) {
  if (spec.empty()) return append_str(rt, v, out);
  if (v.is_string()) return format_text(rt, v.as_string(), parse_spec(rt, spec), out);
  if (v.is_number()) return format_number(rt, v, parse_spec(rt, spec), out);
  rt.fail("unsupported format string passed to " + std::string(type_name(v)) + ".__format__");
}

class Formatter {
 public:
  Formatter(Runtime& rt, const CallArguments& arguments) : rt_(rt), arguments_(arguments) {}

  Str run(const Str& format, int levels) {
    if (levels < 0) rt_.fail("Max string recursion exceeded");
    Str out;
    const std::string_view text = format.view();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, brace - at);
      if (brace == text.size()) break;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.append(format, brace, 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') rt_.fail("Single '}' encountered in format string");
      rt_.step();
      at = field(format, brace + 1, levels, out);
      rt_.limit_string(out);
    }
    return out;
  }

 private:
  /// The replacement field whose content begins at `from`; gives the place behind its brace.
  std::size_t field(const Str& format, std::size_t from, int levels, Str& out) {
    const std::string_view text = format.view();
    int open = 1;
    std::size_t end = from;
    bool bracket = false;
    for (; end < text.size(); ++end) {
      const char c = text[end];
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      if (bracket) continue;
      open += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (open == 0) break;
    }
    if (open != 0) rt_.fail("expected '}' before end of string");
    const Str inside = format.substr(from, end - from);
    const std::string_view view = inside.view();
    std::size_t name_end = 0;
    for (bool in_bracket = false; name_end < view.size(); ++name_end) {
      if (view[name_end] == '[') in_bracket = true;
      if (view[name_end] == ']') in_bracket = false;
      if (!in_bracket && (view[name_end] == ':' || view[name_end] == '!')) break;
    }
    char conversion = 0;
    std::size_t at = name_end;
    if (at < view.size() && view[at] == '!') {
      if (at + 1 >= view.size()) rt_.fail("end of string while looking for conversion specifier");
      conversion = view[at + 1];
      at += 2;
      if (at < view.size() && view[at] != ':') rt_.fail("expected ':' after conversion specifier");
    }
    const Value named = lookup(view.substr(0, name_end));
    rt_.charge_reading(named);
    const Value value = converted(named, conversion);
    const Str spec = at < view.size() ? run(inside.substr(at + 1), levels - 1) : Str();
    format_value(rt_, value, spec, out);
    return end + 1;
  }

  Value converted(const Value& v, char conversion) {
    switch (conversion) {
      case 0:
        return v;
      case 's':
        return Value::string(str(rt_, v));
      case 'r':
        return Value::string(repr(rt_, v));
      case 'a':
        return Value::string(ascii(rt_, v));
      default:
        rt_.fail("Unknown conversion specifier");
    }
  }

  Value first(std::string_view name) {
    const bool number = !name.empty() && std::all_of(name.begin(), name.end(), is_ascii_digit);
    if (name.empty() || number) {
      if (numbering_ != 0 && (numbering_ == 'a') != name.empty()) {
        rt_.fail("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = name.empty() ? 'a' : 'm';
      std::size_t at = 0;
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(read_number(rt_, name, at));
      if (index >= arguments_.positional.size()) rt_.fail("Replacement index out of range for positional args tuple");
      return arguments_.positional[index];
    }
    rt_.charge_items(arguments_.keywords.size());
    for (const auto& [key, value] : arguments_.keywords) {
      if (key.view() == name) return value;
    }
    rt_.fail("format: there is no argument '" + escaped(name) + "'");
  }

  Value lookup(std::string_view name) {
    std::size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, at));
    while (at < name.size()) {
      if (name[at] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) rt_.fail("Empty attribute in format string");
        value = get_attribute(rt_, value, name.substr(at + 1, end - at - 1));
        at = end;
      } else if (name[at] == '[') {
        const std::size_t end = name.find(']', at);
        if (end == std::string_view::npos) rt_.fail("Missing ']' in format string");
        const std::string_view key = name.substr(at + 1, end - at - 1);
        if (key.empty()) rt_.fail("Empty attribute in format string");
        const bool number = std::all_of(key.begin(), key.end(), is_ascii_digit);
        std::size_t digit = 0;
        value = get_item(rt_, value, number ? Value::integer(read_number(rt_, key, digit)) : Value::string(key));
        at = end + 1;
      } else {
        rt_.fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Runtime& rt_;
  const CallArguments& arguments_;
  std::size_t next_ = 0;
  char numbering_ = 0;
};

}  // namespace

NumberText format_integer(Runtime& rt, const Value& v, const NumberStyle& style) {
  if (style.precision >= 0) rt.fail("Precision not allowed in integer format specifier");
  const mpz_class n = v.as_big();
  NumberText out{sign_of(sgn(n) < 0, style.sign), {}};
  const mpz_class magnitude = abs(n);
  std::size_t group = 4;
  switch (style.type) {
    case 0:
    case 'd':
    case 'n':
      out.digits = magnitude.get_str();
      group = 3;
      break;
    case 'b':
      out.digits = magnitude.get_str(2);
      break;
    case 'o':
      out.digits = magnitude.get_str(8);
      break;
    case 'x':
      out.digits = magnitude.get_str(16);
      break;
    case 'X':
      out.digits = magnitude.get_str(-16);
      break;
    case 'c':
      if (style.sign != '-' || style.alternate) rt.fail("Invalid format specifier for a character");
      if (n < 0 || n > 0x10ffff) rt.fail("%c arg not in range(0x110000)");
      append_utf8(out.digits, static_cast<std::int32_t>(n.get_si()));
      return {"", out.digits};
    default:
      rt.fail("Unknown format code '" + escaped(std::string(1, style.type)) + "' for object of type 'int'");
  }
  if (style.alternate && group == 4) out.prefix += std::string("0") + style.type;
  if (style.grouping != 0) out.digits = grouped(out.digits, style.grouping, group);
  return out;
}

NumberText format_float(Runtime& rt, double f, const NumberStyle& style) {
  if (style.type != 0 && std::string_view("eEfFgGn%").find(style.type) == std::string_view::npos) {
    rt.fail("Unknown format code '" + escaped(std::string(1, style.type)) + "' for object of type 'float'");
  }
  NumberText out{sign_of(std::signbit(f) && !std::isnan(f), style.sign), {}};
  if (std::isnan(f) || std::isinf(f)) {
    out.digits = std::isnan(f) ? "nan" : "inf";
  } else {
    out.digits = float_digits(f, style);
    const std::size_t whole = std::min(out.digits.find_first_of(".e"), out.digits.size());
    if (style.grouping != 0) {
      out.digits = grouped(out.digits.substr(0, whole), style.grouping, 3) + out.digits.substr(whole);
    }
  }
  if (style.type == '%') out.digits += '%';
  if (style.type == 'E' || style.type == 'F' || style.type == 'G') {
    for (char& c : out.digits) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 0x20 : c);
  }
  return out;
}

Str printf_format(Runtime& rt, const Str& format, const Value& values) { return Printf(rt, format, values).run(); }

Str str_format(Runtime& rt, const Str& format, const CallArguments& arguments) {
  if (format.markup()) rt.fail("format() of a string that is marked safe is not supported");
  return Formatter(rt, arguments).run(format, 2);
}

}  // namespace llm::jinja
