// What can be said about rules before automata exist: which match the empty text, and which begin with themselves.
#pragma once

#include <vector>

#include "constrain/expression.h"

namespace llm {

class Nullability {
 public:
  explicit Nullability(const Productions&);

  /// The declared rule matches the empty text.
  bool rule(RuleId r) const { return rules_[r]; }
  /// Throws ErrorKind::Notation if a rule that `root` needs can call itself before a byte is consumed: the runtime
  /// would never get to that byte.
  void refuse_left_recursion(RuleId root) const;

 private:
  bool nullable(ExprId) const;
  /// States of a graph that are reached without a byte.
  std::vector<bool> graph_states(const expr::Graph&) const;
  void first_calls(ExprId, std::vector<RuleId>& out) const;

  const Productions& productions_;
  std::vector<bool> rules_;
};

/// Rules that the expression calls, as often as it does.
void collect_calls(const Productions&, ExprId, std::vector<RuleId>& out);

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // Clang 14 does not deduce those of aggregates

}  // namespace llm
