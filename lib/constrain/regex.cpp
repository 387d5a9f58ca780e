#include "constrain/regex.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "constrain/grammar.h"
#include "constrain/source_text.h"

namespace llm {
namespace {

CodePoints digits() { return {{'0', '9'}}; }
CodePoints word_characters() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
/// ECMA-262: WhiteSpace and LineTerminator.
CodePoints white_space() {
  return {{0x09, 0x0d},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
          {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
}
/// `.` is everything but ECMA-262's LineTerminator.
CodePoints line_ends() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }

struct Node {
  enum class Kind : std::uint8_t { Set, Sequence, Choice, Repeat, Begin, End } kind;
  std::size_t at;  ///< in the pattern
  CodePoints set = {};
  std::vector<Node> items = {};  ///< one for Repeat
  std::uint64_t min = 0, max = 0;

  bool has_anchor() const {
    return kind == Kind::Begin || kind == Kind::End ||
           std::any_of(items.begin(), items.end(), [](const Node& n) { return n.has_anchor(); });
  }
};

class RegexParser {
 public:
  explicit RegexParser(const SourceText& source) : source_(source) {}

  Node run() {
    Node node = parse_choice(0);
    if (!source_.at_end(at_)) fail("this parenthesis closes nothing");
    return node;
  }

 private:
  char peek(std::size_t ahead = 0) const { return source_.peek(at_ + ahead); }
  bool starts_with(std::string_view text) const { return source_.text().substr(at_).starts_with(text); }
  [[noreturn]] void fail(const std::string& problem) const { source_.fail(at_, problem); }

  Node parse_choice(std::size_t nesting) {
    if (nesting > kMostNesting) fail("groups are nested more than " + std::to_string(kMostNesting) + " deep");
    Node choice{.kind = Node::Kind::Choice, .at = at_};
    const std::size_t first_name = all_names_.size();
    choice.items.push_back(parse_sequence(nesting));
    for (std::size_t name = first_name; peek() == '|';) {
      for (; name < all_names_.size(); ++name) names_.erase(all_names_[name]);  // of two alternatives one matches
      ++at_;
      choice.items.push_back(parse_sequence(nesting));
    }
    for (std::size_t name = first_name; name < all_names_.size(); ++name) names_.insert(all_names_[name]);
    if (choice.items.size() > 1) return choice;
    Node only = std::move(choice.items[0]);
    return only;
  }

  Node parse_sequence(std::size_t nesting) {
    Node sequence{.kind = Node::Kind::Sequence, .at = at_};
    while (!source_.at_end(at_) && peek() != '|' && peek() != ')') {
      sequence.items.push_back(parse_repetitions(parse_atom(nesting)));
    }
    return sequence;
  }

  Node parse_atom(std::size_t nesting) {
    const std::size_t begin = at_;
    switch (peek()) {
      case '^':
        ++at_;
        return {.kind = Node::Kind::Begin, .at = begin};
      case '$':
        ++at_;
        return {.kind = Node::Kind::End, .at = begin};
      case '(':
        return parse_group(nesting);
      case '[':
        return {.kind = Node::Kind::Set, .at = begin, .set = parse_class()};
      case '.':
        ++at_;
        return {.kind = Node::Kind::Set, .at = begin, .set = line_ends().complement()};
      case '\\':
        return {.kind = Node::Kind::Set, .at = begin, .set = parse_escape(Where::Outside)};
      case '*':
      case '+':
      case '?':
        fail("there is nothing to repeat before this");
      case '{':
        if (read_counts()) fail_at(begin, "there is nothing to repeat before this");
        break;
      default:
        break;
    }
    const Character c = source_.character(at_);
    at_ += c.bytes;
    return {.kind = Node::Kind::Set, .at = begin, .set = CodePoints::one(c.code)};
  }

  [[noreturn]] void fail_at(std::size_t at, const std::string& problem) const { source_.fail(at, problem); }

  Node parse_group(std::size_t nesting) {
    const std::size_t begin = at_++;
    if (peek() == '?') {
      if (starts_with("?:")) {
        at_ += 2;
      } else if (starts_with("?=") || starts_with("?!") || starts_with("?<=") || starts_with("?<!")) {
        fail_at(begin, "look-around is not supported: an automaton cannot follow it");
      } else if (starts_with("?<")) {
        parse_group_name(begin);
      } else if (starts_with("?P<")) {
        fail_at(begin, "ECMAScript writes a group with a name as (?<name>...)");
      } else {
        fail_at(begin, "flags and other special groups are not supported");
      }
    } else if (peek() == '*') {
      fail_at(begin, "verbs are not supported");
    }
    Node group = parse_choice(nesting + 1);
    if (peek() != ')') fail_at(begin, "this parenthesis is never closed");
    ++at_;
    return group;
  }

  void parse_group_name(std::size_t begin) {
    at_ += 2;
    const std::size_t end = source_.text().find('>', at_);
    if (end == std::string_view::npos) fail_at(begin, "the group's name is never closed");
    const std::string_view name = source_.text().substr(at_, end - at_);
    const auto may_be_in_name = [](char c) {
      const char lower = static_cast<char>(c | 0x20);
      return ('a' <= lower && lower <= 'z') || ('0' <= c && c <= '9') || c == '_' || c == '$' ||
             static_cast<unsigned char>(c) >= 0x80;
    };
    const bool is_name =
        !name.empty() && (name[0] < '0' || name[0] > '9') && std::all_of(name.begin(), name.end(), may_be_in_name);
    if (!is_name) fail_at(begin, "a group's name has letters, digits, _ and $, and no digit first");
    if (!names_.insert(name).second) fail_at(begin, "another group has this name as well");
    all_names_.push_back(name);
    at_ = end + 1;
  }

  Node parse_repetitions(Node atom) {
    const std::size_t begin = at_;
    std::uint64_t min = 0, max = kUnbounded;
    switch (peek()) {
      case '*':
        break;
      case '+':
        min = 1;
        break;
      case '?':
        max = 1;
        break;
      case '{':
        if (const auto counts = read_counts()) {
          std::tie(min, max) = *counts;
          --at_;  // to the closing brace
          break;
        }
        return atom;
      default:
        return atom;
    }
    ++at_;
    if (peek() == '?') ++at_;  // how greedy a repetition is changes no language
    if (peek() == '*' || peek() == '+' || peek() == '?')
      fail("a repetition of a repetition: put the first into (?:...)");
    if (max < min) fail_at(begin, "at most " + std::to_string(max) + " but at least " + std::to_string(min) + " times");
    Node repeat{.kind = Node::Kind::Repeat, .at = begin, .min = min, .max = max};
    repeat.items.push_back(std::move(atom));
    return repeat;
  }

  /// {3}, {3,} or {3,5}, behind which it stops; anything else is text that begins with a brace.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> read_counts() {
    const std::size_t begin = at_++;
    const auto min = read_count();
    auto max = min;
    if (min && peek() == ',') {
      ++at_;
      max = peek() == '}' ? std::optional(kUnbounded) : read_count();
    }
    if (!min || !max || peek() != '}') {
      at_ = begin;
      return std::nullopt;
    }
    ++at_;
    return std::pair{*min, *max};
  }

  std::optional<std::uint64_t> read_count() {
    constexpr std::uint64_t kMost = 1'000'000'000;
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    for (; '0' <= peek() && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value > kMost) fail_at(begin, "more than " + std::to_string(kMost) + " repetitions");
    }
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  CodePoints parse_class() {
    const std::size_t begin = at_++;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    if (peek() == ']') fail_at(begin, "a class without characters (a bracket in a class is written \\])");
    CodePoints set;
    while (peek() != ']') {
      if (source_.at_end(at_)) fail_at(begin, "this bracket is never closed");
      if (starts_with("[:")) fail("POSIX classes are not supported: write \\d, \\w, \\s or \\p{L}");
      const std::size_t first_at = at_;
      const bool first_is_class = at_class_escape();
      const CodePoints first = parse_class_member();
      if (peek() != '-' || peek(1) == ']') {
        set.add(first);
        continue;
      }
      ++at_;
      if (first_is_class) {  // ECMA-262, annex B: in [\w-x] and [\d-a-c] the dash is plain, and so is what follows
        set.add(first);
        set.add('-', '-');
        set.add(parse_class_member());
        continue;
      }
      if (at_class_escape()) fail_at(first_at, "a range that ends in a class");
      const CodePoints last = parse_class_member();
      const char32_t low = first.ranges()[0].first, high = last.ranges()[0].first;
      if (high < low) fail_at(first_at, "a range that ends before it begins");
      set.add(low, high);
    }
    ++at_;
    return negated ? set.complement() : set;
  }

  /// Whether what comes stands for a set of characters, which may have one or none.
  bool at_class_escape() const {
    return peek() == '\\' && std::string_view("dDwWsSpP").find(peek(1)) != std::string_view::npos;
  }

  CodePoints parse_class_member() {
    if (peek() == '\\') return parse_escape(Where::InClass);
    const Character c = source_.character(at_);
    at_ += c.bytes;
    return CodePoints::one(c.code);
  }

  enum class Where : std::uint8_t { Outside, InClass };

  CodePoints parse_escape(Where where) {
    const std::size_t begin = at_++;
    const Character c = source_.character(at_);
    at_ += c.bytes;
    switch (c.code) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return white_space();
      case 'S':
        return white_space().complement();
      case 'p':
      case 'P':
        return parse_category(begin, c.code == 'P');
      case 't':
        return CodePoints::one('\t');
      case 'n':
        return CodePoints::one('\n');
      case 'r':
        return CodePoints::one('\r');
      case 'v':
        return CodePoints::one('\v');
      case 'f':
        return CodePoints::one('\f');
      case 'x':
        return CodePoints::one(parse_hex(begin, 2));
      case 'u':
        return CodePoints::one(parse_unicode_escape(begin));
      case 'c':
        return CodePoints::one(parse_control(begin));
      case '0':
        if (peek() < '0' || peek() > '9') return CodePoints::one(0);
        break;
      case 'b':
        if (where == Where::InClass) return CodePoints::one('\b');
        fail_at(begin, "word boundaries are not supported");
      case 'B':
        fail_at(begin, "word boundaries are not supported");
      case 'k':
        fail_at(begin, "back references are not supported: an automaton cannot follow them");
      default:
        break;
    }
    if ('0' <= c.code && c.code <= '9') {
      fail_at(begin, "back references and octal escapes are not supported");
    }
    const char32_t lower = c.code | 0x20u;
    if ('a' <= lower && lower <= 'z') fail_at(begin, "this escape is not known");
    return CodePoints::one(c.code);
  }

