// JSON's own notation as expressions: strings and their escapes, numbers, any value, white space.
#pragma once

#include <optional>
#include <string_view>

#include "constrain/expression.h"

namespace llm {

/// White space is allowed where pretty printers put it, and bounded so that a model cannot go on with it for ever:
/// behind { [ , : and before } ], one space, or a line end and up to 20 spaces and tabs.
class JsonText {
 public:
  explicit JsonText(Productions& p) : p_(p) {}

  ExprId space();
  ExprId string();  ///< any, with quotes and every escape that RFC 8259 knows
  ExprId value();   ///< any
  ExprId object();  ///< any
  ExprId array();   ///< any
  ExprId boolean();
  /// Up to 16 digits before and behind the point, exponents up to 307, beside more than one digit before the point 292:
  /// more is lost on who reads it.
  ExprId number();
  ExprId integer();

  /// One character of any string, in every spelling.
  ExprId any_character();
  /// A character of the set in its shortest spelling: itself, or an escape where it needs one.
  ExprId character(const CodePoints&);
  /// Text between quotes, spelled so.
  ExprId content(std::string_view utf8);
  ExprId quoted(ExprId content) { return p_.sequence({p_.literal("\""), content, p_.literal("\"")}); }
  ExprId digits(std::uint64_t min, std::uint64_t max);
  ExprId digit(char first, char last);

  /// `open` (items, separated)? `close` with white space; `items` nothing for an empty bracket.
  ExprId bracketed(std::string_view open, ExprId items, std::string_view close);
  ExprId comma() { return p_.sequence({p_.literal(","), space()}); }
  ExprId colon() { return p_.sequence({p_.literal(":"), space()}); }

 private:
  ExprId hex_digits(std::uint32_t first, std::uint32_t last, int n);
  /// A rule that is made when it is first asked for.
  template <class Body>
  ExprId once(std::optional<RuleId>& rule, const char* name, const Body& body);

  Productions& p_;
  std::optional<RuleId> space_, string_, value_, object_, array_, number_, integer_;
  std::optional<ExprId> any_character_;
};

}  // namespace llm
