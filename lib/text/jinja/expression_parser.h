// The part of the parser that reads expressions, and the tokens under it.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace llm::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(const Source& source) : source_(source), tokens_(tokenize(source)) {}

 protected:
  enum class Conditions : std::uint8_t { Allowed, Excluded };  ///< `a if b else c` without brackets

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& advance() { return current().type == TokenType::End ? current() : tokens_[at_++]; }
  bool at_operator(std::string_view op) const { return is_operator(current(), op); }
  bool at_name(std::string_view name) const { return is_name(current(), name); }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  const Token& expect_name();
  [[noreturn]] void fail(std::size_t offset, std::string_view message) const { source_.fail(offset, message); }
  /// "unexpected ..., expected `what`" at the current token.
  [[noreturn]] void fail_expected(std::string_view what) const;
  static bool is_operator(const Token& t, std::string_view op) { return t.type == TokenType::Operator && t.text == op; }
  static bool is_name(const Token& t, std::string_view name) { return t.type == TokenType::Name && t.text == name; }

  ExprPtr parse_tuple(Conditions conditions = Conditions::Allowed);
  ExprPtr parse_expression(Conditions conditions = Conditions::Allowed);
  enum class FirstBar : std::uint8_t { There, LeftOut };
  /// Filters applied to `value`, which is null for those of a block.
  ExprPtr parse_filters(ExprPtr value, FirstBar bar);
  Target parse_target(bool namespaces);
  Target parse_name_target();

  /// Counts brackets and blocks that are open.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& p);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  enum class Filters : std::uint8_t { Allowed, Excluded };
  ExprPtr parse_unary(Filters filters = Filters::Allowed);
  ExprPtr parse_primary();
  ExprPtr parse_bracketed();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr value);
  ExprPtr parse_filters_and_tests(ExprPtr value);
  ExprPtr parse_subscript(ExprPtr value);
  ExprPtr parse_index(ExprPtr value, std::size_t offset);
  ExprPtr parse_slice(ExprPtr value, ExprPtr start, std::size_t offset);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_test(ExprPtr value);
  ArgumentList parse_arguments();
  std::string parse_dotted_name();
  Target parse_simple_target(bool namespaces);

  /// Sets the depth of a node from its parts.
  ExprPtr sealed(std::unique_ptr<OperandsExpr> e);
  template <class T>
  ExprPtr sealed(std::unique_ptr<T> e, std::initializer_list<const Expr*> parts,
                 const ArgumentList* arguments = nullptr);
  int check_depth(int depth, std::size_t offset) const;

  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace llm::jinja
