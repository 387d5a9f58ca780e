// A parsed schema: its nodes with their JSON pointers, references between them, and errors that name both.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace llm {

using Json = nlohmann::ordered_json;

/// One schema inside of the document.
struct Schema {
  const Json* node;
  std::string pointer;  ///< "#/properties/name"
  const Json* root;     ///< the resource that "#" means here

  bool is(bool value) const { return node->is_boolean() && node->get<bool>() == value; }
};
using Schemas = std::vector<Schema>;

/// A value as an answer writes it, without white space: numbers as few digits tell them from all others.
std::string literal_text(const Json&);

class SchemaDocument {
 public:
  /// Throws ErrorKind::Notation with line and column for what is not JSON, is nested too deep or no schema at all.
  SchemaDocument(std::string_view text, std::string_view file);

  Schema root() const;
  Schema child(const Schema&, std::string_view keyword) const;
  Schema child(const Schema&, std::string_view keyword, std::string_view name) const;
  Schema child(const Schema&, std::string_view keyword, std::size_t index) const;
  /// What `$ref` at this schema means, against the URI of the resource around it: a pointer or an anchor in this
  /// document, nothing is ever fetched.
  Schema referenced(const Schema& from, const std::string& reference) const;

  /// A number under this keyword that the parsed node does not hold, since no double is that number.
  struct Inexact {
    std::string written, kept;
  };
  const Inexact* inexact(const Schema&, std::string_view keyword) const;

  [[noreturn]] void fail(const Schema&, std::string_view keyword, const std::string& problem) const;
  /// For several at once.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void index(const Schema&);
  /// Schema `at` begins a resource, or has an anchor.
  void index_names(Schema& at);
  void add_resource(Schema& at, const std::string& id);
  void add_anchor(const Schema& at, const char* keyword, std::string name);
  Schema step(const Schema&, const std::string& part) const;
  std::string target_of(const Schema& from, const std::string& reference) const;

  std::string file_;
  Json document_;
  std::map<std::string, Inexact> inexact_;                         ///< by pointer
  std::map<std::string, Schema, std::less<>> resources_;           ///< by absolute URI, without a fragment
  std::map<const Json*, std::string> uris_;                        ///< of resources
  std::map<const Json*, std::string> around_;                      ///< of resources: what each is in
  std::map<std::pair<const Json*, std::string>, Schema> anchors_;  ///< by resource and name
};

}  // namespace llm
