#include "constrain/json_schema_document.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "constrain/source_text.h"
#include "constrain/uri_reference.h"

namespace llm {
namespace {

/// Keywords that hold a schema or a list of them, and those that hold schemas by name. What others hold is no schema,
/// even if it looks like one.
constexpr std::string_view kSchemas[] = {"additionalItems",
                                         "additionalProperties",
                                         "allOf",
                                         "anyOf",
                                         "contains",
                                         "contentSchema",
                                         "else",
                                         "if",
                                         "items",
                                         "not",
                                         "oneOf",
                                         "prefixItems",
                                         "propertyNames",
                                         "then",
                                         "unevaluatedItems",
                                         "unevaluatedProperties"};
constexpr std::string_view kSchemasByName[] = {
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"};

/// Of a document whose schema has no absolute URI: what it is relative to.
constexpr std::string_view kNoBase = "schema:///";

template <std::size_t N>
bool is_named(const std::string_view (&keywords)[N], std::string_view key) {
  return std::find(std::begin(keywords), std::end(keywords), key) != std::end(keywords);
}

/// RFC 6901: ~1 is a slash, ~0 a tilde.
std::string escaped_part(std::string_view part) {
  std::string out;
  for (const char c : part) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string unescaped_part(std::string_view part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
      out += part[++i] == '0' ? '~' : '/';
    } else {
      out += part[i];
    }
  }
  return out;
}

/// RFC 3986: %41 is "A".
std::string percent_decoded(std::string_view text) {
  std::string out;
  const auto digit = [&](std::size_t at) {
    const char c = at < text.size() ? text[at] : 'x', lower = static_cast<char>(c | 0x20);
    return '0' <= c && c <= '9' ? c - '0' : 'a' <= lower && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

const std::string* text_of(const Json& node, const char* key) {
  const auto found = node.find(key);
  return found == node.end() ? nullptr : found->get_ptr<const std::string*>();
}

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
std::string shortest(double value) {
  const std::string usual = Json(value).dump();
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::general).ptr;
  std::string text(buffer.data(), end);
  if (digits_of(text) == digits_of(usual)) return usual;
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// Follows a parser for numbers that are others once they are parsed.
class InexactNumbers : public nlohmann::json_sax<Json> {
 public:
  std::map<std::string, SchemaDocument::Inexact> found;

  bool null() override { return next(); }
  bool boolean(bool) override { return next(); }
  bool number_integer(number_integer_t) override { return next(); }
  bool number_unsigned(number_unsigned_t) override { return next(); }
  bool number_float(number_float_t value, const string_t& written) override {
    std::string kept = shortest(value);
    if (digits_of(written) != digits_of(kept))
      found.insert_or_assign(pointer(), SchemaDocument::Inexact{written, std::move(kept)});
    return next();
  }
  bool string(string_t&) override { return next(); }
  bool binary(binary_t&) override { return next(); }
  bool key(string_t& name) override {
    open_.back().key = name;
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
  std::string pointer() const {
    std::string text = "#";
    for (const Open& o : open_) text += "/" + (o.is_array ? std::to_string(o.index) : escaped_part(o.key));
    return text;
  }

  std::vector<Open> open_;
};

}  // namespace

std::string literal_text(const Json& value) {
  if (value.is_number_float()) return shortest(value.get<double>());
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
  InexactNumbers numbers;
  Json::sax_parse(text, &numbers);
  inexact_ = std::move(numbers.found);
  uris_[&document_] = kNoBase;
  resources_.emplace(kNoBase, root());
  index(root());
}

void SchemaDocument::index(const Schema& schema) {
  if (!schema.node->is_object()) return;
  Schema at = schema;
  index_names(at);
  for (const auto& [key, value] : at.node->items()) {
    const std::string inside = at.pointer + "/" + escaped_part(key);
    if (is_named(kSchemasByName, key) && value.is_object()) {
      for (const auto& [name, one] : value.items()) index({&one, inside + "/" + escaped_part(name), at.root});
    } else if (is_named(kSchemas, key) && value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) index({&value[i], inside + "/" + std::to_string(i), at.root});
    } else if (is_named(kSchemas, key)) {
      index({&value, inside, at.root});
    }
  }
}

void SchemaDocument::index_names(Schema& at) {
  if (const std::string* id = text_of(*at.node, "$id")) {
    if (!id->starts_with('#')) {
      add_resource(at, *id);
    } else {
      add_anchor(at, "$id", id->substr(1));  // until draft 7
    }
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    if (const std::string* anchor = text_of(*at.node, keyword)) add_anchor(at, keyword, *anchor);
  }
}

void SchemaDocument::add_resource(Schema& at, const std::string& id) {
  const std::string uri = resolved_uri(uris_.at(at.root), std::string_view(id).substr(0, id.find('#')));
  if (at.node != &document_) around_[at.node] = uris_.at(at.root);
  at.root = at.node;
  uris_[at.node] = uri;
  const auto [known, is_new] = resources_.try_emplace(uri, at);
  if (!is_new && *known->second.node != *at.node)
    fail(at, "$id", "another schema is \"" + escaped(uri) + "\" as well: " + escaped(known->second.pointer, 120));
}

void SchemaDocument::add_anchor(const Schema& at, const char* keyword, std::string name) {
  const auto [known, is_new] = anchors_.try_emplace({at.root, std::move(name)}, at);
  if (!is_new && *known->second.node != *at.node)
    fail(at, keyword, "another schema has this name as well: " + escaped(known->second.pointer, 120));
}

Schema SchemaDocument::root() const { return {&document_, "#", &document_}; }

Schema SchemaDocument::step(const Schema& from, const std::string& part) const {
  const Json& node = *from.node;
  const Json* next = nullptr;
  if (node.is_object()) {
    if (const auto found = node.find(part); found != node.end()) next = &*found;
  } else if (node.is_array() && !part.empty() && part.size() < 9 &&
             part.find_first_not_of("0123456789") == std::string::npos) {
    const std::size_t i = std::stoul(part);
    if (i < node.size()) next = &node[i];
  }
  if (next == nullptr) return {nullptr, {}, nullptr};
  return {next, from.pointer + "/" + escaped_part(part), uris_.contains(next) ? next : from.root};
}

Schema SchemaDocument::child(const Schema& s, std::string_view keyword) const { return step(s, std::string(keyword)); }

Schema SchemaDocument::child(const Schema& s, std::string_view keyword, std::string_view name) const {
  return step(step(s, std::string(keyword)), std::string(name));
}

Schema SchemaDocument::child(const Schema& s, std::string_view keyword, std::size_t index) const {
  return step(step(s, std::string(keyword)), std::to_string(index));
}

/// An absolute URI. An $id beside the $ref counts since draft 2019-09; before, it was what lies around.
std::string SchemaDocument::target_of(const Schema& from, const std::string& reference) const {
  std::string target = resolved_uri(uris_.at(from.root), reference);
  const auto around = around_.find(from.node);
  if (around == around_.end()) return target;
  std::string before = resolved_uri(around->second, reference);
  if (before == target || !resources_.contains(before.substr(0, before.find('#')))) return target;
  const std::string* const draft = text_of(document_, "$schema");
  if (draft != nullptr && draft->find("/draft-0") != std::string::npos) return before;
  if (draft != nullptr && draft->find("/draft/") != std::string::npos) return target;
  fail(from, "$ref",
       "\"" + escaped(reference) + "\" is \"" + escaped(target) + "\" since draft 2019-09 and was \"" +
           escaped(before) + "\" before, where an $id beside a $ref did not count; $schema of the document says which");
}

Schema SchemaDocument::referenced(const Schema& from, const std::string& reference) const {
  const std::string uri = target_of(from, reference);
  const std::size_t hash = std::min(uri.find('#'), uri.size());
  const std::string fragment = percent_decoded(hash < uri.size() ? uri.substr(hash + 1) : "");
  const auto resource = resources_.find(uri.substr(0, hash));
  if (resource == resources_.end()) {
    fail(from, "$ref",
         "\"" + escaped(reference) + "\" is another document; references are followed inside of one only");
  }
  Schema at = resource->second;
  if (!fragment.empty() && fragment[0] != '/') {
    const auto found = anchors_.find({at.node, fragment});
    if (found == anchors_.end()) fail(from, "$ref", "there is no anchor \"" + escaped(fragment) + "\"");
    return found->second;
  }
  for (std::size_t begin = 1; begin <= fragment.size() && !fragment.empty();) {
    const std::size_t end = std::min(fragment.find('/', begin), fragment.size());
    at = step(at, unescaped_part(std::string_view(fragment).substr(begin, end - begin)));
    if (at.node == nullptr) fail(from, "$ref", "\"" + escaped(reference) + "\" leads nowhere");
    begin = end + 1;
  }
  return at;
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
