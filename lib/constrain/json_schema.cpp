// JSON schemas: every list of schemas that one value must satisfy becomes a rule, whose body are the alternatives that
// their facts leave.
#include <algorithm>
#include <deque>
#include <map>

#include "constrain/json_facts.h"
#include "constrain/json_text.h"
#include "constrain/regex.h"
#include "constrain/source_text.h"

namespace llm {
namespace {

/// The first bounds of the document that leave nothing between them, in words; empty: there are none.
std::string contradiction(const Json& node, const std::string& pointer) {
  constexpr std::pair<const char*, const char*> kBounds[] = {{"minItems", "maxItems"},
                                                             {"minLength", "maxLength"},
                                                             {"minProperties", "maxProperties"},
                                                             {"minContains", "maxContains"},
                                                             {"minimum", "maximum"}};
  for (const auto& [low, high] : kBounds) {
    if (!node.is_object() || !node.contains(low) || !node.contains(high)) continue;
    const Json &least = node[low], &most = node[high];
    if (!least.is_number() || !most.is_number() || least <= most) continue;
    return "; in \"" + escaped(pointer) + "\" " + low + " " + least.dump() + " is above " + high + " " + most.dump();
  }
  if (!node.is_structured()) return {};
  for (const auto& [key, value] : node.items()) {
    const std::string inside = contradiction(value, pointer + "/" + escaped_part(key));
    if (!inside.empty()) return inside;
  }
  return {};
}

class SchemaCompiler {
 public:
  SchemaCompiler(std::string_view text, std::string_view file, SchemaOptions options, Warnings& warnings)
      : document_(text, file), reader_(document_, options, warnings), json_(p_) {}

  Grammar run() {
    const RuleId root = p_.declare("#");
    p_.define(root, value({document_.root()}));
    while (!waiting_.empty()) {
      const auto [rule, schemas] = std::move(waiting_.front());
      waiting_.pop_front();
      std::vector<ExprId> ways;
      for (const Facts& facts : reader_.read(schemas)) ways.push_back(alternative(facts, schemas[0]));
      p_.define(rule, p_.choice(std::move(ways)));
    }
    reader_.fail_if_problems();
    try {
      return Grammar::compile(p_, root);
    } catch (const Error& error) {
      if (!error.parts().problem.starts_with("no finite text")) throw;
      const std::string bounds = contradiction(*document_.root().node, "#");
      throw Error(error.kind(), error.parts().problem + (bounds.empty() ? missing_ : bounds));
    }
  }

 private:
  /// A value that satisfies all the schemas.
  ExprId value(const Schemas& schemas) {
    Schemas relevant;
    std::vector<const Json*> key;
    for (const Schema& s : schemas) {
      if (s.is(false)) return p_.nothing();
      const bool says_nothing = s.is(true) || (s.node->is_object() && s.node->empty());
      if (says_nothing || std::find(key.begin(), key.end(), s.node) != key.end()) continue;
      key.push_back(s.node);
      relevant.push_back(s);
    }
    if (relevant.empty()) return json_.value();
    std::sort(key.begin(), key.end());
    const auto [found, is_new] = rules_.try_emplace(std::move(key), RuleId{0});
    if (is_new) {
      found->second = p_.declare(relevant[0].pointer);
      waiting_.emplace_back(found->second, relevant);
    }
    return p_.call(found->second);
  }

  ExprId alternative(const Facts& facts, const Schema& where) {
    if (facts.values) return listed_values(facts, where);
    std::vector<ExprId> ways;
    const auto allows = [&](unsigned type) { return (facts.types & type) != 0; };
    if (allows(kObjectType)) ways.push_back(object(facts, where));
    if (allows(kArrayType)) ways.push_back(array(facts));
    if (allows(kStringType)) ways.push_back(string(facts, where));
    if (allows(kNumberTypes)) ways.push_back(number(facts));
    const auto add_constant = [&](const Json& constant) {
      if (allows(type_of(constant)) && reader_.fits(facts, constant).value_or(false)) {
        ways.push_back(p_.literal(literal_text(constant)));
      }
    };
    add_constant(true);
    add_constant(false);
    add_constant(nullptr);
    for (const Json& value : facts.excluded) {
      if (value.is_structured() && allows(type_of(value))) {
        reader_.problem(where, "not", "arrays and objects cannot be excluded");
      }
    }
    return p_.choice(std::move(ways));
  }

