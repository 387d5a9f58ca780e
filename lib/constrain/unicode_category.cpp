#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "constrain/regex.h"
#include "text/unicode.h"

namespace llm {

std::optional<CodePoints> unicode_category(std::string_view name) {
  if (name == "Any") return CodePoints::all();
  if (name == "ASCII") return CodePoints{{0, 0x7f}};
  // PropertyValueAliases.txt of the Unicode character database.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 42> kNames{{
      {"Letter", "L"},
      {"Cased_Letter", "LC"},
      {"Uppercase_Letter", "Lu"},
      {"Lowercase_Letter", "Ll"},
      {"Titlecase_Letter", "Lt"},
      {"Modifier_Letter", "Lm"},
      {"Other_Letter", "Lo"},
      {"Mark", "M"},
      {"Combining_Mark", "M"},
      {"Nonspacing_Mark", "Mn"},
      {"Spacing_Mark", "Mc"},
      {"Enclosing_Mark", "Me"},
      {"Number", "N"},
      {"Decimal_Number", "Nd"},
      {"digit", "Nd"},
      {"Letter_Number", "Nl"},
      {"Other_Number", "No"},
      {"Punctuation", "P"},
      {"punct", "P"},
      {"Connector_Punctuation", "Pc"},
      {"Dash_Punctuation", "Pd"},
      {"Open_Punctuation", "Ps"},
      {"Close_Punctuation", "Pe"},
      {"Initial_Punctuation", "Pi"},
      {"Final_Punctuation", "Pf"},
      {"Other_Punctuation", "Po"},
      {"Symbol", "S"},
      {"Math_Symbol", "Sm"},
      {"Currency_Symbol", "Sc"},
      {"Modifier_Symbol", "Sk"},
      {"Other_Symbol", "So"},
      {"Separator", "Z"},
      {"Space_Separator", "Zs"},
      {"Line_Separator", "Zl"},
      {"Paragraph_Separator", "Zp"},
      {"Other", "C"},
      {"Control", "Cc"},
      {"cntrl", "Cc"},
      {"Format", "Cf"},
      {"Surrogate", "Cs"},  // in no text: UTF-8 has no form for them
      {"Private_Use", "Co"},
      {"Unassigned", "Cn"},
  }};
  const auto known = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const auto& names) { return names.first == name || names.second == name; });
  if (known == kNames.end()) return std::nullopt;
  name = known->second;
  CodePoints set;
  for (char32_t c = 0; c <= CodePoints::kLast; ++c) {
    const std::string_view category = unicode::category_name(c);
    const bool cased = name == "LC" && (category == "Lu" || category == "Ll" || category == "Lt");
    if (cased || category.starts_with(name)) set.add(c, c);
  }
  return set;
}

}  // namespace llm
