// The methods that templates may call, by the kind of their object.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace llm::jinja {

/// nullptr if values of this kind have no such method.
MethodObject::Body find_method(const Value&, std::string_view name);
/// Methods that Python has and the sandbox refuses, since they change their object.
bool is_refused_method(const Value&, std::string_view name);

// Shared with the filters of the same names.
Str stripped(const Str&, const Value& characters, int sides);  ///< sides: 1 left, 2 right, 3 both
Value replaced(Runtime&, const Str&, const Str& old, const Str& replacement, std::int64_t count);
Value joined(Runtime&, const Str& separator, const std::vector<Value>& parts);
std::vector<Value> lines_of(Runtime&, const Str&, bool keep_ends);
/// At least one character of the case, and no cased one of another.
bool is_in_case(const Str&, bool (*wanted)(std::int32_t));
Str capitalized(const Str&);
Value centered(Runtime&, const Str&, std::int64_t width, const Str& fill);
/// str.split with `separator` None for white space; at most `most` cuts, -1: any number.
std::vector<Value> split_string(Runtime&, const Str&, const Value& separator, std::int64_t most);
std::vector<Value> split_string_right(Runtime&, const Str&, const Value& separator, std::int64_t most);

namespace detail {
/// Python has it, no chat template needs it: refused where it is called.
Value unsupported_method(Runtime&, const Value&, CallArguments&);
MethodObject::Body find_string_method(std::string_view name);
MethodObject::Body find_container_method(const Value&, std::string_view name);
}  // namespace detail

}  // namespace llm::jinja
