#include "text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

/// Builds values from the events of nlohmann's parser.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(Origin origin, const std::string& name) : origin_(origin), name_(name) {}

  Value result;

  bool null() override { return add(Value::none(origin_)); }
  bool boolean(bool b) override { return add(Value::boolean(b, origin_)); }
  bool number_integer(number_integer_t n) override { return add(Value::integer(std::int64_t{n}, origin_)); }
  bool number_unsigned(number_unsigned_t n) override {
    return add(Value::integer(mpz_class(std::to_string(n)), origin_));
  }
  /// Integers that fit no 64 bits come here too, with their text.
  bool number_float(number_float_t f, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return add(Value::real(f, origin_));
    const auto n = parse_integer(text, 10);
    if (!n) fail("an integer has too many digits");
    return add(Value::integer(*n, origin_));
  }
  bool string(string_t& s) override { return add(Value::string(Str(std::move(s), origin_))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(std::make_shared<DictObject>(), nullptr); }
  bool start_array(std::size_t) override { return open(nullptr, std::make_shared<ListObject>()); }
  bool key(string_t& s) override {
    open_.back().key = Value::string(Str(std::move(s), origin_));
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view what = e.what();  // [json.exception...] parse error at line 1, column 2: ...
    if (const std::size_t end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    fail("no JSON (byte " + std::to_string(at) + "): " + escaped(what, 200));
  }

 private:
  struct Open {
    std::shared_ptr<DictObject> dict;
    std::shared_ptr<ListObject> list;
    Value key;
  };

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorKind::Usage, ErrorParts{.file = name_, .problem = problem});
  }

  bool open(std::shared_ptr<DictObject> dict, std::shared_ptr<ListObject> list) {
    if (open_.size() >= kMaxValueDepth / 2) fail("nested more than " + std::to_string(kMaxValueDepth / 2) + " deep");
    open_.push_back({std::move(dict), std::move(list), Value()});
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.dict) return add(Value::object(Kind::Dict, std::move(done.dict), origin_));
    return add(Value::object(Kind::List, std::move(done.list), origin_));
  }

  bool add(Value v) {
    if (open_.empty()) {
      result = std::move(v);
    } else if (open_.back().dict) {
      open_.back().dict->set(std::move(open_.back().key), std::move(v));
    } else {
      ListObject& list = *open_.back().list;
      list.depth = std::max(list.depth, depth(v) + 1);
      list.items.push_back(std::move(v));
    }
    return true;
  }

  Origin origin_;
  const std::string& name_;
  std::vector<Open> open_;
};

std::string unicode_escape(std::int32_t code) {
  char buffer[16];
  if (code < 0x10000) {
    std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(code));
  } else {
    const auto rest = static_cast<unsigned>(code - 0x10000);
    std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
  }
  return buffer;
}

class Writer {
 public:
  Writer(Runtime& rt, const JsonStyle& style, Str& out) : rt_(rt), style_(style), out_(out) {}

  void value(const Value& v, Origin around) {
    rt_.limit_string(out_);
    const DepthGuard guard(rt_, depth_);
    switch (v.kind()) {
      case Kind::String:
        return string(v.as_string(), around);
      case Kind::List:
      case Kind::Tuple:
        return list(v);
      case Kind::Dict:
        return dict(v);
      default:
        out_.append(scalar(v), v.origin());
    }
  }

 private:
  std::string scalar(const Value& v) const {
    switch (v.kind()) {
      case Kind::None:
        return "null";
      case Kind::Bool:
        return v.as_bool() ? "true" : "false";
      case Kind::Int:
      case Kind::BigInt:
        return integer_text(v);
      case Kind::Float:
        if (std::isnan(v.as_float())) return "NaN";
        if (std::isinf(v.as_float())) return v.as_float() < 0 ? "-Infinity" : "Infinity";
        return float_text(v.as_float());
      default:
        rt_.fail("object of type " + std::string(type_name(v)) + " is not JSON serializable");
    }
  }

  void string(const Str& s, Origin around) {
    out_.append("\"", around);
    std::size_t at = 0;
    for (const Run& run : s.runs()) {
      std::string text;
      while (at < run.end) {
        const Character c = character_at(s.view(), at);
        append_character(s.view().substr(at, c.length), c.code, text);
        at += c.length;
      }
      out_.append(text, run.origin);
    }
    out_.append("\"", around);
  }

  void append_character(std::string_view bytes, std::int32_t code, std::string& text) const {
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    if (code >= 0 && code < 0x80) {
      if (const std::size_t i = kShort.find(static_cast<char>(code)); i != std::string_view::npos) {
        text += '\\';
        text += kLetters[i];
        return;
      }
    }
    if ((code >= 0 && code < 0x20) || (code >= 0x7f && style_.ensure_ascii)) {
      text += unicode_escape(code);
    } else {
      text += bytes;
    }
  }

  /// What stands between values is from outside if they are, or if it is itself.
  void sign(const Str& s, Origin around) {
    if (around == Origin::User) return out_.append(s.view(), around);
    out_.append(s);
  }

  void line(Origin around) {
    if (!style_.indent) return;
    out_.append("\n", around);
    for (int i = 0; i < level_; ++i) sign(*style_.indent, around);
  }

  void between(bool first, Origin around) {
    if (!first) sign(style_.item_separator, around);
    line(around);
  }

  void list(const Value& v) {
    if (v.items().empty()) return out_.append("[]", v.origin());
    out_.append("[", v.origin());
    ++level_;
    bool first = true;
    for (const Value& item : v.items()) {
      between(first, v.origin());
      first = false;
      value(item, v.origin());
    }
    --level_;
    line(v.origin());
    out_.append("]", v.origin());
  }

  /// Python turns keys that are no strings into such.
  void key(const Value& k, Origin around) {
    if (k.is_string()) return string(k.as_string(), around);
    if (!k.is_none() && !k.is_number())
      rt_.fail("keys must be str, int, float, bool or None, not " + std::string(type_name(k)));
    out_.append("\"" + scalar(k) + "\"", k.origin());
  }

  void dict(const Value& v) {
    std::vector<const DictObject::Entry*> entries;
    for (const auto& entry : v.as<DictObject>().entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [this](const auto* a, const auto* b) { return less(rt_, a->first, b->first); });
    }
    if (entries.empty()) return out_.append("{}", v.origin());
    out_.append("{", v.origin());
    ++level_;
    bool first = true;
    for (const auto* entry : entries) {
      between(first, v.origin());
      first = false;
      key(entry->first, v.origin());
      sign(style_.key_separator, v.origin());
      value(entry->second, v.origin());
    }
    --level_;
    line(v.origin());
    out_.append("}", v.origin());
  }

  Runtime& rt_;
  const JsonStyle& style_;
  Str& out_;
  int level_ = 0, depth_ = 0;
};

}  // namespace

Value from_json(std::string_view text, Origin origin, const std::string& name) {
  Reader reader(origin, name);
  nlohmann::json::sax_parse(text, &reader);
  return std::move(reader.result);
}

Str to_json(Runtime& rt, const Value& v, const JsonStyle& style) {
  Str out;
  Writer(rt, style, out).value(v, v.is_string() ? v.as_string().origin() : v.origin());
  return out;
}

}  // namespace llm::jinja
