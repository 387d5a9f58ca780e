#include "constrain/rule_builder.h"

#include <algorithm>

#include "base/error.h"
#include "constrain/nullability.h"

namespace llm {
namespace {

enum class Counting { Allowed, Never };

class RuleBuilder {
 public:
  RuleBuilder(const Productions& p, Counting counting)
      : productions_(p), counting_(counting), nullable_(p), rules_(p.rules().size()) {
    for (std::size_t r = 0; r < rules_.size(); ++r) rules_[r].name = p.rules()[r].name;
  }

  void build(RuleId root) {
    nullable_.refuse_left_recursion(root);
    for (const RuleId r : callees_first(root)) {
      current_ = r;
      BuiltRule rule{.name = rules_[r].name, .automaton = automaton_of(productions_.rules()[r].body), .built = true};
      rule.inlined = r != root && worth_inlining(rule.automaton);
      spend(rule.automaton.states.size());
      rules_[r] = std::move(rule);
    }
  }
  std::vector<BuiltRule> take() { return std::move(rules_); }

  Automaton automaton_of(ExprId body) {
    Automaton nfa;
    const StateId start = nfa.add_state(), end = nfa.add_state();
    nfa.states[end].accepting = true;
    emit(body, start, end, nfa);
    Automaton dfa = determinized(nfa);
    return is_deterministic(dfa) ? minimized(std::move(dfa)) : dfa;
  }

 private:
  std::vector<RuleId> callees_first(RuleId root) const {
    std::vector<RuleId> order;
    std::vector<bool> seen(rules_.size());
    std::vector<std::pair<RuleId, std::vector<RuleId>>> path;  // a rule and what is left of its callees
    const auto open = [&](RuleId r) {
      seen[r] = true;
      std::vector<RuleId> callees;
      collect_calls(productions_, productions_.rules()[r].body, callees);
      path.emplace_back(r, std::move(callees));
    };
    open(root);
    while (!path.empty()) {
      auto& [rule, callees] = path.back();
      if (callees.empty()) {
        order.push_back(rule);
        path.pop_back();
        continue;
      }
      const RuleId next = callees.back();
      callees.pop_back();
      if (!seen[next]) open(next);
    }
    return order;
  }

  /// What a caller's automaton swallows: single characters and short texts, so that a token seldom leaves the rule that
  /// it began in. Rules with loops (strings, numbers, space) stay whole: their masks serve all callers.
  static bool worth_inlining(const Automaton& a) {
    constexpr std::size_t kTiny = 4, kSmall = 64;
    return a.states.size() <= kTiny || (a.states.size() <= kSmall && !has_cycle(a));
  }

  void spend(std::size_t states) {
    spent_ += states;
    if (spent_ > kMaxAutomatonStates) fail_size(states);
  }

  /// `states`: of the rule that is built now, so far. The largest one is named.
  [[noreturn]] void fail_size(std::size_t states) const {
    const std::string* name = current_ < rules_.size() ? &rules_[current_].name : nullptr;
    for (const BuiltRule& rule : rules_) {
      if (rule.automaton.states.size() <= states) continue;
      states = rule.automaton.states.size();
      name = &rule.name;
    }
    throw Error(ErrorKind::Notation, "it needs more than " + std::to_string(kMaxAutomatonStates) + " states" +
                                         (name == nullptr ? "" : ", most for \"" + escaped(*name) + "\"") +
                                         "; smaller or fewer repetitions may help");
  }

  StateId add_state(Automaton& nfa) {
    if (nfa.states.size() >= kMaxAutomatonStates) fail_size(nfa.states.size());
    return nfa.add_state();
  }

