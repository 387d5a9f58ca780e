#include "text/jinja/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

mpz_class floor_divided(const mpz_class& a, const mpz_class& b) {
  mpz_class q;
  mpz_fdiv_q(q.get_mpz_t(), a.get_mpz_t(), b.get_mpz_t());
  return q;
}

mpz_class floor_modulo(const mpz_class& a, const mpz_class& b) {
  mpz_class r;
  mpz_fdiv_r(r.get_mpz_t(), a.get_mpz_t(), b.get_mpz_t());
  return r;
}

std::size_t bits(const mpz_class& n) { return mpz_sizeinbase(n.get_mpz_t(), 2); }

Value checked(Runtime& rt, const mpz_class& n, Origin origin) {
  if (bits(n) > kMaxIntegerBits) rt.fail_limit("digits of an integer");
  return Value::integer(n, origin);
}

Value big_power(Runtime& rt, const mpz_class& a, const mpz_class& b, Origin origin) {
  if (a == 0 || a == 1) return Value::integer(b == 0 ? mpz_class(1) : a, origin);
  if (a == -1) return Value::integer(mpz_even_p(b.get_mpz_t()) ? 1 : -1, origin);
  if (b > long{kMaxIntegerBits} || bits(a) * b.get_ui() > 2 * kMaxIntegerBits) rt.fail_limit("digits of an integer");
  mpz_class r;
  mpz_pow_ui(r.get_mpz_t(), a.get_mpz_t(), b.get_ui());
  return checked(rt, r, origin);
}

double modulo(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) == (b < 0) ? r : r + b;
}

double floor_division(double a, double b) {
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (m < 0) != (b < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(q);
  return q - floored > 0.5 ? floored + 1 : floored;
}

double float_power(Runtime& rt, double a, double b) {
  if (a == 0 && b < 0) rt.fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    rt.fail("a negative number to a fractional power is complex");
  }
  const double r = std::pow(a, b);
  if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) rt.fail("the power is too large");
  return r;
}

Value float_arithmetic(Runtime& rt, char op, double a, double b, Origin origin) {
  if (b == 0 && (op == '/' || op == '%' || op == 'f')) rt.fail("division by zero");
  switch (op) {
    case '+':
      return Value::real(a + b, origin);
    case '-':
      return Value::real(a - b, origin);
    case '*':
      return Value::real(a * b, origin);
    case '/':
      return Value::real(a / b, origin);
    case '%':
      return Value::real(modulo(a, b), origin);
    case 'f':
      return Value::real(floor_division(a, b), origin);
    default:
      return Value::real(float_power(rt, a, b), origin);
  }
}

/// a / b of integers, correctly rounded.
Value true_division(Runtime& rt, const mpz_class& a, const mpz_class& b, Origin origin) {
  constexpr std::size_t kExact = 53;
  if (bits(a) <= kExact && bits(b) <= kExact) return Value::real(a.get_d() / b.get_d(), origin);
  // The quotient with 64 bits or more, its lowest one set if anything was cut off: rounding that to 53 rounds once.
  const long shift = static_cast<long>(bits(b)) - static_cast<long>(bits(a)) + 66;
  mpz_class n = abs(a), d = abs(b), q, r;
  if (shift > 0) {
    n <<= static_cast<unsigned long>(shift);
  } else {
    d <<= static_cast<unsigned long>(-shift);
  }
  mpz_tdiv_qr(q.get_mpz_t(), r.get_mpz_t(), n.get_mpz_t(), d.get_mpz_t());
  const std::size_t extra = bits(q) - 62;
  mpz_class rest = q & ((mpz_class(1) << extra) - 1);
  q >>= extra;
  if (r != 0 || rest != 0) q |= 1;
  const double value = std::ldexp(static_cast<double>(q.get_si()), static_cast<int>(static_cast<long>(extra) - shift));
  if (std::isinf(value)) rt.fail("the quotient is too large for a float");
  return Value::real(sgn(a) * sgn(b) < 0 ? -value : value, origin);
}

