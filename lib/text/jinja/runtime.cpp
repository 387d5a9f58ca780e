#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/print.h"

namespace llm::jinja {

void Runtime::fail_limit(std::string_view what) const { source_.fail_limit(position_, what); }

void Runtime::require_string(std::size_t bytes) {
  if (bytes > limits_.string_bytes) fail_limit("strings");
  charge_bytes(bytes);
}

void Runtime::require_runs(std::size_t runs) {
  limit_runs(runs);
  charge_runs(runs);
}

void Runtime::limit_runs(std::size_t runs) const {
  if (runs > kMaxRuns) fail_limit("pieces from the template and from outside in one string");
}

void Runtime::limit_string(const Str& s) const {
  if (s.size() > limits_.string_bytes) fail_limit("strings");
  limit_runs(s.n_runs());
}

void Runtime::charge_reading(const CallArguments& arguments) {
  for (const Value& v : arguments.positional) charge_reading(v);
  for (const auto& [name, v] : arguments.keywords) charge_reading(v);
}

Value Runtime::string(Str s) {
  require_string(s.size());
  require_runs(s.n_runs());
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
