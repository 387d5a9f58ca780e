// Values as text: Python's str() and repr().
#pragma once

#include <string>

#include "text/jinja/runtime.h"

namespace llm::jinja {

/// As `{{ value }}` prints it.
void append_str(Runtime&, const Value&, Str& out);
Str str(Runtime&, const Value&);
Str repr(Runtime&, const Value&);
/// repr() with escapes for what is not ASCII.
Str ascii(Runtime&, const Value&);
/// A value in a message: short, escaped, without looking into containers.
std::string short_repr(const Value&);

}  // namespace llm::jinja