  CodePoints parse_category(std::size_t begin, bool negated) {
    const std::size_t end = source_.text().find('}', at_);
    if (peek() != '{' || end == std::string_view::npos) fail_at(begin, "expected a category in braces, as in \\p{L}");
    std::string_view name = source_.text().substr(at_ + 1, end - at_ - 1);
    for (const std::string_view prefix : {"General_Category=", "gc="}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    const std::optional<CodePoints> set = unicode_category(name);
    if (!set) fail_at(begin, "only general categories are known here, as in \\p{L} or \\p{Lu}");
    at_ = end + 1;
    return negated ? set->complement() : *set;
  }

  char32_t parse_control(std::size_t begin) {
    const char lower = static_cast<char>(peek() | 0x20);
    if (lower < 'a' || lower > 'z') fail_at(begin, "expected a letter after \\c");
    ++at_;
    return static_cast<char32_t>(lower - 'a' + 1);
  }

  std::optional<unsigned> hex_digit() const {
    const char c = peek(), lower = static_cast<char>(c | 0x20);
    if ('0' <= c && c <= '9') return static_cast<unsigned>(c - '0');
    if ('a' <= lower && lower <= 'f') return static_cast<unsigned>(lower - 'a' + 10);
    return std::nullopt;
  }

  char32_t parse_hex(std::size_t begin, int n) {
    char32_t value = 0;
    for (int i = 0; i < n; ++i, ++at_) {
      const auto digit = hex_digit();
      if (!digit) fail_at(begin, "this escape takes " + std::to_string(n) + " hexadecimal digits");
      value = value * 16 + *digit;
    }
    return value;
  }

  /// \u0041, \u{1F600} or a pair of surrogates.
  char32_t parse_unicode_escape(std::size_t begin) {
    char32_t value = 0;
    if (peek() == '{') {
      ++at_;
      if (peek() == '}') fail_at(begin, "expected the number of a character in braces");
      for (; peek() != '}'; ++at_) {
        const auto digit = hex_digit();
        if (!digit || value > CodePoints::kLast) fail_at(begin, "expected the number of a character in braces");
        value = value * 16 + *digit;
      }
      ++at_;
    } else {
      value = parse_hex(begin, 4);
      if (value >= 0xd800 && value <= 0xdbff && starts_with("\\u")) {
        at_ += 2;
        const char32_t low = parse_hex(begin, 4);
        if (low < 0xdc00 || low > 0xdfff) fail_at(begin, "half of a pair of surrogates");
        value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
      }
    }
    if (value > CodePoints::kLast || (value >= 0xd800 && value <= 0xdfff)) {
      fail_at(begin, "this is not the number of a Unicode character");
    }
    return value;
  }

  const SourceText& source_;
  std::size_t at_ = 0;
  std::set<std::string_view> names_;         ///< of groups that match where the next one does
  std::vector<std::string_view> all_names_;  ///< as they come
};

/// Turns the parsed tree into an expression. Anchors mean something only where the text outside of a match would be.
class RegexWriter {
 public:
  RegexWriter(const SourceText& source, Productions& p, const RegexUse& use)
      : source_(source), productions_(p), use_(use) {
    anything_ = productions_.repeat(use.character(CodePoints::all()), 0, kUnbounded);
  }

