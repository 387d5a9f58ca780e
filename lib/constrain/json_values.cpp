// Questions about facts: which strings, numbers and properties they allow, whether two of them allow a value in common.
#include <algorithm>

#include "base/utf8.h"
#include "constrain/json_facts.h"
#include "constrain/json_text.h"
#include "constrain/regex.h"
#include "constrain/source_text.h"

namespace llm {
namespace {

constexpr std::size_t kTellingDepth = 6;  // how far down alternatives are told apart

Decimal decimal_of(const Json& number) {
  if (number.is_number_unsigned()) return Decimal::of(number.get<std::uint64_t>());
  if (number.is_number_integer()) return Decimal::of(number.get<std::int64_t>());
  return Decimal::of(number.get<double>());
}

std::string plain_text(const Decimal& d) {
  return (d.negative ? "-" : "") + d.whole + (d.fraction.empty() ? "" : "." + d.fraction);
}

/// What stands between the quotes, as JsonText::content spells it.
std::string quoted_content(const std::string& text) {
  const std::string dumped = Json(text).dump();
  return dumped.substr(1, dumped.size() - 2);
}

Automaton content_automaton(const std::string& text) {
  Productions p;
  return regular_automaton(p, JsonText(p).content(text));
}

/// No text between quotes that the automaton takes has more characters; nothing if there is no end to them.
std::optional<std::uint64_t> most_characters(const Automaton& a) {
  const auto order = targets_first(a);
  if (!order) return std::nullopt;
  std::vector<std::uint64_t> most(a.states.size());
  for (const StateId s : *order) {
    for (const auto& e : a.states[s].bytes) {
      const bool goes_on = e.first >= 0x80 && e.last <= 0xbf;  // with a character; escapes count more than they are
      most[s] = std::max(most[s], most[e.target] + (goes_on ? 0 : 1));
    }
  }
  return most[0];
}

/// Of an enum or const: such values are compared without automata.
bool lists_values(const Schemas& schemas) {
  return std::any_of(schemas.begin(), schemas.end(), [](const Schema& s) {
    return s.node->is_object() && (s.node->contains("const") || s.node->contains("enum"));
  });
}

template <class T>
bool has(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::vector<std::string> FactsReader::names(const Facts& facts) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!has(names, name)) names.push_back(name);
  };
  for (const auto& rule : facts.objects) {
    for (const auto& [name, schema] : rule.properties) add(name);
  }
  for (const std::string& name : facts.required) add(name);
  for (const std::string& name : listed_names(facts)) add(name);
  return names;
}

std::vector<std::string> FactsReader::listed_names(const Facts& facts) {
  if (facts.property_names.empty()) return {};
  std::vector<std::string> names;
  for (const Facts& alternative : read(facts.property_names)) {
    if ((alternative.types & kStringType) == 0) continue;
    if (!alternative.values) return {};
    for (const Json& value : *alternative.values) {
      if (value.is_string()) names.push_back(value.get<std::string>());
    }
  }
  return names;
}

bool FactsReader::is_closed(const Facts& facts, View view) const {
  return facts.closed && (view == View::Written || !facts.closed_in_doubt);
}

bool FactsReader::is_open(const Facts& facts, View view) const {
  const auto has_additional = [](const auto& r) { return r.additional.has_value(); };
  const auto has_properties = [](const auto& r) { return !r.properties.empty(); };
  if (std::any_of(facts.objects.begin(), facts.objects.end(), has_additional))
    return true;  // what it says is asked later
  if (is_closed(facts, view)) return false;
  return view == View::Valid || facts.names_ignored || options_.unmentioned == SchemaOptions::Unmentioned::Allowed ||
         std::none_of(facts.objects.begin(), facts.objects.end(), has_properties);
}

std::optional<Schemas> FactsReader::property(const Facts& facts, const std::string& name, View view) {
  if (has(facts.forbidden, name)) return std::nullopt;
  if (const auto names = property_names(facts); names && !accepts(*names, quoted_content(name))) return std::nullopt;
  Schemas all;
  bool mentioned = has(facts.required, name), evaluated = false;
  for (const auto& rule : facts.objects) {
    bool matched = false;
    for (const auto& [other, schema] : rule.properties) {
      if (other != name) continue;
      all.push_back(schema);
      matched = true;
    }
    for (const auto& [pattern, schema] : rule.patterns) {
      if (!accepts(strings(pattern), quoted_content(name))) continue;
      all.push_back(schema);
      matched = true;
    }
    mentioned |= matched;
    evaluated |= matched || rule.additional;
    if (!matched && rule.additional) all.push_back(*rule.additional);
  }
  if (is_closed(facts, view) && !evaluated) return std::nullopt;
  if (!mentioned && !is_open(facts, view)) return std::nullopt;
  if (std::any_of(all.begin(), all.end(), [](const Schema& s) { return s.is(false); })) return std::nullopt;
  return all;
}

