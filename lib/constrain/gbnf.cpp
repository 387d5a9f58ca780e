// GBNF, the notation of llama.cpp's grammars: rules over characters, with repetition as in regular expressions.
//
//   rules      name ::= alternatives, one per line; # begins a comment
//   items      "text"  [a-z]  [^a-z]  .  name  ( alternatives )
//   repeated   item* item+ item? item{3} item{3,} item{3,5}
//   escapes    \n \r \t \\ \" \[ \] \- \x41 \u0041 \U00000041: code points, in texts and in classes
//
// A sequence goes on in the next line inside parentheses and after ::= and |. Tokens (<name>, <[id]>) are refused: a
// constraint is about text, whatever tokens a model writes it with.
#include <map>
#include <optional>

#include "base/utf8.h"
#include "constrain/expression.h"
#include "constrain/grammar.h"
#include "constrain/source_text.h"

namespace llm {
namespace {

bool is_digit(char c) { return '0' <= c && c <= '9'; }
bool is_word(char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || is_digit(c) || c == '-' || c == '_'; }

enum class Lines : std::uint8_t { Stay, GoOn };  ///< whether white space includes line ends

class GbnfParser {
 public:
  explicit GbnfParser(const SourceText& source) : source_(source) {}

  Grammar run() {
    skip_space(Lines::GoOn);
    while (!source_.at_end(at_)) parse_rule();
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) source_.fail(rule.first_seen, "the rule \"" + name + "\" is not defined");
    }
    const auto root = rules_.find("root");
    if (root == rules_.end())
      source_.fail(source_.text().size(), "there is no rule \"root\", which a grammar begins with");
    return Grammar::compile(productions_, root->second.id);
  }

 private:
  struct RuleEntry {
    RuleId id;
    std::size_t first_seen;
    bool defined;
    std::size_t defined_at;
  };

  char peek() const { return source_.peek(at_); }
  [[noreturn]] void fail(const std::string& problem) const { source_.fail(at_, problem); }

  void expect(char c) {
    if (peek() != c) fail(std::string("expected \"") + c + "\"");
    ++at_;
  }

  void skip_space(Lines lines) {
    for (;; ++at_) {
      if (peek() == '#') {
        while (!source_.at_end(at_) && peek() != '\n' && peek() != '\r') ++at_;
      }
      const bool end_of_line = peek() == '\n' || peek() == '\r';
      if (peek() != ' ' && peek() != '\t' && !(end_of_line && lines == Lines::GoOn)) return;
    }
  }

  std::string parse_name() {
    const std::size_t begin = at_;
    while (is_word(peek())) ++at_;
    if (at_ == begin) fail("expected the name of a rule");
    return std::string(source_.text().substr(begin, at_ - begin));
  }

  RuleEntry& entry(const std::string& name, std::size_t where) {
    const auto [found, is_new] = rules_.try_emplace(name, RuleEntry{0, where, false, 0});
    if (is_new) found->second.id = productions_.declare(name);
    return found->second;
  }

  void parse_rule() {
    const std::size_t begin = at_;
    const std::string name = parse_name();
    {
      RuleEntry& rule = entry(name, begin);
      if (rule.defined) {
        source_.fail(begin, "the rule \"" + name + "\" is defined twice, first in " + source_.line_of(rule.defined_at));
      }
      rule.defined = true;
      rule.defined_at = begin;
      productions_.rename(rule.id, name + ", " + source_.line_of(begin));
    }
    skip_space(Lines::Stay);
    if (!source_.text().substr(at_).starts_with("::=")) fail("expected \"::=\" after the rule's name");
    at_ += 3;
    skip_space(Lines::GoOn);
    const ExprId body = parse_alternatives(Lines::Stay, 0);
    productions_.define(rules_.at(name).id, body);
    if (!source_.at_end(at_) && peek() != '\n' && peek() != '\r') {
      fail(peek() == ')' ? "this parenthesis closes nothing" : "expected an item, or the end of the line");
    }
    skip_space(Lines::GoOn);
  }

  ExprId parse_alternatives(Lines lines, std::size_t nesting) {
    if (nesting > kMostNesting) fail("parentheses are nested more than " + std::to_string(kMostNesting) + " deep");
    std::vector<ExprId> alternatives{parse_sequence(lines, nesting)};
    while (peek() == '|') {
      ++at_;
      skip_space(Lines::GoOn);
      alternatives.push_back(parse_sequence(lines, nesting));
    }
    return productions_.choice(std::move(alternatives));
  }

  ExprId parse_sequence(Lines lines, std::size_t nesting) {
    std::vector<ExprId> items;
    while (const std::optional<ExprId> item = parse_item(nesting)) {
      skip_space(lines);
      items.push_back(parse_repetitions(*item, lines));
    }
    return productions_.sequence(std::move(items));
  }