  ExprId listed_values(const Facts& facts, const Schema& where) {
    std::vector<ExprId> ways;
    for (const Json& value : *facts.values) {
      const std::optional<bool> fits = reader_.listed_value_fits(facts, value);
      if (!fits)
        reader_.problem(where, value.is_array() ? "items" : "properties", "not beside enum or const with such values");
      if (fits.value_or(true)) ways.push_back(p_.literal(literal_text(value)));
    }
    return p_.choice(std::move(ways));
  }

  ExprId string(const Facts& facts, const Schema& where) {
    const bool excludes =
        std::any_of(facts.excluded.begin(), facts.excluded.end(), [](const Json& v) { return v.is_string(); });
    if (!facts.restricts_strings() && !excludes) return json_.string();
    if (facts.patterns.empty() && !excludes) {
      return json_.quoted(p_.repeat(json_.any_character(), facts.min_length, facts.max_length));
    }
    const auto [found, is_new] = strings_.try_emplace(&strings(facts, where), RuleId{0});
    if (is_new) {
      found->second = p_.declare(where.pointer);
      p_.define(found->second, json_.quoted(p_.regular(*found->first)));
    }
    return p_.call(found->second);
  }

  const Automaton& strings(const Facts& facts, const Schema& where) {
    try {
      return reader_.strings(facts);
    } catch (const Error& e) {
      if (!e.parts().subject.empty()) throw;
      document_.fail(where, "", e.parts().problem);
    }
  }

  ExprId number(const Facts& facts) {
    const bool integer = (facts.types & kFractionType) == 0;
    const bool excludes =
        std::any_of(facts.excluded.begin(), facts.excluded.end(), [](const Json& v) { return v.is_number(); });
    const bool fraction = (facts.types & kIntegerType) == 0;  // what `not` leaves: 1.0 is an integer
    if (!facts.restricts_numbers() && !excludes && !fraction) return integer ? json_.integer() : json_.number();
    Automaton numbers = reader_.written_numbers(facts, integer ? NumberKind::Integer : NumberKind::Decimal);
    if (fraction) numbers = difference(numbers, *multiples_of(Decimal::of(std::uint64_t{1})));
    return p_.regular(std::move(numbers));
  }

  // ---- arrays

  /// The item at `index`, behind all prefixes if it is as large as the longest.
  ExprId item(const Facts& facts, std::size_t index, const Schemas& more = {}) {
    Schemas all = more;
    for (const auto& rule : facts.arrays) {
      if (index < rule.prefix.size()) {
        all.push_back(rule.prefix[index]);
      } else if (rule.rest) {
        all.push_back(*rule.rest);
      }
    }
    return value(all);
  }

  ExprId array(const Facts& facts) {
    if (!facts.restricts_arrays()) return json_.array();
    std::size_t prefix = 0;
    std::uint64_t max = facts.max_items;
    for (const auto& rule : facts.arrays) {
      prefix = std::max(prefix, rule.prefix.size());
      if (rule.rest && rule.rest->is(false)) max = std::min<std::uint64_t>(max, rule.prefix.size());
    }
    if (max < facts.min_items) return p_.nothing();
    prefix = static_cast<std::size_t>(std::min<std::uint64_t>(prefix, max));
    const ExprId items = facts.contains ? items_with_some(facts, prefix, max) : items_in_order(facts, prefix, max);
    return json_.bracketed("[", items, "]");
  }

  ExprId separated(std::size_t index, ExprId item) { return index == 0 ? item : p_.sequence({json_.comma(), item}); }

  /// States: how many items there are, up to those that differ; behind them a repetition.
  ExprId items_in_order(const Facts& facts, std::size_t prefix, std::uint64_t max) {
    std::vector<expr::Graph::Edge> edges;
    // One more state than different items, so that the repetition begins with a comma.
    const std::size_t different = max == 0 ? 0 : std::max<std::size_t>(prefix, 1);
    const auto end = static_cast<std::uint32_t>(different + 1);
    for (std::size_t i = 0; i < different; ++i) {
      const auto from = static_cast<std::uint32_t>(i);
      edges.push_back({from, from + 1, separated(i, item(facts, i))});
      if (i >= facts.min_items) edges.push_back({from, end, i == 0 ? p_.empty() : json_.space()});
    }
    const std::uint64_t least = facts.min_items > different ? facts.min_items - different : 0;
    const std::uint64_t most = max == kUnbounded ? kUnbounded : max - different;
    const ExprId tail = most == 0 ? p_.empty() : p_.repeat(separated(1, item(facts, different)), least, most);
    const auto last = static_cast<std::uint32_t>(different);
    edges.push_back({last, end, different == 0 ? p_.empty() : p_.sequence({tail, json_.space()})});
    return p_.graph(end + 1, std::move(edges));
  }