  ExprId write(const Node& root) {
    const Side side = use_.match == RegexUse::Match::Whole ? Side::Edge : Side::Open;
    return write(root, side, side);
  }

 private:
  enum class Side : std::uint8_t {
    Inner,  ///< another part of the match is here: no place for an anchor
    Edge,   ///< the text begins or ends here
    Open    ///< it does behind an anchor, else anything may be outside
  };

  ExprId outside(Side side) { return side == Side::Open ? anything_ : productions_.empty(); }

  ExprId wrapped(Side left, ExprId inner, Side right) {
    if (left != Side::Open && right != Side::Open) return inner;
    return productions_.sequence({outside(left), inner, outside(right)});
  }

  ExprId write(const Node& node, Side left, Side right) {
    switch (node.kind) {
      case Node::Kind::Set:
        return wrapped(left, node.set.empty() ? productions_.nothing() : use_.character(node.set), right);
      case Node::Kind::Begin:
        if (left == Side::Inner) source_.fail(node.at, "^ is supported at the beginning only");
        return outside(right);
      case Node::Kind::End:
        if (right == Side::Inner) source_.fail(node.at, "$ is supported at the end only");
        return outside(left);
      case Node::Kind::Choice: {
        std::vector<ExprId> items;
        for (const Node& item : node.items) items.push_back(write(item, left, right));
        return productions_.choice(std::move(items));
      }
      case Node::Kind::Sequence: {
        if (node.items.empty()) return wrapped(left, productions_.empty(), right);
        std::vector<ExprId> items;
        for (std::size_t i = 0; i < node.items.size(); ++i) {
          items.push_back(
              write(node.items[i], i == 0 ? left : Side::Inner, i + 1 == node.items.size() ? right : Side::Inner));
        }
        return productions_.sequence(std::move(items));
      }
      case Node::Kind::Repeat:
        if (node.items[0].has_anchor()) source_.fail(node.at, "anchors cannot be repeated");
        return wrapped(left, productions_.repeat(write(node.items[0], Side::Inner, Side::Inner), node.min, node.max),
                       right);
    }
    check(false, "a node of a regular expression");
    return 0;
  }

  const SourceText& source_;
  Productions& productions_;
  const RegexUse& use_;
  ExprId anything_;
};

}  // namespace

ExprId parse_regex(const SourceText& source, Productions& productions, const RegexUse& use) {
  return RegexWriter(source, productions, use).write(RegexParser(source).run());
}

Grammar grammar_from_regex(std::string_view pattern) {
  const SourceText source("regular expression", pattern, {});
  Productions p;
  const RuleId root = p.declare("the pattern");
  p.define(root,
           parse_regex(source, p, {RegexUse::Match::Whole, [&p](const CodePoints& set) { return p.characters(set); }}));
  return Grammar::compile(p, root);
}

}  // namespace llm
