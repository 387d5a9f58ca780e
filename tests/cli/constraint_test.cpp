// The options that say what form the answer has, of llm-run as a real process.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

class ConstraintBench {
 public:
  ConstraintBench() { tiny_model({.layers = 1, .context = 100000}).write(folder_ / "tiny.gguf"); }
  std::string file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content).string();
  }
  Outcome operator()(std::vector<std::string> arguments, const std::string& model = {}) const {
    const std::string path = model.empty() ? (folder_ / "tiny.gguf").string() : model;
    arguments.insert(arguments.begin(), {"-m", path, "-p", "abc", "-s", "1", "--temp", "1.2"});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }

 private:
  TempDir folder_;
};

std::string line(const Outcome& o) {
  CHECK(o.code == 0);
  return o.out.substr(0, o.out.size() - (o.out.ends_with('\n') ? 1 : 0));
}

}  // namespace

TEST_CASE("each form of an answer") {
  const ConstraintBench bench;
  const std::string grammar = "root ::= \"<\" [a-c]{2,4} \">\" | \"é\"";
  const auto fits = [](const std::string& text) {
    return text == "é" || (text.size() >= 4 && text.size() <= 6 && text.front() == '<' && text.back() == '>' &&
                           text.substr(1, text.size() - 2).find_first_not_of("abc") == std::string::npos);
  };
  CHECK(fits(line(bench({"--grammar", grammar}))));
  CHECK(fits(line(bench({"--grammar-file", bench.file("g.gbnf", grammar)}))));
  const std::string schema = R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":3})";
  for (const auto& options :
       std::vector<std::vector<std::string>>{{"--json-schema", schema},
                                             {"-j", schema},
                                             {"-jf", bench.file("s.json", schema)},
                                             {"--json-schema-file", bench.file("s.json", schema)}}) {
    const auto json = nlohmann::json::parse(line(bench(options)));
    CHECK(json.size() >= 2);
    CHECK(json.size() <= 3);
    for (const auto& item : json) CHECK(item.is_boolean());
  }
  CHECK(nlohmann::json::parse(line(bench({"-j", "{ }", "--top-k", "1"})), nullptr, false).is_object());
  const std::string date = line(bench({"--regex", "\\d{4}-\\d\\d"}));
  CHECK(date.size() == 7);
  CHECK(date[4] == '-');
  const std::string choice = line(bench({"--choice", "yes|a\\|b", "--choice", "é"}));
  CHECK((choice == "yes" || choice == "a|b" || choice == "é"));
  CHECK(line(bench({"--choice", "\\xc3\\xa9\\n\\|\\\\"})) == "é\n|\\");
  CHECK(line(bench({"--choice", "\\n\\|\\\\", "--no-escape"})) == "\\n|\\\\");
}

TEST_CASE("an answer ends where its form does, also where end tokens are ignored") {
  const ConstraintBench bench;
  CHECK(line(bench({"--grammar", "root ::=", "--ignore-eos"})).empty());
  CHECK(line(bench({"--regex", "ab?", "--ignore-eos", "-n", "5"})).starts_with("a"));
}

TEST_CASE("forms that cannot be used end with code 6 before a model is loaded") {
  const ConstraintBench bench;
  const auto refusal = [&](std::vector<std::string> options) {
    const Outcome o = bench(std::move(options), "/no/model");
    CHECK(o.code == 6);
    CHECK(o.out.empty());
    return o.err;
  };
  CHECK(refusal({"--grammar", "root = \"a\""}) ==
        "llm-run: error[E-NOTATION]: grammar, line 1, column 6: expected \"::=\" after the rule's name, at \"= "
        "\\\"a\\\"\"\n"
        "llm-run: hint: structured-output.md, of the documentation, says what can be written\n");
  const std::string path = bench.file("bad.gbnf", "root ::= x\n");
  CHECK_THAT(refusal({"--grammar-file", path}),
             contains("bad.gbnf: grammar, line 1, column 10: the rule \"x\" is not defined"));
  CHECK_THAT(refusal({"-j", R"({"uniqueItems":true})"}),
             contains("JSON schema: cannot be enforced: #/uniqueItems: an automaton"));
  CHECK_THAT(refusal({"--regex", "(a"}),
             contains("regular expression, line 1, column 1: this parenthesis is never closed"));
  CHECK_THAT(refusal({"--choice", "a||b"}), contains("one of the choices is empty"));
}

