// JSON schemas: keywords by the standard's definitions, what is refused, and how texts are written. The official suite
// is compared by scripts/check-schemas.
#include <nlohmann/json.hpp>

#include "constrain/uri_reference.h"
#include "matching.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

struct SchemaCase {
  const char* schema;
  std::vector<std::string> in, out;
};

void check_cases(const std::vector<SchemaCase>& cases, SchemaOptions options = {}) {
  for (const SchemaCase& c : cases) {
    INFO(c.schema);
    Warnings warnings;
    const Grammar g = grammar_from_json_schema(c.schema, warnings, options);
    for (const std::string& text : c.in) CHECK((matches(g, text) ? text : "rejected: " + text) == text);
    for (const std::string& text : c.out) CHECK((matches(g, text) ? "accepted: " + text : text) == text);
    CHECK(warnings.empty());
  }
}

std::string quoted(const std::string& text) { return '"' + text + '"'; }
/// So many names of so many letters, with points between.
std::string names(int count, std::size_t length) {
  std::string all(length, 'a');
  for (int i = 1; i < count; ++i) all += '.' + std::string(length, 'a');
  return all;
}

std::string error(const std::string& schema) {
  return grammar_error([&] {
    Warnings warnings;
    grammar_from_json_schema(schema, warnings, {}, "s.json");
  });
}

}  // namespace

TEST_CASE("types and listed values", "[schema]") {
  check_cases({
      {"true", {"1", "\"a\"", "null", "[{}]", "{\"a\": [true]}", "-1.5e+10"}, {"", "x", "[1,]", "1 ", " 1", "01"}},
      {"{}", {"false"}, {"tru"}},
      {R"({"type":"string"})",
       {R"("")", R"("é😀")", R"("\u00e9\n\/\ud83d\ude00")"},
       {"1", R"("\x")", "\"\n\"", R"("\ud83d")"}},
      {R"({"type":"integer"})", {"0", "-12", "1234567890123456"}, {"1.5", "1e3", "01", "-", "12345678901234567"}},
      {R"({"type":"number"})", {"0", "-1.25", "1e-3"}, {"1.", ".5", "+1"}},
      {R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"0", "\"true\""}},
      {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
      {R"({"enum":["a",1,null,{"k":[1,2]},1.5]})",
       {"\"a\"", "1", "null", R"({"k":[1,2]})", "1.5"},
       {"2", "\"b\"", "true"}},
      {R"({"enum":[1,"a",true],"type":"string"})", {"\"a\""}, {"1", "true"}},
      {R"({"enum":["a","bb","ccc"],"minLength":2,"pattern":"^b"})", {"\"bb\""}, {"\"a\"", "\"ccc\""}},
      {R"({"const":"a\"b\n"})", {R"("a\"b\n")"}, {R"("ab")"}},
      {R"({"enum":[1,2,3,4.0],"minimum":2,"multipleOf":2})", {"2", "4.0"}, {"1", "3"}},
      {R"({"not":{"type":"integer"},"type":"number"})", {"1.5", "-0.25"}, {"1", "2.0", "2.00", "\"a\""}},
      {R"({"type":"string","not":{"enum":["a","é"]}})", {"\"b\"", "\"aa\"", "\"\""}, {"\"a\"", "\"é\"", R"("\u0061")"}},
      {R"({"type":"integer","not":{"const":0}})", {"1", "10", "-1"}, {"0", "-0"}},
  });
}

TEST_CASE("strings", "[schema]") {
  check_cases({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"é😀x\"", R"("\n\u00e9")"},
       {"\"a\"", "\"abcd\"", R"("\n")"}},
      {R"({"minLength":1,"maxLength":0})", {"1", "[]"}, {"\"\"", "\"a\""}},
      {R"({"type":"string","maxLength":2000})",
       {"\"" + std::string(2000, 'a') + "\""},
       {"\"" + std::string(2001, 'a') + "\""}},
      {R"({"type":"string","pattern":"^[a-z]+\\d$"})", {"\"ab1\""}, {"\"ab\"", "\"1\"", "\"ab1 \""}},
      {R"({"type":"string","pattern":"b+"})", {"\"abc\"", "\"b\""}, {"\"ac\"", "\"\""}},
      {R"({"type":"string","pattern":"^.\"\\\\$"})", {R"("x\"\\")"}, {R"("x")"}},
      {R"({"type":"string","pattern":"^a*$","minLength":2,"maxLength":4})",
       {"\"aa\"", "\"aaaa\""},
       {"\"a\"", "\"aaaaa\"", "\"ab\""}},
      {R"({"type":"string","allOf":[{"pattern":"a"},{"pattern":"b"}]})", {"\"ab\"", "\"bxa\""}, {"\"a\"", "\"b\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\"", "\"2000-02-29\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+01:00\""},
       {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\""}},
      {R"({"type":"string","format":"uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
      {R"({"type":"string","format":"email"})",
       {"\"a.b+c@example.com\"", quoted(std::string(64, 'a') + "@b.c"), "\"a.b.c.d.e.f.g.h@mail.a.b.example.co.uk\""},
       {"\"a@\"", "\"@b.c\"", "\"a..b@c.d\"", quoted(std::string(65, 'a') + "@b.c"), quoted(names(33, 1) + "@b.c"),
        quoted(std::string(64, 'a') + "@" + names(4, 62))}},
      {R"({"type":"string","format":"hostname"})",
       {"\"x\"", "\"a-b.c\"", quoted(names(3, 63)), quoted(names(4, 62)), quoted(names(8, 30)), quoted(names(16, 14)),
        quoted(names(5, 1))},
       {quoted(names(4, 63)), quoted(names(1, 64)), quoted(names(17, 14)), "\"-a\"", "\"a-\"", "\"a..b\"", "\"a.\""}},
      {R"({"type":"string","format":"ipv4"})", {"\"192.168.0.255\""}, {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
  });
}

