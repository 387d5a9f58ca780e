// Keywords of schemas, one by one, into facts.
#include "constrain/json_facts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "constrain/json_format.h"
#include "constrain/schema_keywords.h"

namespace llm {
namespace {

constexpr std::pair<std::string_view, unsigned> kTypeNames[] = {
    {"null", kNullType},     {"boolean", kBooleanType}, {"integer", kIntegerType}, {"number", kNumberTypes},
    {"string", kStringType}, {"array", kArrayType},     {"object", kObjectType}};

constexpr const char* kNoneBeyond = "doubles do not tell numbers beyond it apart; an inclusive bound can be enforced";
constexpr std::size_t kMostReferences = 100;
constexpr std::size_t kMostAlternatives = 5000;  // of one value, dead ends included

void tighten(std::uint64_t& min, const std::optional<std::uint64_t>& n) { min = std::max(min, n.value_or(0)); }
void limit(std::uint64_t& max, const std::optional<std::uint64_t>& n) { max = std::min(max, n.value_or(kUnbounded)); }

/// For messages: a text in plain quotes, anything else as JSON.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 40;
  const auto* text = value.get_ptr<const std::string*>();
  return text == nullptr ? escaped(value.dump(), kMost) : "\"" + escaped(*text, kMost) + "\"";
}

/// As JSON Schema compares: members have no order, 1 is 1.0.
bool equal(const Json& a, const Json& b) {
  return a.is_structured() && b.is_structured() ? nlohmann::json(a) == nlohmann::json(b) : a == b;
}

}  // namespace

bool has_value(const std::vector<Json>& values, const Json& value) {
  return std::any_of(values.begin(), values.end(), [&](const Json& v) { return equal(v, value); });
}

unsigned type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNullType;
    case Json::value_t::boolean:
      return kBooleanType;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return kIntegerType;
    case Json::value_t::number_float:
      return Decimal::of(value.get<double>()).fraction.empty() ? kIntegerType : kFractionType;
    case Json::value_t::string:
      return kStringType;
    case Json::value_t::array:
      return kArrayType;
    default:
      return kObjectType;
  }
}

FactsReader::FactsReader(const SchemaDocument& document, SchemaOptions options, Warnings& warnings)
    : document_(document), options_(options), warnings_(warnings) {}

void FactsReader::problem(const Schema& at, std::string_view keyword, const std::string& why) {
  if (view_by_draft_ && keyword != "oneOf") return;  // what is written was seen to be possible
  const std::string text = escaped(at.pointer + "/" + std::string(keyword), 120) + ": " + why;
  if (std::find(problems_.begin(), problems_.end(), text) == problems_.end()) problems_.push_back(text);
}

void FactsReader::fail_if_problems() const {
  if (problems_.empty()) return;
  constexpr std::size_t kShown = 8;
  std::string text = "cannot be enforced";
  for (std::size_t i = 0; i < std::min(kShown, problems_.size()); ++i) text += (i == 0 ? ": " : "; ") + problems_[i];
  if (problems_.size() > kShown) text += "; and " + std::to_string(problems_.size() - kShown) + " more";
  document_.fail(text);
}

std::vector<Facts> FactsReader::read(const Schemas& all) {
  if (std::exchange(reading_, true)) return read_once(all);
  ignored_.reset();
  const std::size_t problems = problems_.size();
  std::vector<Facts> alternatives = read_once(all);
  if (ignored_ && problems_.size() == problems) {
    // What the draft ignores only narrows what is written, but it does not keep alternatives of oneOf apart.
    view_by_draft_ = true;
    std::swap(comparisons_, comparisons_by_draft_);
    read_once(all);
    std::swap(comparisons_, comparisons_by_draft_);
    view_by_draft_ = false;
  }
  reading_ = false;
  return alternatives;
}

std::vector<Facts> FactsReader::read_once(const Schemas& all) {
  const std::size_t outer = std::exchange(alternatives_, 0);
  State state;
  for (const Schema& s : all) merge(state, s, {});
  std::vector<Facts> alternatives = expand(std::move(state));
  const bool closes = std::any_of(alternatives.begin(), alternatives.end(), [](const Facts& f) { return f.closed; });
  if (all.size() > 1 && closes)
    problem(all.front(), "unevaluatedProperties", "not beside other schemas of the same value");
  alternatives_ = outer;
  return alternatives;
}

