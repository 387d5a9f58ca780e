#include "constrain/nullability.h"

#include <algorithm>

#include "base/error.h"
#include "constrain/fixed_point.h"

namespace llm {

Nullability::Nullability(const Productions& p) : productions_(p), rules_(p.rules().size()) {
  visit_until_stable(rules_.size(), [&](std::size_t r) {
    if (rules_[r] || !nullable(p.rules()[r].body)) return false;
    rules_[r] = true;
    return true;
  });
}

bool Nullability::nullable(ExprId id) const {
  const auto each = [this](ExprId e) { return nullable(e); };
  return std::visit(Overloaded{
                        [](const expr::Nothing&) { return false; },
                        [](const expr::Literal& e) { return e.bytes.empty(); },
                        [](const expr::Characters&) { return false; },
                        [&](const expr::Sequence& e) { return std::all_of(e.items.begin(), e.items.end(), each); },
                        [&](const expr::Choice& e) { return std::any_of(e.items.begin(), e.items.end(), each); },
                        [&](const expr::Repeat& e) { return e.min == 0 || nullable(e.body); },
                        [&](const expr::Call& e) { return static_cast<bool>(rules_[e.rule]); },
                        [&](const expr::Graph& e) { return static_cast<bool>(graph_states(e).back()); },
                        [](const expr::Regular& e) { return e.automaton->states[0].accepting; },
                    },
                    productions_.at(id));
}

std::vector<bool> Nullability::graph_states(const expr::Graph& g) const {
  std::vector<bool> seen(g.n_states);
  seen[0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& e : g.edges) {
      if (!seen[e.from] || seen[e.to] || !nullable(e.label)) continue;
      seen[e.to] = changed = true;
    }
  }
  return seen;
}

void Nullability::first_calls(ExprId id, std::vector<RuleId>& out) const {
  std::visit(Overloaded{
                 [&](const expr::Sequence& e) {
                   for (const ExprId item : e.items) {
                     first_calls(item, out);
                     if (!nullable(item)) break;
                   }
                 },
                 [&](const expr::Choice& e) {
                   for (const ExprId item : e.items) first_calls(item, out);
                 },
                 [&](const expr::Repeat& e) {
                   if (e.max > 0) first_calls(e.body, out);
                 },
                 [&](const expr::Call& e) { out.push_back(e.rule); },
                 [&](const expr::Graph& e) {
                   const std::vector<bool> seen = graph_states(e);
                   for (const auto& edge : e.edges) {
                     if (seen[edge.from]) first_calls(edge.label, out);
                   }
                 },
                 [](const auto&) {},
             },
             productions_.at(id));
}

void Nullability::refuse_left_recursion(RuleId root) const {
  enum : std::uint8_t { New, Open, Done };
  std::vector<std::uint8_t> mark(rules_.size(), New);
  const auto name = [&](RuleId r) { return escaped(productions_.rules()[r].name); };

  // From every rule that is needed, along the calls that come first.
  std::vector<RuleId> needed{root};
  std::vector<bool> is_needed(rules_.size());
  is_needed[root] = true;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    std::vector<RuleId> calls;
    collect_calls(productions_, productions_.rules()[needed[i]].body, calls);
    for (const RuleId r : calls) {
      if (!is_needed[r]) needed.push_back(r);
      is_needed[r] = true;
    }
    std::vector<std::pair<RuleId, std::vector<RuleId>>> path;  // a rule and what is left of its first calls
    const auto open = [&](RuleId r) {
      mark[r] = Open;
      std::vector<RuleId> first;
      first_calls(productions_.rules()[r].body, first);
      path.emplace_back(r, std::move(first));
    };
    if (mark[needed[i]] == New) open(needed[i]);
    while (!path.empty()) {
      if (path.back().second.empty()) {
        mark[path.back().first] = Done;
        path.pop_back();
        continue;
      }
      const RuleId next = path.back().second.back();
      path.back().second.pop_back();
      if (mark[next] == New) {
        open(next);
      } else if (mark[next] == Open) {
        auto from = std::find_if(path.begin(), path.end(), [&](const auto& p) { return p.first == next; });
        std::string chain;
        for (; from != path.end(); ++from) chain += name(from->first) + " -> ";
        throw Error(ErrorKind::Notation,
                    ErrorParts{.file = {},
                               .subject = "rule \"" + name(next) + "\"",
                               .problem = "left recursion (" + chain + name(next) +
                                          "): a rule may not begin with itself; a list is item (\",\" item)*"});
      }
    }
  }
}

void collect_calls(const Productions& p, ExprId id, std::vector<RuleId>& out) {
  const auto all = [&](const std::vector<ExprId>& items) {
    for (const ExprId e : items) collect_calls(p, e, out);
  };
  std::visit(Overloaded{
                 [&](const expr::Sequence& e) { all(e.items); },
                 [&](const expr::Choice& e) { all(e.items); },
                 [&](const expr::Repeat& e) { collect_calls(p, e.body, out); },
                 [&](const expr::Call& e) { out.push_back(e.rule); },
                 [&](const expr::Graph& e) {
                   for (const auto& edge : e.edges) collect_calls(p, edge.label, out);
                 },
                 [](const auto&) {},
             },
             p.at(id));
}

}  // namespace llm
