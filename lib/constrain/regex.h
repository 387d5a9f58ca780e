// Regular expressions: ECMAScript's syntax over Unicode characters, as JSON Schema prescribes it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "constrain/expression.h"
#include "constrain/source_text.h"

namespace llm {

struct RegexUse {
  enum class Match : std::uint8_t {
    Whole,    ///< the expression is the whole text
    Anywhere  ///< the text contains a match, as `pattern` in JSON Schema means it
  } match = Match::Whole;
  /// Writes one character out of a set in the surrounding notation (the inside of a JSON string has escapes).
  std::function<ExprId(const CodePoints&)> character;
};

/// Throws ErrorKind::Notation with the place for what is no regular language (look-around, back references) and for
/// anchors and word boundaries in the middle.
ExprId parse_regex(const SourceText&, Productions&, const RegexUse&);

/// Unicode's general category by its short or long name ("L", "Lu", "Letter"), "Any" or "ASCII"; nothing if unknown.
std::optional<CodePoints> unicode_category(std::string_view name);

}  // namespace llm
