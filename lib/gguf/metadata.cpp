#include "gguf/metadata.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "gguf/byte_order.h"
#include "gguf/name_order.h"

namespace llm {

struct Metadata::Entry::Replacement {
  KeyOverride said;
  std::vector<std::byte> bytes;  ///< the value in the file's byte order
  mutable std::atomic<bool> read = false;
};

namespace {

bool is_integer(GgufType t) {
  switch (t) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::U16:
    case GgufType::I16:
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::U64:
    case GgufType::I64:
      return true;
    default:
      return false;
  }
}

/// Calls f with the integer of type `t` at `p`.
template <class F>
auto with_integer(GgufType t, const std::byte* p, bool swap, F f) {
  switch (t) {
    case GgufType::U8:
      return f(load<std::uint8_t>(p, swap));
    case GgufType::I8:
      return f(load<std::int8_t>(p, swap));
    case GgufType::U16:
      return f(load<std::uint16_t>(p, swap));
    case GgufType::I16:
      return f(load<std::int16_t>(p, swap));
    case GgufType::U32:
      return f(load<std::uint32_t>(p, swap));
    case GgufType::I32:
      return f(load<std::int32_t>(p, swap));
    case GgufType::I64:
      return f(load<std::int64_t>(p, swap));
    default:
      return f(load<std::uint64_t>(p, swap));
  }
}

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
constexpr std::string_view wanted() {
  if constexpr (std::is_same_v<T, bool>)
    return "a bool";
  else if constexpr (std::is_same_v<T, std::string_view>)
    return "a string";
  else if constexpr (std::is_floating_point_v<T>)
    return "a floating-point number";
  else
    return "an integer";
}

/// May a stored element type be given out as T?
template <class T>
bool converts(GgufType t) {
  if constexpr (std::is_same_v<T, bool>)
    return t == GgufType::Bool;
  else if constexpr (std::is_same_v<T, std::string_view>)
    return t == GgufType::String;
  else if constexpr (std::is_floating_point_v<T>)
    return t == GgufType::F32 || t == GgufType::F64;
  else
    return is_integer(t);
}

/// Does every value of the stored integer type fit T?
template <class T>
bool widens(GgufType t) {
  return with_integer(t, std::array<std::byte, 8>{}.data(), false, []<class Stored>(Stored) {
    return std::in_range<T>(std::numeric_limits<Stored>::min()) && std::in_range<T>(std::numeric_limits<Stored>::max());
  });
}

/// One number of type `t` as T, or nothing if it does not fit.
template <class T>
std::optional<T> number_at(GgufType t, const std::byte* p, bool swap) {
  if constexpr (std::is_same_v<T, bool>) {
    return std::to_integer<unsigned>(*p) != 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (t == GgufType::F32) return static_cast<T>(load<float>(p, swap));
    const double d = load<double>(p, swap);
    if (std::isfinite(d) && std::abs(d) > static_cast<double>(std::numeric_limits<T>::max())) return std::nullopt;
    return static_cast<T>(d);
  } else {
    return with_integer(t, p, swap, [](auto v) -> std::optional<T> {
      if (!std::in_range<T>(v)) return std::nullopt;
      return static_cast<T>(v);
    });
  }
}

std::string type_text(const Metadata::Entry& e) {
  if (e.type != GgufType::Array) return std::string(name(e.type));
  return "array of " + std::string(name(e.element));
}

template <class T>
std::string out_of_range(const Metadata::Entry& e, const std::byte* p, bool swap) {
  std::string found;
  if constexpr (std::is_floating_point_v<T>)
    found = std::to_string(load<double>(p, swap));
  else if constexpr (kIsInteger<T>)
    found = with_integer(e.element, p, swap, [](auto v) { return std::to_string(v); });
  std::string range;
  if constexpr (kIsInteger<T>)
    range = std::to_string(std::numeric_limits<T>::min()) + " to " + std::to_string(std::numeric_limits<T>::max());
  else
    range = "a single-precision number";
  return "value " + found + " is outside of " + range;
}

}  // namespace

std::size_t value_bytes(GgufType t) {
  switch (t) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool:
      return 1;
    case GgufType::U16:
    case GgufType::I16:
      return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32:
      return 4;
    case GgufType::U64:
    case GgufType::I64:
    case GgufType::F64:
      return 8;
    case GgufType::String:
    case GgufType::Array:
      break;
  }
  return 0;
}

std::string_view name(GgufType t) {
  constexpr std::array<std::string_view, 13> names{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                   "bool", "string", "array", "u64", "i64", "f64"};
  const auto id = static_cast<std::size_t>(t);
  return id < names.size() ? names[id] : "unknown";
}