std::vector<Facts> FactsReader::expand(State state) {
  if (++alternatives_ > kMostAlternatives) {
    document_.fail("anyOf, oneOf and allOf combine to more than " + std::to_string(kMostAlternatives) +
                   " alternatives of one value");
  }
  if (!state.possible || state.facts.types == 0) return {};
  if (state.groups.empty()) {
    std::vector<Facts> one;
    one.push_back(std::move(state.facts));
    return one;
  }
  const Group group = std::move(state.groups.back());
  state.groups.pop_back();
  // Only alternatives inside of what is closed: it sees all keywords of the value.
  if (group.kind == Group::Kind::AnyOf) state.facts.closed_in_doubt |= state.facts.closed;
  std::vector<std::vector<Facts>> branches;
  for (const Schema& branch : group.branches) {
    State copy = state;
    merge(copy, branch, group.chain);
    branches.push_back(expand(std::move(copy)));
  }
  if (group.kind == Group::Kind::OneOf && state.facts.closed) {
    check_one_of(group, left_open(branches));
  } else if (group.kind == Group::Kind::OneOf) {
    check_one_of(group, branches);
  }
  std::vector<Facts> all;
  for (auto& branch : branches) std::move(branch.begin(), branch.end(), std::back_inserter(all));
  return all;
}

/// The alternatives without the `unevaluatedProperties` of the schema around them, which is no part of them.
std::vector<std::vector<Facts>> FactsReader::left_open(std::vector<std::vector<Facts>> branches) {
  for (auto& alternatives : branches) {
    for (Facts& facts : alternatives) facts.closed_in_doubt = facts.closed;
  }
  return branches;
}

/// Nothing in an automaton counts how many alternatives hold, so that exactly one must follow from what they say.
void FactsReader::check_one_of(const Group& group, const std::vector<std::vector<Facts>>& branches) {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (std::size_t j = i + 1; j < branches.size(); ++j) {
      for (const Facts& a : branches[i]) {
        for (const Facts& b : branches[j]) {
          if (are_disjoint(a, b)) continue;
          problem(group.where, "oneOf",
                  "alternatives " + std::to_string(i) + " and " + std::to_string(j) + " may both hold" +
                      (view_by_draft_ ? " by " + *ignored_
                                      : "; anyOf can be enforced, or a required property whose values differ"));
          return;
        }
      }
    }
  }
}

void FactsReader::merge(State& state, const Schema& schema, const Chain& chain) {
  if (schema.node->is_boolean()) {
    state.possible &= schema.is(true);
    return;
  }
  if (!schema.node->is_object()) document_.fail(schema, "", "a schema is an object, true or false");
  if (std::find(chain.begin(), chain.end(), schema.node) != chain.end()) {
    document_.fail(schema, "", "it refers to itself for the same value");
  }
  if (!state.seen.insert(schema.node).second) return;
  if (chain.size() > kMostReferences) document_.fail(schema, "", "references are nested more than 100 deep");
  merge_keywords(state, schema);
  merge_unevaluated(state.facts, schema, chain);

  Chain inner = chain;
  inner.push_back(schema.node);
  if (const Json* ref = find(schema, "$ref")) {
    if (!ref->is_string()) document_.fail(schema, "$ref", "a reference is a string");
    merge(state, document_.referenced(schema, ref->get<std::string>()), inner);
  }
  for (const Schema& s : schemas(schema, "allOf")) merge(state, s, inner);
  if (find(schema, "anyOf") != nullptr) {
    state.groups.push_back({schemas(schema, "anyOf"), Group::Kind::AnyOf, schema, inner});
  }
  if (find(schema, "oneOf") != nullptr) {
    state.groups.push_back({schemas(schema, "oneOf"), Group::Kind::OneOf, schema, inner});
  }
}

void FactsReader::merge_keywords(State& state, const Schema& s) {
  note_unknown_keywords(s);
  merge_types(state.facts, s);
  merge_values(state, s);
  merge_strings(state, s);
  merge_numbers(state.facts, s);
  merge_arrays(state.facts, s);
  merge_objects(state.facts, s);
  merge_not(state, s);
  if (find(s, "if") != nullptr && (find(s, "then") != nullptr || find(s, "else") != nullptr)) {
    problem(s, "if", "conditions are not supported; anyOf of the two cases is");
  }
}

