// `value.name`, `value[key]` and `value[a:b:c]` as Jinja's immutable sandbox looks them up.
#pragma once

#include <optional>

#include "text/jinja/runtime.h"

namespace llm::jinja {

Value get_attribute(Runtime&, const Value&, std::string_view name);
Value get_item(Runtime&, const Value&, const Value& key);
struct SliceBounds {
  Value start, stop, step;  ///< None where left out
};
Value get_slice(Runtime&, const Value&, const SliceBounds&);

/// What Python's getattr() finds; nothing if it raises AttributeError.
std::optional<Value> find_attribute(Runtime&, const Value&, std::string_view name);

}  // namespace llm::jinja
