// What schemas say about one value, gathered: several schemas that must all hold become one list of facts, alternatives
// become several.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/json_number.h"
#include "constrain/json_schema_document.h"

namespace llm {

/// Bits of Facts::types. A number is an integer or a fraction.
enum JsonType : unsigned {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kNumberTypes = kIntegerType | kFractionType,
  kAllTypes = 127
};
unsigned type_of(const Json&);
/// Whether one of the values is equal as JSON Schema compares: members have no order, 1 is 1.0.
bool has_value(const std::vector<Json>& values, const Json& value);

/// What `minContains` may ask for: more is a problem of the schema.
inline constexpr std::uint64_t kMostContained = 64;

struct Facts {
  unsigned types = kAllTypes;
  std::optional<std::vector<Json>> values;  ///< enum and const: these only
  std::vector<Json> excluded;               ///< `not` with enum or const

  struct Pattern {
    std::string expression;
    enum class Match : std::uint8_t { Whole, Anywhere } match;
    Schema where;
    bool operator<(const Pattern& o) const { return std::tie(expression, match) < std::tie(o.expression, o.match); }
  };
  std::uint64_t min_length = 0, max_length = kUnbounded;
  std::vector<Pattern> patterns;  ///< `pattern` and `format`

  std::optional<Bound> lower, upper;
  std::vector<std::pair<Decimal, Schema>> multiples;

  struct ArrayRule {
    Schemas prefix;
    std::optional<Schema> rest;
  };
  std::vector<ArrayRule> arrays;
  std::uint64_t min_items = 0, max_items = kUnbounded;
  std::optional<Schema> contains;
  std::uint64_t min_contains = 0;

  struct ObjectRule {
    std::vector<std::pair<std::string, Schema>> properties;
    std::vector<std::pair<Pattern, Schema>> patterns;
    std::optional<Schema> additional;
  };
  std::vector<ObjectRule> objects;
  std::vector<std::string> required;   ///< in order, without repeats
  std::vector<std::string> forbidden;  ///< properties that `not` forbids
  Schemas property_names;
  std::uint64_t min_properties = 0, max_properties = kUnbounded;
  bool closed = false;  ///< unevaluatedProperties: false
  /// ... though other alternatives of anyOf, which may hold as well, evaluate more, or it is the schema around an
  /// alternative that says so: these facts alone do not rule out others, and none are written.
  bool closed_in_doubt = false;
  /// Read as the draft does, without names that are written all the same.
  bool names_ignored = false;

  bool restricts_strings() const { return min_length > 0 || max_length != kUnbounded || !patterns.empty(); }
  bool restricts_numbers() const { return lower || upper || !multiples.empty(); }
  bool restricts_arrays() const { return !arrays.empty() || min_items > 0 || max_items != kUnbounded || contains; }
  bool restricts_objects() const {
    return !objects.empty() || !required.empty() || !forbidden.empty() || !property_names.empty() ||
           min_properties > 0 || max_properties != kUnbounded || closed;
  }
};

/// Reads keywords. What cannot be enforced is collected, so that one error names all of it.
class FactsReader {
 public:
  FactsReader(const SchemaDocument&, SchemaOptions, Warnings&);

  /// The alternatives of a value that satisfies all the schemas. All keywords narrow it, those as well that the
  /// declared draft ignores; that no two alternatives of oneOf can hold must follow without these.
  std::vector<Facts> read(const Schemas&);

  /// Properties by name, in the order of the schema, then others that are required, then those that `propertyNames`
  /// lists.
  std::vector<std::string> names(const Facts&);
  /// What the property's value must satisfy; nothing if there may be no such property.
  std::optional<Schemas> property(const Facts& facts, const std::string& name) {
    return property(facts, name, View::Written);
  }
  /// Whether there may be properties that have no name in the schema.
  bool is_open(const Facts& facts) const { return is_open(facts, View::Written); }
  /// Texts between quotes that the patterns and lengths of these facts allow.
  const Automaton& strings(const Facts&);
  const Automaton& strings(const Facts::Pattern&);
  /// Property names that `propertyNames` allows; nothing if it is not there.
  std::optional<Automaton> property_names(const Facts&);
  Automaton numbers(const Facts&, NumberKind);
  /// Of these the ones that satisfy the facts also where they are read as doubles.
  Automaton written_numbers(const Facts&, NumberKind);
  /// Whether a value with none inside satisfies the facts; nothing for arrays and objects that are restricted.
  std::optional<bool> fits(const Facts&, const Json& value);
  /// The same of a value that the facts list.
  std::optional<bool> listed_value_fits(const Facts&, const Json& value);

