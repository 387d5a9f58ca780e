#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/format.h"
#include "text/jinja/loop.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"

namespace llm::jinja {
namespace {

constexpr std::string_view kBinarySigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr char kArithmetic[] = {'+', '-', '*', '/', 'f', '%', 'p'};
constexpr std::string_view kCompareSigns[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

[[noreturn]] void fail_operands(Runtime& rt, std::string_view sign, const Value& a, const Value& b) {
  rt.fail("unsupported operand types for " + std::string(sign) + ": '" + std::string(type_name(a)) + "' and '" +
          std::string(type_name(b)) + "'");
}

Value add(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return concatenated(rt, a.as_string(), b.as_string());
  if (a.is_sequence() && a.kind() == b.kind()) {
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    const Origin origin = combined(a.origin(), b.origin());
    return a.is(Kind::List) ? rt.list(std::move(items), origin) : rt.tuple(std::move(items), origin);
  }
  fail_operands(rt, "+", a, b);
}

Value multiply(Runtime& rt, const Value& a, const Value& b) {
  const auto repeats = [](const Value& v) { return v.is_string() || v.is_sequence(); };
  if (repeats(a) && b.is_integer()) return repeated(rt, a, as_index(rt, b, "a count"));
  if (repeats(b) && a.is_integer()) return repeated(rt, b, as_index(rt, a, "a count"));
  fail_operands(rt, "*", a, b);
}

/// Which of two sequences comes first is what the first elements that differ say.
std::optional<std::size_t> first_difference(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b) {
  const std::size_t n = std::min(a.size(), b.size());
  rt.charge_items(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!is_same(a[i], b[i]) && !equal(rt, a[i], b[i])) return i;
  }
  return std::nullopt;
}

bool ordered(CompareOp op, int order) {
  if (order == 2) return false;  // NaN
  switch (op) {
    case CompareOp::Lt:
      return order < 0;
    case CompareOp::Le:
      return order <= 0;
    case CompareOp::Gt:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool is_set(const Value& v) { return v.is(Kind::View) && v.as<ViewObject>().of != ViewObject::Of::Values; }

std::size_t set_size(const Value& v) { return v.as<ViewObject>().dict->entries().size(); }

bool is_subset(Runtime& rt, const Value& a, const Value& b) {
  const std::size_t n = set_size(a);
  rt.charge_items(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!contains(rt, b, a.as<ViewObject>().at(i))) return false;
  }
  return true;
}

bool equal_sets(Runtime& rt, const Value& a, const Value& b) {
  return set_size(a) == set_size(b) && is_subset(rt, a, b);
}

bool order_sets(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  const std::size_t x = set_size(a), y = set_size(b);
  if (!ordered(op, x < y ? -1 : x > y ? 1 : 0)) return false;
  return op == CompareOp::Lt || op == CompareOp::Le ? is_subset(rt, a, b) : is_subset(rt, b, a);
}

bool order(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  rt.step();
  require_defined(rt, a);
  require_defined(rt, b);
  if (a.is_number() && b.is_number()) return ordered(op, compare_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    rt.charge_bytes(std::min(a.as_string().size(), b.as_string().size()));
    const int c = a.as_string().bytes().compare(b.as_string().bytes());
    return ordered(op, c < 0 ? -1 : c > 0 ? 1 : 0);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    if (const auto i = first_difference(rt, x, y)) return order(rt, op, x[*i], y[*i]);
    return ordered(op, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
  }
  if (is_set(a) && is_set(b)) return order_sets(rt, op, a, b);
  rt.fail("'" + std::string(kCompareSigns[static_cast<std::size_t>(op)]) + "' not supported between instances of '" +
          std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

bool equal_dicts(Runtime& rt, const DictObject& a, const DictObject& b) {
  if (a.entries().size() != b.entries().size()) return false;
  rt.charge_items(a.entries().size());
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const DictObject::Entry& e) {
    require_hashable(rt, e.first);  // it is, and finding it costs as much
    const Value* other = b.find(e.first);
    return other != nullptr && (is_same(e.second, *other) || equal(rt, e.second, *other));
  });
}

/// Whether a mapping's items() have `v`.
bool has_item(Runtime& rt, const DictObject& dict, const Value& v) {
  if (!v.is(Kind::Tuple) || v.items().size() != 2) return false;
  const Value &key = v.items()[0], &value = v.items()[1];
  require_hashable(rt, key);
  const Value* found = dict.find(key);
  return found != nullptr && (is_same(*found, value) || equal(rt, *found, value));
}

bool equal_ranges(const RangeObject& a, const RangeObject& b) {
  return a.count == b.count && (a.count == 0 || (a.start == b.start && (a.count == 1 || a.step == b.step)));
}

}  // namespace

void fail_undefined(Runtime& rt, const Value& v) {
  rt.fail(v.is(Kind::Undefined) ? v.as<UndefinedObject>().message : "an undefined value is used");
}

void require_defined(Runtime& rt, const Value& v) {
  if (v.is_undefined()) fail_undefined(rt, v);
}

bool truth(Runtime& rt, const Value& v) {
  switch (v.kind()) {
    case Kind::Missing:
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
    case Kind::Int:
      return v.as_int() != 0;
    case Kind::Float:
      return v.as_float() != 0;
    case Kind::String:
      return !v.as_string().empty();
    case Kind::List:
    case Kind::Tuple:
      return !v.items().empty();
    case Kind::Dict:
      return !v.as<DictObject>().entries().empty();
    case Kind::View:
      return !v.as<ViewObject>().dict->entries().empty();
    case Kind::Range:
      return v.as<RangeObject>().count != 0;
    case Kind::Loop:
      return v.as<LoopObject>().count(rt) != 0;
    default:
      return true;
  }
}

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic(rt, kArithmetic[static_cast<std::size_t>(op)], a, b);
  if (op == BinaryOp::Mod && a.is_string()) return rt.string(printf_format(rt, a.as_string(), b));
  require_defined(rt, a);
  require_defined(rt, b);
  if (op == BinaryOp::Add) return add(rt, a, b);
  if (op == BinaryOp::Mul) return multiply(rt, a, b);
  fail_operands(rt, kBinarySigns[static_cast<std::size_t>(op)], a, b);
}

Value power_of_magnitude(Runtime& rt, const Value& base, const Value& exponent) {
  const bool is_negative =
      base.is(Kind::Float) ? std::signbit(base.as_float()) : base.is_integer() && sgn(base.as_big()) < 0;
  if (!is_negative) return binary(rt, BinaryOp::Pow, base, exponent);
  return negative(rt, binary(rt, BinaryOp::Pow, negated(base), exponent));
}

Value negative(Runtime& rt, const Value& v) {
  require_defined(rt, v);
  if (!v.is_number()) rt.fail("bad operand type for unary -: '" + std::string(type_name(v)) + "'");
  return negated(v);
}

Value positive(Runtime& rt, const Value& v) {
  require_defined(rt, v);
  if (!v.is_number()) rt.fail("bad operand type for unary +: '" + std::string(type_name(v)) + "'");
  return v.is(Kind::Bool) ? Value::integer(v.as_int(), v.origin()) : v;
}

bool is_same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_none()) return true;
  if (a.is(Kind::Bool) || a.is(Kind::Int)) return a.as_int() == b.as_int();
  return a.object() != nullptr && a.object() == b.object();
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::None:
      return true;
    case Kind::String:
      if (a.as_string().size() != b.as_string().size()) return false;
      rt.charge_bytes(a.as_string().size());
      return a.as_string().bytes() == b.as_string().bytes();
    case Kind::List:
    case Kind::Tuple:
      rt.step();
      return a.items().size() == b.items().size() && !first_difference(rt, a.items(), b.items());
    case Kind::Dict:
      rt.step();
      return equal_dicts(rt, a.as<DictObject>(), b.as<DictObject>());
    case Kind::Range:
      return equal_ranges(a.as<RangeObject>(), b.as<RangeObject>());
    case Kind::View:
      rt.step();
      return is_set(a) && is_set(b) ? equal_sets(rt, a, b) : a.object() == b.object();
    default:
      return a.object() == b.object();
  }
}