TEST_CASE("numbers", "[schema]") {
  check_cases({
      {R"({"type":"integer","minimum":0,"maximum":150})",
       {"0", "9", "10", "99", "149", "150"},
       {"-1", "151", "200", "1000", "-0"}},
      {R"({"type":"integer","minimum":-25,"exclusiveMaximum":7})", {"-25", "-9", "0", "6"}, {"-26", "7", "-100"}},
      {R"({"type":"integer","exclusiveMinimum":999})", {"1000", "5000000"}, {"999", "0", "-1000"}},
      {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
      {R"({"type":"number","minimum":-1.25,"maximum":2.5})",
       {"-1.25", "-1.2", "0.0", "2.5", "2.49999", "2", "-1"},
       {"-1.26", "-1.251", "2.51", "3", "-2"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
       {"0.5", "0.001", "0.999"},
       {"0", "0.0", "1", "1.0", "-0.5"}},
      {R"({"type":"number","exclusiveMaximum":-0.5})", {"-0.51", "-1", "-100.5"}, {"-0.5", "-0.50", "0", "1"}},
      {R"({"minimum":5,"exclusiveMinimum":true,"type":"integer"})", {"6"}, {"5"}},
      {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700"}, {"1", "8", "70.0"}},
      {R"({"type":"number","multipleOf":0.25})", {"0.25", "1", "1.5", "1.50", "-2.75"}, {"0.1", "0.251", "1.3"}},
      {R"({"type":"number","multipleOf":0.01,"minimum":0})", {"1.99", "2", "0.5"}, {"1.999", "-1.99"}},
      {R"({"allOf":[{"multipleOf":2},{"multipleOf":3},{"minimum":1},{"maximum":20}],"type":"integer"})",
       {"6", "12", "18"},
       {"0", "2", "3", "24"}},
      {R"({"type":"integer","format":"int32"})", {"2147483647", "-2147483648"}, {"2147483648", "-2147483649"}},
  });
}

TEST_CASE("numbers within bounds, all of them", "[schema]") {
  const auto decimal = [](int hundredths) {
    const std::string sign = hundredths < 0 ? "-" : "";
    const int n = std::abs(hundredths);
    return sign + std::to_string(n / 100) + "." + std::to_string(n % 100 / 10) + std::to_string(n % 10);
  };
  for (const int low : {-1234, -100, -7, 0, 5, 99, 100, 340}) {
    for (const int high : {-99, -1, 0, 1, 50, 101, 999, 1500}) {
      if (low >= high) continue;
      Warnings warnings;
      const std::string bounds = decimal(low) + ",\"exclusiveMaximum\":" + decimal(high) + "}";
      const Grammar g = grammar_from_json_schema("{\"type\":\"number\",\"minimum\":" + bounds, warnings);
      for (int n = -2000; n <= 2000; n += n > -150 && n < 150 ? 1 : 7) {
        if (n == 0) continue;
        if (matches(g, decimal(n)) != (low <= n && n < high)) FAIL_CHECK(bounds << " and " << decimal(n));
      }
    }
  }
  for (const int low : {-120, -9, 0, 3, 10, 77}) {
    for (const int high : {-1, 0, 9, 45, 100, 1005}) {
      if (low > high) continue;
      Warnings warnings;
      const std::string bounds = std::to_string(low) + ",\"maximum\":" + std::to_string(high) + "}";
      const Grammar g = grammar_from_json_schema("{\"type\":\"integer\",\"minimum\":" + bounds, warnings);
      for (int n = -1100; n <= 1100; ++n) {
        if (matches(g, std::to_string(n)) != (low <= n && n <= high)) FAIL_CHECK(bounds << " and " << n);
      }
    }
  }
}

TEST_CASE("arrays", "[schema]") {
  check_cases({
      {R"({"type":"array"})", {"[]", "[1,\"a\",[null]]", "[ 1, 2 ]", "[\n  1,\n  2\n]"}, {"[1,]", "[", "{}", "[1 ,2]"}},
      {R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1,2,3]"}, {"[\"a\"]", "[1.5]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"type":"array","items":{"type":"null"},"maxItems":0})", {"[]", "[ ]"}, {"[null]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[1,\"a\",2]", "[\"a\"]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"},"minItems":2})",
       {"[1,\"a\"]", "[1,\"a\",\"b\"]"},
       {"[1]", "[1,2]"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})", {"[1,null]"}, {"[1,1]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"minContains":2})",
       {"[5,6]", "[1,5,2,7,3]"},
       {"[]", "[5]", "[1,5,2]", "[\"a\",5,6]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":500,"maxItems":700})", {}, {"[1,2]"}},
  });
  Warnings warnings;
  const Grammar g = grammar_from_json_schema(
      R"({"type":"array","items":{"type":"integer"},"minItems":500,"maxItems":700})", warnings);
  const auto list = [](int n) {
    std::string text = "[0";
    for (int i = 1; i < n; ++i) text += "," + std::to_string(i);
    return text + "]";
  };
  for (const int n : {500, 501, 699, 700}) CHECK(matches(g, list(n)));
  for (const int n : {499, 701}) CHECK_FALSE(matches(g, list(n)));
}

TEST_CASE("objects", "[schema]") {
  check_cases({
      {R"({"type":"object"})", {"{}", R"({"a":1})", R"({"a": 1, "b": {"c": []}})"}, {"[]", "{a:1}", R"({"a":1,})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]})",
       {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"x","c":null})", R"({"b":"x","c":null})",
        "{\n  \"b\": \"x\"\n}"},
       {"{}", R"({"a":1})", R"({"b":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({,"b":"x"})",
        R"({"b":"x","b":"x"})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {"{}", R"({"a":1,"x":"y","z":"w"})", R"({"x":"y"})", R"({"aa":"y"})"},
       {R"({"a":"y"})", R"({"x":1})", R"({"x":"y","a":1})", R"({"\u0061":"y"})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false,"required":["a"]})",
       {R"({"a":1})"},
       {"{}", R"({"a":1,"b":2})"}},
      {R"({"type":"object","required":["x"]})", {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"y":2})"}},
      {R"({"type":"object","patternProperties":{"^n_":{"type":"integer"},"_s$":{"maximum":5}},"additionalProperties":false})",
       {"{}", R"({"n_1":9})", R"({"n_s":5})", R"({"x_s":"y"})"},
       {R"({"n_s":9})", R"({"n_1":"a"})", R"({"x":1})", R"({"x_s":6})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$","maxLength":2}})",
       {"{}", R"({"ab":1})"},
       {R"({"abc":1})", R"({"d":1})"}},
      {R"({"type":"object","additionalProperties":{"type":"null"},"propertyNames":{"enum":["a","b",3]},"minProperties":2})",
       {R"({"a":null,"b":null})"},
       {R"({"a":null,"a":null})", R"({"a":null})", R"({"a":1,"b":null})", R"({"a":null,"c":null})"}},
      {R"({"type":"object","patternProperties":{"^a":{"const":1}},"propertyNames":{"anyOf":[{"const":"ab"},{"enum":["b","c"]}]}})",
       {"{}", R"({"ab":1})", R"({"ab":1,"b":"x"})", R"({"b":2,"c":3})"},
       {R"({"ab":2})", R"({"ab":1,"ab":1})", R"({"a":1})", R"({"b":2,"b":2})"}},
      {R"({"type":"object","properties":{"x":{"const":1}},"propertyNames":{"enum":["x","y"]}})",
       {"{}", R"({"x":1})"},
       {R"({"y":1})", R"({"x":1,"y":1})"}},
      {R"({"type":"object","properties":{"a":true,"b":true},"minProperties":1,"maxProperties":1})",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"type":"object","additionalProperties":true,"maxProperties":2,"minProperties":1})",
       {R"({"a":1})", R"({"a":1,"b":1})"},
       {"{}", R"({"a":1,"b":1,"c":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":false}})", {R"({"a":1})", "{}"}, {R"({"b":1})"}},
      {R"({"type":"object","properties":{"a\"\n":{"const":1}}})", {R"({"a\"\n":1})"}, {R"({"a":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}}}],"type":"object"})",
       {R"({"a":1})", R"({"a":1,"b":"x"})"},
       {R"({"b":"x"})", R"({"a":1,"c":2})"}},
      {R"({"allOf":[{"$ref":"#/$defs/base"},{"properties":{"b":{"type":"string"}}}],"unevaluatedProperties":false,"type":"object",
           "$defs":{"base":{"properties":{"a":{"type":"integer"}}}}})",
       {R"({"a":1,"b":"x"})"},
       {R"({"a":1,"c":2})"}},
  });
  check_cases({{R"({"type":"object","properties":{"a":{"type":"integer"}}})",
                {R"({"a":1,"z":2})", R"({"z":2})"},
                {R"({"a":"x"})"}}},
              {SchemaOptions::Unmentioned::Allowed});
}

