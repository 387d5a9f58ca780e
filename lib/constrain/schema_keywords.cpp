#include "constrain/schema_keywords.h"

#include <algorithm>
#include <map>

namespace llm {
namespace {

using Use = SchemaKeyword::Use;
using Holds = SchemaKeyword::Holds;

struct Row {
  std::string_view names;
  SchemaKeyword keyword;
};
constexpr Row kRows[] = {
    // of any value
    {"type enum $ref", {Use::Followed}},
    {"const", {Use::Followed, Holds::Data, 6}},
    {"allOf anyOf oneOf not", {Use::Followed, Holds::Schemas, 4}},
    {"if then else", {Use::Followed, Holds::Schemas}},
    {"nullable", {Use::OfOpenApi}},
    // of texts
    {"minLength maxLength pattern format", {Use::Followed}},
    {"contentMediaType contentEncoding", {Use::OfTexts}},
    {"contentSchema", {Use::OfTexts, Holds::Schemas}},
    // of numbers
    {"minimum maximum exclusiveMinimum exclusiveMaximum", {Use::Followed}},
    {"multipleOf", {Use::Followed, Holds::Data, 4}},
    {"divisibleBy", {Use::Refused}},
    // of arrays
    {"minItems maxItems uniqueItems", {Use::Followed}},
    {"items additionalItems", {Use::Followed, Holds::Schemas}},
    {"prefixItems", {Use::Followed, Holds::Schemas, 2020}},
    {"contains", {Use::Followed, Holds::Schemas, 6}},
    {"minContains maxContains", {Use::Followed, Holds::Data, 2019}},
    {"unevaluatedItems", {Use::Followed, Holds::Schemas, 2019}},
    // of objects
    {"required", {Use::Followed}},
    {"minProperties maxProperties", {Use::Followed, Holds::Data, 4}},
    {"properties patternProperties", {Use::Followed, Holds::SchemasByName}},
    {"additionalProperties", {Use::Followed, Holds::Schemas}},
    {"propertyNames", {Use::Followed, Holds::Schemas, 6}},
    {"unevaluatedProperties", {Use::Followed, Holds::Schemas, 2019}},
    {"dependencies dependentSchemas", {Use::Refused, Holds::SchemasByName}},
    {"dependentRequired", {Use::Refused}},
    // of schemas themselves
    {"$schema $id id $anchor $dynamicAnchor $vocabulary $comment", {Use::Annotation}},
    {"$defs definitions", {Use::Annotation, Holds::SchemasByName}},
    {"$dynamicRef $recursiveRef $recursiveAnchor extends disallow", {Use::Refused}},
    {"title description default examples deprecated readOnly writeOnly", {Use::Annotation}},
    {"example discriminator externalDocs xml", {Use::Annotation}},  // OpenAPI's
};

std::map<std::string_view, SchemaKeyword> by_name() {
  std::map<std::string_view, SchemaKeyword> all;
  for (const Row& row : kRows) {
    for (std::size_t begin = 0; begin < row.names.size();) {
      const std::size_t end = std::min(row.names.find(' ', begin), row.names.size());
      all.emplace(row.names.substr(begin, end - begin), row.keyword);
      begin = end + 1;
    }
  }
  return all;
}

}  // namespace

const SchemaKeyword* find_schema_keyword(std::string_view name) {
  static const std::map<std::string_view, SchemaKeyword> all = by_name();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace llm
