#include "text/jinja/expression_parser.h"

#include <algorithm>

#include "text/jinja/limits.h"

namespace llm::jinja {
namespace {

std::string describe(const Token& t) {
  switch (t.type) {
    case TokenType::Data:
      return "template text";
    case TokenType::BlockBegin:
      return "begin of a tag";
    case TokenType::BlockEnd:
      return "end of the tag";
    case TokenType::VariableBegin:
      return "begin of a print statement";
    case TokenType::VariableEnd:
      return "end of the print statement";
    case TokenType::End:
      return "end of template";
    default:
      return "'" + escaped(t.text, 40) + "'";
  }
}

std::unique_ptr<OperandsExpr> operands(Expr::Kind kind, std::size_t offset) {
  return std::make_unique<OperandsExpr>(kind, offset);
}

std::optional<CompareOp> comparison(const Token& t) {
  if (t.type != TokenType::Operator) return std::nullopt;
  if (t.text == "==") return CompareOp::Eq;
  if (t.text == "!=") return CompareOp::Ne;
  if (t.text == "<") return CompareOp::Lt;
  if (t.text == "<=") return CompareOp::Le;
  if (t.text == ">") return CompareOp::Gt;
  if (t.text == ">=") return CompareOp::Ge;
  return std::nullopt;
}

/// True, False and None in either spelling.
std::optional<Value> word_constant(std::string_view name) {
  if (name == "true" || name == "True") return Value::boolean(true);
  if (name == "false" || name == "False") return Value::boolean(false);
  if (name == "none" || name == "None") return Value();
  return std::nullopt;
}

Target empty_target(std::size_t offset) {
  Target tuple;
  tuple.kind = Target::Kind::Tuple;
  tuple.offset = static_cast<std::uint32_t>(offset);
  return tuple;
}

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& p) : parser_(p) {
  if (++p.nesting_ > kMaxNesting) {
    --p.nesting_;
    p.fail(p.current().offset, "template limit: nested more than " + std::to_string(kMaxNesting) + " deep");
  }
}

bool ExpressionParser::skip_operator(std::string_view op) {
  const bool found = at_operator(op);
  if (found) advance();
  return found;
}

bool ExpressionParser::skip_name(std::string_view name) {
  const bool found = at_name(name);
  if (found) advance();
  return found;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_expected("'" + std::string(op) + "'");
}

const Token& ExpressionParser::expect_name() {
  if (current().type != TokenType::Name) fail_expected("a name");
  return advance();
}

void ExpressionParser::fail_expected(std::string_view what) const {
  fail(current().offset, "unexpected " + describe(current()) + ", expected " + std::string(what));
}

int ExpressionParser::check_depth(int depth, std::size_t offset) const {
  if (depth > kMaxTreeDepth) fail(offset, "template limit: an expression of too many operators");
  return depth;
}

ExprPtr ExpressionParser::sealed(std::unique_ptr<OperandsExpr> e) {
  for (const ExprPtr& part : e->operands) {
    if (part) e->depth = std::max(e->depth, part->depth + 1);
  }
  check_depth(e->depth, e->offset);
  return e;
}

template <class T>
ExprPtr ExpressionParser::sealed(std::unique_ptr<T> e, std::initializer_list<const Expr*> parts,
                                 const ArgumentList* arguments) {
  const auto add = [&](const Expr* part) {
    if (part != nullptr) e->depth = std::max(e->depth, part->depth + 1);
  };
  for (const Expr* part : parts) add(part);
  if (arguments != nullptr) {
    for (const ExprPtr& a : arguments->positional) add(a.get());
    for (const auto& [name, a] : arguments->keywords) add(a.get());
    add(arguments->more_positional.get());
    add(arguments->more_keywords.get());
  }
  check_depth(e->depth, e->offset);
  return e;
}

ExprPtr ExpressionParser::parse_tuple(Conditions conditions) {
  const std::size_t offset = current().offset;
  const auto at_end = [&] {
    const TokenType t = current().type;
    return t == TokenType::VariableEnd || t == TokenType::BlockEnd || at_operator(")");
  };
  auto tuple = operands(Expr::Kind::Tuple, offset);
  bool is_tuple = false;
  while (!at_end()) {
    tuple->operands.push_back(parse_expression(conditions));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return sealed(std::move(tuple));
  if (tuple->operands.empty()) fail_expected("an expression");
  return std::move(tuple->operands.front());
}

ExprPtr ExpressionParser::parse_expression(Conditions conditions) {
  return conditions == Conditions::Allowed ? parse_condition() : parse_or();
}

ExprPtr ExpressionParser::parse_condition() {
  std::size_t offset = current().offset;
  ExprPtr value = parse_or();
  while (skip_name("if")) {
    auto e = operands(Expr::Kind::Condition, offset);
    ExprPtr test = parse_or();
    ExprPtr otherwise;
    if (skip_name("else")) {
      const Nesting nesting(*this);
      otherwise = parse_condition();
    }
    e->operands.push_back(std::move(value));
    e->operands.push_back(std::move(test));
    e->operands.push_back(std::move(otherwise));
    value = sealed(std::move(e));
    offset = current().offset;
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (at_name("or")) {
    auto e = operands(Expr::Kind::Or, advance().offset);
    e->operands.push_back(std::move(left));
    e->operands.push_back(parse_and());
    left = sealed(std::move(e));
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (at_name("and")) {
    auto e = operands(Expr::Kind::And, advance().offset);
    e->operands.push_back(std::move(left));
    e->operands.push_back(parse_not());
    left = sealed(std::move(e));
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nesting nesting(*this);
  auto e = operands(Expr::Kind::Not, advance().offset);
  e->operands.push_back(parse_not());
  return sealed(std::move(e));
}

ExprPtr ExpressionParser::parse_compare() {
  auto e = std::make_unique<CompareExpr>(current().offset);
  e->first = parse_sum();
  for (;;) {
    if (const auto op = comparison(current())) {
      e->offset = static_cast<std::uint32_t>(advance().offset);
      e->rest.emplace_back(*op, parse_sum());
    } else if (skip_name("in")) {
      e->rest.emplace_back(CompareOp::In, parse_sum());
    } else if (at_name("not") && is_name(ahead(), "in")) {
      advance();
      advance();
      e->rest.emplace_back(CompareOp::NotIn, parse_sum());
    } else {
      break;
    }
  }
  if (e->rest.empty()) return std::move(e->first);
  for (const auto& [op, right] : e->rest) e->depth = std::max(e->depth, right->depth + 1);
  const Expr* first = e->first.get();
  return sealed(std::move(e), {first});
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const BinaryOp op = at_operator("+") ? BinaryOp::Add : BinaryOp::Sub;
    auto e = operands(Expr::Kind::Binary, advance().offset);
    e->op = op;
    e->operands.push_back(std::move(left));
    e->operands.push_back(parse_concat());
    left = sealed(std::move(e));
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  auto e = operands(Expr::Kind::Concat, current().offset);
  do {
    e->operands.push_back(parse_product());
  } while (skip_operator("~"));
  return e->operands.size() == 1 ? std::move(e->operands.front()) : sealed(std::move(e));
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  for (;;) {
    BinaryOp op;
    if (at_operator("*")) {
      op = BinaryOp::Mul;
    } else if (at_operator("/")) {
      op = BinaryOp::Div;
    } else if (at_operator("//")) {
      op = BinaryOp::FloorDiv;
    } else if (at_operator("%")) {
      op = BinaryOp::Mod;
    } else {
      return left;
    }
    auto e = operands(Expr::Kind::Binary, advance().offset);
    e->op = op;
    e->operands.push_back(std::move(left));
    e->operands.push_back(parse_power());
    left = sealed(std::move(e));
  }
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_operator("**")) {
    auto e = operands(Expr::Kind::Binary, advance().offset);
    e->op = BinaryOp::Pow;
    e->operands.push_back(std::move(left));
    e->operands.push_back(parse_unary());
    left = sealed(std::move(e));
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(Filters filters) {
  ExprPtr value;
  if (at_operator("-") || at_operator("+")) {
    const Nesting nesting(*this);
    const auto kind = at_operator("-") ? Expr::Kind::Negative : Expr::Kind::Positive;
    auto e = operands(kind, advance().offset);
    e->operands.push_back(parse_unary(Filters::Excluded));
    value = sealed(std::move(e));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return filters == Filters::Allowed ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& t = current();
  switch (t.type) {
    case TokenType::Name: {
      advance();
      if (auto constant = word_constant(t.text)) return std::make_unique<ConstExpr>(t.offset, std::move(*constant));
      return std::make_unique<NameExpr>(t.offset, std::string(t.text));
    }
    case TokenType::Integer:
    case TokenType::Float:
      advance();
      return std::make_unique<ConstExpr>(t.offset, t.value);
    case TokenType::String: {
      Str text = t.value.as_string();
      advance();
      for (; current().type == TokenType::String; advance()) text.append(current().value.as_string());
      return std::make_unique<ConstExpr>(t.offset, Value::string(std::move(text)));
    }
    default:
      return parse_bracketed();
  }
}

ExprPtr ExpressionParser::parse_bracketed() {
  const Nesting nesting(*this);
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  const std::size_t offset = current().offset;
  if (!skip_operator("(")) fail_expected("an expression");
  if (skip_operator(")")) return operands(Expr::Kind::Tuple, offset);
  ExprPtr value = parse_tuple();
  expect_operator(")");
  return value;
}

ExprPtr ExpressionParser::parse_list() {
  auto e = operands(Expr::Kind::List, current().offset);
  expect_operator("[");
  while (!at_operator("]")) {
    if (!e->operands.empty()) expect_operator(",");
    if (at_operator("]")) break;
    e->operands.push_back(parse_expression());
  }
  expect_operator("]");
  return sealed(std::move(e));
}

ExprPtr ExpressionParser::parse_dict() {
  auto e = std::make_unique<DictExpr>(current().offset);
  expect_operator("{");
  while (!at_operator("}")) {
    if (!e->entries.empty()) expect_operator(",");
    if (at_operator("}")) break;
    ExprPtr key = parse_expression();
    expect_operator(":");
    ExprPtr value = parse_expression();
    e->depth = std::max({e->depth, key->depth + 1, value->depth + 1});
    e->entries.emplace_back(std::move(key), std::move(value));
  }
  expect_operator("}");
  return sealed(std::move(e), {});
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr value) {
  for (;;) {
    if (at_operator(".") || at_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (at_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr value) {
  for (;;) {
    if (at_operator("|")) {
      value = parse_filters(std::move(value), FirstBar::There);
    } else if (at_name("is")) {
      value = parse_test(std::move(value));
    } else if (at_operator("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr value) {
  const Token& t = advance();
  if (t.text == "[") return parse_index(std::move(value), t.offset);
  const Token& name = advance();
  const Expr* part = value.get();
  if (name.type == TokenType::Name) {
    return sealed(std::make_unique<AttributeExpr>(t.offset, std::move(value), std::string(name.text)), {part});
  }
  if (name.type != TokenType::Integer) fail(name.offset, "expected a name or a number after the dot");
  auto e = operands(Expr::Kind::Item, t.offset);
  e->operands.push_back(std::move(value));
  e->operands.push_back(std::make_unique<ConstExpr>(name.offset, name.value));
  return sealed(std::move(e));
}

ExprPtr ExpressionParser::parse_index(ExprPtr value, std::size_t offset) {
  const Nesting nesting(*this);
  auto keys = operands(Expr::Kind::Tuple, offset);
  while (!at_operator("]")) {
    if (!keys->operands.empty()) expect_operator(",");
    ExprPtr key = at_operator(":") ? nullptr : parse_expression();
    if (at_operator(":")) {
      if (!keys->operands.empty()) fail(current().offset, "a slice cannot be one of several keys");
      value = parse_slice(std::move(value), std::move(key), offset);
      expect_operator("]");
      return value;
    }
    keys->operands.push_back(std::move(key));
  }
  expect_operator("]");
  auto e = operands(Expr::Kind::Item, offset);
  e->operands.push_back(std::move(value));
  if (keys->operands.size() == 1) {
    e->operands.push_back(std::move(keys->operands.front()));
  } else {
    e->operands.push_back(sealed(std::move(keys)));
  }
  return sealed(std::move(e));
}

ExprPtr ExpressionParser::parse_slice(ExprPtr value, ExprPtr start, std::size_t offset) {
  auto e = operands(Expr::Kind::Slice, offset);
  e->operands.push_back(std::move(value));
  e->operands.push_back(std::move(start));
  expect_operator(":");
  const auto bound = [&]() -> ExprPtr {
    return at_operator(":") || at_operator("]") || at_operator(",") ? nullptr : parse_expression();
  };
  e->operands.push_back(bound());
  e->operands.push_back(skip_operator(":") ? bound() : nullptr);
  return sealed(std::move(e));
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  auto e = std::make_unique<CallExpr>(current().offset);
  e->arguments = parse_arguments();
  e->callee = std::move(callee);
  const Expr* part = e->callee.get();
  const ArgumentList* arguments = &e->arguments;
  return sealed(std::move(e), {part}, arguments);
}

ArgumentList ExpressionParser::parse_arguments() {
  const Nesting nesting(*this);
  ArgumentList a;
  const std::size_t offset = current().offset;
  expect_operator("(");
  const auto require = [&](bool ok) {
    if (!ok) fail(offset, "invalid arguments of a call");
  };
  bool first = true;
  while (!at_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (at_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      require(!a.more_positional && !a.more_keywords);
      a.more_positional = parse_expression();
    } else if (skip_operator("**")) {
      require(!a.more_keywords);
      a.more_keywords = parse_expression();
    } else if (current().type == TokenType::Name && is_operator(ahead(), "=")) {
      require(!a.more_keywords);
      std::string name(advance().text);
      advance();
      const bool repeated =
          std::any_of(a.keywords.begin(), a.keywords.end(), [&](const auto& k) { return k.first == name; });
      if (repeated) fail(offset, "the keyword argument '" + escaped(name) + "' is repeated");
      if (a.keywords.size() == kMaxParameters) fail(offset, "template limit: too many keyword arguments");
      a.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      require(!a.more_positional && !a.more_keywords && a.keywords.empty());
      a.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return a;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name(expect_name().text);
  while (skip_operator(".")) name += "." + std::string(expect_name().text);
  return name;
}

ExprPtr ExpressionParser::parse_filters(ExprPtr value, FirstBar bar) {
  for (bool without_bar = bar == FirstBar::LeftOut; without_bar || skip_operator("|"); without_bar = false) {
    auto e = std::make_unique<NamedExpr>(Expr::Kind::Filter, current().offset);
    e->name = parse_dotted_name();
    if (at_operator("(")) e->arguments = parse_arguments();
    e->value = std::move(value);
    const Expr* part = e->value.get();
    const ArgumentList* arguments = &e->arguments;
    value = sealed(std::move(e), {part}, arguments);
  }
  return value;
}

ExprPtr ExpressionParser::parse_test(ExprPtr value) {
  advance();
  const bool negated = skip_name("not");
  auto e = std::make_unique<NamedExpr>(Expr::Kind::Test, current().offset);
  e->name = parse_dotted_name();
  const TokenType t = current().type;
  const bool operand = t == TokenType::Name || t == TokenType::String || t == TokenType::Integer ||
                       t == TokenType::Float || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    e->arguments = parse_arguments();
  } else if (operand && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail(current().offset, "tests cannot be chained with is");
    e->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  e->value = std::move(value);
  const std::size_t offset = e->offset;
  const Expr* part = e->value.get();
  const ArgumentList* arguments = &e->arguments;
  ExprPtr test = sealed(std::move(e), {part}, arguments);
  if (!negated) return test;
  auto opposite = operands(Expr::Kind::Not, offset);
  opposite->operands.push_back(std::move(test));
  return sealed(std::move(opposite));
}

Target ExpressionParser::parse_name_target() {
  const Token& t = expect_name();
  if (word_constant(t.text)) fail(t.offset, "cannot assign to '" + std::string(t.text) + "'");
  Target target;
  target.offset = static_cast<std::uint32_t>(t.offset);
  target.name = t.text;
  return target;
}

Target ExpressionParser::parse_simple_target(bool namespaces) {
  if (skip_operator("(")) {
    const Nesting nesting(*this);
    if (at_operator(")")) return empty_target(advance().offset);
    Target inner = parse_target(false);
    expect_operator(")");
    return inner;
  }
  if (current().type != TokenType::Name) fail_expected("a name to assign to");
  Target target = parse_name_target();
  if (!namespaces || !skip_operator(".")) return target;
  target.kind = Target::Kind::Attribute;
  target.attribute = expect_name().text;
  return target;
}

Target ExpressionParser::parse_target(bool namespaces) {
  Target tuple = empty_target(current().offset);
  bool is_tuple = false;
  do {
    tuple.items.push_back(parse_simple_target(namespaces));
    if (!skip_operator(",")) break;
    is_tuple = true;
  } while (current().type != TokenType::BlockEnd && !at_operator(")"));
  return is_tuple ? tuple : std::move(tuple.items.front());
}

}  // namespace llm::jinja