bool less(Runtime& rt, const Value& a, const Value& b) { return order(rt, CompareOp::Lt, a, b); }

bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::Eq:
      return equal(rt, a, b);
    case CompareOp::Ne:
      return !equal(rt, a, b);
    case CompareOp::In:
      return contains(rt, b, a);
    case CompareOp::NotIn:
      return !contains(rt, b, a);
    default:
      return order(rt, op, a, b);
  }
}

bool contains(Runtime& rt, const Value& container, const Value& v) {
  if (container.is_string()) {
    if (!v.is_string()) rt.fail("'in <string>' requires string as left operand, not " + std::string(type_name(v)));
    rt.charge_bytes(container.as_string().size());
    return find(container.as_string().view(), v.as_string().view()) != std::string_view::npos;
  }
  const bool keys = is_set(container) && container.as<ViewObject>().of == ViewObject::Of::Keys;
  if (container.is_dict() || keys) {
    require_hashable(rt, v);
    return (keys ? *container.as<ViewObject>().dict : container.as<DictObject>()).find(v) != nullptr;
  }
  if (is_set(container)) return has_item(rt, *container.as<ViewObject>().dict, v);
  if (!is_iterable(container)) rt.fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  const auto same = [&](const Value& item) { return is_same(item, v) || equal(rt, item, v); };
  if (container.is_sequence()) {
    rt.charge_items(container.items().size());
    return std::any_of(container.items().begin(), container.items().end(), same);
  }
  const auto iterator = iterate(rt, container);
  for (Value item; iterator->next(rt, item);) {
    rt.step();
    if (same(item)) return true;
  }
  return false;
}

