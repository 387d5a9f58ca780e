#include "constrain/json_schema_document.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "base/shortest.h"
#include "constrain/source_text.h"

namespace llm {
namespace {

/// A decimal number without the zeros around its digits, times that power of ten.
struct Digits {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;
  bool operator==(const Digits&) const = default;
};

Digits digits_of(std::string_view number) {
  Digits d{.negative = number.starts_with('-'), .digits = {}, .exponent = 0};
  const std::size_t e = std::min(number.find_first_of("eE"), number.size());
  if (e < number.size()) {
    const std::string_view power = number.substr(number[e + 1] == '+' ? e + 2 : e + 1);
    const auto read = std::from_chars(power.data(), power.data() + power.size(), d.exponent);
    constexpr std::int64_t kFar = 1'000'000'000;  // no double is as large or as small
    if (read.ec != std::errc()) d.exponent = power.starts_with('-') ? -kFar : kFar;
  }
  bool fraction = false;
  for (const char c : number.substr(0, e)) {
    if (c == '.') fraction = true;
    if (c < '0' || c > '9') continue;
    if (!d.digits.empty() || c != '0') d.digits += c;
    if (fraction) --d.exponent;
  }
  if (d.digits.empty()) return {};
  for (; d.digits.back() == '0'; ++d.exponent) d.digits.pop_back();
  return d;
}

/// The decimal of fewest digits that reads as this double: nlohmann's own is longer for a few.
std::string number_of(double value) {
  const std::string usual = Json(value).dump(), text = shortest(value, std::chars_format::general);
  if (digits_of(text) == digits_of(usual)) return usual;
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// Follows a parser for what is lost once it is done: numbers that become others, keys that an object has twice.
class ParsingLosses : public nlohmann::json_sax<Json> {
 public:
  std::map<std::string, SchemaDocument::Inexact> inexact;
  struct Repeated {
    std::string pointer, key;
  };
  std::optional<Repeated> repeated;

  bool null() override { return next(); }
  bool boolean(bool) override { return next(); }
  bool number_integer(number_integer_t) override { return next(); }
  bool number_unsigned(number_unsigned_t) override { return next(); }
  bool number_float(number_float_t value, const string_t& written) override {
    std::string kept = number_of(value);
    if (digits_of(written) != digits_of(kept))
      inexact.insert_or_assign(pointer(), SchemaDocument::Inexact{written, std::move(kept)});
    return next();
  }
  bool string(string_t&) override { return next(); }
  bool binary(binary_t&) override { return next(); }
  bool key(string_t& name) override {
    Open& object = open_.back();
    const bool is_new = object.keys.insert(name).second;
    if (!is_new && !repeated) repeated = {pointer_to(open_.size() - 1), name};
    object.key = name;
    return true;
  }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  struct Open {
    bool is_array;
    std::size_t index = 0;
    std::string key = {};
    std::set<std::string> keys = {};
  };

  bool open(bool is_array) {
    open_.push_back({.is_array = is_array});
    return true;
  }
  bool close() {
    open_.pop_back();
    return next();
  }
  bool next() {
    if (!open_.empty()) ++open_.back().index;
    return true;
  }
  std::string pointer() const { return pointer_to(open_.size()); }
  /// So many levels of it.
  std::string pointer_to(std::size_t levels) const {
    std::string text = "#";
    for (std::size_t i = 0; i < levels; ++i) {
      const Open& o = open_[i];
      text += "/" + (o.is_array ? std::to_string(o.index) : escaped_part(o.key));
    }
    return text;
  }

  std::vector<Open> open_;
};

}  // namespace

std::string literal_text(const Json& value) {
  if (value.is_number_float()) return number_of(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string inside;
  for (const auto& [key, v] : value.items()) {
    if (!inside.empty()) inside += ',';
    if (value.is_object()) inside += Json(key).dump() + ":";
    inside += literal_text(v);
  }
  return value.is_object() ? "{" + inside + "}" : "[" + inside + "]";
}

SchemaDocument::SchemaDocument(std::string_view text, std::string_view file) : file_(file) {
  const SourceText source("JSON schema", text, file);
  std::size_t depth = 0;
  const auto watch = [&](int, Json::parse_event_t event, Json&) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) ++depth;
    if (event == Event::object_end || event == Event::array_end) --depth;
    if (depth > kMostNesting) throw Error(ErrorKind::Notation, "the schema is nested more than 200 deep");
    return true;
  };
  try {
    document_ = Json::parse(text, watch);
  } catch (const Json::parse_error& e) {
    const std::string what = e.what();
    const std::size_t colon = what.rfind(": ");
    source.fail(e.byte == 0 ? 0 : e.byte - 1,
                "this is not JSON (" + what.substr(colon == std::string::npos ? 0 : colon + 2) + ")");
  } catch (const Json::out_of_range&) {
    fail("a number in it is larger than any that can be stored");
  }
  if (!document_.is_object() && !document_.is_boolean()) fail("a schema is an object, true or false");
  ParsingLosses losses;
  Json::sax_parse(text, &losses);
  inexact_ = std::move(losses.inexact);
  if (const auto& twice = losses.repeated) {
    fail({nullptr, twice->pointer, nullptr}, twice->key,
         "this name is written twice; readers take one and drop the other");
  }
  resources_.emplace(document_, std::nullopt);
  if (const auto& two = resources_->conflict()) fail(two->at, two->keyword, two->problem);
  if (root().draft) return;
  draft4_resources_.emplace(document_, SchemaDraft{4});
  if (!draft4_resources_->has_names()) draft4_resources_.reset();
}

Schema SchemaDocument::root() const { return resources_->root(); }

Schema SchemaDocument::child(const Schema& s, std::string_view keyword) const {
  return resources_->step(s, std::string(keyword));
}

Schema SchemaDocument::child(const Schema& s, std::string_view keyword, std::string_view name) const {
  return resources_->step(child(s, keyword), std::string(name));
}

Schema SchemaDocument::child(const Schema& s, std::string_view keyword, std::size_t index) const {
  return resources_->step(child(s, keyword), std::to_string(index));
}

Schema SchemaDocument::referenced(const Schema& from, const std::string& reference) const {
  const SchemaResources::Target now = resources_->target(from, reference);
  SchemaResources::Target before;
  if (draft4_resources_) before = draft4_resources_->target(draft4_resources_->at(from.pointer), reference);
  if (before.schema && (!now.schema || now.schema->node != before.schema->node)) {
    const std::string since = now.schema ? "is " + escaped(now.schema->pointer, 120) + " since draft 6 and " : "";
    fail(from, "$ref",
         "\"" + escaped(reference) + "\" " + since + "was " + escaped(before.schema->pointer, 120) +
             " until draft 4, where id was what $id is now; $schema of the document says which");
  }
  if (!now.schema) fail(from, "$ref", now.problem);
  return *now.schema;
}

const SchemaDocument::Inexact* SchemaDocument::inexact(const Schema& s, std::string_view keyword) const {
  const std::string here = s.pointer + "/" + escaped_part(keyword), inside = here + "/";
  auto found = inexact_.find(here);
  if (found == inexact_.end()) found = inexact_.lower_bound(inside);
  const bool is_there = found != inexact_.end() && (found->first == here || found->first.starts_with(inside));
  return is_there ? &found->second : nullptr;
}

void SchemaDocument::fail(const Schema& at, std::string_view keyword, const std::string& problem) const {
  std::string where = at.pointer;
  if (!keyword.empty()) where += "/" + escaped_part(keyword);
  throw Error(ErrorKind::Notation,
              ErrorParts{.file = file_, .subject = "JSON schema, " + escaped(where, 120), .problem = problem});
}

void SchemaDocument::fail(const std::string& problem) const {
  throw Error(ErrorKind::Notation, ErrorParts{.file = file_, .subject = "JSON schema", .problem = problem});
}

}  // namespace llm