void FactsReader::note_unknown_keywords(const Schema& s) {
  using Use = SchemaKeyword::Use;
  const auto note = [&](const std::string& key, const std::string& what) {
    if (!noted_.insert(s.pointer + "/" + key).second) return;
    warnings_.push_back(
        {"schema-keyword", "JSON schema, " + escaped(s.pointer, 120) + ": \"" + escaped(key) + "\" " + what});
  };
  for (const auto& [key, value] : s.node->items()) {
    const SchemaKeyword* const known = find_schema_keyword(key);
    if (known == nullptr) {
      if (!key.starts_with("x-")) note(key, "is no keyword of JSON Schema; it has no effect");
    } else if (known->use == Use::Refused) {
      problem(s, key, "this keyword is not supported");
    } else if (known->use == Use::OfTexts) {
      note(key, "describes texts; it restricts none, by the standard");
    } else if (known->use == Use::OfOpenApi && s.draft) {
      note(key, "is OpenAPI's, no keyword of " + s.draft->name() + ", which $schema declares; it has no effect");
    }
  }
}

const Json* FactsReader::find(const Schema& s, const char* keyword) {
  const auto found = s.node->find(keyword);
  if (found == s.node->end()) return nullptr;
  const std::string_view name = keyword;
  const bool beside_ref = s.draft && s.draft->ref_stands_alone() && name != "$ref" && s.node->contains("$ref");
  if (!beside_ref && !is_newer_than_draft(s, name)) return &*found;
  if (!ignored_) {
    ignored_ = s.draft->name() + ": " + escaped(s.pointer + "/" + keyword, 120) +
               (beside_ref ? " has no effect there beside $ref; allOf: [{\"$ref\": ...}, {...}] holds both"
                           : " is no keyword there");
  }
  return view_by_draft_ ? nullptr : &*found;
}

bool FactsReader::is_newer_than_draft(const Schema& s, std::string_view keyword) {
  const SchemaKeyword* const known = find_schema_keyword(keyword);
  return s.draft && known != nullptr && known->since > s.draft->number;
}

/// Where it widens what an older draft allows.
void FactsReader::refuse_newer_than_draft(const Schema& s, std::string_view keyword, const std::string& instead) {
  if (is_newer_than_draft(s, keyword))
    problem(s, keyword, s.draft->name() + " of $schema has no such keyword" + instead);
}

void FactsReader::require_exact(const Schema& s, std::string_view keyword) {
  const SchemaDocument::Inexact* number = document_.inexact(s, keyword);
  if (number == nullptr) return;
  problem(s, keyword, escaped(number->written, 60) + " would become " + number->kept + ": no more digits are kept");
}

std::optional<std::uint64_t> FactsReader::count(const Schema& s, const char* keyword) {
  const Json* value = find(s, keyword);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (value->is_number_float()) {
    require_exact(s, keyword);
    const double d = value->get<double>();
    if (d >= 0 && d < 0x1p53 && Decimal::of(d).fraction.empty()) return static_cast<std::uint64_t>(d);
  }
  document_.fail(s, keyword, "expected a number that counts, found " + shown(*value));
}

std::optional<Decimal> FactsReader::number(const Schema& s, const char* keyword) {
  const Json* value = find(s, keyword);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return Decimal::of(value->get<std::uint64_t>());
  if (value->is_number_integer()) return Decimal::of(value->get<std::int64_t>());
  if (value->is_number_float()) {
    const Decimal d = Decimal::of(value->get<double>());
    if (d.whole.size() <= 16) require_exact(s, keyword);  // between longer ones no text tells
    return d;
  }
  document_.fail(s, keyword, "expected a number, found " + shown(*value));
}

Schemas FactsReader::schemas(const Schema& s, const char* keyword) {
  Schemas result;
  const Json* list = find(s, keyword);
  if (list == nullptr) return result;
  if (!list->is_array()) document_.fail(s, keyword, "expected a list of schemas");
  for (std::size_t i = 0; i < list->size(); ++i) result.push_back(document_.child(s, keyword, i));
  return result;
}

