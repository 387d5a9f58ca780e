// Functions that templates call by name.
#include <cstdio>
#include <limits>
#include <map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/strftime.h"

namespace llm::jinja {
namespace {

Value range(Runtime& rt, CallArguments& given) {
  const Arguments a(rt, "range", given, {"", "", ""}, 1);
  auto r = std::make_shared<RangeObject>();
  r->start = a.has(1) ? a.integer(0, 0) : 0;
  r->stop = a.integer(a.has(1) ? 1 : 0, 0);
  r->step = a.integer(2, 1);
  if (r->step == 0) rt.fail("range() arg 3 must not be zero");
  const auto distance = static_cast<__int128>(r->stop) - r->start;
  const __int128 step = r->step;
  const bool empty = step > 0 ? distance <= 0 : distance >= 0;
  const __int128 count = empty ? 0 : (distance + step - (step > 0 ? 1 : -1)) / step;
  if (count > rt.limits().range_items) {
    rt.fail_limit("ranges: more than " + std::to_string(rt.limits().range_items) + " items");
  }
  r->count = static_cast<std::int64_t>(count);
  Origin origin = Origin::Template;
  for (const Value& bound : given.positional) origin = combined(origin, bound.origin());
  return Value::object(Kind::Range, std::move(r), origin);
}

/// As dict() takes its arguments: a mapping or pairs, then keywords.
void fill(Runtime& rt, CallArguments& given, std::string_view function, DictObject& dict) {
  if (given.positional.size() > 1) rt.fail(std::string(function) + " expected at most 1 argument");
  const auto set = [&](const Value& key, const Value& value) {
    require_hashable(rt, key);
    dict.set(key, value);
  };
  if (!given.positional.empty()) {
    const Value& source = given.positional[0];
    require_defined(rt, source);
    if (source.is_dict()) {
      for (const auto& [key, value] : source.as<DictObject>().entries()) set(key, value);
    } else {
      for (const Value& pair : to_items(rt, source)) {
        const std::vector<Value> two = to_items(rt, pair);
        if (two.size() != 2) rt.fail(std::string(function) + ": a pair of key and value is needed");
        set(two[0], two[1]);
      }
    }
  }
  for (const auto& [key, value] : given.keywords) set(Value::string(key), value);
}

Value dict(Runtime& rt, CallArguments& given) {
  auto d = std::make_shared<DictObject>();
  fill(rt, given, "dict", *d);
  return rt.dict(std::move(d));
}

Value namespace_(Runtime& rt, CallArguments& given) {
  auto object = std::make_shared<NamespaceObject>();
  fill(rt, given, "namespace", object->attributes);
  for (const auto& [key, value] : object->attributes.entries()) {
    if (key.is_string() && key.as_string().view().starts_with("_")) {
      rt.fail("a namespace cannot have the attribute " + short_repr(key) + ": names that begin with _ are reserved");
    }
  }
  object->depth = object->attributes.depth + 1;
  rt.charge_items(object->attributes.entries().size());
  rt.keep(object);
  return rt.nested(Kind::Namespace, std::move(object));
}

Value cycler(Runtime& rt, CallArguments& given) {
  if (!given.keywords.empty()) rt.fail("cycler() takes no keyword arguments");
  if (given.positional.empty()) rt.fail("cycler: at least one item has to be provided");
  auto object = std::make_shared<CyclerObject>();
  object->items = given.positional;
  for (const Value& v : object->items) object->depth = std::max(object->depth, depth(v) + 1);
  return rt.nested(Kind::Cycler, std::move(object));
}

Value joiner(Runtime& rt, CallArguments& given) {
  const Arguments a(rt, "joiner", given, {"sep"});
  auto object = std::make_shared<JoinerObject>();
  object->separator = a.get(0, Value::string(", "));
  object->depth = depth(object->separator) + 1;
  return rt.nested(Kind::Joiner, std::move(object));
}

Value lipsum(Runtime& rt, CallArguments&) {
  rt.fail("the function lipsum() of Jinja's is not supported in chat templates");
}

Value raise_exception(Runtime& rt, CallArguments& given) {
  const Arguments a(rt, "raise_exception", given, {"message"}, 1);
  rt.fail("the template refuses this: " + escaped(str(rt, a[0]).view(), 2000));
}

Value strftime_now(Runtime& rt, CallArguments& given) {
  const Arguments a(rt, "strftime_now", given, {"format"}, 1);
  const Str& format = a.string(0);
  return rt.string(format_time(format.view(), rt.now()), format.origin());
}

}  // namespace

const Value* find_global(std::string_view name) {
  static const std::map<std::string_view, Value> globals = [] {
    std::map<std::string_view, Value> all;
    const auto add = [&](std::string_view function, FunctionObject::Body body) {
      all.emplace(function, Value::object(Kind::Function, std::make_shared<FunctionObject>(function, body)));
    };
    add("range", range);
    add("dict", dict);
    add("namespace", namespace_);
    add("cycler", cycler);
    add("joiner", joiner);
    add("lipsum", lipsum);
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    return all;
  }();
  const auto found = globals.find(name);
  return found == globals.end() ? nullptr : &found->second;
}

}  // namespace llm::jinja
