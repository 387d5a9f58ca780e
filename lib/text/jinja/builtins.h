// Filters, tests and functions that every template sees.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace llm::jinja {

/// Its index, or -1.
std::int32_t find_filter(std::string_view name);
std::int32_t find_test(std::string_view name);
Value call_filter(Runtime&, std::int32_t filter, const Value&, CallArguments&);
bool call_test(Runtime&, std::int32_t test, const Value&, CallArguments&);
/// By a name that the template computes: fails if there is none.
Value call_filter(Runtime&, const Value& name, const Value&, CallArguments&);
bool call_test(Runtime&, const Value& name, const Value&, CallArguments&);

/// nullptr if there is none.
const Value* find_global(std::string_view name);

namespace detail {

using FilterBody = Value (*)(Runtime&, const Value&, CallArguments&);
struct FilterRow {
  std::string_view name;
  FilterBody body;
};
/// Rows of the two files of filters, for the one table.
std::span<const FilterRow> text_filters();
std::span<const FilterRow> sequence_filters();

}  // namespace detail

}  // namespace llm::jinja
