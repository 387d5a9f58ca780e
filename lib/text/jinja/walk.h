// Going through the names of a tree in the order of Jinja's own nodes, which decides what counts as declared.
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

/// V has load(name), store(name) and is called for every name under the node, in functions and scopes too.
template <class V>
class NameWalk {
 public:
  explicit NameWalk(V& v) : v_(v) {}

  void expr(Expr& e) {
    if (e.kind == Expr::Kind::Name) return v_.load(static_cast<NameExpr&>(e).name);
    for_each_operand(e, [this](Expr& part) { expr(part); });
  }
  void body(Body& b) {
    for (StmtPtr& s : b) stmt(*s);
  }
  void target(const Target& t) {
    if (t.kind == Target::Kind::Name) v_.store(t.name);
    for (const Target& item : t.items) target(item);
  }

 private:
  void optional(ExprPtr& e) {
    if (e) expr(*e);
  }
  void function(Function& f) {
    for (auto& p : f.parameters) v_.store(p.name);
    for (auto& p : f.parameters) optional(p.fallback);
    body(f.body);
  }
  void stmt(Stmt& s) {
    switch (s.kind) {
      case Stmt::Kind::Output:
        for (ExprPtr& e : static_cast<OutputStmt&>(s).parts) expr(*e);
        return;
      case Stmt::Kind::If: {
        auto& node = static_cast<IfStmt&>(s);
        for (Branch& b : node.branches) {
          expr(*b.test);
          body(b.body);
        }
        return body(node.otherwise);
      }
      case Stmt::Kind::For: {
        auto& node = static_cast<ForStmt&>(s);
        target(node.target);
        expr(*node.iterable);
        body(node.body);
        body(node.otherwise);
        return optional(node.test);
      }
      case Stmt::Kind::Macro:
        return function(static_cast<MacroStmt&>(s).function);
      case Stmt::Kind::CallBlock:
        expr(*static_cast<CallBlockStmt&>(s).call);
        return function(static_cast<CallBlockStmt&>(s).function);
      case Stmt::Kind::FilterBlock:
        body(static_cast<FilterBlockStmt&>(s).body);
        return expr(*static_cast<FilterBlockStmt&>(s).filter);
      case Stmt::Kind::Set:
        target(static_cast<SetStmt&>(s).target);
        return expr(*static_cast<SetStmt&>(s).value);
      case Stmt::Kind::SetBlock:
        target(static_cast<SetBlockStmt&>(s).target);
        optional(static_cast<SetBlockStmt&>(s).filter);
        return body(static_cast<SetBlockStmt&>(s).body);
      case Stmt::Kind::With: {
        auto& node = static_cast<WithStmt&>(s);
        for (auto& [t, value] : node.bindings) target(t);
        for (auto& [t, value] : node.bindings) expr(*value);
        return body(node.body);
      }
      case Stmt::Kind::Generation:
        return function(static_cast<GenerationStmt&>(s).function);
      case Stmt::Kind::Break:
      case Stmt::Kind::Continue:
        return;
    }
  }
  V& v_;
};

}  // namespace llm::jinja
