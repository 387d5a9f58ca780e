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
/// Whether llama.cpp has a format of this name, which is none of ours.
bool is_foreign_template(std::string_view name);

}  // namespace llm
