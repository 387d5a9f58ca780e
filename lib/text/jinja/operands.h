// Going through the operands of an expression, in the order of Jinja's own nodes.
#pragma once

#include "text/jinja/ast.h"

namespace llm::jinja {

/// Calls f(Expr&) for each operand that is there.
template <class F>
void for_each_argument(ArgumentList& a, F f) {
  for (ExprPtr& e : a.positional) f(*e);
  for (auto& [name, e] : a.keywords) f(*e);
  if (a.more_positional) f(*a.more_positional);
  if (a.more_keywords) f(*a.more_keywords);
}

template <class F>
void for_each_operand(Expr& e, F f) {
  switch (e.kind) {
    case Expr::Kind::Const:
    case Expr::Kind::Name:
      return;
    case Expr::Kind::Dict:
      for (auto& [key, value] : static_cast<DictExpr&>(e).entries) {
        f(*key);
        f(*value);
      }
      return;
    case Expr::Kind::Compare:
      f(*static_cast<CompareExpr&>(e).first);
      for (auto& [op, right] : static_cast<CompareExpr&>(e).rest) f(*right);
      return;
    case Expr::Kind::Attribute:
      return f(*static_cast<AttributeExpr&>(e).value);
    case Expr::Kind::Call:
      f(*static_cast<CallExpr&>(e).callee);
      return for_each_argument(static_cast<CallExpr&>(e).arguments, f);
    case Expr::Kind::Filter:
    case Expr::Kind::Test: {
      auto& named = static_cast<NamedExpr&>(e);
      if (named.value) f(*named.value);
      return for_each_argument(named.arguments, f);
    }
    default:
      for (ExprPtr& part : static_cast<OperandsExpr&>(e).operands) {
        if (part) f(*part);
      }
  }
}

}  // namespace llm::jinja
