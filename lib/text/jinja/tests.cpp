// What can stand behind `is`.
#include <algorithm>
#include <iterator>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

using Body = bool (*)(Runtime&, const Value&, CallArguments&);

/// A test without arguments.
template <bool (*holds)(const Value&)>
bool plain(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "test", given, {});
  return holds(v);
}

template <CompareOp op>
bool comparison(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "test", given, {""}, 1);
  return compare(rt, op, v, a[0]);
}

bool has_remainder(Runtime& rt, const Value& v, const Value& divisor, std::int64_t remainder) {
  return equal(rt, binary(rt, BinaryOp::Mod, v, divisor), Value::integer(remainder));
}

template <std::int64_t remainder>
bool parity(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "test", given, {});
  return has_remainder(rt, v, Value::integer(2), remainder);
}

bool divisibleby(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "divisibleby", given, {"num"}, 1);
  return has_remainder(rt, v, a[0], 0);
}

template <bool (*wanted)(std::int32_t)>
bool in_case(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "test", given, {});
  return is_in_case(str(rt, v), wanted);
}

bool sameas(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "sameas", given, {"other"}, 1);
  return is_same(v, a[0]);
}

template <std::int32_t (*find)(std::string_view)>
bool known_name(Runtime& rt, const Value& v, CallArguments& given) {
  const Arguments a(rt, "test", given, {});
  require_hashable(rt, v);
  return v.is_string() && find(v.as_string().view()) >= 0;
}

bool is_callable(const Value& v) {
  return v.is_undefined() || v.is(Kind::Function) || v.is(Kind::Macro) || v.is(Kind::Method) || v.is(Kind::Loop) ||
         v.is(Kind::Joiner);
}
bool is_indexable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict() || v.is(Kind::Range);
}
bool is_true(const Value& v) { return v.is(Kind::Bool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::Bool) && !v.as_bool(); }
bool is_boolean(const Value& v) { return v.is(Kind::Bool); }
bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_whole(const Value& v) { return v.is(Kind::Int) || v.is(Kind::BigInt); }
bool is_float(const Value& v) { return v.is(Kind::Float); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_escaped(const Value& v) { return v.is_string() && v.as_string().markup(); }

struct Row {
  std::string_view name;
  Body body;
};
constexpr Row kTests[] = {
    {"!=", comparison<CompareOp::Ne>},
    {"<", comparison<CompareOp::Lt>},
    {"<=", comparison<CompareOp::Le>},
    {"==", comparison<CompareOp::Eq>},
    {">", comparison<CompareOp::Gt>},
    {">=", comparison<CompareOp::Ge>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisibleby},
    {"eq", comparison<CompareOp::Eq>},
    {"equalto", comparison<CompareOp::Eq>},
    {"escaped", plain<is_escaped>},
    {"even", parity<0>},
    {"false", plain<is_false>},
    {"filter", known_name<find_filter>},
    {"float", plain<is_float>},
    {"ge", comparison<CompareOp::Ge>},
    {"greaterthan", comparison<CompareOp::Gt>},
    {"gt", comparison<CompareOp::Gt>},
    {"in", comparison<CompareOp::In>},
    {"integer", plain<is_whole>},
    {"iterable", plain<is_iterable>},
    {"le", comparison<CompareOp::Le>},
    {"lessthan", comparison<CompareOp::Lt>},
    {"lower", in_case<is_lower>},
    {"lt", comparison<CompareOp::Lt>},
    {"mapping", plain<is_mapping>},
    {"ne", comparison<CompareOp::Ne>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", parity<1>},
    {"sameas", sameas},
    {"sequence", plain<is_indexable>},
    {"string", plain<is_string>},
    {"test", known_name<find_test>},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", in_case<is_upper>},
};

}  // namespace

std::int32_t find_test(std::string_view name) {
  const auto* row = std::lower_bound(std::begin(kTests), std::end(kTests), name,
                                     [](const Row& r, std::string_view n) { return r.name < n; });
  return row != std::end(kTests) && row->name == name ? static_cast<std::int32_t>(row - std::begin(kTests)) : -1;
}

bool call_test(Runtime& rt, std::int32_t test, const Value& v, CallArguments& arguments) {
  rt.step();
  rt.charge_reading(v);
  rt.charge_reading(arguments);
  return kTests[test].body(rt, v, arguments);
}

}  // namespace llm::jinja