const Automaton& FactsReader::strings(const Facts::Pattern& pattern) {
  if (const auto known = pattern_automata_.find(pattern); known != pattern_automata_.end()) return known->second;
  Productions p;
  JsonText json(p);
  const RegexUse use{pattern.match == Facts::Pattern::Match::Whole ? RegexUse::Match::Whole : RegexUse::Match::Anywhere,
                     [&](const CodePoints& set) { return json.character(set); }};
  try {
    Automaton a = regular_automaton(p, parse_regex(SourceText("pattern", pattern.expression, {}), p, use));
    return pattern_automata_.emplace(pattern, std::move(a)).first->second;
  } catch (const Error& e) {
    document_.fail(pattern.where, "", e.what());
  }
}

const Automaton& FactsReader::strings(const Facts& facts) {
  StringFacts key{facts.patterns, facts.min_length, facts.max_length, {}};
  for (const Json& value : facts.excluded) {
    if (value.is_string()) key.excluded.push_back(value.get<std::string>());
  }
  if (const auto known = string_automata_.find(key); known != string_automata_.end()) return known->second;
  std::optional<Automaton> result;
  const auto restrict_to = [&](Automaton a) { result = result ? intersection(*result, a) : std::move(a); };
  for (const Facts::Pattern& pattern : facts.patterns) restrict_to(strings(pattern));
  // What the patterns leave may be no longer in any case, as most formats' texts are.
  const auto most = result ? most_characters(*result) : std::nullopt;
  const std::uint64_t max_length = most && *most <= facts.max_length ? kUnbounded : facts.max_length;
  if (!result || facts.min_length > 0 || max_length != kUnbounded) {
    Productions p;
    const ExprId character = JsonText(p).character(CodePoints::all());
    restrict_to(regular_automaton(p, p.repeat(character, facts.min_length, max_length)));
  }
  for (const std::string& text : key.excluded) result = difference(*result, content_automaton(text));
  return string_automata_.emplace(std::move(key), *std::move(result)).first->second;
}

std::optional<Automaton> FactsReader::property_names(const Facts& facts) {
  if (facts.property_names.empty()) return std::nullopt;
  Productions p;
  std::vector<ExprId> ways;
  for (Facts& alternative : read(facts.property_names)) {
    if ((alternative.types & kStringType) == 0) continue;
    if (alternative.values) {
      for (const Json& value : *alternative.values) {
        if (fits(alternative, value).value_or(false) && value.is_string()) {
          ways.push_back(p.regular(content_automaton(value.get<std::string>())));
        }
      }
    } else {
      ways.push_back(p.regular(strings(alternative)));
    }
  }
  return regular_automaton(p, p.choice(std::move(ways)));
}

Automaton FactsReader::numbers(const Facts& facts, NumberKind kind) {
  Automaton result = numbers_between(kind, facts.lower, facts.upper);
  for (const auto& [divisor, where] : facts.multiples) {
    if (const auto multiples = multiples_of(divisor)) {
      result = intersection(result, *multiples);
    } else {
      problem(where, "multipleOf", "a number with fewer digits can be enforced");
    }
  }
  for (const Json& value : facts.excluded) {
    if (!value.is_number()) continue;
    const Bound bound{decimal_of(value), false};
    result = difference(result, numbers_between(kind, bound, bound));
    if (bound.value.zero()) {
      Productions p;
      const ExprId zeros = p.optional(p.sequence({p.literal("."), p.repeat(p.literal("0"), 1, kUnbounded)}));
      result = difference(result, regular_automaton(p, p.sequence({p.literal("-0"), zeros})));
    }
  }
  return result;
}

Automaton FactsReader::written_numbers(const Facts& facts, NumberKind kind) {
  // A reader rounds a number of the schema as it rounds those of a text, so that a bound which may be reached holds.
  bool exact = !facts.multiples.empty();
  for (const Json& value : facts.excluded) exact |= value.is_number() && !is_safe(decimal_of(value));
  std::vector<std::string> ends;  // bounds of more digits than are written else
  for (const std::optional<Bound>& bound : {facts.lower, facts.upper}) {
    if (!bound) continue;
    exact |= bound->exclusive && !is_safe(bound->value);
    if (!bound->exclusive && !bound->value.fraction.empty()) ends.push_back(plain_text(bound->value));
  }
  Productions p;
  std::vector<ExprId> ways{p.regular(numbers_for_doubles(kind, exact ? WholeNumbers::Safe : WholeNumbers::Long))};
  for (const std::string& end : ends) {
    if (!exact) ways.push_back(p.literal(end));
  }
  return intersection(numbers(facts, kind), regular_automaton(p, p.choice(std::move(ways))));
}