TEST_CASE("errors show values as they are written, and what contradicts itself", "[schema]") {
  CHECK(error(R"({"type":"strin"})") ==
        "s.json: JSON schema, #/type: \"strin\" is not null, boolean, integer, number, string, array or object");
  CHECK(error(R"({"minimum":[1]})") == "s.json: JSON schema, #/minimum: expected a number, found [1]");
  CHECK(error(R"({"type":"object","required":["a"],"properties":{
                   "a":{"type":"array","minItems":1,"items":{"type":"integer","minimum":5,"maximum":2}}}})") ==
        "s.json: JSON schema: no finite text matches \"#\", nor \"#/properties/a/items\"; in \"#/properties/a/items\" "
        "minimum 5 is above maximum 2");
  CHECK(error(R"({"type":"array","minItems":5,"maxItems":2})") ==
        "s.json: JSON schema: no finite text matches \"#\"; in \"#\" minItems 5 is above maxItems 2");
  CHECK(error(R"({"type":"string","minLength":5,"maxLength":2})") ==
        "s.json: JSON schema: no finite text matches \"#\"; in \"#\" minLength 5 is above maxLength 2");
  CHECK_THAT(
      error(R"({"type":"object","required":["a/b"],"properties":{"a/b":{"type":"array","minItems":5,"maxItems":2}}})"),
      contains("in \"#/properties/a~1b\" minItems 5 is above maxItems 2"));
  // Where another way is left, such bounds are no mistake.
  Warnings none;
  grammar_from_json_schema(R"({"anyOf":[{"type":"array","minItems":5,"maxItems":2},{"type":"null"}]})", none);
  CHECK(error(R"({"type":"object","properties":{"a":{}},"required":["a","b"],"additionalProperties":false})") ==
        "s.json: JSON schema: no finite text matches \"#\"; in \"#\" \"b\" is required and not allowed");
  CHECK(error(R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})") ==
        "s.json: JSON schema: no finite text matches \"#\", nor \"#/properties/a\"");
}

TEST_CASE("the patterns of an object's names are counted over all of its schemas", "[schema]") {
  const auto both = [](const std::string& first, const std::string& second, const std::string& more) {
    return R"({"type":"object","allOf":[{"patternProperties":{)" + first + R"(}},{"patternProperties":{)" + second +
           "}}]" + more + "}";
  };
  const std::string four = R"("^a":{},"^b":{},"^c":{},"^d":{})", three = R"("^e":{},"^f":{},"^g":{})";
  for (const char* more : {"", R"(,"minProperties":1)"}) {
    INFO(more);
    CHECK_THAT(error(both(four, three, more)),
               contains("cannot be enforced: #/allOf/1/patternProperties: at most 6 patterns of one object"));
    Warnings none;
    grammar_from_json_schema(both(four, R"("^e":{},"^f":{})", more), none);
  }
  CHECK_THAT(error(R"({"patternProperties":{)" + four + "," + three + "}}"),
             contains("cannot be enforced: #/patternProperties: at most 6 patterns of one object"));
  // An answer that is no object has no names.
  Warnings none;
  grammar_from_json_schema(R"({"type":"string","patternProperties":{)" + four + "," + three + "}}", none);
  CHECK_THAT(error(R"({"contains":{},"minContains":65})"), contains("#/minContains: at most 64 are supported"));
}

TEST_CASE("limits beyond 32 bits stay apart from small ones", "[schema]") {
  // 2^32 + 1005 and 1005: equal in their low 32 bits.
  Warnings warnings;
  const Grammar g = grammar_from_json_schema(
      R"({"type":"object","properties":{
           "a":{"type":"array","items":{"type":"null"},"maxItems":4294968301},
           "b":{"type":"array","items":{"type":"null"},"maxItems":1005}}})",
      warnings);
  const auto list = [](int n) {
    std::string text = "[null";
    for (int i = 1; i < n; ++i) text += ",null";
    return text + "]";
  };
  CHECK(matches(g, "{\"a\":" + list(1006) + "}"));
  CHECK(matches(g, "{\"b\":" + list(1005) + "}"));
  CHECK_FALSE(matches(g, "{\"b\":" + list(1006) + "}"));
  CHECK_THAT(error(R"({"type":"string","minLength":1000000000000})"),
             contains("at least 1000000000000 repetitions are asked for; no more than 1073741824 can be"));
}

TEST_CASE("schemas may be long: alternatives are counted for each value", "[schema]") {
  Warnings warnings;
  std::string properties, alternatives, dead_ends;
  for (int i = 0; i < 2100; ++i) {
    const std::string n = std::to_string(i);
    properties += (i > 0 ? ",\"p" : "\"p") + n + "\":{\"type\":\"array\",\"items\":{\"const\":" + n + "}}";
  }
  std::string required;
  for (int i = 0; i < 2100; ++i) required += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\"";
  CHECK(error("{\"type\":\"object\",\"properties\":{" + properties + "},\"required\":[" + required + "]}").empty());

  for (int i = 0; i < 150; ++i) {
    alternatives += std::string(i > 0 ? "," : "") + R"({"type":"object","properties":{"kind":{"const":"k)" +
                    std::to_string(i) + R"("},"v":{"type":"integer","minimum":)" + std::to_string(i) +
                    R"(}},"required":["kind","v"]})";
  }
  const Grammar g = grammar_from_json_schema("{\"oneOf\":[" + alternatives + "]}", warnings);
  CHECK(matches(g, R"({"kind":"k149","v":149})"));
  CHECK_FALSE(matches(g, R"({"kind":"k149","v":148})"));

  // 2^30 ways to choose, none of which is possible.
  for (int i = 0; i < 30; ++i) dead_ends += R"(,{"anyOf":[{"minLength":1},{"maxLength":9}]})";
  CHECK_THAT(error(R"({"type":"string","allOf":[{"anyOf":[{"type":"null"},{"type":"integer"}]})" + dead_ends + "]}"),
             contains("combine to more than 5000 alternatives of one value"));
}

TEST_CASE("long texts with a pattern", "[schema]") {
  Warnings warnings;
  const Grammar g = grammar_from_json_schema(R"({"type":"string","pattern":"^[a-z]+$","maxLength":10000})", warnings);
  CHECK(matches(g, "\"" + std::string(10000, 'x') + "\""));
  CHECK_FALSE(matches(g, "\"" + std::string(10001, 'x') + "\""));
}

TEST_CASE("combinations and references", "[schema]") {
  check_cases({
      {R"({"anyOf":[{"type":"integer","minimum":5},{"type":"string"}]})", {"5", "\"a\""}, {"4", "null"}},
      {R"({"type":"integer","anyOf":[{"maximum":3},{"minimum":9}]})", {"3", "9"}, {"4", "\"a\""}},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"},{"type":"array","items":{"$ref":"#"}}]})",
       {"1", "\"a\"", "[1,[\"b\",[]]]"},
       {"null", "[null]"}},
      {R"({"oneOf":[{"type":"integer","maximum":3},{"type":"integer","minimum":4}]})", {"1", "4"}, {"1.5"}},
      {R"({"oneOf":[{"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"}],"$defs":{
           "cat":{"type":"object","properties":{"kind":{"const":"cat"},"lives":{"type":"integer"}},"required":["kind","lives"]},
           "dog":{"type":"object","properties":{"kind":{"const":"dog"},"name":{"type":"string"}},"required":["kind"]}}})",
       {R"({"kind":"cat","lives":9})", R"({"kind":"dog"})", R"({"kind":"dog","name":"x"})"},
       {R"({"kind":"cat"})", R"({"kind":"dog","lives":9})", R"({"kind":"cow"})"}},
      {R"({"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"]},{"type":"object","properties":{"b":{}},"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {R"({"a":1,"b":1})", "{}"}},
      {R"({"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false},
                    {"type":"object","properties":{"a":{},"b":{}},"required":["a","b"]}]})",
       {R"({"a":1})", R"({"a":1,"b":1})"},
       {R"({"b":1})"}},
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"children":{"type":"array","items":{"$ref":"#/$defs/tree"}}},
           "required":["v"],"additionalProperties":false}}})",
       {R"({"v":1})", R"({"v":1,"children":[{"v":2,"children":[]},{"v":3}]})"},
       {R"({"v":1,"children":[{}]})", R"({"v":1,"children":[{"v":2}})"}},
      {R"({"properties":{"a/b":{"$ref":"#/properties/c~d"},"c~d":{"type":"integer"},"e":{"$ref":"#/properties/a~1b"},"f":{"$ref":"#/properties/c%7E0d"}}})",
       {R"({"a/b":1,"e":2})", "\"no object\""},
       {R"({"a/b":"x"})", R"({"e":"x"})"}},
      {R"({"$ref":"#n","$defs":{"x":{"$anchor":"n","type":"null"}}})", {"null"}, {"1"}},
      {R"({"$id":"http://x/root.json","items":{"$ref":"http://x/item.json"},"$defs":{"i":{"$id":"http://x/item.json","type":"integer"}},"type":"array"})",
       {"[1]"},
       {"[null]"}},
      {R"({"type":"string","allOf":[{"minLength":2},{"maxLength":4},{"allOf":[{"pattern":"^a"}]}]})",
       {"\"ab\""},
       {"\"a\"", "\"bb\"", "\"abcde\""}},
  });
}

