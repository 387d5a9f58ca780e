// The parse tree. Names stand for places in activations, which `resolve` fills in after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace llm::jinja {

/// A variable: `hops` functions outwards, then a slot of that function's activation.
struct Place {
  std::uint32_t hops = 0;
  std::uint32_t slot = 0;
};

/// What fills a scope's variables when it is entered.
struct Load {
  enum class From : std::uint8_t { Context, Place, Nothing } from = From::Nothing;
  std::uint32_t slot = 0;
  std::uint32_t name = 0;  ///< From::Context: index into Tree::context_names
  Place place = {};        ///< From::Place
};

struct Scope {
  std::vector<Load> loads;
  std::vector<std::uint32_t> slots;  ///< all variables of the scope: they are missing again when it is left
};

struct Expr {
  enum class Kind : std::uint8_t {
    Const,
    Name,
    Tuple,
    List,
    Dict,
    Binary,
    Negative,
    Positive,
    Not,
    And,
    Or,
    Concat,
    Compare,
    Condition,
    Attribute,
    Item,
    Slice,
    Call,
    Filter,
    Test,
  };
  Expr(Kind k, std::size_t o) : kind(k), offset(static_cast<std::uint32_t>(o)) {}
  virtual ~Expr() = default;
  Kind kind;
  std::uint32_t offset;  ///< in the source
  int depth = 1;         ///< of the tree under it
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstExpr : Expr {
  ConstExpr(std::size_t o, Value v) : Expr(Kind::Const, o), value(std::move(v)) {}
  Value value;
};
struct NameExpr : Expr {
  NameExpr(std::size_t o, std::string n) : Expr(Kind::Name, o), name(std::move(n)) {}
  std::string name;
  Place place;
};
/// Tuple, List, Concat: any number of operands. Negative, Positive, Not: one. Binary, And, Or: two. Condition: value,
/// test, value otherwise (may be null). Item: value, key. Slice: value, start, stop, step (each may be null).
struct OperandsExpr : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> operands;
  BinaryOp op = BinaryOp::Add;  ///< of Binary
};
struct DictExpr : Expr {
  explicit DictExpr(std::size_t o) : Expr(Kind::Dict, o) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct CompareExpr : Expr {
  explicit CompareExpr(std::size_t o) : Expr(Kind::Compare, o) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct AttributeExpr : Expr {
  AttributeExpr(std::size_t o, ExprPtr v, std::string n)
      : Expr(Kind::Attribute, o), value(std::move(v)), name(std::move(n)) {}
  ExprPtr value;
  std::string name;
};
struct ArgumentList {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr more_positional, more_keywords;  ///< *args, **kwargs; may be null
};
struct CallExpr : Expr {
  explicit CallExpr(std::size_t o) : Expr(Kind::Call, o) {}
  ExprPtr callee;
  ArgumentList arguments;
};
/// Filter and Test.
struct NamedExpr : Expr {
  using Expr::Expr;
  ExprPtr value;  ///< null for the filter of a block
  std::string name;
  ArgumentList arguments;
  std::int32_t function = -1;  ///< index into the table of filters or tests; -1: there is none of the name
};

/// What can be assigned to.
struct Target {
  enum class Kind : std::uint8_t { Name, Attribute, Tuple } kind = Kind::Name;
  std::uint32_t offset = 0;
  std::string name;       ///< of the variable; of Attribute: that holds the namespace
  std::string attribute;  ///< of Attribute
  Place place;
  std::vector<Target> items;
};

struct Stmt {
  enum class Kind : std::uint8_t {
    Output,
    If,
    For,
    Macro,
    CallBlock,
    FilterBlock,
    Set,
    SetBlock,
    With,
    Generation,
    Break,
    Continue,
  };
  Stmt(Kind k, std::size_t o) : kind(k), offset(static_cast<std::uint32_t>(o)) {}
  virtual ~Stmt() = default;
  Kind kind;
  std::uint32_t offset;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct OutputStmt : Stmt {
  explicit OutputStmt(std::size_t o) : Stmt(Kind::Output, o) {}
  std::vector<ExprPtr> parts;
};
struct Branch {
  ExprPtr test;
  Body body;
};
struct IfStmt : Stmt {
  explicit IfStmt(std::size_t o) : Stmt(Kind::If, o) {}
  std::vector<Branch> branches;
  Body otherwise;
};
struct ForStmt : Stmt {
  explicit ForStmt(std::size_t o) : Stmt(Kind::For, o) {}
  Target target;
  ExprPtr iterable;
  ExprPtr test;        ///< may be null
  Target test_target;  ///< the target as the test's function has it
  bool recursive = false, extended = false;
  Body body, otherwise;
  std::uint32_t loop_slot = 0;  ///< of `loop`, if extended
  Scope scope, test_scope, otherwise_scope;
  std::uint32_t test_slots = 0;  ///< slots of the activation of the test's function
  std::uint32_t loop_slots = 0;  ///< of a recursive loop's function
};
/// A macro, or the body of a call block.
struct Function {
  struct Parameter {
    std::string name;
    ExprPtr fallback;  ///< may be null
    std::uint32_t offset = 0;
    std::uint32_t slot = 0;
  };
  std::vector<Parameter> parameters;
  Body body;
  Scope scope;
  std::uint32_t slots = 0;
  std::optional<std::uint32_t> caller_slot, kwargs_slot, varargs_slot;  ///< where the body uses them
  bool takes_caller = false;                                            ///< the body uses `caller`
  bool explicit_caller = false;                                         ///< `caller` is one of the parameters
};
struct MacroStmt : Stmt {
  explicit MacroStmt(std::size_t o) : Stmt(Kind::Macro, o) {}
  std::string name;
  Place place;
  Function function;
};
struct CallBlockStmt : Stmt {
  explicit CallBlockStmt(std::size_t o) : Stmt(Kind::CallBlock, o) {}
  ExprPtr call;
  Function function;
};
struct FilterBlockStmt : Stmt {
  explicit FilterBlockStmt(std::size_t o) : Stmt(Kind::FilterBlock, o) {}
  ExprPtr filter;
  Body body;
  Scope scope;
};
struct SetStmt : Stmt {
  explicit SetStmt(std::size_t o) : Stmt(Kind::Set, o) {}
  Target target;
  ExprPtr value;
};
struct SetBlockStmt : Stmt {
  explicit SetBlockStmt(std::size_t o) : Stmt(Kind::SetBlock, o) {}
  Target target;
  ExprPtr filter;  ///< may be null
  Body body;
  Scope scope;
};
struct WithStmt : Stmt {
  explicit WithStmt(std::size_t o) : Stmt(Kind::With, o) {}
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
  Scope scope;
};
/// {% generation %}: marks an assistant's text; printed as it is. A function of its own, as the extension makes it one.
struct GenerationStmt : Stmt {
  explicit GenerationStmt(std::size_t o) : Stmt(Kind::Generation, o) {}
  Function function;
};
struct JumpStmt : Stmt {
  using Stmt::Stmt;
};

struct Tree {
  Body body;
  Scope scope;
  std::uint32_t slots = 0;
  std::vector<std::string> context_names;  ///< variables that are looked up outside the template
};

}  // namespace llm::jinja
