// Methods of lists, tuples, dicts, ranges, numbers, loops and the helpers that templates make.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "text/jinja/arguments.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace llm::jinja {
namespace {

Value count(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "count", given, {""}, 1);
  std::int64_t n = 0;
  for (const Value& v : to_items(rt, self)) n += is_same(v, a[0]) || equal(rt, v, a[0]) ? 1 : 0;
  return Value::integer(n);
}

Value index(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "index", given, {"", "", ""}, 1);
  const std::vector<Value> items = to_items(rt, self);
  const auto n = std::ssize(items);
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    const std::int64_t k = a.integer(i, fallback);
    return std::clamp<std::int64_t>(k < 0 ? k + n : k, 0, n);
  };
  for (std::int64_t i = place(1, 0), end = place(2, n); i < end; ++i) {
    const Value& v = items[static_cast<std::size_t>(i)];
    if (is_same(v, a[0]) || equal(rt, v, a[0])) return Value::integer(i);
  }
  rt.fail(short_repr(a[0]) + " is not in the " + std::string(type_name(self)));
}

Value index_in_range(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "index", given, {""}, 1);
  return index(rt, self, given);
}

Value copy(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "copy", given, {});
  return self;  // immutable
}

std::shared_ptr<DictObject> dict_of(const Value& v) { return std::static_pointer_cast<DictObject>(v.object()); }

template <ViewObject::Of of>
Value view(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "dict view", given, {});
  auto object = std::make_shared<ViewObject>();
  object->of = of;
  object->dict = dict_of(self);
  object->depth = object->dict->depth + 1;
  rt.check_depth(object->depth);
  return Value::object(Kind::View, std::move(object), self.origin());
}

Value get(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "get", given, {"", ""}, 1);
  require_hashable(rt, a[0]);
  const Value* found = self.as<DictObject>().find(a[0]);
  return found != nullptr ? *found : a.get(1, Value());
}

Value fromkeys(Runtime& rt, const Value&, CallArguments& given) {
  const Arguments a(rt, "fromkeys", given, {"", ""}, 1);
  auto dict = std::make_shared<DictObject>();
  for (const Value& key : to_items(rt, a[0])) {
    require_hashable(rt, key);
    dict->set(key, a.get(1, Value()));
  }
  return rt.dict(std::move(dict));
}

Value conjugate(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "conjugate", given, {});
  return positive(rt, self);
}

Value bit_length(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "bit_length", given, {});
  const mpz_class n = abs(self.as_big());
  return Value::integer(n == 0 ? 0 : static_cast<std::int64_t>(mpz_sizeinbase(n.get_mpz_t(), 2)), self.origin());
}

Value is_integer(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "is_integer", given, {});
  return Value::boolean(std::isfinite(self.as_float()) && std::floor(self.as_float()) == self.as_float());
}

Value cycle(Runtime& rt, const Value& self, CallArguments& given) {
  if (!given.keywords.empty()) rt.fail("cycle() takes no keyword arguments");
  if (given.positional.empty()) rt.fail("no items for cycling given");
  const auto n = std::ssize(given.positional);
  const std::int64_t i = self.as<LoopObject>().index0 % n;
  return given.positional[static_cast<std::size_t>(i < 0 ? i + n : i)];
}

Value changed(Runtime& rt, const Value& self, CallArguments& given) {
  if (!given.keywords.empty()) rt.fail("changed() takes no keyword arguments");
  auto& loop = self.as<LoopObject>();
  const Value now = rt.tuple(given.positional);
  if (loop.changed && equal(rt, *loop.changed, now)) return Value::boolean(false);
  loop.changed = now;
  rt.keep(self.object());
  return Value::boolean(true);
}

Value cycler_next(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "next", given, {});
  auto& cycler = self.as<CyclerObject>();
  const Value v = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return v;
}

Value cycler_reset(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "reset", given, {});
  self.as<CyclerObject>().at = 0;
  return Value();
}

struct Row {
  std::string_view name;
  MethodObject::Body body;
};
constexpr Row kTuple[] = {{"count", count}, {"index", index}};
constexpr Row kRange[] = {{"count", count}, {"index", index_in_range}};
constexpr Row kList[] = {{"count", count}, {"index", index}, {"copy", copy}};
constexpr Row kDict[] = {{"get", get},
                         {"items", view<ViewObject::Of::Items>},
                         {"keys", view<ViewObject::Of::Keys>},
                         {"values", view<ViewObject::Of::Values>},
                         {"copy", copy},
                         {"fromkeys", fromkeys}};
constexpr Row kInteger[] = {{"bit_length", bit_length},
                            {"conjugate", conjugate},
                            {"as_integer_ratio", detail::unsupported_method},
                            {"bit_count", detail::unsupported_method},
                            {"from_bytes", detail::unsupported_method},
                            {"to_bytes", detail::unsupported_method}};
constexpr Row kFloat[] = {{"is_integer", is_integer},
                          {"conjugate", conjugate},
                          {"as_integer_ratio", detail::unsupported_method},
                          {"fromhex", detail::unsupported_method},
                          {"hex", detail::unsupported_method}};
constexpr Row kView[] = {{"isdisjoint", detail::unsupported_method}};
constexpr Row kLoop[] = {{"cycle", cycle}, {"changed", changed}};
constexpr Row kCycler[] = {{"next", cycler_next}, {"reset", cycler_reset}};
constexpr Row kDictFunction[] = {{"fromkeys", fromkeys}};

template <std::size_t N>
MethodObject::Body in(const Row (&rows)[N], std::string_view name) {
  const auto* row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.name == name; });
  return row == std::end(rows) ? nullptr : row->body;
}

constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

Value detail::unsupported_method(Runtime& rt, const Value&, CallArguments&) {
  rt.fail("this method of Python's is not supported in chat templates");
}

MethodObject::Body detail::find_container_method(const Value& v, std::string_view name) {
  switch (v.kind()) {
    case Kind::List:
      return in(kList, name);
    case Kind::Tuple:
      return in(kTuple, name);
    case Kind::Range:
      return in(kRange, name);
    case Kind::Dict:
      return in(kDict, name);
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
      return in(kInteger, name);
    case Kind::Float:
      return in(kFloat, name);
    case Kind::View:
      return v.as<ViewObject>().of == ViewObject::Of::Values ? nullptr : in(kView, name);
    case Kind::Loop:
      return in(kLoop, name);
    case Kind::Cycler:
      return in(kCycler, name);
    case Kind::Function:
      return v.as<FunctionObject>().name == "dict" ? in(kDictFunction, name) : nullptr;
    default:
      return nullptr;
  }
}

MethodObject::Body find_method(const Value& v, std::string_view name) {
  return v.is_string() ? detail::find_string_method(name) : detail::find_container_method(v, name);
}

bool is_refused_method(const Value& v, std::string_view name) {
  if (v.is(Kind::List))
    return std::find(std::begin(kListChanges), std::end(kListChanges), name) != std::end(kListChanges);
  return v.is_dict() && std::find(std::begin(kDictChanges), std::end(kDictChanges), name) != std::end(kDictChanges);
}

}  // namespace llm::jinja