TEST_CASE("numbers that a double does not hold are refused, and others are the schema's", "[schema]") {
  const std::string big = "123456789012345678901234567890";
  CHECK_THAT(error(R"({"const":)" + big + "}"),
             contains("#/const: " + big + " would become 1.2345678901234568e+29: no more digits are kept"));
  CHECK_THAT(error(R"({"properties":{"a/b":{"enum":["x",{"k":[1,12345678901234567890123]}]}}})"),
             contains("#/properties/a~1b/enum: 12345678901234567890123 would become"));
  CHECK_THAT(error(R"({"items":{"const":[18446744073709551616]}})"), contains("#/items/const: 18446744073709551616"));
  CHECK_THAT(error(R"({"not":{"const":0.10000000000000000001}})"), contains("#/not/const: 0.10000000000000000001"));
  CHECK_THAT(error(R"({"not":{"enum":[1,1e-400]}})"), contains("#/not/enum: 1e-400 would become 0.0"));
  CHECK_THAT(error(R"({"$ref":"#/$defs/x","$defs":{"x":{"const":-)" + big + "}}}"),
             contains("#/$defs/x/const: -" + big));
  CHECK_THAT(error(R"({"type":"number","minimum":1.00000000000000000001})"),
             contains("#/minimum: 1.00000000000000000001"));
  CHECK_THAT(error(R"({"type":"number","multipleOf":0.10000000000000000001})"), contains("#/multipleOf: 0.1000000"));
  check_cases({
      {R"({"const":18446744073709551615})", {"18446744073709551615"}, {"18446744073709551616"}},
      {R"({"enum":[-9223372036854775808,0.1,1.50,1E2,-0.0,5e-324,1.7976931348623157e308,100000000000000000000]})",
       {"-9223372036854775808", "0.1", "1.5", "100.0", "-0.0", "5e-324", "1e+20", "1.7976931348623157e+308"},
       {"0.10", "1e21"}},
      {R"({"type":"integer","maximum":123456789012345678901234567890})", {"5", "1234567890123456"}, {"1.5"}},
      // What says nothing about values may have any number, and so may names beside the keywords.
      {R"({"type":"boolean","default":123456789012345678901234567890,"x-y":{"const":0.10000000000000000001},
           "examples":[12345678901234567890123]})",
       {"true"},
       {"1"}},
  });
}

TEST_CASE("what cannot be enforced is refused with its pointer", "[schema]") {
  CHECK(error(R"({"type":"array","uniqueItems":true})") ==
        "s.json: JSON schema: cannot be enforced: #/uniqueItems: an automaton cannot compare items with each other");
  CHECK_THAT(
      error(R"({"properties":{"a":{"if":{},"then":{}}, "b/c":{"not":{"minLength":3}}}})"),
      contains("#/properties/a/if: conditions are not supported") && contains("#/properties/b~1c/not: only of a type"));
  CHECK_THAT(error(R"({"dependentRequired":{}})"), contains("#/dependentRequired: this keyword is not supported"));
  CHECK_THAT(error(R"({"format":"iri"})"),
             contains("#/format: \"iri\" is not one of date, time") && contains("byte, int32, int64"));
  CHECK_THAT(error(R"({"oneOf":[{"type":"integer"},{"minimum":3}]})"),
             contains("#/oneOf: alternatives 0 and 1 may both hold"));
  // With both properties there, both alternatives hold: the first does not forbid b.
  CHECK_THAT(error(R"({"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"]},
                                {"type":"object","properties":{"a":{},"b":{}},"required":["a","b"]}]})"),
             contains("#/oneOf: alternatives 0 and 1 may both hold"));
  CHECK_THAT(error(R"({"allOf":[{"type":"object","properties":{"a":{}}},
                                {"properties":{"b":{}},"unevaluatedProperties":false}]})"),
             contains("unevaluatedProperties: only false, and not inside of allOf"));
  CHECK_THAT(
      error(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"patternProperties":{"a":{"type":"object"}},
                       "$defs":{"x":{"properties":{"b":{}},"unevaluatedProperties":false}}})"),
      contains("unevaluatedProperties: not beside other schemas"));
  CHECK_THAT(error(R"({"type":"object","properties":{"a":{}},"required":["a","b"],"unevaluatedProperties":false})"),
             contains("no finite text matches \"#\"; in \"#\" \"b\" is required and not allowed"));
  CHECK_THAT(error(R"({"contains":{},"maxContains":3})"), contains("#/maxContains"));
  CHECK_THAT(error(R"({"unevaluatedItems":false})"), contains("#/unevaluatedItems"));
  CHECK_THAT(error(R"({"type":"object","minProperties":3})"),
             contains("#/minProperties: only properties with names, and one more"));
  CHECK_THAT(error(R"({"maxProperties":1000000000000})"), contains("#/maxProperties: at most 1000 are supported"));
  CHECK_THAT(error(R"({"enum":[{"a":1}],"properties":{"a":{}}})"), contains("not beside enum or const"));
  CHECK_THAT(error(R"({"$ref":"other.json"})"), contains("#/$ref: \"other.json\" is another document"));
  CHECK_THAT(error(R"({"$ref":"#/$defs/x"})"), contains("#/$ref: \"#/$defs/x\" leads nowhere"));
  CHECK_THAT(error(R"({"$ref":"#"})"), contains("refers to itself for the same value"));
  CHECK_THAT(error(R"({"anyOf":[{"type":"string"},{"$ref":"#"}]})"), contains("refers to itself for the same value"));
  CHECK_THAT(error(R"({"type":"text"})"), contains("#/type: \"text\" is not null, boolean, integer"));
  CHECK_THAT(error(R"j({"pattern":"a(?=b)"})j"), contains("JSON schema, #: pattern, line 1, column 2: look-around"));
  CHECK_THAT(error(R"({"minLength":-1})"), contains("#/minLength: expected a number that counts"));
  CHECK_THAT(error(R"({"items":3})"), contains("#/items: a schema is an object, true or false"));
  CHECK_THAT(error("[]"), contains("a schema is an object, true or false"));
  CHECK_THAT(error("{\"type\":\n \"string\",}"), contains("s.json: JSON schema, line 2, column 11: this is not JSON"));
  CHECK_THAT(error("{\"type\":"), contains("this is not JSON"));
  CHECK_THAT(error("{\"minimum\": 1e999}"), contains("larger than any that can be stored"));
  CHECK_THAT(error("false"), contains("no finite text matches"));
  CHECK_THAT(error(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
             contains("no finite text matches"));
  CHECK_THAT(error(std::string(300, '[')), contains("nested more than 200 deep"));
  Warnings warnings;
  grammar_from_json_schema(R"({"type":"object","properties":{"a":{"requird":["b"],"x-note":1}}})", warnings);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0].text, contains("#/properties/a: \"requird\" is no keyword"));
  // Draft 2020-12, validation, section 8 has three keywords for contents, and no others.
  warnings.clear();
  grammar_from_json_schema(R"({"type":"string","contentMediaType":"text/plain","contentKind":"x"})", warnings);
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0].text, contains("#: \"contentMediaType\" describes texts; it restricts none"));
  CHECK_THAT(warnings[1].text, contains("#: \"contentKind\" is no keyword"));
}

TEST_CASE("lengths beside patterns, formats and listed values", "[schema]") {
  check_cases({
      {R"({"enum":["a","abc","\u00e9\ud83d\ude00","\"\n"],"maxLength":2})",
       {"\"a\"", "\"é😀\"", R"("\"\n")"},
       {"\"abc\""}},
      {R"({"enum":["a","ab","b"],"minLength":2,"pattern":"^a"})", {"\"ab\""}, {"\"a\"", "\"b\""}},
      {R"({"type":"string","pattern":"^(a|b\\n){1,3}$","maxLength":3})",
       {"\"aaa\"", R"("b\na")"},
       {R"("b\nb\n")", "\"aaaa\"", "\"\""}},
      {R"({"type":"string","pattern":"^é{1,3}$","maxLength":2})", {"\"é\"", "\"éé\""}, {"\"ééé\""}},
      {R"({"type":"string","pattern":"^é{1,3}$","maxLength":3})", {"\"ééé\""}, {"\"éééé\""}},
  });
  // A bound that the format keeps in any case, and one that it does not, at several places.
  const std::string longest = std::string(64, 'l') + "@" + names(3, 62),
                    shorter = std::string(36, 'l') + "@" + names(1, 63);
  for (const int most : {254, 100}) {
    std::string schema = R"({"type":"object","required":["a","b","c","d"],"properties":{)";
    for (const std::string name : {"a", "b", "c", "d"})
      schema += (name == "a" ? "\"" : ",\"") + name + R"(":{"type":"string","format":"email","maxLength":)" +
                std::to_string(most) + "}";
    const auto text = [&](const std::string& last) {
      return R"({"a":"a@b","b":"a@b","c":"a@b","d":)" + quoted(last) + "}";
    };
    schema += "}}";
    std::vector<std::string> in{text("a@b"), text(shorter)}, out{text("a"), text("l" + shorter)};
    if (most == 254) in = {text(longest), text("l" + shorter)}, out = {text("l" + longest)};
    check_cases({{schema.c_str(), in, out}});
  }
}

