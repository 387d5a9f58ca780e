#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/print.h"

namespace llm::jinja {

void Runtime::fail_limit(std::string_view what) const {
  fail("template limit: too many or too large " + std::string(what));
}

void Runtime::require_string(std::size_t bytes) {
  if (bytes > limits_.string_bytes) fail_limit("strings");
  charge_bytes(bytes);
}

Value Runtime::string(Str s) {
  require_string(s.size());
  return Value::string(std::move(s));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items, Origin origin) {
  charge_items(items.size());
  auto list = std::make_shared<ListObject>();
  for (const Value& v : items) list->depth = std::max(list->depth, jinja::depth(v) + 1);
  check_depth(list->depth);
  list->items = std::move(items);
  return Value::object(kind, std::move(list), origin);
}

Value Runtime::dict(std::shared_ptr<DictObject> d, Origin origin) {
  charge_items(d->entries().size());
  check_depth(d->depth);
  return Value::object(Kind::Dict, std::move(d), origin);
}

Value Runtime::undefined(std::string message) const {
  return Value::object(Kind::Undefined, std::make_shared<UndefinedObject>(std::move(message)));
}

Value Runtime::undefined_element(const Value& value, const Value& name) const {
  const std::string type = value.is_none() ? "None" : std::string(type_name(value)) + " object";
  if (!name.is_string()) return undefined("the " + type + " has no element " + short_repr(name));
  return undefined("the " + type + " has no attribute " + short_repr(name));
}

}  // namespace llm::jinja