Value integer_arithmetic(Runtime& rt, char op, const Value& a, const Value& b, Origin origin) {
  if (!a.is(Kind::BigInt) && !b.is(Kind::BigInt)) {
    const std::int64_t x = a.as_int(), y = b.as_int();
    std::int64_t r = 0;
    if (op == '+' && !__builtin_add_overflow(x, y, &r)) return Value::integer(r, origin);
    if (op == '-' && !__builtin_sub_overflow(x, y, &r)) return Value::integer(r, origin);
    if (op == '*' && !__builtin_mul_overflow(x, y, &r)) return Value::integer(r, origin);
  }
  const mpz_class x = a.as_big(), y = b.as_big();
  if (y == 0 && (op == '/' || op == 'f' || op == '%')) rt.fail("division by zero");
  rt.step((bits(x) + bits(y)) / kBitsPerStep);
  switch (op) {
    case '+':
      return checked(rt, x + y, origin);
    case '-':
      return checked(rt, x - y, origin);
    case '*':
      return checked(rt, x * y, origin);
    case '/':
      return true_division(rt, x, y, origin);
    case 'f':
      return checked(rt, floor_divided(x, y), origin);
    case '%':
      return checked(rt, floor_modulo(x, y), origin);
    default:
      if (y < 0) return Value::real(float_power(rt, to_double(rt, a), to_double(rt, b)), origin);
      return big_power(rt, x, y, origin);
  }
}

int compare_integer_float(const mpz_class& a, double b) {
  if (std::isinf(b)) return b > 0 ? -1 : 1;
  const int c = cmp(a, mpz_class(std::floor(b)));
  return c != 0 ? (c < 0 ? -1 : 1) : b == std::floor(b) ? 0 : -1;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  return text;
}

/// What Python reads a number from: without the space around it, digits of any script as those of ASCII.
std::string ascii_number(std::string_view text) {
  text = trimmed(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code >= 0x80 && is_decimal(c.code)) {
      out += static_cast<char>('0' + decimal_value(c.code));
    } else {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  return out;
}

/// Digits with single underscores between them become digits alone.
bool remove_underscores(std::string_view text, std::string& digits) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const auto is_part = [&](std::size_t k) {
      return k < text.size() && std::isalnum(static_cast<unsigned char>(text[k]));
    };
    if (i == 0 || !is_part(i - 1) || !is_part(i + 1)) return false;
  }
  return true;
}

/// Decides the base of a text like 0x1f, and drops the prefix.
bool take_prefix(std::string_view& text, int& base) {
  int prefix = 10;
  if (text.size() > 1 && text[0] == '0') {
    const char c = static_cast<char>(text[1] | 0x20);
    prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
  }
  if (prefix != 10 && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  const auto three_way = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; };
  const bool fa = a.is(Kind::Float), fb = b.is(Kind::Float);
  if (fa && fb) return three_way(a.as_float(), b.as_float());
  if ((fa && std::isnan(a.as_float())) || (fb && std::isnan(b.as_float()))) return 2;
  if (fb) return compare_integer_float(a.as_big(), b.as_float());
  if (fa) return -compare_integer_float(b.as_big(), a.as_float());
  if (!a.is(Kind::BigInt) && !b.is(Kind::BigInt)) return three_way(a.as_int(), b.as_int());
  return three_way(cmp(a.as_big(), b.as_big()), 0);
}

Value arithmetic(Runtime& rt, char op, const Value& a, const Value& b) {
  const Origin origin = combined(a.origin(), b.origin());
  if (!a.is(Kind::Float) && !b.is(Kind::Float)) return integer_arithmetic(rt, op, a, b, origin);
  return float_arithmetic(rt, op, to_double(rt, a), to_double(rt, b), origin);
}

Value negated(const Value& v) {
  if (v.is(Kind::Float)) return Value::real(-v.as_float(), v.origin());
  return Value::integer(mpz_class(-v.as_big()), v.origin());
}

double to_double(Runtime& rt, const Value& v) {
  if (v.is(Kind::Float)) return v.as_float();
  if (!v.is(Kind::BigInt)) return static_cast<double>(v.as_int());
  return true_division(rt, v.as_big(), 1, Origin::Template).as_float();
}

