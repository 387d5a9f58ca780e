#include "text/jinja/builtins.h"

#include <algorithm>
#include <map>
#include <vector>

#include "text/jinja/print.h"

namespace llm::jinja {
namespace {

/// Jinja has them, no chat template needs them, and their results are long to define: refused by name when used.
Value unsupported(Runtime& rt, const Value&, CallArguments&) {
  rt.fail("this filter of Jinja's is not supported in chat templates");
}
constexpr std::string_view kUnsupported[] = {"pprint", "random", "striptags", "urlize", "wordwrap"};

const std::vector<detail::FilterRow>& filters() {
  static const std::vector<detail::FilterRow> rows = [] {
    std::vector<detail::FilterRow> all;
    for (const auto& row : detail::text_filters()) all.push_back(row);
    for (const auto& row : detail::sequence_filters()) all.push_back(row);
    for (const std::string_view name : kUnsupported) all.push_back({name, unsupported});
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  }();
  return rows;
}

}  // namespace

std::int32_t find_filter(std::string_view name) {
  const auto& rows = filters();
  const auto row = std::lower_bound(rows.begin(), rows.end(), name, [](const auto& r, auto n) { return r.name < n; });
  return row != rows.end() && row->name == name ? static_cast<std::int32_t>(row - rows.begin()) : -1;
}

Value call_filter(Runtime& rt, std::int32_t filter, const Value& v, CallArguments& arguments) {
  rt.step();
  rt.charge_reading(v);
  rt.charge_reading(arguments);
  int deepest = 0;  // what a lazy result keeps of its arguments
  for (const Value& a : arguments.positional) deepest = std::max(deepest, depth(a));
  for (const auto& [name, a] : arguments.keywords) deepest = std::max(deepest, depth(a));
  Value result = filters()[static_cast<std::size_t>(filter)].body(rt, v, arguments);
  if (result.is(Kind::Iterator) && deepest > 0) {
    auto& iterator = result.as<IteratorObject>();
    iterator.depth = std::max(iterator.depth, deepest + 1);
    rt.check_depth(iterator.depth);
  }
  return result;
}

Value call_filter(Runtime& rt, const Value& name, const Value& v, CallArguments& arguments) {
  const std::int32_t filter = name.is_string() ? find_filter(name.as_string().view()) : -1;
  if (filter < 0) rt.fail("there is no filter named " + short_repr(name));
  return call_filter(rt, filter, v, arguments);
}

bool call_test(Runtime& rt, const Value& name, const Value& v, CallArguments& arguments) {
  const std::int32_t test = name.is_string() ? find_test(name.as_string().view()) : -1;
  if (test < 0) rt.fail("there is no test named " + short_repr(name));
  return call_test(rt, test, v, arguments);
}

}  // namespace llm::jinja