  /// Adds edges out of `from` and into `to`, and none the other way, so that callers may share both.
  void emit(ExprId id, StateId from, StateId to, Automaton& nfa) {
    std::visit(Overloaded{
                   [](const expr::Nothing&) {},
                   [&](const expr::Literal& e) { emit_literal(e.bytes, from, to, nfa); },
                   [&](const expr::Characters& e) {
                     for (const ByteSequence& s : utf8_sequences(e.set))
                       emit_bytes({s.bytes.data(), s.length}, from, to, nfa);
                   },
                   [&](const expr::Sequence& e) { emit_sequence(e.items, from, to, nfa); },
                   [&](const expr::Choice& e) {
                     for (const ExprId item : e.items) emit(item, from, to, nfa);
                   },
                   [&](const expr::Repeat& e) { emit_repeat(e, from, to, nfa); },
                   [&](const expr::Call& e) { emit_call(e.rule, from, to, nfa); },
                   [&](const expr::Graph& e) { emit_graph(e, from, to, nfa); },
                   [&](const expr::Regular& e) { emit_copy(*e.automaton, from, to, nfa); },
               },
               productions_.at(id));
  }

  void emit_bytes(std::span<const ByteRange> bytes, StateId from, StateId to, Automaton& nfa) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const StateId next = i + 1 == bytes.size() ? to : add_state(nfa);
      nfa.states[from].bytes.push_back({bytes[i].first, bytes[i].last, next});
      from = next;
    }
  }