  /// States: how many items there are, up to where nothing changes, and how many of them `contains` speaks of.
  ExprId items_with_some(const Facts& facts, std::size_t prefix, std::uint64_t max) {
    const std::uint64_t wanted = std::min(facts.min_contains, kMostContained);
    const std::uint64_t length = std::max<std::uint64_t>({prefix, facts.min_items, max == kUnbounded ? 1 : max, 1});
    constexpr std::uint64_t kMostStates = 20'000;
    if (length > kMostStates / (wanted + 1)) {
      reader_.problem(*facts.contains, "", "beside minItems or maxItems this large it is not supported");
      return p_.nothing();
    }
    const auto state = [&](std::uint64_t i, std::uint64_t c) {
      return static_cast<std::uint32_t>(i * (wanted + 1) + c);
    };
    const std::uint32_t end = state(length, wanted) + 1;
    std::vector<expr::Graph::Edge> edges;
    for (std::uint64_t i = 0; i <= length; ++i) {
      const bool may_go_on = i < max;
      const std::uint64_t next = std::min(i + 1, length);
      const auto index = static_cast<std::size_t>(i);
      for (std::uint64_t c = 0; c <= wanted; ++c) {
        if (may_go_on) {
          edges.push_back({state(i, c), state(next, c), separated(index, item(facts, index))});
          edges.push_back({state(i, c), state(next, std::min(c + 1, wanted)),
                           separated(index, item(facts, index, {*facts.contains}))});
        }
      }
      if (i >= facts.min_items) edges.push_back({state(i, wanted), end, i == 0 ? p_.empty() : json_.space()});
    }
    return p_.graph(end + 1, std::move(edges));
  }

  // ---- objects

  struct Member {
    ExprId text;  ///< "name": value
    bool required;
  };

  ExprId object(const Facts& facts, const Schema& where) {
    if (!facts.restricts_objects()) return json_.object();
    std::vector<Member> members;
    for (const std::string& name : reader_.names(facts)) {
      const bool required = std::find(facts.required.begin(), facts.required.end(), name) != facts.required.end();
      if (const auto schemas = reader_.property(facts, name)) {
        members.push_back({p_.sequence({p_.literal(Json(name).dump()), json_.colon(), value(*schemas)}), required});
      } else if (required) {
        if (missing_.empty())
          missing_ = "; in \"" + escaped(where.pointer) + "\" \"" + escaped(name) + "\" is required and not allowed";
        return p_.nothing();
      }
    }
    const ExprId other = other_member(facts);
    // Names that the schema does not have may repeat each other: no more than one of them counts for certain.
    if (facts.min_properties > members.size() + 1) {
      reader_.problem(where, "minProperties", "only properties with names, and one more, can be counted");
      return p_.nothing();
    }
    constexpr std::uint64_t kMostCounted = 1000;
    if (facts.max_properties != kUnbounded && facts.max_properties > kMostCounted) {
      reader_.problem(where, "maxProperties", "at most 1000 are supported");
      return p_.nothing();
    }
    return json_.bracketed("{", members_in_order(members, other, facts), "}");
  }

  /// States: which named member comes next (then others), how many there are, how many have certainly different names.
  ExprId members_in_order(const std::vector<Member>& members, ExprId other, const Facts& facts) {
    struct State {
      std::size_t next;  ///< members.size(): others; one more: others, of which there is one
      std::uint64_t written, different;
      bool operator<(const State& o) const {
        return std::tie(next, written, different) < std::tie(o.next, o.written, o.different);
      }
    };
    const std::uint64_t most_written = facts.max_properties == kUnbounded ? 1 : facts.max_properties;
    const std::uint64_t most_different = facts.min_properties;
    std::map<State, std::uint32_t> ids;
    std::vector<State> states;
    std::vector<expr::Graph::Edge> edges;
    const auto id_of = [&](State s) {
      s.written = std::min(s.written, most_written);
      s.different = std::min(s.different, most_different);
      const auto [found, is_new] = ids.try_emplace(s, static_cast<std::uint32_t>(states.size()));
      if (is_new) states.push_back(s);
      return found->second;
    };
    std::vector<std::uint32_t> ends;
    id_of({0, 0, 0});
    for (std::uint32_t i = 0; i < states.size(); ++i) {
      const State s = states[i];
      const bool has_room = facts.max_properties == kUnbounded || s.written < facts.max_properties;
      const auto label = [&](ExprId member) { return s.written == 0 ? member : p_.sequence({json_.comma(), member}); };
      if (s.next < members.size()) {
        const Member& m = members[s.next];
        if (has_room) edges.push_back({i, id_of({s.next + 1, s.written + 1, s.different + 1}), label(m.text)});
        if (!m.required) edges.push_back({i, id_of({s.next + 1, s.written, s.different}), p_.empty()});
        continue;
      }
      const bool first_other = s.next == members.size();
      if (has_room) {
        edges.push_back(
            {i, id_of({members.size() + 1, s.written + 1, s.different + (first_other ? 1 : 0)}), label(other)});
      }
      if (s.different >= most_different) ends.push_back(i);
    }
    const auto end = static_cast<std::uint32_t>(states.size());
    for (const std::uint32_t i : ends) edges.push_back({i, end, states[i].written == 0 ? p_.empty() : json_.space()});
    return p_.graph(end + 1, std::move(edges));
  }