std::vector<std::string> FactsReader::texts(const Schema& s, const char* keyword) {
  std::vector<std::string> result;
  const Json* list = find(s, keyword);
  if (list == nullptr) return result;
  const auto is_text = [](const Json& j) { return j.is_string(); };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_text)) {
    document_.fail(s, keyword, "expected a list of names");
  }
  for (const Json& j : *list) result.push_back(j.get<std::string>());
  return result;
}

void FactsReader::merge_types(Facts& facts, const Schema& s) {
  const Json* type = find(s, "type");
  if (type == nullptr) return;
  unsigned mask = 0;
  const auto add = [&](const Json& name) {
    const auto* text = name.get_ptr<const std::string*>();
    const auto known = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                    [&](const auto& t) { return text != nullptr && t.first == *text; });
    if (known == std::end(kTypeNames)) {
      document_.fail(s, "type", shown(name) + " is not null, boolean, integer, number, string, array or object");
    }
    mask |= known->second;
  };
  if (type->is_array()) {
    for (const Json& name : *type) add(name);
  } else {
    add(*type);
  }
  const Json* nullable = s.draft ? nullptr : find(s, "nullable");  // OpenAPI 3.0; no draft has it
  if (nullable != nullptr && *nullable == true) mask |= kNullType;
  facts.types &= mask;
}

void FactsReader::merge_values(State& state, const Schema& s) {
  const auto restrict_to = [&](std::vector<Json> values) {
    std::optional<std::vector<Json>>& have = state.facts.values;
    if (have) std::erase_if(values, [&](const Json& v) { return !has_value(*have, v); });
    std::set<nlohmann::json> seen;  // equal whatever the order of their keys
    std::erase_if(values, [&](const Json& v) { return !seen.insert(v).second; });
    have = std::move(values);
  };
  if (const Json* list = find(s, "enum")) {
    if (!list->is_array()) document_.fail(s, "enum", "expected a list of values");
    require_exact(s, "enum");
    restrict_to({list->begin(), list->end()});
  }
  if (const Json* value = find(s, "const")) {
    require_exact(s, "const");
    restrict_to({*value});
  }
}

void FactsReader::merge_strings(State& state, const Schema& s) {
  Facts& facts = state.facts;
  tighten(facts.min_length, count(s, "minLength"));
  limit(facts.max_length, count(s, "maxLength"));
  if (const Json* pattern = find(s, "pattern")) {
    if (!pattern->is_string()) document_.fail(s, "pattern", "expected a regular expression");
    facts.patterns.push_back({pattern->get<std::string>(), Facts::Pattern::Match::Anywhere, s});
  }
  const Json* format = find(s, "format");
  if (format == nullptr) return;
  if (!format->is_string()) document_.fail(s, "format", "expected the name of a format");
  const std::string name = format->get<std::string>();
  if (name == "int32" || name == "int64") {  // OpenAPI's: as bounds of numbers
    const std::int64_t most = name == "int32" ? 2147483647 : 9'999'999'999'999'999;
    bound_below(facts, s, "format", {Decimal::of(name == "int32" ? -most - 1 : -most), false});
    bound_above(facts, s, "format", {Decimal::of(most), false});
  } else if (const auto expression = format_expression(name)) {
    facts.patterns.push_back({*expression, Facts::Pattern::Match::Whole, s});
  } else if (name != "float" && name != "double" && name != "password" && name != "binary") {  // OpenAPI's, no limits
    problem(s, "format", "\"" + escaped(name) + "\" is not one of " + known_formats() + ", int32, int64");
  }
}

void FactsReader::bound_below(Facts& facts, const Schema& s, const char* keyword, Bound bound) {
  if (bound.value.whole.size() > 16 && !bound.value.negative) problem(s, keyword, "numbers have up to 16 digits here");
  if (bound.exclusive && !is_safe(bound.value) && !bound.value.negative) problem(s, keyword, kNoneBeyond);
  const int order = facts.lower ? Decimal::compare(bound.value, facts.lower->value) : 1;
  if (order > 0 || (order == 0 && bound.exclusive)) facts.lower = bound;
}

