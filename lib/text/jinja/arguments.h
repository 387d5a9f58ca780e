// Arguments of a builtin by name and place, as Python binds them.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "text/jinja/runtime.h"

namespace llm::jinja {

class Arguments {
 public:
  /// `names`: the parameters in order; "" is one that cannot be given by name. The first `required` must be there.
  /// Fails for what Python refuses: too many, unknown or repeated arguments.
  Arguments(Runtime&, std::string_view function, const CallArguments&, std::initializer_list<std::string_view> names,
            std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i] != nullptr; }
  /// Given, and not None.
  bool given(std::size_t i) const { return has(i) && !values_[i]->is_none(); }
  const Value& operator[](std::size_t i) const { return *values_[i]; }
  Value get(std::size_t i, Value fallback) const { return has(i) ? *values_[i] : std::move(fallback); }
  bool flag(std::size_t i, bool fallback) const;
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  /// Fails if it is not a string.
  const Str& string(std::size_t i) const;

 private:
  static constexpr std::size_t kMost = 8;
  Runtime& rt_;
  std::string_view function_;
  std::array<const Value*, kMost> values_{};
};

}  // namespace llm::jinja
