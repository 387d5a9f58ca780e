// Python's operators, truth and comparisons.
#pragma once

#include "text/jinja/runtime.h"

namespace llm::jinja {

enum class BinaryOp : std::uint8_t { Add, Sub, Mul, Div, FloorDiv, Mod, Pow };
enum class CompareOp : std::uint8_t { Eq, Ne, Lt, Le, Gt, Ge, In, NotIn };

bool truth(Runtime&, const Value&);
Value binary(Runtime&, BinaryOp, const Value&, const Value&);
/// `-2 ** n` as Python reads it: a base's sign is the power's.
Value power_of_magnitude(Runtime&, const Value& base, const Value& exponent);
Value negative(Runtime&, const Value&);
Value positive(Runtime&, const Value&);
bool compare(Runtime&, CompareOp, const Value&, const Value&);
bool equal(Runtime&, const Value&, const Value&);
/// a < b, as sorting asks.
bool less(Runtime&, const Value&, const Value&);
bool is_same(const Value&, const Value&);
bool contains(Runtime&, const Value& container, const Value&);

/// Fails as Python does for what cannot be a key.
void require_hashable(Runtime&, const Value&);
/// Integers and bools as positions and counts, cut to 64 bits; fails for anything else.
std::int64_t as_index(Runtime&, const Value&, std::string_view what);
/// Fails with what the undefined value's name is.
[[noreturn]] void fail_undefined(Runtime&, const Value&);
void require_defined(Runtime&, const Value&);

Value concatenated(Runtime&, const Str&, const Str&);
Value repeated(Runtime&, const Value& sequence, std::int64_t times);
/// HTML's special characters as references; a Markup string stays as it is.
Str html_escaped(const Str&);

}  // namespace llm::jinja
