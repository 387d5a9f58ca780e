// The base of a power as Jinja writes it. It computes constants when it compiles a template, so that Python sees
// `(1 - 3) ** n` as `-2 ** n`, where the sign is the power's.
#include <algorithm>
#include <string_view>

#include "text/jinja/interpreter.h"
#include "text/jinja/operands.h"
#include "text/jinja/operators.h"

namespace llm::jinja {
namespace {

/// What they give depends on the rendering.
constexpr std::string_view kContextFilters[] = {"map", "reject", "rejectattr", "select", "selectattr"};

}  // namespace

bool Interpreter::has_written_base(const OperandsExpr& e) {
  return e.kind == Expr::Kind::Binary && e.op == BinaryOp::Pow && !is_constant(*e.operands[1]) &&
         is_constant(*e.operands[0]);
}

/// Of an expression that was evaluated: whether Jinja computes it when it compiles the template.
bool Interpreter::is_constant(Expr& e) {
  if (++evaluations_ % kEvaluationsPerStep == 0) step();
  switch (e.kind) {
    case Expr::Kind::Name:
    case Expr::Kind::Call:
      return false;
    case Expr::Kind::Filter:
      if (std::ranges::count(kContextFilters, static_cast<NamedExpr&>(e).name) != 0) return false;
      break;
    case Expr::Kind::And:
    case Expr::Kind::Or:
    case Expr::Kind::Condition:
      return is_constant_choice(static_cast<OperandsExpr&>(e));
    default:
      break;
  }
  bool all = true;
  for_each_operand(e, [&](Expr& part) { all = all && is_constant(part); });
  return all;
}

/// What is not chosen need not be a constant.
bool Interpreter::is_constant_choice(OperandsExpr& e) {
  const bool condition = e.kind == Expr::Kind::Condition;
  Expr& test = *e.operands[condition ? 1 : 0];
  if (!is_constant(test)) return false;
  const bool holds = truth(*this, eval(test));
  if (!condition) return holds == (e.kind == Expr::Kind::Or) || is_constant(*e.operands[1]);
  const ExprPtr& chosen = e.operands[holds ? 0 : 2];
  return chosen != nullptr && is_constant(*chosen);
}

}  // namespace llm::jinja