  void emit_literal(std::string_view text, StateId from, StateId to, Automaton& nfa) {
    if (text.empty()) nfa.states[from].silent.push_back(to);
    std::vector<ByteRange> bytes;
    for (const char c : text) bytes.push_back({static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c)});
    emit_bytes(bytes, from, to, nfa);
  }

  void emit_sequence(const std::vector<ExprId>& items, StateId from, StateId to, Automaton& nfa) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const StateId next = i + 1 == items.size() ? to : add_state(nfa);
      emit(items[i], from, next, nfa);
      from = next;
    }
  }

  void emit_call(RuleId rule, StateId from, StateId to, Automaton& nfa) {
    if (rules_[rule].built && rules_[rule].inlined) {
      emit_copy(rules_[rule].automaton, from, to, nfa);
    } else {
      nfa.states[from].calls.push_back({rule, to});
    }
  }

  void emit_copy(const Automaton& a, StateId from, StateId to, Automaton& nfa) {
    const auto base = static_cast<StateId>(nfa.states.size());
    for (std::size_t s = 0; s < a.states.size(); ++s) add_state(nfa);
    nfa.states[from].silent.push_back(base);
    for (StateId s = 0; s < a.states.size(); ++s) {
      Automaton::State copy = a.states[s];
      for (auto& e : copy.bytes) e.target += base;
      for (auto& c : copy.calls) c.target += base;
      for (StateId& t : copy.silent) t += base;
      if (copy.accepting) copy.silent.push_back(to);
      copy.accepting = false;
      nfa.states[base + s] = std::move(copy);
    }
  }

  void emit_graph(const expr::Graph& g, StateId from, StateId to, Automaton& nfa) {
    std::vector<StateId> ids(g.n_states);
    for (StateId& id : ids) id = add_state(nfa);
    nfa.states[from].silent.push_back(ids.front());
    nfa.states[ids.back()].silent.push_back(to);
    for (const auto& e : g.edges) emit(e.label, ids[e.from], ids[e.to], nfa);
  }

  void emit_repeat(const expr::Repeat& e, StateId from, StateId to, Automaton& nfa) {
    if (e.max == 0) {
      nfa.states[from].silent.push_back(to);
      return;
    }
    constexpr std::uint64_t kFew = 8;
    const std::uint64_t copies = e.max == kUnbounded ? e.min : e.max;
    if (copies <= kFew) return emit_copies(e, from, to, nfa, [&](StateId a, StateId b) { emit(e.body, a, b, nfa); });
    // Many copies: of the smallest automaton, which is found once.
    Automaton body = automaton_of(e.body);
    expr::Repeat repeat = e;
    if (body.states[0].accepting) {  // the empty text as often as wanted: any number of the others
      give_start_no_incoming_edges(body);
      body.states[0].accepting = false;
      repeat.min = 0;
      if (is_empty(body)) repeat.max = 0;
    }
    if (repeat.max == 0) {
      nfa.states[from].silent.push_back(to);
      return;
    }
    if (counting_ == Counting::Allowed && emit_counted(repeat, copies, body, from, to, nfa)) return;
    emit_copies(repeat, from, to, nfa, [&](StateId a, StateId b) { emit_copy(body, a, b, nfa); });
  }

  /// `emit_body(from, to)` for each repetition.
  template <class EmitBody>
  void emit_copies(const expr::Repeat& e, StateId from, StateId to, Automaton& nfa, const EmitBody& emit_body) {
    for (std::uint64_t i = 0; i < e.min; ++i) {
      const StateId next = add_state(nfa);
      emit_body(from, next);
      from = next;
    }
    if (e.max == kUnbounded) {
      const StateId loop = add_state(nfa);
      nfa.states[from].silent.push_back(loop);
      emit_body(loop, loop);
      nfa.states[loop].silent.push_back(to);
      return;
    }
    for (std::uint64_t i = e.min; i < e.max; ++i) {
      const StateId next = add_state(nfa);
      nfa.states[from].silent.push_back(to);
      emit_body(from, next);
      from = next;
    }
    nfa.states[from].silent.push_back(to);
  }

  /// Long repetitions become a rule with a counter, if a number is enough to say where they stand.
  bool emit_counted(const expr::Repeat& e, std::uint64_t copies, Automaton body, StateId from, StateId to,
                    Automaton& nfa) {
    constexpr std::uint64_t kSmall = 256;
    if (copies <= kSmall / body.states.size() || !ends_are_certain(body) || matches_empty(body)) return false;
    give_start_no_incoming_edges(body);
    spend(body.states.size());
    BuiltRule rule{
        .name = "repetition", .automaton = std::move(body), .counted = true, .min = e.min, .max = e.max, .built = true};
    rules_.push_back(std::move(rule));
    nfa.states[from].calls.push_back({static_cast<RuleId>(rules_.size() - 1), to});
    return true;
  }

  /// No word of the automaton begins another one, calls being taken as single letters.
  static bool ends_are_certain(const Automaton& a) {
    return is_deterministic(a) && std::all_of(a.states.begin(), a.states.end(), [](const Automaton::State& s) {
             return !s.accepting || (s.bytes.empty() && s.calls.empty());
           });
  }

  bool matches_empty(const Automaton& a) const {
    std::vector<StateId> todo{0};
    std::vector<bool> seen(a.states.size());
    while (!todo.empty()) {
      const StateId s = todo.back();
      todo.pop_back();
      if (seen[s]) continue;
      seen[s] = true;
      if (a.states[s].accepting) return true;
      for (const auto& c : a.states[s].calls) {
        const bool declared = c.rule < productions_.rules().size();
        if (declared ? nullable_.rule(c.rule) : rules_[c.rule].min == 0) todo.push_back(c.target);
      }
    }
    return false;
  }

  static void give_start_no_incoming_edges(Automaton& a) {
    const StateId copy = a.add_state();
    a.states[copy] = a.states[0];
    for (auto& s : a.states) {
      for (auto& e : s.bytes) e.target = e.target == 0 ? copy : e.target;
      for (auto& c : s.calls) c.target = c.target == 0 ? copy : c.target;
    }
    a = trimmed(a);
  }

  const Productions& productions_;
  Counting counting_;
  Nullability nullable_;
  std::vector<BuiltRule> rules_;
  std::size_t spent_ = 0;
  RuleId current_ = ~RuleId{0};
};

}  // namespace

std::vector<BuiltRule> build_rules(const Productions& productions, RuleId root) {
  RuleBuilder builder(productions, Counting::Allowed);
  builder.build(root);
  return builder.take();
}

Automaton regular_automaton(const Productions& productions, ExprId id) {
  Automaton a = RuleBuilder(productions, Counting::Never).automaton_of(id);
  for (const auto& s : a.states) check(s.calls.empty(), "a regular expression that calls rules");
  return a;
}

}  // namespace llm
