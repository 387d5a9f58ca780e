#include "constrain/schema_resources.h"

#include <algorithm>

#include "base/error.h"
#include "constrain/schema_keywords.h"
#include "constrain/uri_reference.h"

namespace llm {
namespace {

/// Of a document whose schema has no absolute URI: what it is relative to.
constexpr std::string_view kNoBase = "schema:///";

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

bool names_by_plain_id(const Schema& s) { return s.draft && s.draft->names_by_plain_id(); }
const char* id_keyword(const Schema& s) { return names_by_plain_id(s) ? "id" : "$id"; }

/// A schema inside of another one, in the same resource.
Schema inner(const Schema& outer, const Json& node, std::string pointer) {
  const std::optional<SchemaDraft> own = SchemaDraft::of(node);
  return {&node, std::move(pointer), outer.root, own ? own : outer.draft};
}

}  // namespace

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

const std::string* text_of(const Json& node, const char* key) {
  const auto found = node.find(key);
  return found == node.end() ? nullptr : found->get_ptr<const std::string*>();
}

std::optional<SchemaDraft> SchemaDraft::of(const Json& schema) {
  const std::string* const uri = schema.is_object() ? text_of(schema, "$schema") : nullptr;
  if (uri == nullptr) return std::nullopt;
  constexpr std::string_view kNumbered = "/draft-0", kDated = "/draft/";
  if (const std::size_t at = uri->find(kNumbered); at != std::string::npos) {
    const char digit = uri->c_str()[at + kNumbered.size()];
    if ('0' <= digit && digit <= '9') return SchemaDraft{digit - '0'};
  }
  if (const std::size_t at = uri->find(kDated); at != std::string::npos)
    return SchemaDraft{uri->compare(at + kDated.size(), 4, "2019") == 0 ? 2019 : 2020};
  return std::nullopt;
}

std::string SchemaDraft::name() const {
  return number == 2019 ? "draft 2019-09" : number == 2020 ? "draft 2020-12" : "draft " + std::to_string(number);
}

SchemaResources::SchemaResources(const Json& document, std::optional<SchemaDraft> undeclared)
    : document_(document), undeclared_(undeclared) {
  uris_[&document_] = kNoBase;
  resources_.emplace(kNoBase, root());
  index(root());
}

void SchemaResources::index(const Schema& schema) {
  using Holds = SchemaKeyword::Holds;
  if (!schema.node->is_object()) return;
  Schema at = schema;
  index_names(at);
  for (const auto& [key, value] : at.node->items()) {
    const SchemaKeyword* const known = find_schema_keyword(key);
    const Holds holds = known != nullptr ? known->holds : Holds::Data;
    const std::string inside = at.pointer + "/" + escaped_part(key);
    if (holds == Holds::SchemasByName && value.is_object()) {
      for (const auto& [name, one] : value.items()) index(inner(at, one, inside + "/" + escaped_part(name)));
    } else if (holds == Holds::Schemas && value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) index(inner(at, value[i], inside + "/" + std::to_string(i)));
    } else if (holds == Holds::Schemas) {
      index(inner(at, value, inside));
    }
  }
}

void SchemaResources::index_names(Schema& at) {
  if (const std::string* id = text_of(*at.node, id_keyword(at))) {
    if (!id->starts_with('#')) {
      add_resource(at, *id);
    } else if (id->size() > 1) {
      add_anchor(at, id_keyword(at), id->substr(1));  // until draft 7
    }
  }
  if (names_by_plain_id(at)) return;
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    if (const std::string* anchor = text_of(*at.node, keyword)) add_anchor(at, keyword, *anchor);
  }
}

void SchemaResources::add_resource(Schema& at, const std::string& id) {
  const std::string uri = resolved_uri(uris_.at(at.root), std::string_view(id).substr(0, id.find('#')));
  if (at.node != &document_) around_[at.node] = uris_.at(at.root);
  at.root = at.node;
  uris_[at.node] = uri;
  const auto [known, is_new] = resources_.try_emplace(uri, at);
  if (is_new || *known->second.node == *at.node || conflict_) return;
  conflict_ = {at, id_keyword(at),
               "another schema is \"" + escaped(uri) + "\" as well: " + escaped(known->second.pointer, 120)};
}

void SchemaResources::add_anchor(const Schema& at, const char* keyword, std::string name) {
  const auto [known, is_new] = anchors_.try_emplace({at.root, std::move(name)}, at);
  if (is_new || *known->second.node == *at.node || conflict_) return;
  conflict_ = {at, keyword, "another schema has this name as well: " + escaped(known->second.pointer, 120)};
}

Schema SchemaResources::root() const { return inner({nullptr, {}, &document_, undeclared_}, document_, "#"); }

Schema SchemaResources::step(const Schema& from, const std::string& part) const {
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
  Schema found = inner(from, *next, from.pointer + "/" + escaped_part(part));
  if (uris_.contains(next)) found.root = next;
  return found;
}

Schema SchemaResources::at(std::string_view pointer) const {
  Schema found = root();
  for (std::size_t begin = pointer.find('/'); begin < pointer.size() && found.node != nullptr;) {
    const std::size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    found = step(found, unescaped_part(pointer.substr(begin + 1, end - begin - 1)));
    begin = end;
  }
  return found;
}

/// An absolute URI. A name beside the $ref counts since draft 2019-09; before, it was what lies around.
SchemaResources::Uri SchemaResources::uri_of(const Schema& from, const std::string& reference) const {
  std::string target = resolved_uri(uris_.at(from.root), reference);
  const auto around = around_.find(from.node);
  if (around == around_.end()) return {std::move(target), {}};
  std::string before = resolved_uri(around->second, reference);
  if (before == target || !resources_.contains(before.substr(0, before.find('#')))) return {std::move(target), {}};
  if (from.draft) return {from.draft->ref_stands_alone() ? std::move(before) : std::move(target), {}};
  return {{},
          "\"" + escaped(reference) + "\" is \"" + escaped(target) + "\" since draft 2019-09 and was \"" +
              escaped(before) +
              "\" before, where an $id beside a $ref did not count; $schema of the document says which"};
}

SchemaResources::Target SchemaResources::target(const Schema& from, const std::string& reference) const {
  const Uri uri = uri_of(from, reference);
  if (!uri.problem.empty()) return {std::nullopt, uri.problem};
  const std::size_t hash = std::min(uri.text.find('#'), uri.text.size());
  const std::string fragment = percent_decoded(hash < uri.text.size() ? uri.text.substr(hash + 1) : "");
  const auto resource = resources_.find(uri.text.substr(0, hash));
  if (resource == resources_.end()) {
    return {std::nullopt,
            "\"" + escaped(reference) + "\" is another document; references are followed inside of one only"};
  }
  Schema at = resource->second;
  if (!fragment.empty() && fragment[0] != '/') {
    const auto found = anchors_.find({at.node, fragment});
    if (found == anchors_.end()) return {std::nullopt, "there is no anchor \"" + escaped(fragment) + "\""};
    return {found->second, {}};
  }
  for (std::size_t begin = 1; begin <= fragment.size() && !fragment.empty();) {
    const std::size_t end = std::min(fragment.find('/', begin), fragment.size());
    at = step(at, unescaped_part(std::string_view(fragment).substr(begin, end - begin)));
    if (at.node == nullptr) {
      const bool is_inner = resource->second.node != &document_;
      return {std::nullopt, "\"" + escaped(reference) + "\" leads nowhere" +
                                (is_inner ? " in \"" + escaped(resource->first) + "\"" : "")};
    }
    begin = end + 1;
  }
  return {std::move(at), {}};
}

}  // namespace llm
