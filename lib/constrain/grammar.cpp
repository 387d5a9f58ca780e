// The last steps of compiling: rules that can never be completed go, equal rules become one, and what may follow each
// rule is found.
#include "constrain/grammar.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "constrain/fixed_point.h"
#include "constrain/hash.h"
#include "constrain/rule_builder.h"

namespace llm {
namespace {

using Rules = std::vector<BuiltRule>;

bool nullable_count(const BuiltRule& r) { return r.counted && r.min == 0; }

/// Calls `with(state)` for the start and the states behind calls that may match the empty text.
template <class Function>
void for_states_before_a_byte(const Automaton& a, const std::vector<bool>& nullable, const Function& with) {
  std::vector<StateId> todo{0};
  std::vector<bool> seen(a.states.size());
  seen[0] = true;
  while (!todo.empty()) {
    const Automaton::State& state = a.states[todo.back()];
    todo.pop_back();
    with(state);
    for (const auto& c : state.calls) {
      if (!nullable[c.rule] || seen[c.target]) continue;
      seen[c.target] = true;
      todo.push_back(c.target);
    }
  }
}

/// All states, each behind those that its calls of nullable rules lead to, as far as these do not lead back.
std::vector<StateId> empty_targets_first(const Automaton& a, const std::vector<bool>& nullable) {
  std::vector<StateId> order;
  std::vector<bool> seen(a.states.size());
  std::vector<std::pair<StateId, std::size_t>> path;  // a state and how many of its calls were followed
  const auto open = [&](StateId s) {
    seen[s] = true;
    path.emplace_back(s, 0);
  };
  for (StateId s = 0; s < a.states.size(); ++s) {
    if (!seen[s]) open(s);
    while (!path.empty()) {
      auto& [state, followed] = path.back();
      const auto& calls = a.states[state].calls;
      while (followed < calls.size() && (!nullable[calls[followed].rule] || seen[calls[followed].target])) ++followed;
      if (followed == calls.size()) {
        order.push_back(state);
        path.pop_back();
      } else {
        open(calls[followed].target);
      }
    }
  }
  return order;
}

ByteSet bytes_of(const Automaton::ByteEdge& e) {
  const ByteSet all = ~ByteSet();
  return all >> (255u - e.last + e.first) << e.first;
}

std::vector<bool> nullable_rules(const Rules& rules) {
  std::vector<bool> nullable(rules.size());
  visit_until_stable(rules.size(), [&](std::size_t r) {
    if (nullable[r] || !rules[r].built) return false;
    bool empty = nullable_count(rules[r]);
    if (!rules[r].counted) {
      for_states_before_a_byte(rules[r].automaton, nullable,
                               [&](const Automaton::State& s) { empty = empty || s.accepting; });
    }
    nullable[r] = empty;
    return empty;
  });
  return nullable;
}

/// Drops calls of rules that no text completes, and the states that served only them.
void drop_unproductive(Rules& rules) {
  std::vector<bool> productive(rules.size());
  const auto pruned = [&](const Automaton& a) {
    Automaton copy = a;
    for (auto& s : copy.states) std::erase_if(s.calls, [&](const auto& c) { return !productive[c.rule]; });
    return trimmed(copy);
  };
  const auto completes = [](const Automaton& a) { return a.states.size() > 1 || a.states[0].accepting; };
  visit_until_stable(rules.size(), [&](std::size_t r) {
    if (productive[r] || !rules[r].built) return false;
    productive[r] = nullable_count(rules[r]) || completes(pruned(rules[r].automaton));
    return static_cast<bool>(productive[r]);
  });
  for (BuiltRule& r : rules) {
    if (r.built) r.automaton = pruned(r.automaton);
  }
}

}  // namespace

/// Puts the rules that the root needs into one table of states.
class GrammarLayout {
 public:
  explicit GrammarLayout(Rules rules) : rules_(std::move(rules)) {}

  Grammar run(RuleId root) {
    drop_unproductive(rules_);
    const Automaton& top = rules_[root].automaton;
    if (top.states.size() == 1 && !top.states[0].accepting && !nullable_count(rules_[root])) {
      fail_impossible(root);
    }
    join_equal_rules();
    choose(find_representative(root));
    nullable_ = nullable_rules(rules_);
    find_follow();
    lay_out();
    return std::move(grammar_);
  }