  std::optional<ExprId> parse_item(std::size_t nesting) {
    switch (peek()) {
      case '"':
        return parse_text();
      case '[':
        return parse_class();
      case '.':
        ++at_;
        return productions_.characters(CodePoints::all());
      case '(': {
        ++at_;
        skip_space(Lines::GoOn);
        const ExprId group = parse_alternatives(Lines::GoOn, nesting + 1);
        expect(')');
        return group;
      }
      case '<':
      case '!':
        fail("tokens in grammars are not supported: write the text of the token in quotes");
      case '*':
      case '+':
      case '?':
      case '{':
        fail("there is nothing to repeat before this");
      default:
        if (!is_word(peek())) return std::nullopt;
    }
    const std::size_t begin = at_;
    return productions_.call(entry(parse_name(), begin).id);
  }

  ExprId parse_text() {
    const std::size_t begin = at_++;
    std::string text;
    while (peek() != '"') {
      if (source_.at_end(at_)) source_.fail(begin, "this quote is never closed");
      text += utf8::encoded(parse_character());
    }
    ++at_;
    return productions_.literal(text);
  }

  ExprId parse_class() {
    const std::size_t begin = at_++;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    CodePoints set;
    if (peek() == ']') source_.fail(begin, "a class without characters");
    while (peek() != ']') {
      if (source_.at_end(at_)) source_.fail(begin, "this bracket is never closed");
      const std::size_t first_at = at_;
      const char32_t first = parse_character();
      char32_t last = first;
      if (peek() == '-' && source_.peek(at_ + 1) != ']') {
        ++at_;
        last = parse_character();
      }
      if (last < first) source_.fail(first_at, "a range that ends before it begins");
      set.add(first, last);
    }
    ++at_;
    if (negated) set = set.complement();
    if (set.empty()) source_.fail(begin, "a class that matches no character");
    return productions_.characters(std::move(set));
  }

  /// One character of a text or a class, escaped or not.
  char32_t parse_character() {
    if (peek() != '\\') {
      const Character c = source_.character(at_);
      at_ += c.bytes;
      return c.code;
    }
    const std::size_t begin = at_++;
    const char kind = peek();
    ++at_;
    switch (kind) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        return static_cast<unsigned char>(kind);
      case 'x':
        return parse_hex(begin, 2);
      case 'u':
        return parse_hex(begin, 4);
      case 'U':
        return parse_hex(begin, 8);
      default:
        source_.fail(
            begin,
            "this is not an escape of grammars: there are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\xHH \\uHHHH \\UHHHHHHHH");
    }
  }

  char32_t parse_hex(std::size_t begin, int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (is_digit(c)) {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if ('a' <= lower && lower <= 'f') {
        value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        source_.fail(begin, "this escape takes " + std::to_string(digits) + " hexadecimal digits");
      }
    }
    if (value > CodePoints::kLast || (value >= 0xd800 && value <= 0xdfff)) {
      source_.fail(begin, "this is not the number of a Unicode character");
    }
    return value;
  }

  ExprId parse_repetitions(ExprId item, Lines lines) {
    for (std::size_t n = 0;; ++n) {
      if (n > kMostNesting) fail("too many repetitions of repetitions");
      switch (peek()) {
        case '*':
          item = productions_.repeat(item, 0, kUnbounded);
          break;
        case '+':
          item = productions_.repeat(item, 1, kUnbounded);
          break;
        case '?':
          item = productions_.optional(item);
          break;
        case '{':
          item = parse_counts(item, lines);
          continue;
        default:
          return item;
      }
      ++at_;
      skip_space(lines);
    }
  }

  ExprId parse_counts(ExprId item, Lines lines) {
    const std::size_t begin = at_;
    const auto next = [&] {
      ++at_;
      skip_space(lines);
    };
    next();
    const std::uint64_t min = parse_count(lines);
    std::uint64_t max = min;
    if (peek() == ',') {
      next();
      max = is_digit(peek()) ? parse_count(lines) : kUnbounded;
    }
    if (peek() != '}') fail("expected \"}\" after the number of repetitions");
    if (max < min)
      source_.fail(begin, "at most " + std::to_string(max) + " but at least " + std::to_string(min) + " times");
    next();
    return productions_.repeat(item, min, max);
  }

  std::uint64_t parse_count(Lines lines) {
    constexpr std::uint64_t kMost = 1'000'000'000;
    if (!is_digit(peek())) fail("expected a number of repetitions");
    std::uint64_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value > kMost) fail("more than " + std::to_string(kMost) + " repetitions");
    }
    skip_space(lines);
    return value;
  }

  const SourceText& source_;
  std::size_t at_ = 0;
  Productions productions_;
  std::map<std::string, RuleEntry> rules_;
};

}  // namespace

Grammar grammar_from_gbnf(std::string_view text, std::string_view file) {
  const SourceText source("grammar", text, file);
  try {
    return GbnfParser(source).run();
  } catch (const Error& e) {
    if (!e.parts().file.empty() || file.empty()) throw;
    ErrorParts parts = e.parts();
    parts.file = file;
    throw Error(e.kind(), std::move(parts));
  }
}

}  // namespace llm
