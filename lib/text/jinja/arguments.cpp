#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/operators.h"

namespace llm::jinja {

Arguments::Arguments(Runtime& rt, std::string_view function, const CallArguments& given,
                     std::initializer_list<std::string_view> names, std::size_t required)
    : rt_(rt), function_(function) {
  check(names.size() <= kMost, "parameters of a builtin");
  const std::string called(function);
  if (given.positional.size() > names.size()) {
    rt.fail(called + "() takes at most " + std::to_string(names.size()) + " arguments, not " +
            std::to_string(given.positional.size()));
  }
  for (std::size_t i = 0; i < given.positional.size(); ++i) values_[i] = &given.positional[i];
  for (const auto& [name, value] : given.keywords) {
    const auto place = std::find(names.begin(), names.end(), name.view());
    if (place == names.end() || name.empty()) {
      rt.fail(called + "() got an unexpected keyword argument '" + escaped(name.view()) + "'");
    }
    const auto i = static_cast<std::size_t>(place - names.begin());
    if (values_[i] != nullptr) rt.fail(called + "() got multiple values for argument '" + name.bytes() + "'");
    values_[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] != nullptr) continue;
    const std::string name(names.begin()[i]);
    rt.fail(called + "() is missing its argument " + (name.empty() ? std::to_string(i + 1) : "'" + name + "'"));
  }
}

bool Arguments::flag(std::size_t i, bool fallback) const { return has(i) ? truth(rt_, *values_[i]) : fallback; }

std::int64_t Arguments::integer(std::size_t i, std::int64_t fallback) const {
  return has(i) ? as_index(rt_, *values_[i], std::string(function_) + "(): the argument") : fallback;
}

const Str& Arguments::string(std::size_t i) const {
  const Value& v = *values_[i];
  if (!v.is_string()) {
    require_defined(rt_, v);
    rt_.fail(std::string(function_) + "(): the argument must be str, not " + std::string(type_name(v)));
  }
  return v.as_string();
}

}  // namespace llm::jinja
