#include "text/jinja/undeclared.h"

#include <utility>

#include "text/jinja/operands.h"

namespace llm::jinja {
namespace {

class Walk {
 public:
  explicit Walk(std::set<std::string> names) : names_(std::move(names)) {}

  std::set<std::string> found;

  void body(Body& b) {
    for (StmtPtr& s : b) stmt(*s);
  }

 private:
  void expr(Expr& e) {
    if (e.kind != Expr::Kind::Name) return for_each_operand(e, [this](Expr& part) { expr(part); });
    const std::string& name = static_cast<NameExpr&>(e).name;
    if (names_.contains(name)) found.insert(name);
  }
  void expr(ExprPtr& e) {
    if (e) expr(*e);
  }
  void target(const Target& t) {
    if (t.kind == Target::Kind::Name) names_.erase(t.name);
    for (const Target& item : t.items) target(item);
  }
  void function(Function& f) {
    for (auto& p : f.parameters) names_.erase(p.name);
    for (auto& p : f.parameters) expr(p.fallback);
    body(f.body);
  }

  void stmt(Stmt& s) {
    switch (s.kind) {
      case Stmt::Kind::Output:
        for (ExprPtr& e : static_cast<OutputStmt&>(s).parts) expr(e);
        return;
      case Stmt::Kind::If:
        for (Branch& b : static_cast<IfStmt&>(s).branches) {
          expr(b.test);
          body(b.body);
        }
        return body(static_cast<IfStmt&>(s).otherwise);
      case Stmt::Kind::For: {
        auto& node = static_cast<ForStmt&>(s);
        target(node.target);
        expr(node.iterable);
        body(node.body);
        body(node.otherwise);
        return expr(node.test);
      }
      case Stmt::Kind::Macro:
        return function(static_cast<MacroStmt&>(s).function);
      case Stmt::Kind::CallBlock:
        expr(static_cast<CallBlockStmt&>(s).call);
        return function(static_cast<CallBlockStmt&>(s).function);
      case Stmt::Kind::FilterBlock:
        body(static_cast<FilterBlockStmt&>(s).body);
        return expr(static_cast<FilterBlockStmt&>(s).filter);
      case Stmt::Kind::Set:
        target(static_cast<SetStmt&>(s).target);
        return expr(static_cast<SetStmt&>(s).value);
      case Stmt::Kind::SetBlock:
        target(static_cast<SetBlockStmt&>(s).target);
        expr(static_cast<SetBlockStmt&>(s).filter);
        return body(static_cast<SetBlockStmt&>(s).body);
      case Stmt::Kind::With: {
        auto& node = static_cast<WithStmt&>(s);
        for (auto& [t, value] : node.bindings) target(t);
        for (auto& [t, value] : node.bindings) expr(value);
        return body(node.body);
      }
      case Stmt::Kind::Generation:
        return function(static_cast<GenerationStmt&>(s).function);
      case Stmt::Kind::Break:
      case Stmt::Kind::Continue:
        return;
    }
  }

  std::set<std::string> names_;
};

}  // namespace

std::set<std::string> undeclared(Body& body, std::set<std::string> names) {
  Walk walk(std::move(names));
  walk.body(body);
  return std::move(walk.found);
}

}  // namespace llm::jinja