TEST_CASE("anchors are found below names that are keywords elsewhere, and not in values", "[schema]") {
  for (const char* name : {"const", "enum", "properties", "$defs"}) {
    const std::string schema =
        R"({"properties":{")" + std::string(name) + R"(":{"$anchor":"x","type":"integer"},"b":{"$ref":"#x"}}})";
    check_cases({{schema.c_str(), {R"({"b":1})"}, {R"({"b":"1"})"}}});
    const std::string defined =
        R"({"$defs":{")" + std::string(name) + R"(":{"$anchor":"x","type":"integer"}},"$ref":"#x"})";
    check_cases({{defined.c_str(), {"1"}, {"\"1\""}}});
  }
  CHECK_THAT(error(R"({"properties":{"a":{"const":{"$anchor":"x"}},"b":{"$ref":"#x"}}})"), contains("no anchor \"x\""));
}

TEST_CASE("what needs too many states is named", "[schema]") {
  CHECK_THAT(error(R"({"type":"object","properties":{"a":{"type":"string"},
                       "p":{"type":"string","pattern":"^[A-Z].*$","maxLength":65535}}})"),
             contains("#/properties/p: it needs more than 400000 states"));
}

TEST_CASE("alternatives of objects are told apart by listed values first", "[schema]") {
  std::string alternatives;
  for (int i = 0; i < 30; ++i) {
    alternatives += std::string(i > 0 ? "," : "") + R"({"type":"object","required":["comment","kind"],"properties":{
                    "comment":{"type":"string","maxLength":200},"kind":{"const":"k)" +
                    std::to_string(i) + R"("}}})";
  }
  const std::string schema = R"({"oneOf":[)" + alternatives + "]}";
  check_cases({{schema.c_str(), {R"({"comment":"x","kind":"k29"})"}, {R"({"comment":"x","kind":"k30"})"}}});
}

TEST_CASE("unevaluatedProperties does not tell alternatives of oneOf apart that it is no part of", "[schema]") {
  const auto may_both_hold = contains("oneOf: alternatives 0 and 1 may both hold");
  // {"id":1,"card":"x"} and {"c":1} satisfy both alternatives: the schema around them closes neither.
  CHECK_THAT(error(R"({"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"oneOf":[
                       {"properties":{"card":{"type":"string"}},"required":["card"]},
                       {"properties":{"iban":{"type":"string"}}}],"unevaluatedProperties":false})"),
             may_both_hold);
  CHECK_THAT(error(R"({"type":"object","unevaluatedProperties":false,"oneOf":[
                       {"properties":{"c":{"type":"integer"}},"required":["c"]},
                       {"properties":{"d":{"type":"string"}}}]})"),
             may_both_hold);
  // {"p":1,"q":1} satisfies both alternatives of anyOf, which evaluate both together.
  const std::string both = R"({"type":"object","properties":{"p":{"type":"integer"},"q":{"type":"integer"}},
                               "required":["p","q"]})";
  CHECK_THAT(error(R"({"oneOf":[)" + both + R"(,{"type":"object","unevaluatedProperties":false,"anyOf":[
                       {"properties":{"p":{"type":"integer"}}},{"properties":{"q":{"type":"integer"}}}]}]})"),
             may_both_hold);
  CHECK_THAT(error(R"({"oneOf":[{"type":"object","properties":{"k":)" + both + R"(},"required":["k"]},
                       {"type":"object","properties":{"k":{"type":"object","unevaluatedProperties":false,"anyOf":[
                       {"properties":{"p":{"type":"integer"}}},{"properties":{"q":{"type":"integer"}}}]}},
                       "required":["k"]}]})"),
             may_both_hold);
  check_cases({
      // Where it is part of an alternative, with nothing that may evaluate more, it tells.
      {R"({"oneOf":[{"type":"object","properties":{"p":{"type":"integer"},"q":{"type":"integer"}},"required":["p","q"]},
           {"type":"object","properties":{"p":{"type":"integer"}},"unevaluatedProperties":false}]})",
       {R"({"p":1,"q":1})", R"({"p":1})", "{}"},
       {R"({"q":1})"}},
      {R"({"type":"object","unevaluatedProperties":false,"oneOf":[
           {"properties":{"k":{"const":"c"},"c":{"type":"integer"}},"required":["k"]},
           {"properties":{"k":{"const":"d"},"d":{"type":"string"}},"required":["k"]}]})",
       {R"({"k":"c","c":1})", R"({"k":"d"})"},
       {R"({"k":"c","d":"x"})"}},
  });
}