void FactsReader::bound_above(Facts& facts, const Schema& s, const char* keyword, Bound bound) {
  if (bound.value.whole.size() > 16 && bound.value.negative) problem(s, keyword, "numbers have up to 16 digits here");
  if (bound.exclusive && !is_safe(bound.value) && bound.value.negative) problem(s, keyword, kNoneBeyond);
  const int order = facts.upper ? Decimal::compare(bound.value, facts.upper->value) : -1;
  if (order < 0 || (order == 0 && bound.exclusive)) facts.upper = bound;
}

void FactsReader::merge_numbers(Facts& facts, const Schema& s) {
  // In draft 4 the exclusive keywords are true or false and change the plain ones.
  const auto flag = [&](const char* keyword) {
    const Json* value = find(s, keyword);
    return value != nullptr && value->is_boolean() ? std::optional(value->get<bool>()) : std::nullopt;
  };
  const auto exclusive_minimum = flag("exclusiveMinimum"), exclusive_maximum = flag("exclusiveMaximum");
  if (const auto n = number(s, "minimum")) bound_below(facts, s, "minimum", {*n, exclusive_minimum.value_or(false)});
  if (const auto n = number(s, "maximum")) bound_above(facts, s, "maximum", {*n, exclusive_maximum.value_or(false)});
  if (!exclusive_minimum) {
    if (const auto n = number(s, "exclusiveMinimum")) bound_below(facts, s, "exclusiveMinimum", {*n, true});
  }
  if (!exclusive_maximum) {
    if (const auto n = number(s, "exclusiveMaximum")) bound_above(facts, s, "exclusiveMaximum", {*n, true});
  }
  if (const auto n = number(s, "multipleOf")) {
    if (n->negative || n->zero()) document_.fail(s, "multipleOf", "expected a number above 0");
    facts.multiples.emplace_back(*n, s);
  }
}

void FactsReader::merge_arrays(Facts& facts, const Schema& s) {
  tighten(facts.min_items, count(s, "minItems"));
  limit(facts.max_items, count(s, "maxItems"));
  const Json* items = find(s, "items");
  Facts::ArrayRule rule;
  if (items != nullptr && items->is_array()) {  // until draft 2019-09
    if (find(s, "prefixItems") != nullptr && !is_newer_than_draft(s, "prefixItems"))
      problem(s, "prefixItems", "not beside a list in items, which is its older name");
    rule.prefix = schemas(s, "items");
    if (find(s, "additionalItems") != nullptr) rule.rest = document_.child(s, "additionalItems");
  } else {
    rule.prefix = schemas(s, "prefixItems");
    if (items != nullptr) rule.rest = document_.child(s, "items");
    if (items != nullptr && !rule.prefix.empty())
      refuse_newer_than_draft(s, "prefixItems", "; there items holds for every item");
  }
  if (!rule.prefix.empty() || rule.rest) facts.arrays.push_back(std::move(rule));

  const Json* unique = find(s, "uniqueItems");
  if (unique != nullptr && *unique == true && facts.max_items > 1) {
    problem(s, "uniqueItems", "an automaton cannot compare items with each other");
  }
  if (find(s, "unevaluatedItems") != nullptr && !document_.child(s, "unevaluatedItems").is(true)) {
    problem(s, "unevaluatedItems", "this keyword is not supported; prefixItems with items: false is");
  }
  if (find(s, "contains") == nullptr) return;
  if (find(s, "maxContains") != nullptr) problem(s, "maxContains", "this keyword is not supported");
  const std::uint64_t least = count(s, "minContains").value_or(1);
  if (least == 0) {
    if (!is_newer_than_draft(s, "contains"))
      refuse_newer_than_draft(s, "minContains", "; there contains asks for one item");
    return;
  }
  if (facts.contains && facts.contains->node != find(s, "contains")) {
    problem(s, "contains", "several of them for one value are not supported");
  }
  if (least > kMostContained) problem(s, "minContains", "at most " + std::to_string(kMostContained) + " are supported");
  facts.contains = document_.child(s, "contains");
  facts.min_contains = std::max(facts.min_contains, least);
}