  void problem(const Schema&, std::string_view keyword, const std::string& why);
  void fail_if_problems() const;

 private:
  using Chain = std::vector<const Json*>;  ///< the schemas whose keywords led here, for one value
  struct Group {
    Schemas branches;
    enum class Kind : std::uint8_t { AnyOf, OneOf } kind;
    Schema where;
    Chain chain;
  };
  struct State {
    Facts facts;
    bool possible = true;
    std::set<const Json*> seen;
    std::vector<Group> groups;
  };

  std::vector<Facts> read_once(const Schemas&);
  void merge(State&, const Schema&, const Chain&);
  void merge_keywords(State&, const Schema&);
  void merge_types(Facts&, const Schema&);
  void merge_values(State&, const Schema&);
  void merge_strings(State&, const Schema&);
  void merge_numbers(Facts&, const Schema&);
  void merge_arrays(Facts&, const Schema&);
  void merge_objects(Facts&, const Schema&);
  void merge_not(State&, const Schema&);
  void merge_unevaluated(Facts&, const Schema&, const Chain&);
  void note_unknown_keywords(const Schema&);
  std::vector<Facts> expand(State);
  static std::vector<std::vector<Facts>> left_open(std::vector<std::vector<Facts>> branches);
  void check_one_of(const Group&, const std::vector<std::vector<Facts>>& branches);

  /// The values of `propertyNames`, if nothing but listed values is allowed there.
  std::vector<std::string> listed_names(const Facts&);
  bool are_disjoint(const Facts&, const Facts&);
  bool text_fits(const Facts&, const std::string& text);
  bool share_a_value(const Facts& values, const Facts& other);
  bool are_disjoint_objects(const Facts&, const Facts&);
  bool never_satisfies(const Facts& written, const Facts& other);
  /// Properties that are written, or all that the standard does not rule out for certain.
  enum class View : std::uint8_t { Written, Valid };
  bool is_closed(const Facts&, View) const;
  bool is_open(const Facts&, View) const;
  std::optional<Schemas> property(const Facts&, const std::string& name, View);
  bool are_disjoint(const Schemas&, const Schemas&);

  /// A keyword that this reading of the schema has.
  const Json* find(const Schema&, const char* keyword);
  static bool is_newer_than_draft(const Schema&, std::string_view keyword);
  void refuse_newer_than_draft(const Schema&, std::string_view keyword, const std::string& instead);
  /// Numbers that would mean others are a problem.
  void require_exact(const Schema&, std::string_view keyword);
  std::optional<std::uint64_t> count(const Schema&, const char* keyword);
  std::optional<Decimal> number(const Schema&, const char* keyword);
  Schemas schemas(const Schema&, const char* keyword);
  std::vector<std::string> texts(const Schema&, const char* keyword);
  void bound_below(Facts&, const Schema&, const char* keyword, Bound);
  void bound_above(Facts&, const Schema&, const char* keyword, Bound);

  const SchemaDocument& document_;
  SchemaOptions options_;
  Warnings& warnings_;
  std::vector<std::string> problems_;
  std::set<std::string> noted_;
  /// All that strings() depends on.
  struct StringFacts {
    std::vector<Facts::Pattern> patterns;
    std::uint64_t min_length, max_length;
    std::vector<std::string> excluded;
    bool operator<(const StringFacts& o) const {
      return std::tie(min_length, max_length, patterns, excluded) <
             std::tie(o.min_length, o.max_length, o.patterns, o.excluded);
    }
  };
  std::map<Facts::Pattern, Automaton> pattern_automata_;
  std::map<StringFacts, Automaton> string_automata_;
  std::size_t depth_ = 0, alternatives_ = 0, comparisons_ = 0, comparisons_by_draft_ = 0;
  bool reading_ = false;
  bool view_by_draft_ = false;          ///< find() has no keyword that the declared draft ignores
  std::optional<std::string> ignored_;  ///< the first such keyword of the value, in words
};

}  // namespace llm
