#include "constrain/json_schema_document.h"

#include "constrain/source_text.h"

namespace llm {
namespace {

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

}  // namespace

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
  index(document_, "#", &document_, 0);
}

void SchemaDocument::index(const Json& node, const std::string& pointer, const Json* root, std::size_t depth) {
  if (node.is_object()) {
    if (const std::string* id = text_of(node, "$id"); id != nullptr && !id->starts_with('#')) {
      root = &node;
      resources_.try_emplace(id->substr(0, id->find('#')), Schema{&node, pointer, root});
    }
    if (const std::string* id = text_of(node, "$id"); id != nullptr && id->starts_with('#')) {
      anchors_.try_emplace({root, id->substr(1)}, Schema{&node, pointer, root});  // until draft 7
    }
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const std::string* anchor = text_of(node, keyword);
      if (anchor != nullptr) anchors_.try_emplace({root, *anchor}, Schema{&node, pointer, root});
    }
    for (const auto& [key, value] : node.items()) {
      if (key != "enum" && key != "const") index(value, pointer + "/" + escaped_part(key), root, depth + 1);
    }
  } else if (node.is_array()) {
    for (std::size_t i = 0; i < node.size(); ++i) index(node[i], pointer + "/" + std::to_string(i), root, depth + 1);
  }
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
  const std::string* id = next->is_object() ? text_of(*next, "$id") : nullptr;
  return {next, from.pointer + "/" + escaped_part(part), id != nullptr && !id->starts_with('#') ? next : from.root};
}

Schema SchemaDocument::child(const Schema& s, std::string_view keyword) const { return step(s, std::string(keyword)); }

Schema SchemaDocument::child(const Schema& s, std::string_view keyword, std::string_view name) const {
  return step(step(s, std::string(keyword)), std::string(name));
}

Schema SchemaDocument::child(const Schema& s, std::string_view keyword, std::size_t index) const {
  return step(step(s, std::string(keyword)), std::to_string(index));
}

Schema SchemaDocument::referenced(const Schema& from, const std::string& reference) const {
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string resource = reference.substr(0, hash);
  const std::string fragment = percent_decoded(hash < reference.size() ? reference.substr(hash + 1) : "");
  Schema at{from.root, {}, from.root};
  if (!resource.empty()) {
    const auto found = resources_.find(resource);
    if (found == resources_.end()) {
      fail(from, "$ref",
           "\"" + escaped(reference) + "\" is another document; references are followed inside of one only");
    }
    at = found->second;
  } else {
    at.pointer = "#";  // of the whole document, unless the reference is inside of a resource with an $id
    for (const auto& [id, schema] : resources_) {
      if (schema.node == from.root) at.pointer = schema.pointer;
    }
  }
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
