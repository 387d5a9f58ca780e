#include "constrain/automaton.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "constrain/hash.h"

namespace llm {
namespace {

using State = Automaton::State;
using StateSet = std::vector<StateId>;  // ascending

constexpr StateId kNone = ~StateId{0};
/// Of all sets that a construction may hold, and of all edges: 120 MB and 240 MB.
constexpr std::size_t kMostMembers = 30'000'000, kMostEdges = 20'000'000;

/// Adds what silent edges reach; ascending, without repeats.
class SilentClosure {
 public:
  explicit SilentClosure(const Automaton& a) : automaton_(a), seen_(a.states.size(), 0) {}

  StateSet of(StateSet states) {
    ++round_;
    StateSet result;
    while (!states.empty()) {
      const StateId s = states.back();
      states.pop_back();
      if (seen_[s] == round_) continue;
      seen_[s] = round_;
      const State& state = automaton_.states[s];
      // A state with nothing but silent edges adds nothing of its own: sets without it are found equal more often.
      if (state.accepting || !state.bytes.empty() || !state.calls.empty()) result.push_back(s);
      states.insert(states.end(), state.silent.begin(), state.silent.end());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  const Automaton& automaton_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t round_ = 0;
};

/// Calls `with(first, last, covering edges' targets)` for each longest range of bytes that the same edges cover.
template <class Function>
void split_by_byte(const std::vector<Automaton::ByteEdge>& edges, const Function& with) {
  std::array<bool, 257> boundary{};
  for (const auto& e : edges) boundary[e.first] = boundary[static_cast<std::size_t>(e.last) + 1] = true;
  for (std::size_t begin = 0; begin < 256;) {
    std::size_t end = begin + 1;
    while (end < 256 && !boundary[end]) ++end;
    StateSet targets;
    for (const auto& e : edges) {
      if (e.first <= begin && end - 1 <= e.last) targets.push_back(e.target);
    }
    if (!targets.empty())
      with(static_cast<std::uint8_t>(begin), static_cast<std::uint8_t>(end - 1), std::move(targets));
    begin = end;
  }
}

void append_edge(State& state, std::uint8_t first, std::uint8_t last, StateId target) {
  if (!state.bytes.empty()) {
    Automaton::ByteEdge& previous = state.bytes.back();
    if (previous.target == target && previous.last + 1 == first) {
      previous.last = last;
      return;
    }
  }
  state.bytes.push_back({first, last, target});
}

/// The subset construction; nothing if it needs more than `limit` states, or sets that are too large together.
class SubsetConstruction {
 public:
  SubsetConstruction(const Automaton& source, std::size_t limit) : source_(source), closure_(source), limit_(limit) {}

  bool run(Automaton& result) {
    id_of(closure_.of({0}));
    for (StateId s = 0; s < sets_.size(); ++s) {
      if (sets_.size() > limit_ || members_ > kMostMembers) return false;
      expand(s);
    }
    result.states = std::move(states_);
    return true;
  }

 private:
  StateId id_of(StateSet set) {
    const auto [found, is_new] = ids_.try_emplace(std::move(set), static_cast<StateId>(sets_.size()));
    if (is_new) {
      states_.emplace_back();
      for (const StateId s : found->first) states_.back().accepting |= source_.states[s].accepting;
      members_ += found->first.size();
      sets_.push_back(&found->first);
    }
    return found->second;
  }

  void expand(StateId s) {
    std::vector<Automaton::ByteEdge> edges;
    std::map<RuleId, StateSet> calls;
    for (const StateId from : *sets_[s]) {
      const State& state = source_.states[from];
      edges.insert(edges.end(), state.bytes.begin(), state.bytes.end());
      for (const auto& call : state.calls) calls[call.rule].push_back(call.target);
    }
    split_by_byte(edges, [&](std::uint8_t first, std::uint8_t last, StateSet targets) {
      const StateId target = id_of(closure_.of(std::move(targets)));
      append_edge(states_[s], first, last, target);
    });
    for (auto& [rule, targets] : calls) {
      const StateId target = id_of(closure_.of(std::move(targets)));
      states_[s].calls.push_back({rule, target});
    }
  }

  const Automaton& source_;
  SilentClosure closure_;
  std::size_t limit_, members_ = 0;
  std::vector<const StateSet*> sets_;  ///< keys of ids_, which stay where they are
  std::vector<State> states_;
  std::unordered_map<StateSet, StateId, HashOfVector> ids_;
};

Automaton without_silent_edges(const Automaton& source) {
  SilentClosure closure(source);
  Automaton result;
  result.states.resize(source.states.size());
  std::size_t edges = 0;
  for (StateId s = 0; s < source.states.size(); ++s) {
    if (edges > kMostEdges) {
      throw Error(
          ErrorKind::Notation,
          "too many parts may follow one another: repetitions of what may be empty or may end in many ways, or a "
          "long list of optional parts; fewer of them may help");
    }
    State& state = result.states[s];
    for (const StateId from : closure.of({s})) {
      const State& other = source.states[from];
      state.bytes.insert(state.bytes.end(), other.bytes.begin(), other.bytes.end());
      state.calls.insert(state.calls.end(), other.calls.begin(), other.calls.end());
      state.accepting |= other.accepting;
    }
    const auto by_byte = [](const auto& a, const auto& b) {
      return std::tie(a.first, a.last, a.target) < std::tie(b.first, b.last, b.target);
    };
    std::sort(state.bytes.begin(), state.bytes.end(), by_byte);
    state.bytes.erase(std::unique(state.bytes.begin(), state.bytes.end()), state.bytes.end());
    const auto by_rule = [](const auto& a, const auto& b) {
      return std::tie(a.rule, a.target) < std::tie(b.rule, b.target);
    };
    std::sort(state.calls.begin(), state.calls.end(), by_rule);
    state.calls.erase(std::unique(state.calls.begin(), state.calls.end()), state.calls.end());
    edges += state.bytes.size() + state.calls.size();
  }
  return result;
}

template <class Function>
void for_each_target(const State& state, const Function& with) {
  for (const auto& e : state.bytes) with(e.target);
  for (const auto& c : state.calls) with(c.target);
  for (const StateId t : state.silent) with(t);
}

std::vector<bool> reachable(const std::vector<std::vector<StateId>>& edges, StateSet from) {
  std::vector<bool> seen(edges.size());
  for (const StateId s : from) seen[s] = true;
  while (!from.empty()) {
    const StateId s = from.back();
    from.pop_back();
    for (const StateId t : edges[s]) {
      if (!seen[t]) {
        seen[t] = true;
        from.push_back(t);
      }
    }
  }
  return seen;
}

/// Renames states, drops those that are named kNone, and joins edges that became neighbours.
Automaton renamed(const Automaton& a, const std::vector<StateId>& name, std::size_t n) {
  Automaton result;
  result.states.resize(n);
  std::vector<bool> done(n);
  for (StateId s = 0; s < a.states.size(); ++s) {
    if (name[s] == kNone || done[name[s]]) continue;
    done[name[s]] = true;
    State& state = result.states[name[s]];
    state.accepting = a.states[s].accepting;
    for (const auto& e : a.states[s].bytes) {
      if (name[e.target] != kNone) append_edge(state, e.first, e.last, name[e.target]);
    }
    for (const auto& c : a.states[s].calls) {
      if (name[c.target] != kNone) state.calls.push_back({c.rule, name[c.target]});
    }
    for (const StateId t : a.states[s].silent) {
      if (name[t] != kNone) state.silent.push_back(name[t]);
    }
  }
  return result;
}

[[noreturn]] void fail_combination() {
  throw Error(ErrorKind::Notation,
              "the combination of two patterns needs more than " + std::to_string(kMaxAutomatonStates) + " states");
}

using Signatures = std::unordered_map<std::vector<std::uint32_t>, StateId, HashOfVector>;

/// What tells a state from others, where states of one class are equal; `own`: what its edges do not tell.
std::vector<std::uint32_t> signature_of(const State& state, std::uint32_t own, const std::vector<StateId>& class_of) {
  std::vector<std::uint32_t> signature{own};
  for (const auto& e : state.bytes) {
    const std::size_t size = signature.size();
    if (size >= 3 && signature[size - 1] == class_of[e.target] && (signature[size - 2] & 0xffu) + 1 == e.first) {
      signature[size - 2] = (signature[size - 2] & ~0xffu) | e.last;
      continue;
    }
    signature.push_back(static_cast<std::uint32_t>(e.first) << 8 | e.last);
    signature.push_back(class_of[e.target]);
  }
  signature.push_back(~0u);
  for (const auto& c : state.calls) {
    signature.push_back(c.rule);
    signature.push_back(class_of[c.target]);
  }
  return signature;
}

/// One pass does: the classes of a state's targets are known before its own. Numbers of repetitions make long chains of
/// states, each of which would take refinement a round.
Automaton minimized_without_cycles(const Automaton& a, const std::vector<StateId>& order) {
  std::vector<StateId> class_of(a.states.size(), kNone);
  Signatures seen;
  for (const StateId s : order) {
    class_of[s] = seen.try_emplace(signature_of(a.states[s], a.states[s].accepting ? 1 : 0, class_of),
                                   static_cast<StateId>(seen.size()))
                      .first->second;
  }
  if (seen.size() == a.states.size()) return a;
  const auto start = static_cast<StateId>(seen.size() - 1);  // the last one: nothing leads back to it
  for (StateId& c : class_of) c = c == kNone ? kNone : start - c;
  return renamed(a, class_of, seen.size());
}

/// Pairs of states of two deterministic automata; kNone stands for the second one's missing state.
Automaton product(const Automaton& a, const Automaton& b, bool keep_where_b_ends) {
  const auto key = [](StateId x, StateId y) { return std::uint64_t{x} << 32 | y; };
  std::unordered_map<std::uint64_t, StateId> ids;
  std::vector<std::pair<StateId, StateId>> pairs;
  Automaton result;
  const auto id_of = [&](StateId x, StateId y) {
    const auto [found, is_new] = ids.try_emplace(key(x, y), static_cast<StateId>(pairs.size()));
    if (is_new) {
      pairs.emplace_back(x, y);
      result.states.emplace_back();
    }
    return found->second;
  };
  id_of(0, 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > kMaxAutomatonStates) fail_combination();
    const auto [x, y] = pairs[i];
    const bool b_accepts = y != kNone && b.states[y].accepting;
    result.states[i].accepting = a.states[x].accepting && b_accepts == keep_where_b_ends;
    std::array<StateId, 256> b_target;
    b_target.fill(kNone);
    if (y != kNone) {
      for (const auto& e : b.states[y].bytes) std::fill(&b_target[e.first], &b_target[e.last] + 1, e.target);
    }
    for (const auto& e : a.states[x].bytes) {
      for (unsigned byte = e.first; byte <= e.last; ++byte) {
        if (keep_where_b_ends && b_target[byte] == kNone) continue;
        const StateId target = id_of(e.target, b_target[byte]);
        append_edge(result.states[i], static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), target);
      }
    }
  }
  return minimized(trimmed(result));
}

void check_regular(const Automaton& a) {
  if (!is_deterministic(a))
    throw Error(ErrorKind::Notation, "a pattern is too complex to be combined with another one");
  for (const State& s : a.states) check(s.calls.empty(), "a set operation on an automaton that calls rules");
}

}  // namespace

Automaton determinized(const Automaton& source) {
  const std::size_t limit = std::min(kMaxAutomatonStates, 20'000 + 4 * source.states.size());
  Automaton result;
  if (SubsetConstruction(source, limit).run(result)) return trimmed(result);
  return trimmed(without_silent_edges(source));
}

bool is_deterministic(const Automaton& a) {
  return std::all_of(a.states.begin(), a.states.end(), [](const State& s) {
    const auto overlap = [](const auto& x, const auto& y) { return x.last >= y.first; };
    const auto same = [](const auto& x, const auto& y) { return x.rule == y.rule; };
    return s.silent.empty() && std::adjacent_find(s.bytes.begin(), s.bytes.end(), overlap) == s.bytes.end() &&
           std::adjacent_find(s.calls.begin(), s.calls.end(), same) == s.calls.end();
  });
}

Automaton trimmed(const Automaton& a) {
  const std::size_t n = a.states.size();
  std::vector<std::vector<StateId>> forward(n), backward(n);
  StateSet ends;
  for (StateId s = 0; s < n; ++s) {
    for_each_target(a.states[s], [&](StateId t) {
      forward[s].push_back(t);
      backward[t].push_back(s);
    });
    if (a.states[s].accepting) ends.push_back(s);
  }
  const std::vector<bool> from_start = reachable(forward, {0}), to_end = reachable(backward, std::move(ends));
  std::vector<StateId> name(n, kNone);
  StateId kept = 0;
  for (StateId s = 0; s < n; ++s) {
    if (s == 0 || (from_start[s] && to_end[s])) name[s] = kept++;
  }
  return renamed(a, name, kept);
}

Automaton minimized(Automaton a) {
  if (const auto order = targets_first(a)) return minimized_without_cycles(a, *order);
  // Moore's refinement: states are split until members of a class agree on where their edges lead.
  const std::size_t n = a.states.size();
  constexpr std::size_t kMostWork = 4'000'000;
  std::vector<StateId> class_of(n);
  for (std::size_t s = 0; s < n; ++s) class_of[s] = a.states[s].accepting ? 1 : 0;
  std::size_t classes = 0, work = 0;
  for (;;) {
    Signatures seen;
    std::vector<StateId> next(n);
    for (std::size_t s = 0; s < n; ++s) {
      std::vector<std::uint32_t> signature = signature_of(a.states[s], class_of[s], class_of);
      work += signature.size();
      next[s] = seen.try_emplace(std::move(signature), static_cast<StateId>(seen.size())).first->second;
    }
    class_of = std::move(next);
    if (seen.size() == classes) break;
    classes = seen.size();
    if (work > kMostWork) return a;
  }
  if (classes == n) return a;
  return renamed(a, class_of, classes);  // classes are numbered as they are met, so that 0 stays the start
}

Automaton intersection(const Automaton& a, const Automaton& b) {
  check_regular(a);
  check_regular(b);
  return product(a, b, true);
}

Automaton difference(const Automaton& a, const Automaton& b) {
  check_regular(a);
  check_regular(b);
  return product(a, b, false);
}

bool share_a_word(const Automaton& a, const Automaton& b) {
  check_regular(a);
  check_regular(b);
  std::unordered_set<std::uint64_t> seen{0};
  std::vector<std::pair<StateId, StateId>> todo{{0, 0}};
  while (!todo.empty()) {
    const auto [x, y] = todo.back();
    todo.pop_back();
    if (a.states[x].accepting && b.states[y].accepting) return true;
    if (seen.size() > kMaxAutomatonStates) fail_combination();
    for (const auto& e : a.states[x].bytes) {
      for (const auto& f : b.states[y].bytes) {
        if (e.last < f.first || f.last < e.first) continue;
        if (seen.insert(std::uint64_t{e.target} << 32 | f.target).second) todo.emplace_back(e.target, f.target);
      }
    }
  }
  return false;
}

bool is_empty(const Automaton& a) {
  const Automaton t = trimmed(a);
  return t.states.size() == 1 && !t.states[0].accepting;
}

bool accepts(const Automaton& a, std::string_view bytes) {
  SilentClosure closure(a);
  StateSet at = closure.of({0});
  for (const char c : bytes) {
    const auto byte = static_cast<std::uint8_t>(c);
    StateSet next;
    for (const StateId s : at) {
      for (const auto& e : a.states[s].bytes) {
        if (e.first <= byte && byte <= e.last) next.push_back(e.target);
      }
    }
    at = closure.of(std::move(next));
  }
  return std::any_of(at.begin(), at.end(), [&](StateId s) { return a.states[s].accepting; });
}

std::optional<std::vector<StateId>> targets_first(const Automaton& a) {
  enum : std::uint8_t { New, Open, Done };
  std::vector<std::uint8_t> mark(a.states.size(), New);
  std::vector<StateId> order;
  std::vector<std::pair<StateId, StateSet>> path;  // a state and what is left of its targets
  const auto open = [&](StateId s) {
    mark[s] = Open;
    StateSet targets;
    for_each_target(a.states[s], [&](StateId t) { targets.push_back(t); });
    path.emplace_back(s, std::move(targets));
  };
  open(0);
  while (!path.empty()) {
    auto& [state, targets] = path.back();
    if (targets.empty()) {
      mark[state] = Done;
      order.push_back(state);
      path.pop_back();
      continue;
    }
    const StateId next = targets.back();
    targets.pop_back();
    if (mark[next] == Open) return std::nullopt;
    if (mark[next] == New) open(next);
  }
  return order;
}

}  // namespace llm
