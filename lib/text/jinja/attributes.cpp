#include "text/jinja/attributes.h"

#include <algorithm>
#include <limits>

#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace llm::jinja {
namespace {

Value method(Runtime& rt, const Value& self, std::string_view name, MethodObject::Body body) {
  auto object = std::make_shared<MethodObject>();
  object->self = self;
  object->name = std::string(name);
  object->body = body;
  object->depth = depth(self) + 1;
  return rt.nested(Kind::Method, std::move(object));
}

std::optional<Value> loop_attribute(Runtime& rt, const Value& v, std::string_view name) {
  auto& loop = v.as<LoopObject>();
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek(rt));
  if (name == "length") return Value::integer(loop.count(rt));
  if (name == "revindex") return Value::integer(loop.count(rt) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.count(rt) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 || !loop.before ? rt.undefined("there is no previous item") : *loop.before;
  }
  if (name == "nextitem") return loop.peek(rt) ? *loop.after : rt.undefined("there is no next item");
  return std::nullopt;
}

std::optional<Value> number_attribute(const Value& v, std::string_view name) {
  const bool integer = v.is_integer();
  const Value whole = v.is(Kind::Bool) ? Value::integer(v.as_int(), v.origin()) : v;
  if (name == "real" || (integer && name == "numerator")) return whole;
  if (name == "imag") return integer ? Value::integer(0) : Value::real(0);
  if (integer && name == "denominator") return Value::integer(1);
  return std::nullopt;
}

std::optional<Value> range_attribute(const Value& v, std::string_view name) {
  const auto& r = v.as<RangeObject>();
  if (name == "start") return Value::integer(r.start, v.origin());
  if (name == "stop") return Value::integer(r.stop, v.origin());
  if (name == "step") return Value::integer(r.step, v.origin());
  return std::nullopt;
}