TEST_CASE("references are resolved against the resource around them", "[schema]") {
  check_cases({
      {R"({"$id":"http://x/","$defs":{"A":{"$id":"b/","$defs":{"q":{"$id":"t.json","type":"string"}}},
           "B":{"$id":"t.json","type":"integer"}},"$ref":"t.json"})",
       {"1"},
       {"\"a\""}},
      {R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"http://x/",
           "$defs":{"A":{"$id":"b/","$defs":{"q":{"$id":"t.json","type":"string"}},"$ref":"t.json"},
           "B":{"$id":"t.json","type":"integer"}},"$ref":"b/"})",
       {"\"a\""},
       {"1"}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","$id":"http://x/",
           "definitions":{"A":{"$id":"b/","definitions":{"q":{"$id":"t.json","type":"string"}},"$ref":"t.json"},
           "B":{"$id":"t.json","type":"integer"}},"$ref":"b/"})",
       {"1"},
       {"\"a\""}},
      {R"({"$id":"http://x/a.json","$defs":{"q":{"type":"integer"}},"properties":{"p":{"$ref":"a.json#/$defs/q"}},
           "type":"object"})",
       {R"({"p":1})"},
       {R"({"p":"1"})"}},
      {R"({"$id":"http://x/list.json","type":"array","items":{"$ref":"http://x/item.json"},
           "$defs":{"i":{"$id":"item.json","type":"integer"}}})",
       {"[1]"},
       {"[\"1\"]"}},
      {R"({"$defs":{"i":{"$id":"item.json","$anchor":"here","type":"integer"}},"$ref":"./x/../item.json#here"})",
       {"1"},
       {"\"1\""}},
      {R"({"$schema":"https://json-schema.org/draft/2019-09/schema",
           "$id":"urn:uuid:c7","$defs":{"i":{"$id":"urn:x:y","$defs":{"z":{"type":"integer"}},"$ref":"#/$defs/z"},
           "z":{"type":"string"}},"$ref":"urn:x:y"})",
       {"1"},
       {"\"1\""}},
  });
  CHECK_THAT(error(R"({"$id":"http://x/","$defs":{"A":{"$id":"b/","$defs":{"q":{"$id":"t.json"}},"$ref":"t.json"},
           "B":{"$id":"t.json","type":"integer"}},"$ref":"b/"})"),
             contains("#/$defs/A/$ref: \"t.json\" is \"http://x/b/t.json\" since draft 2019-09"));
  CHECK_THAT(error(R"({"$id":"http://x/","$defs":{"A":{"$id":"b/t.json","type":"string"}},"$ref":"t.json"})"),
             contains("#/$ref: \"t.json\" is another document"));
  CHECK_THAT(error(R"({"$defs":{"a":{"$id":"t","type":"string"},"b":{"$id":"./t","type":"integer"}},"$ref":"t"})"),
             contains("#/$defs/b/$id: another schema is \"schema:///t\" as well: #/$defs/a"));
  CHECK_THAT(error(R"({"$defs":{"a":{"$anchor":"t","type":"string"},"b":{"$anchor":"t"}},"$ref":"#t"})"),
             contains("#/$defs/b/$anchor: another schema has this name as well: #/$defs/a"));
}

TEST_CASE("RFC 3986, section 5.4: references and what they mean", "[schema]") {
  constexpr std::pair<const char*, const char*> kExamples[] = {
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {"#s", "http://a/b/c/d;p?q#s"},
      {"g#s", "http://a/b/c/g#s"},
      {"g?y#s", "http://a/b/c/g?y#s"},
      {";x", "http://a/b/c/;x"},
      {"g;x", "http://a/b/c/g;x"},
      {"g;x?y#s", "http://a/b/c/g;x?y#s"},
      {"", "http://a/b/c/d;p?q"},
      {".", "http://a/b/c/"},
      {"./", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../", "http://a/"},
      {"../../g", "http://a/g"},
      {"../../../g", "http://a/g"},
      {"../../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {".g", "http://a/b/c/.g"},
      {"g..", "http://a/b/c/g.."},
      {"..g", "http://a/b/c/..g"},
      {"./../g", "http://a/b/g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/./h", "http://a/b/c/g/h"},
      {"g/../h", "http://a/b/c/h"},
      {"g;x=1/./y", "http://a/b/c/g;x=1/y"},
      {"g;x=1/../y", "http://a/b/c/y"},
      {"g?y/./x", "http://a/b/c/g?y/./x"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
      {"g#s/./x", "http://a/b/c/g#s/./x"},
      {"g#s/../x", "http://a/b/c/g#s/../x"},
      {"http:g", "http:g"},
  };
  for (const auto& [reference, meaning] : kExamples) CHECK(resolved_uri("http://a/b/c/d;p?q", reference) == meaning);
  CHECK(resolved_uri("http://a", "g") == "http://a/g");  // section 5.2.3
}

TEST_CASE("what looks like a schema in a value is none", "[schema]") {
  for (const std::string keyword : {"default", "examples", "const", "enum", "x-unknown"}) {
    for (const std::string name : {R"("$anchor":"e")", R"("$id":"e")"}) {
      const std::string value = "{" + name + R"(,"type":"string"})";
      const bool listed = keyword == "examples" || keyword == "enum";
      const std::string schema = R"({"$defs":{"a":{")" + keyword + "\":" + (listed ? "[" + value + "]" : value) +
                                 R"(},"z":{)" + name + R"(,"type":"integer"}},"$ref":")" +
                                 (name.starts_with("\"$anchor") ? "#e" : "e") + "\"}";
      check_cases({{schema.c_str(), {"1"}, {"\"1\""}}});
    }
  }
}

TEST_CASE("numbers stay inside of the schema where they are read as doubles", "[schema]") {
  check_cases({
      {R"({"type":"number","exclusiveMaximum":100})",
       {"99.9999999999999", "-9007199254740991", "99", "0.0000000000012345"},
       {"99.99999999999999", "99.9999999999999999", "100"}},
      {R"({"type":"number","exclusiveMinimum":5})", {"5.00000000000001", "9999999999999999"}, {"5.0000000000000001"}},
      {R"({"type":"number","exclusiveMaximum":0.3})", {"0.299999999999999"}, {"0.29999999999999999"}},
      {R"({"type":"number","multipleOf":1.5})",
       {"6161086679704.5", "1.5", "3", "9007199254740990"},
       {"6161086679705749.5", "9007199254740993"}},
      {R"({"type":"number","not":{"type":"integer"}})", {"0.5", "12345678901234.5"}, {"9312051781886885.5", "1"}},
      // A bound may have more digits than others; it reads as itself.
      {R"({"type":"number","minimum":0.3000000000000004,"maximum":0.3000000000000004})",
       {"0.3000000000000004"},
       {"0.3", "0.3000000000000003"}},
      {R"({"type":"number"})",
       {"1e307", "9.99E+307", "1234567890123456e292", "1e-307", "0e0", "1e05", "12345678.1234567890123456"},
       {"1e308", "1e999", "12e293", "1e-308"}},
      // Whole numbers: long ones unless one of them must be told from its neighbours.
      {R"({"type":"integer","minimum":0})", {"9999999999999999"}, {"-1"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"9999999999999999"}, {"0"}},
      {R"({"type":"integer","exclusiveMaximum":9007199254740993})", {"9007199254740991"}, {"9007199254740992"}},
      {R"({"type":"integer","multipleOf":3})", {"9007199254740990"}, {"9007199254740993", "9007199254740991"}},
      {R"({"type":"integer","not":{"const":9007199254740993}})", {"9007199254740991"}, {"9007199254740992"}},
  });
  CHECK_THAT(error(R"({"type":"integer","exclusiveMinimum":9007199254740992})"),
             contains("#/exclusiveMinimum: doubles do not tell"));
  // The second alternative allows more than is written for it: a number of the first may be among them.
  CHECK_THAT(error(R"({"oneOf":[{"type":"integer"},{"type":"integer","exclusiveMinimum":9007199254740991}]})"),
             contains("may both hold"));
}

TEST_CASE("until draft 4 id is the name of a schema", "[schema]") {
  const std::string draft3 = R"("$schema":"http://json-schema.org/draft-03/schema#",)",
                    draft4 = R"("$schema":"http://json-schema.org/draft-04/schema#",)",
                    draft6 = R"("$schema":"http://json-schema.org/draft-06/schema#",)";
  const std::string base =
      R"("id":"http://x.test/root.json","type":"object","properties":{"p":{"id":"child.json",
         "definitions":{"q":{"type":"null"}},"type":"object","properties":{"z":{"$ref":"#/definitions/q"}},
         "required":["z"]}},"required":["p"],"definitions":{"q":{"enum":["wrong"]}}})";
  const std::string anchor =
      R"("id":"http://x.test/a.json#","type":"array","items":{"$ref":"#foo"},
         "definitions":{"q":{"id":"#foo","type":"null"}}})";
  const std::string absolute =
      R"("id":"http://x.test/a.json","type":"array","items":{"$ref":"http://x.test/a.json#/definitions/q"},
         "definitions":{"q":{"type":"null"}}})";
  const std::string beside =  // of $ref it does not count
      R"("id":"http://x.test/","definitions":{"q":{"id":"/q.json","type":"null"},"r":{"id":"s/q.json","enum":[1]}},
         "type":"array","items":{"id":"s/","$ref":"q.json"}})";
  const std::string inner =
      R"("properties":{"o":{"id":"o.json","items":{"$ref":"#/definitions/q"}}},"definitions":{"q":{"type":"null"}}})";
  for (const std::string& draft : {draft3, draft4}) {
    const std::string texts[] = {"{" + draft + anchor, "{" + draft + absolute, "{" + draft + beside};
    for (const std::string& text : texts) check_cases({{text.c_str(), {"[null]"}, {"[1]"}}});
    CHECK_THAT(error("{" + draft + inner), contains("#/properties/o/items/$ref: \"#/definitions/q\" leads nowhere in "
                                                    "\"schema:///o.json\""));
  }
  const std::string before = "{" + draft4 + base, since = "{" + draft6 + base;
  check_cases({{before.c_str(), {R"({"p":{"z":null}})"}, {R"({"p":{"z":"wrong"}})"}},
               {since.c_str(), {R"({"p":{"z":"wrong"}})"}, {R"({"p":{"z":null}})"}}});
  CHECK_THAT(error("{" + draft6 + anchor), contains("#/items/$ref: there is no anchor \"foo\""));
  CHECK_THAT(error("{" + draft6 + absolute), contains("is another document"));
  CHECK_THAT(error("{" + draft4 + R"("properties":{"a":{"id":"t","type":"null"},"b":{"id":"./t"}}})"),
             contains("#/properties/b/id: another schema is \"schema:///t\" as well: #/properties/a"));
  // Without a draft both must mean the same.
  CHECK_THAT(error("{" + base),
             contains("#/properties/p/properties/z/$ref: \"#/definitions/q\" is #/definitions/q since "
                      "draft 6 and was #/properties/p/definitions/q until draft 4, where id"));
  CHECK_THAT(error("{" + anchor), contains("#/items/$ref: \"#foo\" was #/definitions/q until draft 4, where id"));
  CHECK_THAT(error("{" + absolute), contains("#/items/$ref: \"http://x.test/a.json#/definitions/q\" was "));
  const std::string same = "{" + inner;
  check_cases({
      {same.c_str(), {R"({"o":[null]})"}, {R"({"o":[1]})"}},
      {R"({"id":"tool","type":"object","properties":{"id":{"$ref":"#/definitions/id"}},
           "definitions":{"id":{"id":"#id","type":"integer"}}})",
       {R"({"id":1})"},
       {R"({"id":"1"})"}},
  });
}

