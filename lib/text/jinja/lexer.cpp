#include "text/jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <optional>
#include <unordered_set>

#include "text/jinja/limits.h"
#include "text/jinja/numbers.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

/// The end of the name that begins at `at`, or `at` if none does.
std::size_t name_end(std::string_view text, std::size_t at) {
  const auto belongs = [begin = at](const Character& c, std::size_t place) {
    return place == begin ? is_identifier_start(c.code) : is_name_part(c.code);
  };
  for (std::size_t end = at;;) {
    if (end == text.size()) return end;
    const Character c = character_at(text, end);
    if (!belongs(c, end)) return end;
    end += c.length;
  }
}

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    add(TokenType::End, at_, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, std::string_view message) const { source_.fail(offset, message); }
  bool starts(std::string_view s) const { return text_.substr(at_).starts_with(s); }
  void skip_space() { at_ += leading_space(text_.substr(at_)); }

  void add(TokenType type, std::size_t from, std::size_t to, Value value = {}) {
    if (type == TokenType::Data && from == to) return;
    tokens_.push_back({type, from, text_.substr(from, to - from), std::move(value)});
  }

  /// The first tag at or after `from`.
  std::size_t next_tag(std::size_t from) const {
    for (std::size_t at = text_.find('{', from); at != kNowhere; at = text_.find('{', at + 1)) {
      if (at + 1 < text_.size() && std::string_view("%#{").find(text_[at + 1]) != kNowhere) return at;
    }
    return kNowhere;
  }

  /// The end of the text before a tag, less the white space that the tag takes.
  std::size_t data_end(std::size_t from, std::size_t tag, char sign, bool takes_indentation) const {
    const std::string_view data = text_.substr(from, tag - from);
    if (sign == '-') return tag - trailing_space(data);
    if (sign == '+' || !takes_indentation) return tag;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line = newline == kNowhere ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return tag;
    return leading_space(data.substr(line)) == data.size() - line ? from + line : tag;
  }

  char sign_at(std::size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  /// What was matched up to here ends a line, or not: that decides about the next tag's indentation.
  void matched() { line_starting_ = at_ > 0 && text_[at_ - 1] == '\n'; }

  void root() {
    const std::size_t from = at_, tag = next_tag(at_);
    if (tag == kNowhere) {
      at_ = text_.size();
      return add(TokenType::Data, from, at_);
    }
    const char kind = text_[tag + 1], sign = sign_at(tag + 2);
    add(TokenType::Data, from, data_end(from, tag, sign, kind != '{'));
    at_ = tag + 2 + (sign != 0 ? 1 : 0);
    if (kind == '%') {
      if (const std::size_t content = raw_content(); content != kNowhere) return raw(tag, content);
    }
    matched();
    if (kind == '#') return comment(tag);
    add(kind == '%' ? TokenType::BlockBegin : TokenType::VariableBegin, tag, tag + 2);
    expression(kind == '%' ? '%' : '}');
    matched();
  }

  /// Where the text of a raw block begins if this is its tag.
  std::size_t raw_content() const {
    std::string_view rest = text_.substr(at_);
    const auto drop = [&](std::size_t n) { rest.remove_prefix(n); };
    drop(leading_space(rest));
    if (!rest.starts_with("raw")) return kNowhere;
    drop(3);
    drop(leading_space(rest));
    if (rest.starts_with("%}")) return text_.size() - rest.size() + 2;
    if (!rest.starts_with("-%}")) return kNowhere;
    drop(3);
    drop(leading_space(rest));
    return text_.size() - rest.size();
  }

  void raw(std::size_t tag, std::size_t content) {
    at_ = content;
    matched();
    for (std::size_t end = text_.find("{%", content); end != kNowhere; end = text_.find("{%", end + 1)) {
      const char sign = sign_at(end + 2);
      at_ = end + 2 + (sign != 0 ? 1 : 0);
      skip_space();
      if (!starts("endraw")) continue;
      at_ += 6;
      skip_space();
      if (!close("%}", Newline::Trimmed)) continue;
      add(TokenType::Data, content, data_end(content, end, sign, true));
      return matched();
    }
    if (content < text_.size()) fail(tag, "missing end of raw directive");
    at_ = content;
  }

  enum class Newline { Trimmed, Kept };

  /// Takes a closing sign with what it trims; false if there is none here.
  bool close(std::string_view sign, Newline newline) {
    const bool plus = newline == Newline::Trimmed && starts("+"), minus = starts("-");
    if (!text_.substr(at_ + (plus || minus ? 1 : 0)).starts_with(sign)) return false;
    at_ += sign.size() + (plus || minus ? 1 : 0);
    if (minus) {
      skip_space();
    } else if (!plus && newline == Newline::Trimmed && starts("\n")) {
      ++at_;
    }
    return true;
  }

  void comment(std::size_t tag) {
    std::size_t end = text_.find("#}", at_);
    if (end == kNowhere) {
      if (at_ < text_.size()) fail(tag, "missing end of comment tag");
      return;  // Jinja minds only if there is text in it
    }
    if (end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+')) --end;
    at_ = end;
    close("#}", Newline::Trimmed);
    matched();
  }

  /// Tokens up to and with the tag's end.
  void expression(char kind) {
    std::vector<char> open;
    const std::string_view sign = kind == '%' ? "%}" : "}}";
    for (;;) {
      const std::size_t from = at_;
      if (open.empty() && close(sign, kind == '%' ? Newline::Trimmed : Newline::Kept)) {
        return add(kind == '%' ? TokenType::BlockEnd : TokenType::VariableEnd, from, at_);
      }
      if (at_ == text_.size()) {
        // What is missing is said where the parser stands.
        return;
      }
      skip_space();
      if (at_ == from) token(open);
    }
  }

  void token(std::vector<char>& open) {
    const char c = text_[at_];
    if (is_digit_char(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    if (const std::size_t from = at_; (at_ = name_end(text_, at_)) != from) return name(from);
    for (const std::string_view op : kOperators) {
      if (!starts(op)) continue;
      balance(op, open);
      add(TokenType::Operator, at_, at_ + op.size());
      at_ += op.size();
      return;
    }
    fail_at_character();
  }

  /// Says the number of what may be invisible or look like something else.
  [[noreturn]] void fail_at_character() const {
    const Character c = character_at(text_, at_);
    char number[16] = "";
    if (c.code >= 0x80) std::snprintf(number, sizeof number, " (U+%04X)", static_cast<unsigned>(c.code));
    fail(at_, "unexpected character '" + escaped(text_.substr(at_, c.length)) + "'" + number);
  }

  void name(std::size_t from) {
    const std::string_view text = text_.substr(from, at_ - from);
    if (text.size() > kMaxNameBytes) {
      fail(from, "template limit: a name of more than " + std::to_string(kMaxNameBytes) + " bytes");
    }
    if (!follows_dot() && !is_nfkc(text)) {
      // Python normalises the variables that Jinja makes of names, but not what it looks up by them.
      fail(from, "the name '" + escaped(text) + "' is not supported, because it is not in Unicode's form NFKC");
    }
    names_.insert(text);
    if (names_.size() > kMaxNames) {
      fail(from, "template limit: more than " + std::to_string(kMaxNames) + " different names");
    }
    add(TokenType::Name, from, at_);
  }

  bool follows_dot() const { return tokens_.back().type == TokenType::Operator && tokens_.back().text == "."; }

  void balance(std::string_view op, std::vector<char>& open) const {
    const char c = op[0];
    if (op == "{" || op == "(" || op == "[") {
      open.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    } else if (op == "}" || op == ")" || op == "]") {
      if (open.empty()) fail(at_, std::string("unexpected '") + c + "'");
      if (open.back() != c) fail(at_, std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      open.pop_back();
    }
  }

  /// The end of digits with single underscores between them.
  template <class IsDigit>
  std::size_t digits_end(std::size_t at, IsDigit is) const {
    while (at < text_.size()) {
      if (is(text_[at])) {
        ++at;
      } else if (text_[at] == '_' && at + 1 < text_.size() && is(text_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  std::size_t integer_end(int& base) const {
    if (text_[at_] != '0') return digits_end(at_, is_digit_char);
    const char c = at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : '\0';
    base = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 10;
    const auto is = [&](char d) {
      return base == 16 ? std::isxdigit(static_cast<unsigned char>(d)) != 0 : d >= '0' && d < '0' + std::min(base, 10);
    };
    if (base != 10) {
      const std::size_t first = at_ + 2 + (at_ + 2 < text_.size() && text_[at_ + 2] == '_' ? 1 : 0);
      if (first < text_.size() && is(text_[first])) return digits_end(first, is);
      base = 10;
    }
    return digits_end(at_, [](char d) { return d == '0'; });
  }

  /// The end of a float that begins here; nothing if it is none.
  std::optional<std::size_t> float_end() const {
    if (at_ > 0 && text_[at_ - 1] == '.') return std::nullopt;
    std::size_t end = digits_end(at_, is_digit_char);
    bool is_float = false;
    if (end + 1 < text_.size() && text_[end] == '.' && is_digit_char(text_[end + 1])) {
      end = digits_end(end + 1, is_digit_char);
      is_float = true;
    }
    if (end < text_.size() && (text_[end] | 0x20) == 'e') {
      const std::size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
      const std::size_t first = end + 1 + sign;
      if (first < text_.size() && is_digit_char(text_[first])) {
        end = digits_end(first, is_digit_char);
        is_float = true;
      }
    }
    return is_float ? std::optional(end) : std::nullopt;
  }

  void number() {
    const std::size_t from = at_;
    if (const auto end = float_end()) {
      at_ = *end;
      return add(TokenType::Float, from, at_, Value::real(parse_float(text_.substr(from, at_ - from)).value_or(0)));
    }
    int base = 10;
    at_ = integer_end(base);
    const auto value = parse_integer(text_.substr(from, at_ - from), base);
    if (!value) fail(from, "template limit: too many digits of an integer");
    add(TokenType::Integer, from, at_, Value::integer(*value));
  }

  void string(char quote) {
    const std::size_t from = at_;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    if (at_ >= text_.size()) fail(from, "this string does not end");
    ++at_;
    add(TokenType::String, from, at_, Value::string(unescaped(from + 1, at_ - 1)));
  }

  std::string unescaped(std::size_t from, std::size_t to) const {
    std::string out;
    for (std::size_t at = from; at < to;) {
      if (text_[at] == '\\') {
        at = escape(at + 1, to, out);
      } else {
        out += text_[at++];
      }
    }
    return out;
  }

  /// An escape whose backslash stands before `at`, as Python's codec unicode-escape reads it. Gives the place behind.
  std::size_t escape(std::size_t at, std::size_t to, std::string& out) const {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[at];
    if (const std::size_t i = kLetters.find(c); i != kNowhere) {
      out += kMeanings[i];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x' || c == 'u' || c == 'U') return code_escape(at, to, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c >= '0' && c <= '7') {
      std::int32_t code = 0;
      std::size_t end = at;
      for (; end < std::min(at + 3, to) && text_[end] >= '0' && text_[end] <= '7'; ++end)
        code = code * 8 + (text_[end] - '0');
      append_utf8(out, code);
      return end;
    }
    if (c == 'N') fail(at - 1, "character names (\\N) are not supported");
    out += '\\';
    if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
      return at + 1;
    }
    // Jinja writes what is beyond ASCII as an escape first, whose backslash the one here then takes.
    const Character character = character_at(text_, at);
    char buffer[16];
    const char* format = character.code < 0x100 ? "x%02x" : character.code < 0x10000 ? "u%04x" : "U%08x";
    std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(character.code));
    out += buffer;
    return at + character.length;
  }

  std::size_t code_escape(std::size_t at, std::size_t to, std::size_t digits, std::string& out) const {
    std::int64_t code = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      if (at + i >= to || std::isxdigit(static_cast<unsigned char>(text_[at + i])) == 0) {
        fail(at - 1, "truncated escape in a string");
      }
      const char d = text_[at + i];
      code = code * 16 + (is_digit_char(d) ? d - '0' : (d | 0x20) - 'a' + 10);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail(at - 1, "this escape is no Unicode character");
    append_utf8(out, static_cast<std::int32_t>(code));
    return at + digits + 1;
  }

  const Source& source_;
  std::string_view text_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  std::unordered_set<std::string_view> names_;
};

}  // namespace

std::vector<Token> tokenize(const Source& source) { return Lexer(source).run(); }

}  // namespace llm::jinja