const Metadata::Entry* Metadata::find(std::string_view key) const {
  const auto at = find_name(order_, key, [&](std::size_t i) { return entries_[i].key; });
  if (!at) return nullptr;
  const Entry& entry = entries_[*at];
  if (entry.by) entry.by->read.store(true, std::memory_order_relaxed);
  return &entry;
}

void Metadata::fail(std::string_view key, std::string problem) const {
  const Entry* e = find(key);
  if (e && e->by)
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = file_,
                           .subject = key_subject(key),
                           .problem = problem + " (the value is that of " + e->by->said.origin + ")"});
  throw Error(ErrorKind::Model, ErrorParts{.file = file_,
                                           .offset = e ? e->offset : section_offset_,
                                           .subject = key_subject(key),
                                           .problem = std::move(problem)});
}

namespace {

std::string_view word(const KeyOverride& o) {
  constexpr std::array<std::string_view, 4> kWords{"int", "float", "bool", "str"};
  return kWords[o.value.index()];
}

/// The word that says a value of this type.
std::string_view word(GgufType t) {
  if (t == GgufType::String) return "str";
  if (t == GgufType::Bool) return "bool";
  return is_integer(t) ? "int" : "float";
}

/// What a key gets that the file lacks.
GgufType widest(const KeyOverride& o) {
  constexpr std::array kTypes{GgufType::I64, GgufType::F64, GgufType::Bool, GgufType::String};
  return kTypes[o.value.index()];
}

[[noreturn]] void refuse(const KeyOverride& o, std::string problem) {
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = {}, .subject = o.origin + ": " + key_subject(o.key), .problem = std::move(problem)});
}

template <class T>
std::vector<std::byte> bytes_of(T value, bool swap) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  if (swap) swap_numbers(bytes, sizeof value);
  return bytes;
}

std::vector<std::byte> integer_bytes(const KeyOverride& o, GgufType type, bool swap) {
  const auto value = std::get<std::int64_t>(o.value);
  return with_integer(type, std::array<std::byte, 8>{}.data(), false, [&]<class Stored>(Stored) {
    if (!std::in_range<Stored>(value))
      refuse(o, "value " + std::to_string(value) + " does not fit " + std::string(name(type)) +
                    ", the type that the file has it in");
    return bytes_of(static_cast<Stored>(value), swap);
  });
}

std::vector<std::byte> real_bytes(const KeyOverride& o, GgufType type, bool swap) {
  const double value = std::get<double>(o.value);
  return type == GgufType::F64 ? bytes_of(value, swap) : bytes_of(static_cast<float>(value), swap);
}

std::vector<std::byte> value_bytes_of(const KeyOverride& o, GgufType type, bool swap) {
  if (is_integer(type)) return integer_bytes(o, type, swap);
  if (type == GgufType::Bool) return {std::byte{std::get<bool>(o.value)}};
  if (type != GgufType::String) return real_bytes(o, type, swap);
  const auto text = std::as_bytes(std::span(std::get<std::string>(o.value)));
  return {text.begin(), text.end()};
}

}  // namespace

std::string to_string(const KeyOverride& o) {
  const std::string head = o.key + "=" + std::string(word(o)) + ":";
  if (const auto* text = std::get_if<std::string>(&o.value)) return head + *text;
  if (const auto* flag = std::get_if<bool>(&o.value)) return head + (*flag ? "true" : "false");
  std::array<char, 32> number;
  const auto end = std::holds_alternative<double>(o.value)
                       ? std::to_chars(number.data(), number.data() + number.size(), std::get<double>(o.value))
                       : std::to_chars(number.data(), number.data() + number.size(), std::get<std::int64_t>(o.value));
  return head + std::string(number.data(), end.ptr);
}

void Metadata::replace(const KeyOverride& said) {
  const auto at = find_name(order_, said.key, [&](std::size_t i) { return entries_[i].key; });
  const GgufType type = at ? entries_[*at].type : widest(said);
  if (type == GgufType::Array)
    refuse(said, "is an " + type_text(entries_[*at]) + "; only single values can be replaced");
  if (word(type) != word(said))
    refuse(said, "has type " + std::string(name(type)) + " in the file, which " + std::string(word(type)) +
                     ":... replaces, not " + std::string(word(said)) + ":...");
  auto by = std::make_shared<Entry::Replacement>();
  by->said = said;
  by->bytes = value_bytes_of(said, type, swap_bytes_);
  if (!at) {
    entries_.push_back({.key = by->said.key,
                        .type = type,
                        .element = type,
                        .count = 1,
                        .offset = section_offset_,
                        .raw = {},
                        .strings = {}});
    order_ = sorted_names(entries_.size(), [&](std::size_t i) { return entries_[i].key; });
  }
  Entry& entry = at ? entries_[*at] : entries_.back();
  entry.raw = by->bytes;
  if (!at || entry.by) entry.key = by->said.key;  // lives as long as the replacement
  entry.by = std::move(by);
}

