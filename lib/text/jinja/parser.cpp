#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"
#include "text/jinja/limits.h"

namespace llm::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Tree parse() {
    Tree tree;
    tree.body = parse_body({});
    return tree;
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  /// Up to a tag that begins with one of `ends`, which stays the current token; without ends, to the template's end.
  Body parse_body(Words ends) {
    const Nesting nesting(*this);
    Body body;
    for (;;) {
      const Token& t = current();
      switch (t.type) {
        case TokenType::Data:
          output(body).parts.push_back(std::make_unique<ConstExpr>(t.offset, Value::string(t.text)));
          advance();
          break;
        case TokenType::VariableBegin:
          advance();
          output(body).parts.push_back(parse_tuple());
          if (current().type != TokenType::VariableEnd) fail_expected("end of the print statement");
          advance();
          break;
        case TokenType::BlockBegin:
          advance();
          if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return at_name(end); })) return body;
          body.push_back(parse_statement());
          end_tag();
          break;
        default:
          if (ends.size() > 0) fail(t.offset, "unexpected end of template; looking for " + listed(ends));
          return body;
      }
    }
  }

  static std::string listed(Words words) {
    std::string text;
    for (const std::string_view word : words) text += (text.empty() ? "'" : " or '") + std::string(word) + "'";
    return text;
  }

  /// The print statement that text belongs to: neighbours share one.
  OutputStmt& output(Body& body) {
    if (body.empty() || body.back()->kind != Stmt::Kind::Output)
      body.push_back(std::make_unique<OutputStmt>(current().offset));
    return static_cast<OutputStmt&>(*body.back());
  }

  void end_tag() {
    if (current().type != TokenType::BlockEnd) fail_expected("end of the tag");
    advance();
  }

  /// What stands between a tag's head and the tag that ends it.
  Body parse_block(Words ends) {
    skip_operator(":");
    end_tag();
    return parse_body(ends);
  }
  Body parse_whole_block(std::string_view end) {
    Body body = parse_block({end});
    advance();
    return body;
  }

  StmtPtr parse_statement() {
    const Token& t = current();
    if (t.type != TokenType::Name) fail_expected("the name of a tag");
    struct Row {
      std::string_view tag;
      StmtPtr (Parser::*parse)();
    };
    static constexpr Row kTags[] = {
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_block},
        {"filter", &Parser::parse_filter_block},
        {"with", &Parser::parse_with},
        {"print", &Parser::parse_print},
        {"break", &Parser::parse_jump},
        {"continue", &Parser::parse_jump},
        {"generation", &Parser::parse_generation},
    };
    for (const Row& row : kTags) {
      if (row.tag == t.text) return (this->*row.parse)();
    }
    constexpr std::string_view kRefused[] = {"include", "import", "from", "extends", "block", "autoescape"};
    if (std::find(std::begin(kRefused), std::end(kRefused), t.text) != std::end(kRefused)) {
      fail(t.offset,
           "the tag '" + std::string(t.text) + "' is not for chat templates, which are single and plain text");
    }
    fail(t.offset, "unknown tag '" + escaped(t.text, 40) + "'");
  }

  StmtPtr parse_if() {
    auto s = std::make_unique<IfStmt>(advance().offset);
    for (;;) {
      Branch branch;
      branch.test = parse_tuple(Conditions::Excluded);
      branch.body = parse_block({"elif", "else", "endif"});
      s->branches.push_back(std::move(branch));
      const Token& end = advance();
      if (end.text == "elif") continue;
      if (end.text == "else") s->otherwise = parse_whole_block("endif");
      return s;
    }
  }

  StmtPtr parse_for() {
    auto s = std::make_unique<ForStmt>(advance().offset);
    s->target = parse_target(false);
    if (!skip_name("in")) fail_expected("'in'");
    s->iterable = parse_tuple(Conditions::Excluded);
    if (skip_name("if")) s->test = parse_expression();
    s->recursive = skip_name("recursive");
    ++loops_;
    s->body = parse_block({"endfor", "else"});
    --loops_;
    if (advance().text == "else") {
      const Barrier barrier(*this, s->recursive);
      s->otherwise = parse_whole_block("endfor");
    }
    return s;
  }

  StmtPtr parse_set() {
    const std::size_t offset = advance().offset;
    Target target = parse_target(true);
    if (skip_operator("=")) {
      auto s = std::make_unique<SetStmt>(offset);
      s->target = std::move(target);
      s->value = parse_tuple();
      return s;
    }
    auto s = std::make_unique<SetBlockStmt>(offset);
    s->target = std::move(target);
    s->filter = parse_filters(nullptr, FirstBar::There);
    s->body = parse_whole_block("endset");
    return s;
  }

  /// What a function's body is in cannot be jumped out of.
  class Barrier {
   public:
    Barrier(Parser& p, bool closed) : parser_(p), loops_(p.loops_) {
      if (closed) p.loops_ = 0;
    }
    ~Barrier() { parser_.loops_ = loops_; }
    Barrier(const Barrier&) = delete;
    Barrier& operator=(const Barrier&) = delete;

   private:
    Parser& parser_;
    int loops_;
  };

  void parse_parameters(Function& f) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!f.parameters.empty()) expect_operator(",");
      Function::Parameter p;
      const Target target = parse_name_target();
      p.name = target.name;
      p.offset = target.offset;
      const bool repeated = std::any_of(f.parameters.begin(), f.parameters.end(),
                                        [&](const auto& other) { return other.name == p.name; });
      if (repeated) fail(p.offset, "the parameter '" + p.name + "' is repeated");
      if (skip_operator("=")) {
        p.fallback = parse_expression();
      } else if (!f.parameters.empty() && f.parameters.back().fallback) {
        fail(p.offset, "a parameter without a default follows one with a default");
      }
      f.parameters.push_back(std::move(p));
      if (f.parameters.size() > kMaxParameters) fail(current().offset, "template limit: too many parameters");
    }
    expect_operator(")");
  }

  StmtPtr parse_macro() {
    auto s = std::make_unique<MacroStmt>(advance().offset);
    s->name = parse_name_target().name;
    parse_parameters(s->function);
    const Barrier barrier(*this, true);
    s->function.body = parse_whole_block("endmacro");
    return s;
  }

  StmtPtr parse_call_block() {
    auto s = std::make_unique<CallBlockStmt>(advance().offset);
    if (at_operator("(")) parse_parameters(s->function);
    s->call = parse_expression();
    if (s->call->kind != Expr::Kind::Call) fail(s->offset, "expected a call");
    const auto& keywords = static_cast<const CallExpr&>(*s->call).arguments.keywords;
    const bool has_caller =
        std::any_of(keywords.begin(), keywords.end(), [](const auto& k) { return k.first == "caller"; });
    if (has_caller) fail(s->offset, "a call block passes `caller` itself");
    const Barrier barrier(*this, true);
    s->function.body = parse_whole_block("endcall");
    return s;
  }

  StmtPtr parse_filter_block() {
    auto s = std::make_unique<FilterBlockStmt>(advance().offset);
    s->filter = parse_filters(nullptr, FirstBar::LeftOut);
    s->body = parse_whole_block("endfilter");
    return s;
  }

  StmtPtr parse_with() {
    auto s = std::make_unique<WithStmt>(advance().offset);
    while (current().type != TokenType::BlockEnd) {
      if (!s->bindings.empty()) expect_operator(",");
      Target target = parse_target(false);
      expect_operator("=");
      ExprPtr value = parse_expression();
      s->bindings.emplace_back(std::move(target), std::move(value));
    }
    s->body = parse_whole_block("endwith");
    return s;
  }

  StmtPtr parse_print() {
    auto s = std::make_unique<OutputStmt>(advance().offset);
    while (current().type != TokenType::BlockEnd) {
      if (!s->parts.empty()) expect_operator(",");
      s->parts.push_back(parse_expression());
    }
    return s;
  }

  StmtPtr parse_jump() {
    const Token& t = advance();
    if (loops_ == 0) fail(t.offset, "'" + std::string(t.text) + "' outside a loop");
    return std::make_unique<JumpStmt>(t.text == "break" ? Stmt::Kind::Break : Stmt::Kind::Continue, t.offset);
  }

  StmtPtr parse_generation() {
    auto s = std::make_unique<GenerationStmt>(advance().offset);
    const Barrier barrier(*this, true);
    s->function.body = parse_whole_block("endgeneration");
    return s;
  }

  int loops_ = 0;  ///< that a jump can leave
};

}  // namespace

Tree parse(const Source& source) {
  if (source.text.size() > kMaxTemplateBytes) source.fail(0, "template limit: the template is too large");
  return Parser(source).parse();
}

}  // namespace llm::jinja
