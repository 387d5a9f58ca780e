// The interpreter's half that evaluates expressions.
#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/interpreter_guards.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace llm::jinja {

Value Interpreter::eval(const Expr& e) {
  const DepthCount depth(*this);
  if (++evaluations_ % kEvaluationsPerStep == 0) step();
  switch (e.kind) {
    case Expr::Kind::Const:
      return static_cast<const ConstExpr&>(e).value;
    case Expr::Kind::Name:
      return eval_name(static_cast<const NameExpr&>(e));
    case Expr::Kind::Dict:
      return eval_dict(static_cast<const DictExpr&>(e));
    case Expr::Kind::Compare:
      return eval_compare(static_cast<const CompareExpr&>(e));
    case Expr::Kind::Attribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(e);
      const Value v = eval(*attribute.value);
      set_position(e.offset);
      return get_attribute(*this, v, attribute.name);
    }
    case Expr::Kind::Call:
      return eval_call(static_cast<const CallExpr&>(e), nullptr);
    case Expr::Kind::Filter:
    case Expr::Kind::Test:
      return eval_named(static_cast<const NamedExpr&>(e));
    default:
      return eval_operands(static_cast<const OperandsExpr&>(e));
  }
}

Value Interpreter::eval_operands(const OperandsExpr& e) {
  const auto operand = [&](std::size_t i) { return eval(*e.operands[i]); };
  switch (e.kind) {
    case Expr::Kind::Tuple:
      return tuple(eval_all(e.operands));
    case Expr::Kind::List:
      return list(eval_all(e.operands));
    case Expr::Kind::Concat:
      return eval_concat(e);
    case Expr::Kind::Condition:
      return eval_condition(e);
    case Expr::Kind::Slice:
      return eval_slice(e);
    case Expr::Kind::Not:
      return Value::boolean(!truth(*this, operand(0)));
    case Expr::Kind::And: {
      Value left = operand(0);
      return truth(*this, left) ? operand(1) : left;
    }
    case Expr::Kind::Or: {
      Value left = operand(0);
      return truth(*this, left) ? left : operand(1);
    }
    default:
      break;
  }
  const Value left = operand(0);
  const bool unary = e.kind == Expr::Kind::Negative || e.kind == Expr::Kind::Positive;
  const Value right = unary ? Value() : operand(1);
  const bool written_base = has_written_base(e);
  set_position(e.offset);
  if (e.kind == Expr::Kind::Negative) return negative(*this, left);
  if (e.kind == Expr::Kind::Positive) return positive(*this, left);
  if (e.kind == Expr::Kind::Item) return get_item(*this, left, right);
  return written_base ? power_of_magnitude(*this, left, right) : binary(*this, e.op, left, right);
}

Value Interpreter::eval_name(const NameExpr& e) {
  const Value& v = variable(e.place);
  return v.is(Kind::Missing) ? undefined("'" + e.name + "' is undefined") : v;
}

Value Interpreter::eval_dict(const DictExpr& e) {
  auto d = std::make_shared<DictObject>();
  for (const auto& [key, value] : e.entries) {
    const Value k = eval(*key);
    Value v = eval(*value);
    set_position(key->offset);
    require_hashable(*this, k);
    d->set(k, std::move(v));
  }
  return dict(std::move(d));
}

Value Interpreter::eval_condition(const OperandsExpr& e) {
  if (truth(*this, eval(*e.operands[1]))) return eval(*e.operands[0]);
  if (e.operands[2]) return eval(*e.operands[2]);
  return undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Interpreter::eval_concat(const OperandsExpr& e) {
  const std::vector<Value> parts = eval_all(e.operands);
  set_position(e.offset);
  Str out;
  for (const Value& v : parts) {
    append_str(*this, v, out);
    limit_string(out);
  }
  return string(std::move(out));
}

Value Interpreter::eval_compare(const CompareExpr& e) {
  Value left = eval(*e.first);
  for (const auto& [op, expr] : e.rest) {
    Value right = eval(*expr);
    set_position(e.offset);
    if (!compare(*this, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_slice(const OperandsExpr& e) {
  const auto bound = [&](std::size_t i) { return e.operands[i] ? eval(*e.operands[i]) : Value(); };
  const Value v = eval(*e.operands[0]);
  const SliceBounds bounds{bound(1), bound(2), bound(3)};
  set_position(e.offset);
  return get_slice(*this, v, bounds);
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& e : exprs) values.push_back(eval(*e));
  return values;
}

CallArguments Interpreter::eval_arguments(const ArgumentList& list) {
  CallArguments a;
  a.positional = eval_all(list.positional);
  for (const auto& [name, e] : list.keywords) a.keywords.emplace_back(name, eval(*e));
  if (list.more_positional) {
    const Value more = eval(*list.more_positional);
    set_position(list.more_positional->offset);
    for (const Value& v : to_items(*this, more)) a.positional.push_back(v);
  }
  if (list.more_keywords) {
    const Value more = eval(*list.more_keywords);
    set_position(list.more_keywords->offset);
    if (!more.is_dict()) fail("argument after ** must be a mapping, not " + std::string(type_name(more)));
    const std::size_t n = a.keywords.size() + more.as<DictObject>().entries().size();
    if (n > kMaxParameters) fail_limit("keyword arguments");
    charge_items(n);  // each is looked for among the others
    for (const auto& [key, v] : more.as<DictObject>().entries()) {
      if (!key.is_string()) fail("keywords must be strings");
      const Str& name = key.as_string();
      for (const auto& given : a.keywords) {
        if (given.first.view() == name.view())
          fail("got multiple values for keyword argument '" + escaped(name.view()) + "'");
      }
      a.keywords.emplace_back(name, v);
    }
  }
  return a;
}

Value Interpreter::eval_call(const CallExpr& e, const Value* caller) {
  const Value callee = eval(*e.callee);
  CallArguments arguments = eval_arguments(e.arguments);
  set_position(e.offset);
  if (caller != nullptr) {
    for (const auto& given : arguments.keywords) {
      if (given.first.view() == "caller") fail("got multiple values for keyword argument 'caller'");
    }
    arguments.keywords.emplace_back("caller", *caller);
  }
  return call(callee, arguments);
}

Value Interpreter::eval_named(const NamedExpr& e) {
  const Value v = e.value ? eval(*e.value) : *block_value_;
  CallArguments arguments = eval_arguments(e.arguments);
  set_position(e.offset);
  const bool filter = e.kind == Expr::Kind::Filter;
  if (e.function < 0)
    fail(std::string("there is no ") + (filter ? "filter" : "test") + " named '" + escaped(e.name) + "'");
  return filter ? call_filter(*this, e.function, v, arguments)
                : Value::boolean(call_test(*this, e.function, v, arguments));
}

}  // namespace llm::jinja
