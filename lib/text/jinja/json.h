// JSON in and out: values from outside, and the filter tojson as Python's json.dumps.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace llm::jinja {

/// Strings, numbers and containers are of the origin given. Integers of any size, keys in their order. Throws
/// ErrorKind::Usage with `name` as the file for what is not JSON.
Value from_json(std::string_view text, Origin origin, const std::string& name);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<Str> indent;
  Str item_separator = Str(", ");
  Str key_separator = Str(": ");
  bool sort_keys = false;
};
Str to_json(Runtime&, const Value&, const JsonStyle&);

}  // namespace llm::jinja