void require_hashable(Runtime& rt, const Value& v) {
  if (v.is(Kind::List) || v.is_dict() || v.is(Kind::View)) {
    rt.fail("unhashable type: '" + std::string(type_name(v)) + "'");
  }
  rt.charge_reading(v);
  if (!v.is(Kind::Tuple)) return;
  rt.step(v.items().size());
  for (const Value& item : v.items()) require_hashable(rt, item);
}

std::int64_t as_index(Runtime& rt, const Value& v, std::string_view what) {
  require_defined(rt, v);
  if (!v.is_integer()) {
    rt.fail(std::string(what) + " must be an integer, not '" + std::string(type_name(v)) + "'");
  }
  if (!v.is(Kind::BigInt)) return v.as_int();
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  return sgn(v.as_big()) < 0 ? -kFar : kFar;
}

Value concatenated(Runtime& rt, const Str& a, const Str& b) {
  rt.require_string(a.size() + b.size());
  rt.require_runs(a.n_runs() + b.n_runs());
  if (!a.markup() && !b.markup()) {
    Str out = a;
    out.append(b);
    return Value::string(std::move(out));
  }
  Str out = html_escaped(a);
  out.append(html_escaped(b));
  return rt.string(std::move(out).as_markup(true));
}

Value repeated(Runtime& rt, const Value& v, std::int64_t times) {
  const auto n = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (v.is_string()) {
    const Str& s = v.as_string();
    if (!s.empty() && n > rt.limits().string_bytes / s.size()) rt.fail_limit("strings");
    rt.require_string(s.size() * n);
    if (s.n_runs() > 1) rt.require_runs(s.n_runs() * n);  // no overflow: a run has at least one byte
    Str out;
    for (std::size_t i = 0; i < n && !s.empty(); ++i) out.append(s);
    return Value::string(std::move(out).as_markup(s.markup()));
  }
  const auto& items = v.items();
  constexpr std::size_t kMost = 1'000'000;
  if (!items.empty() && n > kMost / items.size()) rt.fail_limit("items of a list");
  std::vector<Value> out;
  out.reserve(items.size() * n);
  for (std::size_t i = 0; i < n && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return v.is(Kind::List) ? rt.list(std::move(out), v.origin()) : rt.tuple(std::move(out), v.origin());
}

Str html_escaped(const Str& s) {
  if (s.markup()) return s;
  Str out;
  std::size_t at = 0;
  for (const Run& run : s.runs()) {
    std::string text;
    for (; at < run.end; ++at) {
      switch (const char c = s.view()[at]) {
        case '&':
          text += "&amp;";
          break;
        case '<':
          text += "&lt;";
          break;
        case '>':
          text += "&gt;";
          break;
        case '"':
          text += "&#34;";
          break;
        case '\'':
          text += "&#39;";
          break;
        default:
          text += c;
      }
    }
    out.append(text, run.origin);
  }
  return std::move(out).as_markup(true);
}

}  // namespace llm::jinja
