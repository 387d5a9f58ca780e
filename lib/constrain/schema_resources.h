// The names of schemas inside of a document, and where references lead: which schemas begin a resource of their own, by
// what URI, and which have an anchor.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llm {

using Json = nlohmann::ordered_json;

/// A draft of the standard, as its number or its year. `$schema` says it, or nothing.
struct SchemaDraft {
  int number;
  static std::optional<SchemaDraft> of(const Json& schema);
  std::string name() const;                                ///< "draft 7", "draft 2019-09"
  bool names_by_plain_id() const { return number <= 5; }   ///< `id` for what `$id` is later
  bool ref_stands_alone() const { return number < 2019; }  ///< what is beside a `$ref` does not count
};

/// One schema inside of the document.
struct Schema {
  const Json* node;
  std::string pointer;  ///< "#/properties/name"
  const Json* root;     ///< the resource that "#" means here
  /// What `$schema` says, of this schema or of the nearest one around it that has it.
  std::optional<SchemaDraft> draft = {};

  bool is(bool value) const { return node->is_boolean() && node->get<bool>() == value; }
};
using Schemas = std::vector<Schema>;

/// A key as a part of a JSON pointer.
std::string escaped_part(std::string_view);
/// The text under a key, if it is one.
const std::string* text_of(const Json& node, const char* key);

class SchemaResources {
 public:
  /// As the draft reads what declares none; nothing: any that has `$id`. The document stays where it is.
  SchemaResources(const Json& document, std::optional<SchemaDraft> undeclared);

  Schema root() const;
  /// What lies below; no node if there is nothing.
  Schema step(const Schema&, const std::string& part) const;
  /// The schema at a pointer that another reading of the document has.
  Schema at(std::string_view pointer) const;

  struct Target {
    std::optional<Schema> schema;
    std::string problem;  ///< why it leads nowhere
  };
  /// A pointer or an anchor in this document against the URI of the resource around it; nothing is ever fetched.
  Target target(const Schema& from, const std::string& reference) const;

  struct Conflict {
    Schema at;
    const char* keyword;
    std::string problem;
  };
  /// The first two schemas that differ and have one name.
  const std::optional<Conflict>& conflict() const { return conflict_; }
  bool has_names() const { return uris_.size() > 1 || !anchors_.empty() || resources_.size() > 1; }

 private:
  void index(const Schema&);
  /// Schema `at` begins a resource, or has an anchor.
  void index_names(Schema& at);
  void add_resource(Schema& at, const std::string& id);
  void add_anchor(const Schema& at, const char* keyword, std::string name);
  struct Uri {
    std::string text;
    std::string problem;  ///< why it may be one or another
  };
  Uri uri_of(const Schema& from, const std::string& reference) const;

  const Json& document_;
  std::optional<SchemaDraft> undeclared_;
  std::optional<Conflict> conflict_;
  std::map<std::string, Schema, std::less<>> resources_;           ///< by absolute URI, without a fragment
  std::map<const Json*, std::string> uris_;                        ///< of resources
  std::map<const Json*, std::string> around_;                      ///< of resources: what each is in
  std::map<std::pair<const Json*, std::string>, Schema> anchors_;  ///< by resource and name
};

}  // namespace llm
