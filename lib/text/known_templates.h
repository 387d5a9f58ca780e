// Chat formats that are known by a name, for files without a template of their own.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace llm {

struct KnownTemplate {
  std::string_view name;
  std::string_view source;
};
std::span<const KnownTemplate> known_templates();

}  // namespace llm