std::optional<bool> FactsReader::fits(const Facts& facts, const Json& value) {
  if (facts.values && !has_value(*facts.values, value)) return false;
  return listed_value_fits(facts, value);
}

/// Without the automaton of their lengths.
bool FactsReader::text_fits(const Facts& facts, const std::string& text) {
  const std::uint64_t length = utf8::count_characters(text);
  return facts.min_length <= length && length <= facts.max_length &&
         std::all_of(facts.patterns.begin(), facts.patterns.end(),
                     [&](const Facts::Pattern& pattern) { return accepts(strings(pattern), quoted_content(text)); });
}

std::optional<bool> FactsReader::listed_value_fits(const Facts& facts, const Json& value) {
  const unsigned type = type_of(value);
  if ((facts.types & type) == 0 || has_value(facts.excluded, value)) return false;
  switch (type) {
    case kStringType:
      return text_fits(facts, value.get<std::string>());
    case kIntegerType:
    case kFractionType: {
      const Decimal d = decimal_of(value);
      const int low = facts.lower ? Decimal::compare(d, facts.lower->value) : 1;
      const int high = facts.upper ? Decimal::compare(d, facts.upper->value) : -1;
      if (low < 0 || high > 0 || (low == 0 && facts.lower->exclusive) || (high == 0 && facts.upper->exclusive))
        return false;
      return facts.multiples.empty() || accepts(numbers(facts, NumberKind::Decimal), plain_text(d));
    }
    case kArrayType:
      return facts.restricts_arrays() ? std::nullopt : std::optional(true);
    case kObjectType:
      return facts.restricts_objects() ? std::nullopt : std::optional(true);
    default:
      return true;
  }
}

bool FactsReader::share_a_value(const Facts& values, const Facts& other) {
  return std::any_of(values.values->begin(), values.values->end(), [&](const Json& v) {
    return listed_value_fits(values, v).value_or(true) && fits(other, v).value_or(true);
  });
}

bool FactsReader::are_disjoint(const Facts& a, const Facts& b) {
  constexpr std::size_t kMostComparisons = 200'000;  // in the whole schema
  if (++comparisons_ > kMostComparisons) {
    document_.fail(
        "its alternatives in oneOf are too many to see that no two of them can hold at once; anyOf needs no "
        "such check");
  }
  const unsigned types = a.types & b.types;
  if (types == 0) return true;
  if (a.values) return !share_a_value(a, b);
  if (b.values) return !share_a_value(b, a);
  if ((types & (kNullType | kBooleanType)) != 0) return false;
  if ((types & kNumberTypes) != 0) {
    const NumberKind kind = (types & kFractionType) != 0 ? NumberKind::Decimal : NumberKind::Integer;
    if (share_a_word(numbers(a, kind), numbers(b, kind))) return false;
  }
  if ((types & kStringType) != 0 && share_a_word(strings(a), strings(b))) return false;
  if ((types & kArrayType) != 0 && a.min_items <= b.max_items && b.min_items <= a.max_items) return false;
  return (types & kObjectType) == 0 || are_disjoint_objects(a, b);
}

/// What is written under one alternative must not satisfy the other.
bool FactsReader::are_disjoint_objects(const Facts& a, const Facts& b) {
  if (a.min_properties > b.max_properties || b.min_properties > a.max_properties) return true;
  return never_satisfies(a, b) && never_satisfies(b, a);
}

/// Told by a property that one of the two requires: of the texts that we write for `written`, which may be fewer than
/// its standard's, by what the standard says of `other`.
bool FactsReader::never_satisfies(const Facts& written, const Facts& other) {
  const auto tells = [&](const std::string& name) {
    const auto here = property(written, name);
    const auto there = property(other, name, View::Valid);
    // Where only `other` requires it, a text without it does not satisfy that either.
    return !here || !there || are_disjoint(*here, *there);
  };
  std::vector<std::string> names = other.required;
  names.insert(names.end(), written.required.begin(), written.required.end());
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
    const auto here = property(written, name);
    return here && lists_values(*here);
  });
  return std::any_of(names.begin(), names.end(), tells);
}

bool FactsReader::are_disjoint(const Schemas& a, const Schemas& b) {
  if (depth_ == kTellingDepth) return false;
  ++depth_;
  bool disjoint = true;
  const std::vector<Facts> left = read(a), right = read(b);
  for (const Facts& x : left) {
    for (const Facts& y : right) disjoint = disjoint && are_disjoint(x, y);
  }
  --depth_;
  return disjoint;
}

}  // namespace llm
