#include "values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/shortest.h"

namespace llm::inspect {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kFirstElements = 8;

template <class T>
Json real_json(T value) {
  const std::string digits = shortest(value);
  if (!std::isfinite(value)) return digits;
  double same_digits = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), same_digits);
  return same_digits;
}

bool is_unsigned(GgufType t) {
  return t == GgufType::U8 || t == GgufType::U16 || t == GgufType::U32 || t == GgufType::U64;
}

template <class T>
Json number_json(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return real_json(value);
  } else {
    return value;
  }
}

/// Calls f with a value of the widest type of this kind of number.
template <class F>
Json with_type(GgufType type, F f) {
  if (type == GgufType::Bool) return f(bool{});
  if (type == GgufType::F32) return f(float{});
  if (type == GgufType::F64) return f(double{});
  if (is_unsigned(type)) return f(std::uint64_t{});
  return f(std::int64_t{});
}

template <class T>
Json first_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(values.size(), kFirstElements); ++i) list.push_back(number_json<T>(values[i]));
  return list;
}

Json first_elements(const Metadata& md, const Metadata::Entry& e) {
  if (e.element == GgufType::String) return first_of(e.strings);
  return with_type(e.element, [&](auto tag) { return first_of(md.array<decltype(tag)>(e.key)); });
}

Json scalar(const Metadata& md, const Metadata::Entry& e) {
  if (e.type == GgufType::String) return md.get<std::string_view>(e.key);
  return with_type(e.type, [&](auto tag) { return number_json(md.get<decltype(tag)>(e.key)); });
}

std::string element_text(const Json& element) {
  return element.is_string() ? "\"" + escaped(element.get<std::string>()) + "\"" : element.dump();
}

}  // namespace

std::string type_text(const Metadata::Entry& e) {
  if (e.type != GgufType::Array) return std::string(name(e.type));
  return std::string(name(e.element)) + "[" + std::to_string(e.count) + "]";
}

std::string value_text(const Metadata& md, const Metadata::Entry& e) {
  if (e.type != GgufType::Array) return element_text(scalar(md, e));
  std::string text;
  for (const Json& element : first_elements(md, e)) text += (text.empty() ? "" : ", ") + element_text(element);
  return e.count > kFirstElements ? text + ", ..." : text;
}

Json value_json(const Metadata& md, const Metadata::Entry& e) {
  if (e.type != GgufType::Array) return {{"type", name(e.type)}, {"value", scalar(md, e)}};
  return {{"type", "array"}, {"element", name(e.element)}, {"count", e.count}, {"first", first_elements(md, e)}};
}

}  // namespace llm::inspect
