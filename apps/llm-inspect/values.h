// Metadata values as text and as JSON. Long arrays are shortened: how many, and the first few.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gguf/metadata.h"

namespace llm::inspect {

std::string type_text(const Metadata::Entry&);                    ///< "u32", "string[32000]"
std::string value_text(const Metadata&, const Metadata::Entry&);  ///< one line, escaped and cut
/// {"type": ..., "value": ...}, or {"type": "array", "element": ..., "count": ..., "first": [...]}. Strings are whole;
/// numbers that JSON lacks are strings.
nlohmann::ordered_json value_json(const Metadata&, const Metadata::Entry&);

}  // namespace llm::inspect