  /// A member whose name is not in the schema. Patterns of names may overlap: every set of them has its names, so that
  /// the patterns of all schemas of the object count together.
  ExprId other_member(const Facts& facts) {
    const std::vector<std::string> names = reader_.names(facts);
    std::vector<std::pair<Facts::Pattern, const Schema*>> patterns;
    for (const auto& rule : facts.objects) {
      for (const auto& [pattern, schema] : rule.patterns) patterns.emplace_back(pattern, &schema);
    }
    constexpr std::size_t kMostPatterns = 6;
    if (patterns.size() > kMostPatterns) {
      reader_.problem(patterns[kMostPatterns].first.where, "patternProperties",
                      "at most " + std::to_string(kMostPatterns) + " patterns of one object are supported");
      return p_.nothing();
    }
    const bool open = reader_.is_open(facts);
    if (!open && patterns.empty()) return p_.nothing();
    const auto allowed = reader_.property_names(facts);
    const bool any_name = names.empty() && facts.forbidden.empty() && patterns.empty() && !allowed;
    if (any_name) return p_.sequence({json_.string(), json_.colon(), value(additional(facts, patterns, 0))});

    Automaton left =
        allowed ? *allowed : regular_automaton(p_, p_.repeat(json_.character(CodePoints::all()), 0, kUnbounded));
    std::vector<ExprId> taken;
    for (const auto* list : {&names, &facts.forbidden}) {
      for (const std::string& name : *list) taken.push_back(json_.content(name));
    }
    if (!taken.empty()) left = difference(left, regular_automaton(p_, p_.choice(taken)));

    std::vector<ExprId> ways;
    for (unsigned set = open ? 0 : 1; set < 1u << patterns.size(); ++set) {
      const Schemas schemas = additional(facts, patterns, set);
      if (std::any_of(schemas.begin(), schemas.end(), [](const Schema& s) { return s.is(false); })) continue;
      Automaton these = left;
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        const Automaton& matching = reader_.strings(patterns[i].first);
        these = (set >> i & 1) != 0 ? intersection(these, matching) : difference(these, matching);
      }
      if (is_empty(these)) continue;
      ways.push_back(p_.sequence({json_.quoted(p_.regular(std::move(these))), json_.colon(), value(schemas)}));
    }
    return p_.choice(std::move(ways));
  }

  /// What holds for a name that matches exactly these patterns.
  static Schemas additional(const Facts& facts, const std::vector<std::pair<Facts::Pattern, const Schema*>>& patterns,
                            unsigned set) {
    Schemas all;
    std::size_t index = 0;
    for (const auto& rule : facts.objects) {
      bool matched = false;
      for (std::size_t i = 0; i < rule.patterns.size(); ++i, ++index) {
        if ((set >> index & 1) == 0) continue;
        all.push_back(*patterns[index].second);
        matched = true;
      }
      if (!matched && rule.additional) all.push_back(*rule.additional);
    }
    return all;
  }

  SchemaDocument document_;
  FactsReader reader_;
  Productions p_;
  JsonText json_;
  std::map<std::vector<const Json*>, RuleId> rules_;
  std::map<const Automaton*, RuleId> strings_;  ///< a rule for all places that allow the same
  std::deque<std::pair<RuleId, Schemas>> waiting_;
  std::string missing_;  ///< the first property that must be there and cannot, for the message
};

}  // namespace

Grammar grammar_from_json_schema(std::string_view text, Warnings& warnings, SchemaOptions options,
                                 std::string_view file) {
  try {
    return SchemaCompiler(text, file, options, warnings).run();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Notation || !e.parts().subject.empty()) throw;
    throw Error(e.kind(),
                ErrorParts{.file = std::string(file), .subject = "JSON schema", .problem = e.parts().problem});
  }
}

Grammar grammar_of_json_objects() {
  Warnings none;
  return grammar_from_json_schema(R"({"type": "object"})", none);
}

}  // namespace llm