std::vector<KeyOverride> Metadata::overrides() const {
  std::vector<KeyOverride> all;
  for (const Entry& e : entries_) {
    if (e.by) all.push_back(e.by->said);
  }
  return all;
}

std::vector<KeyOverride> Metadata::unread_overrides() const {
  std::vector<KeyOverride> unread;
  for (const Entry& e : entries_) {
    if (e.by && !e.by->read.load(std::memory_order_relaxed)) unread.push_back(e.by->said);
  }
  return unread;
}

const Metadata::Entry& Metadata::require(std::string_view key) const {
  const Entry* e = find(key);
  if (!e) fail(key, "is missing");
  return *e;
}

template <class T>
T Metadata::value_of(const Entry& e) const {
  if (!converts<T>(e.type)) fail(e.key, "has type " + type_text(e) + ", " + std::string(wanted<T>()) + " is required");
  if constexpr (std::is_same_v<T, std::string_view>) {
    return {reinterpret_cast<const char*>(e.raw.data()), e.raw.size()};
  } else {
    const std::optional<T> v = number_at<T>(e.type, e.raw.data(), swap_bytes_);
    if (!v) fail(e.key, out_of_range<T>(e, e.raw.data(), swap_bytes_));
    return *v;
  }
}

template <class T>
T Metadata::get(std::string_view key) const {
  return value_of<T>(require(key));
}

template <class T>
std::vector<T> Metadata::array(std::string_view key) const {
  const Entry& e = require(key);
  bool fits = e.type == GgufType::Array && converts<T>(e.element);
  if constexpr (kIsInteger<T>) fits = fits && widens<T>(e.element);
  if constexpr (std::is_same_v<T, float>) fits = fits && e.element == GgufType::F32;
  if (!fits)
    fail(key, "has type " + type_text(e) + ", an array of " +
                  (kIsInteger<T> ? std::string(std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T)) +
                                       " or narrower integers"
                   : std::is_same_v<T, float>  ? "f32"
                   : std::is_same_v<T, double> ? "f32 or f64"
                   : std::is_same_v<T, bool>   ? "bool"
                                               : "strings") +
                  " is required");
  if constexpr (std::is_same_v<T, std::string_view>) {
    return e.strings;
  } else {
    const std::size_t width = value_bytes(e.element);
    std::vector<T> out(static_cast<std::size_t>(e.count));
    if constexpr (!std::is_same_v<T, bool>) {
      if (width == sizeof(T) && !swap_bytes_) {  // the same width and lossless: the same type
        if (!out.empty()) std::memcpy(out.data(), e.raw.data(), out.size() * sizeof(T));
        return out;
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = number_at<T>(e.element, e.raw.data() + i * width, swap_bytes_).value();
    return out;
  }
}

template <class T>
std::vector<T> Metadata::one_or_each(std::string_view key, std::size_t count) const {
  const Entry& e = require(key);
  if (e.type != GgufType::Array) return std::vector<T>(count, value_of<T>(e));
  if (!converts<T>(e.element))
    fail(key, "has type " + type_text(e) + ", " + std::string(wanted<T>()) + " or an array of them is required");
  if (e.count != count)
    fail(key, "holds an array of " + std::to_string(e.count) + " values, one value or an array of " +
                  std::to_string(count) + " is required");
  if constexpr (std::is_same_v<T, std::string_view>) {
    return e.strings;
  } else {
    std::vector<T> out;
    out.reserve(count);
    const std::size_t width = value_bytes(e.element);
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* p = e.raw.data() + i * width;
      const std::optional<T> v = number_at<T>(e.element, p, swap_bytes_);
      if (!v) fail(key, "element " + std::to_string(i) + ": " + out_of_range<T>(e, p, swap_bytes_));
      out.push_back(*v);
    }
    return out;
  }
}

#define LLM_INSTANTIATE(T)                                            \
  template T Metadata::get<T>(std::string_view) const;                \
  template std::vector<T> Metadata::array<T>(std::string_view) const; \
  template std::vector<T> Metadata::one_or_each<T>(std::string_view, std::size_t) const;

LLM_INSTANTIATE(bool)
LLM_INSTANTIATE(signed char)
LLM_INSTANTIATE(unsigned char)
LLM_INSTANTIATE(short)
LLM_INSTANTIATE(unsigned short)
LLM_INSTANTIATE(int)
LLM_INSTANTIATE(unsigned)
LLM_INSTANTIATE(long)
LLM_INSTANTIATE(unsigned long)
LLM_INSTANTIATE(long long)
LLM_INSTANTIATE(unsigned long long)
LLM_INSTANTIATE(float)
LLM_INSTANTIATE(double)
LLM_INSTANTIATE(std::string_view)
#undef LLM_INSTANTIATE

}  // namespace llm
