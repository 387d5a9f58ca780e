// Grammars as front ends write them: rules whose bodies are expressions over characters and other rules.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "constrain/automaton.h"
#include "constrain/code_points.h"

namespace llm {

using ExprId = std::uint32_t;
inline constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};

namespace expr {
struct Nothing {};  ///< matches no text at all
struct Literal {
  std::string bytes;  ///< may be empty
};
struct Characters {
  CodePoints set;
};
struct Sequence {
  std::vector<ExprId> items;
};
struct Choice {
  std::vector<ExprId> items;
};
struct Repeat {
  ExprId body;
  std::uint64_t min, max;
};
struct Call {
  RuleId rule;
};
/// States 0 (start) to n_states - 1 (end), joined by expressions.
struct Graph {
  struct Edge {
    std::uint32_t from, to;
    ExprId label;
  };
  std::uint32_t n_states;
  std::vector<Edge> edges;
};
/// A set of byte strings that was computed already.
struct Regular {
  std::shared_ptr<const Automaton> automaton;
};
}  // namespace expr

using Expr = std::variant<expr::Nothing, expr::Literal, expr::Characters, expr::Sequence, expr::Choice, expr::Repeat,
                          expr::Call, expr::Graph, expr::Regular>;

/// The expressions and rules of one grammar.
class Productions {
 public:
  ExprId nothing() { return add(expr::Nothing{}); }
  ExprId empty() { return literal({}); }
  ExprId literal(std::string_view bytes) { return add(expr::Literal{std::string(bytes)}); }
  ExprId characters(CodePoints set) { return add(expr::Characters{std::move(set)}); }
  ExprId sequence(std::vector<ExprId> items);
  ExprId choice(std::vector<ExprId> items);
  ExprId repeat(ExprId body, std::uint64_t min, std::uint64_t max) {
    return min > max ? nothing() : add(expr::Repeat{body, min, max});
  }
  ExprId optional(ExprId body) { return repeat(body, 0, 1); }
  ExprId call(RuleId rule) { return add(expr::Call{rule}); }
  ExprId graph(std::uint32_t n_states, std::vector<expr::Graph::Edge> edges) {
    return add(expr::Graph{n_states, std::move(edges)});
  }
  ExprId regular(Automaton automaton) {
    return add(expr::Regular{std::make_shared<const Automaton>(std::move(automaton))});
  }

  RuleId declare(std::string name);
  void rename(RuleId rule, std::string name) { rules_[rule].name = std::move(name); }
  void define(RuleId rule, ExprId body) { rules_[rule].body = body; }

  struct Rule {
    std::string name;  ///< for messages
    ExprId body;
  };
  const Expr& at(ExprId id) const { return expressions_[id]; }
  std::span<const Rule> rules() const { return rules_; }

 private:
  /// Expressions are walked by recursion: what is nested deeper is refused.
  static constexpr std::uint32_t kMostDepth = 1000;

  ExprId add(Expr e);
  std::uint32_t depth_below(const Expr&) const;

  std::vector<Expr> expressions_;
  std::vector<std::uint32_t> depths_;  ///< [expression], itself included
  std::vector<Rule> rules_;
};

/// The set of byte strings of an expression that calls no rules.
Automaton regular_automaton(const Productions&, ExprId);

}  // namespace llm