std::optional<Value> data_attribute(Runtime& rt, const Value& v, std::string_view name) {
  switch (v.kind()) {
    case Kind::Namespace: {
      const Value* found = v.as<NamespaceObject>().attributes.find(name);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::Loop:
      return loop_attribute(rt, v, name);
    case Kind::Macro:
      return macro_attribute(rt, v, name);
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
    case Kind::Float:
      return number_attribute(v, name);
    case Kind::Range:
      return range_attribute(v, name);
    case Kind::Tuple:
      if (!v.as<ListObject>().group) return std::nullopt;
      if (name == "grouper") return v.items()[0];
      if (name == "list") return v.items()[1];
      return std::nullopt;
    case Kind::Cycler: {
      const auto& cycler = v.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.at];
      if (name == "items") return rt.tuple(cycler.items);
      if (name == "pos") return Value::integer(static_cast<std::int64_t>(cycler.at));
      return std::nullopt;
    }
    case Kind::Joiner:
      if (name == "sep") return v.as<JoinerObject>().separator;
      if (name == "used") return Value::boolean(v.as<JoinerObject>().used);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Value unsafe(Runtime& rt, const Value& v, std::string_view name) {
  return rt.undefined("access to attribute '" + escaped(name) + "' of '" + std::string(type_name(v)) +
                      "' object is unsafe");
}

std::optional<Value> element_at(const std::vector<Value>& items, const Value& key) {
  if (!key.is_integer() || key.is(Kind::BigInt)) return std::nullopt;
  const auto n = std::ssize(items);
  const std::int64_t i = key.as_int() < 0 ? key.as_int() + n : key.as_int();
  if (i < 0 || i >= n) return std::nullopt;
  return items[static_cast<std::size_t>(i)];
}

std::optional<Value> character_element(Runtime& rt, const Str& s, const Value& key) {
  if (!key.is_integer() || key.is(Kind::BigInt)) return std::nullopt;
  rt.charge_reading(s);
  std::int64_t i = key.as_int();
  if (i < 0) i += static_cast<std::int64_t>(s.length());
  if (i < 0) return std::nullopt;
  const std::size_t from = s.offset(static_cast<std::size_t>(i));
  if (from >= s.size()) return std::nullopt;
  return Value::string(s.substr(from, next_character(s.view(), from) - from));
}

/// Python's `value[key]`; nothing where it raises TypeError or LookupError.
std::optional<Value> subscript(Runtime& rt, const Value& v, const Value& key) {
  switch (v.kind()) {
    case Kind::String:
      return character_element(rt, v.as_string(), key);
    case Kind::List:
    case Kind::Tuple:
      return element_at(v.items(), key);
    case Kind::Dict: {
      if (key.is(Kind::List) || key.is_dict() || key.is(Kind::View)) return std::nullopt;
      require_hashable(rt, key);
      const Value* found = v.as<DictObject>().find(key);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::Range: {
      if (!key.is_integer() || key.is(Kind::BigInt)) return std::nullopt;
      const auto& r = v.as<RangeObject>();
      const std::int64_t i = key.as_int() < 0 ? key.as_int() + r.count : key.as_int();
      if (i < 0 || i >= r.count) return std::nullopt;
      return Value::integer(r.at(i), v.origin());
    }
    default:
      return std::nullopt;
  }
}

struct Steps {
  std::int64_t start, stop, step, count;
};

/// Python's slice.indices().
Steps slice_steps(Runtime& rt, const SliceBounds& b, std::int64_t n) {
  constexpr std::string_view kWhat = "slice indices";
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const std::int64_t step = b.step.is_none() ? 1 : std::max(as_index(rt, b.step, kWhat), -kFar);
  if (step == 0) rt.fail("slice step cannot be zero");
  const std::int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
  const auto place = [&](const Value& v, std::int64_t fallback) {
    if (v.is_none()) return fallback;
    const std::int64_t i = as_index(rt, v, kWhat);
    return std::clamp(i < 0 ? i + n : i, low, high);
  };
  const std::int64_t start = place(b.start, step < 0 ? high : low), stop = place(b.stop, step < 0 ? low : high);
  std::int64_t count = 0;
  if (step > 0 && start < stop) count = (stop - start - 1) / step + 1;
  if (step < 0 && stop < start) count = (start - stop - 1) / -step + 1;
  return {start, stop, step, count};
}

Value slice_string(Runtime& rt, const Str& s, const SliceBounds& b) {
  rt.charge_reading(s);
  const Steps steps = slice_steps(rt, b, static_cast<std::int64_t>(s.length()));
  if (steps.step == 1) {
    const std::size_t from = s.offset(static_cast<std::size_t>(steps.start));
    const Str rest = s.substr(from);
    return Value::string(rest.substr(0, rest.offset(static_cast<std::size_t>(steps.count))));
  }
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < s.size(); at = next_character(s.view(), at)) starts.push_back(at);
  Str out;
  for (std::int64_t i = 0; i < steps.count; ++i) {
    const std::size_t at = starts[static_cast<std::size_t>(steps.start + i * steps.step)];
    out.append(s, at, next_character(s.view(), at) - at);
  }
  return Value::string(std::move(out).as_markup(s.markup()));
}

}  // namespace

std::optional<Value> find_attribute(Runtime& rt, const Value& v, std::string_view name) {
  if (auto found = data_attribute(rt, v, name)) return found;
  if (const auto body = find_method(v, name)) return method(rt, v, name, body);
  if (name.starts_with("__") || is_refused_method(v, name)) return unsafe(rt, v, name);
  return std::nullopt;
}

Value get_attribute(Runtime& rt, const Value& v, std::string_view name) {
  require_defined(rt, v);
  // Dunder names: what every Python object has would be refused; what it has not, an element may be called.
  const bool dunder = name.starts_with("__");
  if (!dunder) {
    if (auto found = find_attribute(rt, v, name)) return *found;
  }
  if (v.is_dict()) {
    if (const Value* found = v.as<DictObject>().find(name)) return *found;
  }
  return dunder ? unsafe(rt, v, name) : rt.undefined_element(v, Value::string(name));
}

Value get_item(Runtime& rt, const Value& v, const Value& key) {
  require_defined(rt, v);
  if (auto found = subscript(rt, v, key)) return *found;
  if (key.is_string()) {
    if (auto found = find_attribute(rt, v, key.as_string().view())) return *found;
  }
  return rt.undefined_element(v, key);
}

Value get_slice(Runtime& rt, const Value& v, const SliceBounds& b) {
  require_defined(rt, v);
  if (v.is_string()) return slice_string(rt, v.as_string(), b);
  if (v.is(Kind::Range)) {
    const auto& r = v.as<RangeObject>();
    const Steps steps = slice_steps(rt, b, r.count);
    auto out = std::make_shared<RangeObject>();
    const auto at = [&](std::int64_t i) {  // also behind the end
      std::int64_t value = 0;
      if (__builtin_mul_overflow(i, r.step, &value) || __builtin_add_overflow(value, r.start, &value)) {
        rt.fail_limit("digits of a range");
      }
      return value;
    };
    out->start = at(steps.start);
    if (__builtin_mul_overflow(r.step, steps.step, &out->step)) rt.fail_limit("digits of a range");
    out->count = steps.count;
    out->stop = at(steps.stop);
    return Value::object(Kind::Range, std::move(out), v.origin());
  }
  if (!v.is_sequence()) rt.fail("'" + std::string(type_name(v)) + "' object cannot be sliced");
  const Steps steps = slice_steps(rt, b, std::ssize(v.items()));
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(steps.count));
  for (std::int64_t i = 0; i < steps.count; ++i) {
    items.push_back(v.items()[static_cast<std::size_t>(steps.start + i * steps.step)]);
  }
  return v.is(Kind::List) ? rt.list(std::move(items), v.origin()) : rt.tuple(std::move(items), v.origin());
}

}  // namespace llm::jinja
