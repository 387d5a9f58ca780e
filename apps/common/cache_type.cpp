#include "common/cache_type.h"

#include <algorithm>
#include <string_view>

#include "backend/backend.h"
#include "base/error.h"

namespace llm::app {
namespace {

/// As llama.cpp writes it: lower case.
std::string option_value(DType type) {
  std::string text(name(type));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

/// "f32|f16|bf16", as completions read it
std::string choices() {
  std::string text;
  for (const DType type : kCacheTypes) text += (text.empty() ? "" : "|") + option_value(type);
  return text;
}

/// "f32, f16 or bf16"
std::string all_values() {
  std::string text;
  for (std::size_t i = 0; i < kCacheTypes.size(); ++i) {
    if (i > 0) text += i + 1 < kCacheTypes.size() ? ", " : " or ";
    text += option_value(kCacheTypes[i]);
  }
  return text;
}

DType cache_type(const std::string& option, const std::string& text) {
  const auto* const found =
      std::find_if(kCacheTypes.begin(), kCacheTypes.end(), [&](DType type) { return option_value(type) == text; });
  if (found != kCacheTypes.end()) return *found;
  throw Error(ErrorKind::Usage, "option " + option + ": \"" + escaped(text) + "\" is not " + all_values());
}

void add_cache_type(Command& cli, const std::string& name, DType& type, const std::string& help) {
  cli.add_option_function<std::string>(
         name, [&type, name](const std::string& text) { type = cache_type(name, text); }, help)
      ->type_name(choices())
      ->take_last();
}

}  // namespace

void add_cache_types(Command& cli, DType& keys, DType& values) {
  add_cache_type(cli, "--cache-type-k", keys, "cached keys: " + all_values() + " (default f16)");
  add_cache_type(cli, "--cache-type-v", values, "cached values: the same types (default f16)");
}

}  // namespace llm::app
