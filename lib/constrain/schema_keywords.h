// The keywords of JSON Schema: what each is to us, what lies under it, and since when there is one.
#pragma once

#include <cstdint>
#include <string_view>

namespace llm {

struct SchemaKeyword {
  enum class Use : std::uint8_t {
    Followed,    ///< FactsReader reads it
    OfOpenApi,   ///< the same, where no draft is declared
    Annotation,  ///< says nothing about which values are valid
    OfTexts,     ///< describes texts, and by the standard restricts none
    Refused,     ///< says something that is not enforced here
  } use;
  /// What is no schema may look like one.
  enum class Holds : std::uint8_t {
    Data,
    Schemas,  ///< one, or a list of them
    SchemasByName,
  } holds = Holds::Data;
  int since = 0;  ///< the draft that it came with, where `$schema` may declare an older one
};

/// Null: no draft has it.
const SchemaKeyword* find_schema_keyword(std::string_view name);

}  // namespace llm