void FactsReader::merge_objects(Facts& facts, const Schema& s) {
  tighten(facts.min_properties, count(s, "minProperties"));
  limit(facts.max_properties, count(s, "maxProperties"));
  const Json* required = find(s, "required");
  if (required != nullptr && *required == true && s.draft && s.draft->number < 4) {
    problem(s, "required", s.draft->name() + "'s true is not supported; a list of names beside properties is");
  } else if (required != nullptr && required->is_boolean()) {
    if (noted_.insert(s.pointer + "/required").second)
      warnings_.push_back({"schema-keyword", "JSON schema, " + escaped(s.pointer, 120) +
                                                 ": \"required\" lists names, in the schema of the object; here it "
                                                 "has no effect"});
  } else if (required != nullptr) {
    for (std::string& name : texts(s, "required")) {
      if (std::find(facts.required.begin(), facts.required.end(), name) == facts.required.end()) {
        facts.required.push_back(std::move(name));
      }
    }
  }
  for (const char* keyword : {"properties", "patternProperties", "additionalProperties", "required"})
    facts.names_ignored |= s.node->contains(keyword) && find(s, keyword) == nullptr;
  Facts::ObjectRule rule;
  for (const char* keyword : {"properties", "patternProperties"}) {
    const Json* members = find(s, keyword);
    if (members != nullptr && !members->is_object()) document_.fail(s, keyword, "expected an object of schemas");
  }
  if (const Json* properties = find(s, "properties")) {
    for (const auto& [name, schema] : properties->items()) {
      rule.properties.emplace_back(name, document_.child(s, "properties", name));
    }
  }
  if (const Json* patterns = find(s, "patternProperties")) {
    for (const auto& [expression, schema] : patterns->items()) {
      rule.patterns.emplace_back(Facts::Pattern{expression, Facts::Pattern::Match::Anywhere, s},
                                 document_.child(s, "patternProperties", expression));
    }
  }
  if (find(s, "additionalProperties") != nullptr) rule.additional = document_.child(s, "additionalProperties");
  if (!rule.properties.empty() || !rule.patterns.empty() || rule.additional) facts.objects.push_back(std::move(rule));
  if (find(s, "propertyNames") != nullptr) facts.property_names.push_back(document_.child(s, "propertyNames"));
}

/// `not` where its opposite is a fact: types, listed values, one property.
void FactsReader::merge_not(State& state, const Schema& s) {
  if (find(s, "not") == nullptr) return;
  const Schema inner = document_.child(s, "not");
  if (inner.node->is_boolean()) {
    state.possible &= inner.is(false);
    return;
  }
  if (inner.node->is_object() && inner.node->empty()) {
    state.possible = false;
    return;
  }
  Facts& facts = state.facts;
  const bool alone = inner.node->is_object() && inner.node->size() == 1;
  if (alone && inner.node->contains("type")) {
    Facts types;
    merge_types(types, inner);
    facts.types &= ~types.types;
  } else if (alone && inner.node->contains("const")) {
    require_exact(inner, "const");
    refuse_newer_than_draft(inner, "const", "; enum is one");
    facts.excluded.push_back((*inner.node)["const"]);
  } else if (alone && inner.node->contains("enum") && (*inner.node)["enum"].is_array()) {
    require_exact(inner, "enum");
    for (const Json& value : (*inner.node)["enum"]) facts.excluded.push_back(value);
  } else if (alone && inner.node->contains("required") && texts(inner, "required").size() == 1) {
    facts.types &= static_cast<unsigned>(kObjectType);  // `required` holds for everything that is no object
    facts.forbidden.push_back(texts(inner, "required")[0]);
  } else {
    problem(s, "not", "only of a type, of listed values or of one required property");
  }
}

/// `unevaluatedProperties: false` closes an object whose every keyword is in sight.
void FactsReader::merge_unevaluated(Facts& facts, const Schema& s, const Chain& chain) {
  if (find(s, "unevaluatedProperties") == nullptr) return;
  const Schema inner = document_.child(s, "unevaluatedProperties");
  if (inner.is(true)) return;
  const bool in_sight = std::all_of(chain.begin(), chain.end(), [](const Json* outer) {
    const auto parts = outer->find("allOf");
    return outer->size() == 1 && (parts == outer->end() || parts->size() == 1);
  });
  if (!inner.is(false) || !in_sight) {
    problem(s, "unevaluatedProperties", "only false, and not inside of allOf or anyOf");
    return;
  }
  facts.closed = true;
}

}  // namespace llm
