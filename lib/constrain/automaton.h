// Finite automata over bytes, with edges that call rules: what every rule of a grammar becomes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace llm {

using RuleId = std::uint32_t;
using StateId = std::uint32_t;

/// State 0 is the start. `silent` edges cost nothing; determinized() and what follows it have none.
struct Automaton {
  struct ByteEdge {
    std::uint8_t first, last;
    StateId target;
    bool operator==(const ByteEdge&) const = default;
  };
  struct CallEdge {
    RuleId rule;
    StateId target;  ///< where the caller goes on when the rule is complete
    bool operator==(const CallEdge&) const = default;
  };
  struct State {
    std::vector<ByteEdge> bytes;  ///< ascending and disjoint once determinized
    std::vector<CallEdge> calls;  ///< ascending by rule, one per rule, once determinized
    std::vector<StateId> silent;
    bool accepting = false;
    bool operator==(const State&) const = default;
  };
  std::vector<State> states;

  StateId add_state() {
    states.emplace_back();
    return static_cast<StateId>(states.size() - 1);
  }
  bool operator==(const Automaton&) const = default;
};

/// The same language without silent edges, with one target per byte and per called rule, trimmed. Where determinism
/// would cost far more states than there were, edges of one state may overlap: users of automata bear that, except the
/// set operations below.
Automaton determinized(const Automaton&);
bool is_deterministic(const Automaton&);
/// Fewest states, where finding them takes reasonable time; of a deterministic automaton.
Automaton minimized(Automaton);
/// Only states that lie on a way from the start to an accepting state; one dead start if there are none.
Automaton trimmed(const Automaton&);

/// Sets of byte strings: the operands are deterministic and call no rules. Throw ErrorKind::Notation when the result is
/// too large.
Automaton intersection(const Automaton&, const Automaton&);
Automaton difference(const Automaton&, const Automaton&);
bool is_empty(const Automaton&);
/// Whether the intersection is not empty, which is known sooner than the intersection.
bool share_a_word(const Automaton&, const Automaton&);
bool accepts(const Automaton&, std::string_view bytes);

/// The states that the start leads to, every one behind those that its edges lead to; nothing if some byte string leads
/// back to where it started.
std::optional<std::vector<StateId>> targets_first(const Automaton&);
inline bool has_cycle(const Automaton& a) { return !targets_first(a); }

/// What grammars may grow to: enough for any that a person wrote, little enough for a second of work.
inline constexpr std::size_t kMaxAutomatonStates = 400'000;

}  // namespace llm