std::string integer_text(const Value& v) {
  return v.is(Kind::BigInt) ? v.as_big().get_str() : std::to_string(v.as_int());
}

std::string float_text(double f) {
  if (std::isnan(f)) return "nan";
  if (std::isinf(f)) return f < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.begin(), buffer.end(), std::abs(f), std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const std::size_t number = e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + number, text.data() + text.size(), exponent);
  std::string out = std::signbit(f) ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    return out + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - n), '0') + ".0";
  const auto point = static_cast<std::size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::optional<mpz_class> parse_integer(std::string_view given, int base) {
  const std::string plain = ascii_number(given);
  std::string_view text = plain;
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (!take_prefix(text, base)) return std::nullopt;
  std::string digits;
  if (!remove_underscores(text, digits) || digits.empty() || digits.size() > kMaxIntegerBits) return std::nullopt;
  for (const char c : digits) {
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (value >= base) return std::nullopt;
  }
  mpz_class n(digits, base);
  if (bits(n) > kMaxIntegerBits) return std::nullopt;
  return negative ? mpz_class(-n) : n;
}

std::optional<double> parse_float(std::string_view text) {
  std::string digits;
  if (!remove_underscores(ascii_number(text), digits) || digits.empty()) return std::nullopt;
  std::string_view number = digits;
  const bool negative = number[0] == '-';
  if (number[0] == '-' || number[0] == '+') number.remove_prefix(1);
  if (number.empty() || number[0] == '-' || number[0] == '+' || number.find_first_of("(xX") != std::string_view::npos) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end != number.data() + number.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: from_chars leaves the value alone. The exponent's sign tells which.
    const std::size_t e = number.find_first_of("eE");
    const bool small =
        e != std::string_view::npos ? number[e + 1] == '-' : number.find_first_of("123456789") > number.find('.');
    value = small ? 0 : std::numeric_limits<double>::infinity();
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

double rounded(double f, int decimals) {
  if (!std::isfinite(f) || decimals > 323) return f;
  if (decimals < -308) return std::copysign(0.0, f);
  if (decimals < 0) {
    mpz_class whole(std::trunc(std::abs(f)));
    mpz_class unit;
    mpz_ui_pow_ui(unit.get_mpz_t(), 10, static_cast<unsigned long>(-decimals));
    mpz_class quotient = whole / unit, rest = whole % unit;
    const int half = cmp(mpz_class(2 * rest), unit);
    const bool fraction = std::abs(f) != std::trunc(std::abs(f));
    if (half > 0 || (half == 0 && (fraction || mpz_odd_p(quotient.get_mpz_t())))) quotient += 1;
    const std::string digits = mpz_class(quotient * unit).get_str();
    double value = std::numeric_limits<double>::infinity();
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return std::copysign(value, f);
  }
  double value = 0;
  const std::string digits = fixed_digits(std::abs(f), decimals);
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return std::copysign(value, f);
}

std::string fixed_digits(double f, int decimals) {
  const int exact = std::min(decimals, 1100);  // a double has no more digits than these
  std::string out(400 + static_cast<std::size_t>(exact), '\0');
  const auto end = std::to_chars(out.data(), out.data() + out.size(), std::abs(f), std::chars_format::fixed, exact).ptr;
  out.resize(static_cast<std::size_t>(end - out.data()));
  return out.append(static_cast<std::size_t>(decimals - exact), '0');
}

std::string exponent_digits(double f, int decimals) {
  const int exact = std::min(decimals, 1100);
  std::string out(40 + static_cast<std::size_t>(exact), '\0');
  const auto end =
      std::to_chars(out.data(), out.data() + out.size(), std::abs(f), std::chars_format::scientific, exact).ptr;
  out.resize(static_cast<std::size_t>(end - out.data()));
  if (decimals > exact) out.insert(out.find('e'), static_cast<std::size_t>(decimals - exact), '0');
  return out;
}

}  // namespace llm::jinja