 private:
  /// Names another such rule too, the one that was declared last: what is at fault is more likely inside than outside.
  [[noreturn]] void fail_impossible(RuleId root) const {
    std::string problem = "no finite text matches \"" + escaped(rules_[root].name) + "\"";
    for (std::size_t r = rules_.size(); r-- > 0;) {
      const BuiltRule& rule = rules_[r];
      if (r == root || rule.name == rules_[root].name || !rule.built || rule.counted) continue;
      if (rule.automaton.states.size() > 1 || rule.automaton.states[0].accepting) continue;
      problem += ", nor \"" + escaped(rule.name) + "\"";
      break;
    }
    throw Error(ErrorKind::Notation, std::move(problem));
  }

  RuleId find_representative(RuleId r) const { return same_as_.empty() ? r : same_as_[r]; }

  /// Rules that differ in their names only: one of them serves all.
  void join_equal_rules() {
    const auto key_of = [](const BuiltRule& r) {
      const auto low = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
      std::vector<std::uint32_t> key{r.counted, low(r.min), low(r.min >> 32), low(r.max), low(r.max >> 32)};
      for (const auto& s : r.automaton.states) {
        key.push_back(static_cast<std::uint32_t>(s.bytes.size()) << 1 | s.accepting);
        for (const auto& e : s.bytes)
          key.insert(key.end(), {static_cast<std::uint32_t>(e.first) << 8 | e.last, e.target});
        for (const auto& c : s.calls) key.insert(key.end(), {c.rule, c.target});
        key.push_back(~0u);
      }
      return key;
    };
    same_as_.resize(rules_.size());
    for (RuleId r = 0; r < rules_.size(); ++r) same_as_[r] = r;
    for (bool changed = true; changed;) {
      changed = false;
      std::unordered_map<std::vector<std::uint32_t>, RuleId, HashOfVector> seen;
      for (RuleId r = 0; r < rules_.size(); ++r) {
        if (!rules_[r].built || same_as_[r] != r) continue;
        const RuleId other = seen.try_emplace(key_of(rules_[r]), r).first->second;
        if (other != r) {
          same_as_[r] = other;
          changed = true;
        }
      }
      if (!changed) break;
      for (BuiltRule& rule : rules_) {
        for (auto& s : rule.automaton.states) {
          for (auto& c : s.calls) c.rule = same_as_[c.rule];
        }
      }
      for (RuleId& r : same_as_) r = same_as_[r];
    }
  }

  /// The rules that stay, the root first.
  void choose(RuleId root) {
    new_id_.assign(rules_.size(), kNotChosen);
    chosen_ = {root};
    new_id_[root] = 0;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      for (const auto& s : rules_[chosen_[i]].automaton.states) {
        for (const auto& c : s.calls) {
          if (new_id_[c.rule] != kNotChosen) continue;
          new_id_[c.rule] = static_cast<RuleId>(chosen_.size());
          chosen_.push_back(c.rule);
        }
      }
    }
  }

  /// Bytes that can come next in a state, behind calls only where these may match the empty text.
  ByteSet own_first_bytes(const Automaton::State& state) const {
    ByteSet set;
    for (const auto& e : state.bytes) set |= bytes_of(e);
    for (const auto& c : state.calls) set |= first_[c.rule];
    return set;
  }

  void find_first() {
    first_.resize(rules_.size());
    visit_until_stable(chosen_.size(), [&](std::size_t i) {
      ByteSet& first = first_[chosen_[i]];
      const ByteSet before = first;
      for_states_before_a_byte(rules_[chosen_[i]].automaton, nullable_,
                               [&](const Automaton::State& s) { first |= own_first_bytes(s); });
      return before != first;
    });
  }

  /// What can come next in a state or behind it without a byte.
  struct Ahead {
    ByteSet first;
    bool ends = false;  ///< the rule can
    bool operator==(const Ahead&) const = default;
  };
  /// [state]
  std::vector<Ahead> find_ahead(const Automaton& a) const {
    std::vector<Ahead> ahead;
    for (const auto& s : a.states) ahead.push_back({own_first_bytes(s), s.accepting});
    const std::vector<StateId> order = empty_targets_first(a, nullable_);
    for (bool changed = true; changed;) {  // once, and once more for each call that leads back
      changed = false;
      for (const StateId s : order) {
        const Ahead before = ahead[s];
        for (const auto& c : a.states[s].calls) {
          if (!nullable_[c.rule]) continue;
          ahead[s].first |= ahead[c.target].first;
          ahead[s].ends |= ahead[c.target].ends;
        }
        changed |= before != ahead[s];
      }
    }
    return ahead;
  }