TEST_CASE("what a draft ignores tells no alternatives apart", "[schema]") {
  const std::string draft7 = R"({"$schema":"http://json-schema.org/draft-07/schema#",)",
                    draft4 = R"({"$schema":"http://json-schema.org/draft-04/schema#",)",
                    draft2019 = R"({"$schema":"https://json-schema.org/draft/2019-09/schema",)";
  const std::string kinds =
      R"("definitions":{"base":{"type":"object","properties":{"kind":{"type":"string"}},"required":["kind"]}},
         "oneOf":[{"$ref":"#/definitions/base","properties":{"kind":{"enum":["a"]}}},
                  {"$ref":"#/definitions/base","properties":{"kind":{"enum":["b"]}}}]})";
  const std::string refusal =
      "#/oneOf/0/properties has no effect there beside $ref; allOf: [{\"$ref\": ...}, {...}] holds both";
  CHECK(error(draft7 + kinds) ==
        "s.json: JSON schema: cannot be enforced: #/oneOf: alternatives 0 and 1 may both hold by draft 7: " + refusal);
  CHECK_THAT(error(draft4 + kinds), contains("#/oneOf: alternatives 0 and 1 may both hold by draft 4: " + refusal));
  const std::string undeclared = "{" + kinds, counts = draft2019 + kinds;
  // {"kind":"x","extra":1,"tag":"a"} is of one and of two.
  CHECK_THAT(error(draft7 + R"("definitions":{
      "one":{"type":"object","properties":{"kind":{"type":"string"}},"required":["kind"]},
      "two":{"type":"object","properties":{"extra":{"const":1}},"required":["extra"]}},"oneOf":[
      {"$ref":"#/definitions/one","properties":{"extra":{"const":1},"tag":{"const":"a"}},"required":["extra","tag"]},
      {"$ref":"#/definitions/two","properties":{"tag":{"const":"b"}},"required":["tag"]}]})"),
             contains("#/oneOf: alternatives 0 and 1 may both hold by draft 7"));
  // Below a property, where what is written is no mistake by itself.
  CHECK_THAT(error(draft7 + R"("definitions":{"s":{"type":"string"}},"oneOf":[
      {"type":"object","properties":{"k":{"$ref":"#/definitions/s","enum":["a"]}},"required":["k"]},
      {"type":"object","properties":{"k":{"$ref":"#/definitions/s","enum":["b"]}},"required":["k"]}]})"),
             contains("by draft 7: #/oneOf/0/properties/k/enum has no effect there"));
  CHECK_THAT(error(draft4 + R"("oneOf":[{"const":1},{"const":2}]})"),
             contains("#/oneOf: alternatives 0 and 1 may both hold by draft 4: #/oneOf/0/const is no keyword there"));
  CHECK_THAT(error(draft4 + R"("oneOf":[
      {"type":"object","properties":{"p":{},"q":{}},"required":["p","q"]},
      {"type":"object","properties":{"p":{}},"propertyNames":{"enum":["p"]}}]})"),
             contains("by draft 4: #/oneOf/1/propertyNames is no keyword there"));
  const std::string apart = draft7 + R"("definitions":{
      "a":{"type":"object","properties":{"kind":{"const":"a"}},"required":["kind"]},
      "b":{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]},
      "list":{"uniqueItems":true}},
      "oneOf":[{"$ref":"#/definitions/a","type":"object"},{"$ref":"#/definitions/b","minProperties":1},
               {"type":"array","maxItems":1,"allOf":[{"$ref":"#/definitions/list","maxItems":1}]}]})";
  check_cases({
      {undeclared.c_str(), {R"({"kind":"a"})", R"({"kind":"b"})"}, {R"({"kind":"c"})"}},
      {counts.c_str(), {R"({"kind":"a"})", R"({"kind":"b"})"}, {R"({"kind":"c"})"}},
      {apart.c_str(), {R"({"kind":"a"})", R"({"kind":"b"})", "[1]"}, {R"({"kind":"c"})", "[1,2]"}},
  });
}

