// A parsed schema: its nodes with their JSON pointers, references between them, and errors that name both.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "constrain/schema_resources.h"

namespace llm {

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
  std::string file_;
  Json document_;
  std::map<std::string, Inexact> inexact_;  ///< by pointer
  std::optional<SchemaResources> resources_;
  /// Where no draft is declared: as draft 4 reads it, if that has names of its own.
  std::optional<SchemaResources> draft4_resources_;
};

}  // namespace llm