  /// Where the calls of a rule by another one return to, all taken together.
  struct Site {
    RuleId caller, callee;
    Ahead next;
  };
  std::vector<Site> find_sites() const {
    std::vector<Site> sites;
    constexpr std::size_t kNoSite = ~std::size_t{0};
    std::vector<std::size_t> site_of(rules_.size(), kNoSite);  // of a callee, called by this caller or an earlier one
    for (const RuleId r : chosen_) {
      const Automaton& a = rules_[r].automaton;
      const std::vector<Ahead> ahead = find_ahead(a);
      const std::size_t begin = sites.size();
      for (const auto& s : a.states) {
        for (const auto& c : s.calls) {
          std::size_t& at = site_of[c.rule];
          if (at == kNoSite || at < begin) {
            at = sites.size();
            sites.push_back({r, c.rule, {}});
          }
          sites[at].next.first |= ahead[c.target].first;
          sites[at].next.ends |= ahead[c.target].ends;
        }
      }
    }
    return sites;
  }

  void find_follow() {
    find_first();
    const std::vector<Site> sites = find_sites();
    follow_.resize(rules_.size());
    visit_until_stable(sites.size(), [&](std::size_t i) {
      const Site& site = sites[i];
      const ByteSet before = follow_[site.callee];
      follow_[site.callee] |= site.next.first;
      if (site.next.ends) follow_[site.callee] |= follow_[site.caller];
      if (site.next.ends && rules_[site.caller].counted) follow_[site.callee] |= first_[site.caller];
      return before != follow_[site.callee];
    });
  }

  void lay_out() {
    std::vector<StateId> base;
    StateId n = 0;
    for (const RuleId r : chosen_) {
      base.push_back(n);
      n += static_cast<StateId>(rules_[r].automaton.states.size());
    }
    for (RuleId id = 0; id < chosen_.size(); ++id) {
      BuiltRule& rule = rules_[chosen_[id]];
      if (rule.counted && rule.min > kMostCounted) {
        throw Error(ErrorKind::Notation, "at least " + std::to_string(rule.min) +
                                             " repetitions are asked for; no more than " +
                                             std::to_string(kMostCounted) + " can be");
      }
      // What is repeated more often than any text is long has no limit.
      const std::uint32_t max = rule.max > kMostCounted ? Grammar::kNoLimit : static_cast<std::uint32_t>(rule.max);
      grammar_.rules_.push_back({std::move(rule.name), base[id], rule.counted, static_cast<std::uint32_t>(rule.min),
                                 max, follow_[chosen_[id]]});
      for (const auto& s : rule.automaton.states) add_state(s, id, base[id]);
    }
  }

  void add_state(const Automaton::State& s, RuleId rule, StateId base) {
    Grammar::State state{};
    state.bytes_begin = static_cast<std::uint32_t>(grammar_.byte_edges_.size());
    for (auto e : s.bytes) grammar_.byte_edges_.push_back({e.first, e.last, e.target + base});
    state.bytes_end = static_cast<std::uint32_t>(grammar_.byte_edges_.size());
    state.calls_begin = static_cast<std::uint32_t>(grammar_.call_edges_.size());
    for (auto c : s.calls) grammar_.call_edges_.push_back({new_id_[c.rule], c.target + base});
    state.calls_end = static_cast<std::uint32_t>(grammar_.call_edges_.size());
    state.rule = rule;
    state.accepting = s.accepting;
    state.returns_only = s.accepting && s.bytes.empty() && s.calls.empty() && !grammar_.rules_[rule].counted;
    grammar_.states_.push_back(state);
  }

  static constexpr RuleId kNotChosen = ~RuleId{0};
  static constexpr std::uint64_t kMostCounted = 1u << 30;

  Rules rules_;
  std::vector<RuleId> same_as_, new_id_, chosen_;
  std::vector<bool> nullable_;
  std::vector<ByteSet> first_, follow_;
  Grammar grammar_;
};

Grammar Grammar::compile(const Productions& productions, RuleId root) {
  return GrammarLayout(build_rules(productions, root)).run(root);
}

std::string Grammar::describe() const {
  const auto counted = [](std::size_t n, const char* noun) {
    return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
  };
  return counted(rules_.size(), "rule") + ", " + counted(states_.size(), "state");
}

Grammar grammar_from_choices(std::span<const std::string> choices) {
  Productions p;
  std::vector<ExprId> items;
  for (const std::string& text : choices) {
    if (text.empty()) throw Error(ErrorKind::Notation, "one of the choices is empty");
    items.push_back(p.literal(text));
  }
  if (items.empty()) throw Error(ErrorKind::Notation, "no choices are given");
  const RuleId root = p.declare("choice");
  p.define(root, p.choice(std::move(items)));
  return Grammar::compile(p, root);
}

}  // namespace llm