TEST_CASE("a form that the vocabulary cannot write ends with code 6, and fails a row of a batch alone") {
  const ConstraintBench bench;
  const TempDir folder;
  const std::string model = (folder / "sans-z.gguf").string();
  tiny_model({.layers = 1, .context = 256, .tokenizer = TinyTokenizer::SpmSansZ}).write(model);
  const std::string refusal =
      "llm-run: error[E-NOTATION]: the form of the answer: this model's vocabulary cannot write it: no token begins "
      "with what must come next (\"z\")\n"
      "llm-run: hint: structured-output.md, of the documentation, says what can be written\n";
  for (const auto& options : std::vector<std::vector<std::string>>{{"--regex", "z"}, {"--choice", "zab"}}) {
    const Outcome o = bench(options, model);
    CHECK(o.code == 6);
    CHECK(o.out.empty());
    CHECK_THAT(o.err, contains(refusal));
  }
  const Outcome later = bench({"--regex", "az"}, model);
  CHECK(later.code == 6);
  CHECK_THAT(later.err, contains(refusal));

  const std::string rows = folder.write("in.jsonl", R"({"id":"bad","prompt":"ab","grammar":"root ::= \"z\""}
{"id":"worse","prompt":"ab","grammar":"root ::= \"az\""}
{"id":"good","prompt":"ab","grammar":"root ::= \"ay\""}
)");
  const std::string out = (folder / "out.jsonl").string();
  const Outcome batch = run({.program = program("llm-run"), .arguments = {"-m", model, "--batch", rows, "-o", out}});
  CHECK(batch.code == 7);
  std::ifstream lines(out);
  std::map<std::string, nlohmann::json> by_id;
  for (std::string text; std::getline(lines, text);) {
    nlohmann::json row = nlohmann::json::parse(text);
    by_id[row["custom_id"]] = row;
  }
  for (const char* id : {"bad", "worse"}) {
    CHECK(by_id[id]["response"]["status_code"] == 400);
    CHECK(by_id[id]["error"]["code"] == "schema_invalid");
    CHECK_THAT(by_id[id]["error"]["message"].get<std::string>(), contains("what must come next (\"z\")"));
  }
  CHECK(by_id["good"]["response"]["body"]["choices"][0]["text"] == "ay");
}

TEST_CASE("an answer has one form, and files of forms exist") {
  const ConstraintBench bench;
  Outcome o = bench({"--regex", "a", "--choice", "b"}, "/no/model");
  CHECK(o.code == 2);
  CHECK_THAT(o.err, contains("options --regex and --choice: an answer has one form only"));
  o = bench({"--choice", "yes|caf\xe9"}, "/no/model");
  CHECK(o.code == 2);
  CHECK_THAT(o.err, contains("option --choice: \"caf\\xe9\" is not UTF-8"));
  const std::string grammar = bench.file("good.gbnf", "root ::= \"a\""), schema = bench.file("good.json", "{}");
  o = bench({"--grammar", grammar}, "/no/model");
  CHECK(o.code == 2);
  CHECK_THAT(o.err, contains("option --grammar: \"" + grammar + "\" is a file; --grammar-file reads it"));
  o = bench({"-j", schema}, "/no/model");
  CHECK(o.code == 2);
  CHECK_THAT(o.err, contains("\" is a file; --json-schema-file (-jf) reads it"));
  o = bench({"-jf", "/no/schema.json"}, "/no/model");
  CHECK(o.code == 2);
  CHECK_THAT(o.err, contains("/no/schema.json"));
}

TEST_CASE("keywords that no draft knows are warned about") {
  const ConstraintBench bench;
  const Outcome o = bench({"-j", R"({"type":"null","requird":[]})"});
  CHECK(line(o) == "null");
  CHECK_THAT(
      o.err,
      contains("warning[schema-keyword]: JSON schema, #: \"requird\" is no keyword of JSON Schema; it has no effect"));
  CHECK_THAT(bench({"-j", R"({"type":"object","properties":{"a":{"enum":[1],"required":true}}})"}).err,
             contains("warning[schema-keyword]: JSON schema, #/properties/a: \"required\" lists names"));
}

TEST_CASE("an answer that is cut before its form is complete is warned about") {
  const ConstraintBench bench;
  const auto warns = [&](std::vector<std::string> options, const std::string& why) {
    options.insert(options.end(), {"-q", "--strict"});
    const Outcome quiet = bench(options);
    options[options.size() - 2] = "-v";
    const Outcome o = bench(options);
    const std::string warning = "warning[form-cut]: the answer ends before its form is complete";
    const bool told = o.err.find(warning + why) != std::string::npos;
    CHECK(told == (o.err.find(warning) != std::string::npos));
    CHECK(o.code == (told ? 10 : 0));
    CHECK(quiet.code == o.code);
    return told;
  };
  CHECK(warns({"--regex", "[a-c]{9}", "-n", "4"}, ", after 4 tokens; a larger -n gives it room"));
  CHECK(warns({"--regex", "[a-c]{9}", "-n", "0"}, ", after 0 tokens; a larger -n"));
  CHECK(warns({"--choice", "bab", "-r", "ab"}, ": a text of -r came in it"));
  CHECK(warns({"--choice", "bab", "-r", "b"}, ": a text of -r came in it"));
  CHECK(warns({"--regex", "[a-c]{90}", "-c", "16"}, ": the context is full; -c gives a longer one"));
  // What is whole as far as it goes is not cut, whatever ended it.
  CHECK_FALSE(warns({"--regex", "[a-c]{4}"}, ""));
  CHECK_FALSE(warns({"--regex", "[a-c]{9}", "-n", "9"}, ""));
  CHECK_FALSE(warns({"--regex", "[a-c]+", "-n", "4", "--ignore-eos"}, ""));
  CHECK_FALSE(warns({"--regex", "d|dab", "-l", "\"a\"+100", "-r", "ab"}, ""));
}