TEST_CASE("keywords newer than the draft are refused where they would allow more", "[schema]") {
  const std::string draft7 = R"({"$schema":"http://json-schema.org/draft-07/schema#",)",
                    draft4 = R"({"$schema":"http://json-schema.org/draft-04/schema#",)",
                    draft3 = R"({"$schema":"http://json-schema.org/draft-03/schema#",)",
                    draft2019 = R"({"$schema":"https://json-schema.org/draft/2019-09/schema",)";
  const std::string few = R"("type":"array","contains":{"type":"null"},"minContains":0})",
                    first = R"("type":"array","prefixItems":[{"type":"null"}],"items":{"type":"integer"}})";
  CHECK_THAT(error(draft7 + few),
             contains("#/minContains: draft 7 of $schema has no such keyword; there contains asks for one item"));
  CHECK_THAT(error(draft7 + first),
             contains("#/prefixItems: draft 7 of $schema has no such keyword; there items holds for every item"));
  CHECK_THAT(error(draft2019 + first), contains("#/prefixItems: draft 2019-09 of $schema has no such keyword"));
  CHECK_THAT(error(draft4 + R"("type":"integer","not":{"const":0}})"),
             contains("#/not/const: draft 4 of $schema has no such keyword; enum is one"));
  CHECK_THAT(error(draft3 + R"("type":"object","properties":{"a":{"required":true}}})"),
             contains("#/properties/a/required: draft 3's true is not supported"));
  CHECK_THAT(error(R"({"prefixItems":[{"type":"null"}],"items":[{"type":"integer"}]})"),
             contains("#/prefixItems: not beside a list in items"));
  const std::string few_anyhow = "{" + few, few_2019 = draft2019 + few, first_anyhow = "{" + first;
  const std::string narrower = draft7 + R"("type":"array","contains":{"type":"null"},"minContains":2,
                                           "prefixItems":[{"type":"null"}]})";
  check_cases({
      {few_anyhow.c_str(), {"[]", "[1]"}, {"1"}},
      {few_2019.c_str(), {"[]", "[1]"}, {"1"}},
      {first_anyhow.c_str(), {"[null,1]"}, {"[1]"}},
      {narrower.c_str(), {"[null,null]"}, {"[null]", "[1,null,null]"}},
  });
}

TEST_CASE("OpenAPI's nullable has no effect where a draft is declared, and a warning says so", "[schema]") {
  for (const auto& [draft, name] : {std::pair{"http://json-schema.org/draft-04/schema#", "draft 4"},
                                    {"http://json-schema.org/draft-07/schema#", "draft 7"},
                                    {"https://json-schema.org/draft/2020-12/schema", "draft 2020-12"}}) {
    Warnings warnings;
    const Grammar g = grammar_from_json_schema(
        R"({"$schema":")" + std::string(draft) + R"(","type":"string","nullable":true})", warnings);
    CHECK(matches(g, R"("a")"));
    CHECK_FALSE(matches(g, "null"));
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].code == "schema-keyword");
    CHECK_THAT(warnings[0].text,
               contains("#: \"nullable\" is OpenAPI's, no keyword of " + std::string(name) + ", which $schema"));
  }
  check_cases({{R"({"type":"string","nullable":true})", {R"("a")", "null"}, {"1"}},
               {R"({"$schema":"https://spec.openapis.org/oas/3.1/dialect/base","type":"string","nullable":true})",
                {R"("a")", "null"},
                {"1"}}});
}

// What is valid was asked of jsonschema 4.26.
TEST_CASE("a schema inside of another one may declare its own draft", "[schema]") {
  const std::string draft4 = R"("$schema":"http://json-schema.org/draft-04/schema#",)",
                    draft7 = R"("$schema":"http://json-schema.org/draft-07/schema#",)",
                    draft2020 = R"("$schema":"https://json-schema.org/draft/2020-12/schema",)";
  const auto embedded = [](const std::string& outer, const std::string& inner) {
    return "{" + outer + R"("type":"object","properties":{"p":{"$id":"http://x.test/p",)" + inner +
           R"(},"required":["p"]})";
  };
  const std::string few = R"("type":"array","contains":{"type":"null"},"minContains":0})",
                    few_in_7 = embedded(draft7, draft2020 + few);
  // Names: `id` in the part of draft 4, `$id` in that of 2020-12.
  const std::string id_in_2020 = "{" + draft2020 + R"("$ref":"http://x.test/a","$defs":{"a":{)" + draft4 +
                                 R"("id":"http://x.test/a","type":"string"}}})",
                    id_in_4 = "{" + draft4 + R"("$ref":"http://x.test/a","definitions":{"a":{)" + draft2020 +
                              R"("$id":"http://x.test/a","type":"string"}}})";
  // What is beside a $ref tells alternatives apart in 2020-12.
  const std::string kinds =
                        R"("$defs":{"base":{"type":"object","properties":{"k":{"type":"string"}},"required":["k"]}},
         "oneOf":[{"$ref":"#/$defs/base","properties":{"k":{"enum":["a"]}}},
                  {"$ref":"#/$defs/base","properties":{"k":{"enum":["b"]}}}]})",
                    kinds_in_7 = embedded(draft7, draft2020 + kinds);
  check_cases({{few_in_7.c_str(), {R"({"p":[]})", R"({"p":[1]})"}, {R"({"p":1})"}},
               {id_in_2020.c_str(), {R"("a")"}, {"1"}},
               {id_in_4.c_str(), {R"("a")"}, {"1"}},
               {kinds_in_7.c_str(), {R"({"p":{"k":"a"}})", R"({"p":{"k":"b"}})"}, {R"({"p":{"k":"c"}})"}}});
  CHECK_THAT(error(embedded(draft2020, draft7 + few)),
             contains("#/properties/p/minContains: draft 7 of $schema has no such keyword"));
  CHECK_THAT(error(embedded(draft2020, draft7 + kinds)),
             contains("may both hold by draft 7: #/properties/p/oneOf/0/properties has no effect there"));
  CHECK_THAT(error(embedded(draft7, R"("type":"array","items":{)" + draft4 + R"("not":{"const":0}}})")),
             contains("#/properties/p/items/not/const: draft 4 of $schema has no such keyword"));
  Warnings warnings;
  const Grammar g = grammar_from_json_schema(embedded("", draft7 + R"("type":"string","nullable":true})"), warnings);
  CHECK(matches(g, R"({"p":"a"})"));
  CHECK_FALSE(matches(g, R"({"p":null})"));
  CHECK(warnings.size() == 1);
}

TEST_CASE("a name that is written twice is refused with its pointer", "[schema]") {
  CHECK(error(R"({"type":"object","properties":{"a":{"type":"string","minLength":1,"type":"integer"}}})") ==
        "s.json: JSON schema, #/properties/a/type: this name is written twice; readers take one and drop the other");
  CHECK_THAT(error(R"({"properties":{"a/b":{"type":"null"},"c":{},"a/b":{}}})"),
             contains("#/properties/a~1b: this name"));
  CHECK_THAT(error(R"({"allOf":[{},{"enum":[[{"k":1}],[{"k":1,"\u006b":2}]]}]})"),
             contains("#/allOf/1/enum/1/0/k: this name is written twice"));
}
