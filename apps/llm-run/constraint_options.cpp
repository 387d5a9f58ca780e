#include "constraint_options.h"

#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "common/input.h"
#include "common/messages.h"
#include "constrain/constraint.h"
#include "constrain/grammar.h"
#include "runtime/model.h"

namespace llm::app {
namespace {

void add_text(Command& cli, const char* names, std::optional<std::string>& target, const char* type, const char* help) {
  cli.add_option(names, target, help)->type_name(type)->take_last()->group("Constraint");
}

void add_file(Command& cli, const char* names, std::string& target, const char* help) {
  cli.add_option(names, target, help)->type_name("FILE")->take_last()->group("Constraint");
}

/// Cuts A|B|C, where \| is a bar that is part of a text. Other escapes stay as they are.
void split_choices(std::string_view given, std::vector<std::string>& all) {
  all.emplace_back();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] == '|') {
      all.emplace_back();
      continue;
    }
    if (given[i] == '\\' && i + 1 < given.size() && given[++i] != '|') all.back() += '\\';
    all.back() += given[i];
  }
}

Grammar compile_schema(const std::string& text, const std::string& file) {
  std::string bare = text;
  std::erase_if(bare, [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
  if (bare == "{}") return grammar_of_json_objects();  // llama.cpp's meaning of an empty schema
  Warnings warnings;
  Grammar grammar = grammar_from_json_schema(text, warnings, {}, file);
  print_warnings(warnings);
  return grammar;
}

/// The options that ask for a form.
std::vector<std::string> forms_in(const ConstraintChoice& c) {
  std::vector<std::string> given;
  const auto note_given = [&](bool is_given, const char* option) {
    if (is_given) given.emplace_back(option);
  };
  note_given(c.grammar && c.grammar_file.empty(), "--grammar");
  note_given(!c.grammar_file.empty(), "--grammar-file");
  note_given(c.schema && c.schema_file.empty(), "--json-schema");
  note_given(!c.schema_file.empty(), "--json-schema-file");
  note_given(c.regex.has_value(), "--regex");
  note_given(!c.choices.empty(), "--choice");
  return given;
}

}  // namespace

void add_constraint_options(Command& cli, ConstraintChoice& c) {
  add_text(cli, "--grammar", c.grammar, "GBNF", "the answer follows this grammar, in llama.cpp's notation");
  add_file(cli, "--grammar-file", c.grammar_file, "... the grammar in this file, - for stdin");
  add_text(cli, "-j,--json-schema", c.schema, "SCHEMA", "the answer is JSON that this schema allows; {}: any object");
  add_file(cli, "--json-schema-file", c.schema_file, "... the schema in this file, - for stdin");
  add_text(cli, "--regex", c.regex, "PATTERN", "the whole answer matches this regular expression");
  cli.add_option("--choice", c.choices, "the answer is one of these texts; repeatable")
      ->type_name("A|B|C")
      ->one_value()
      ->group("Constraint");
}

void finish_constraint(ConstraintChoice& c, Escapes escapes) {
  const std::vector<std::string> given = forms_in(c);
  if (c.regex && c.regex->empty())
    throw Error(ErrorKind::Usage, "option --regex: the pattern is empty, and so would every answer be");
  if (given.size() > 1) {
    throw Error(ErrorKind::Usage, "options " + given[0] + " and " + given[1] + ": an answer has one form only");
  }
  if (c.grammar_file.empty()) refuse_name_of_file("--grammar", c.grammar.value_or(""), "--grammar-file");
  if (c.schema_file.empty()) refuse_name_of_file("--json-schema", c.schema.value_or(""), "--json-schema-file (-jf)");
  if (!c.grammar_file.empty()) c.grammar = read_text(c.grammar_file, kMostText);
  if (!c.schema_file.empty()) c.schema = read_text(c.schema_file, kMostText);
  std::vector<std::string> texts;
  for (const std::string& choice : c.choices) split_choices(choice, texts);
  for (std::string& text : texts) {
    if (escapes == Escapes::Processed) text = process_escapes(text);
    if (!utf8::valid(text)) {
      throw Error(ErrorKind::Usage, "option --choice: \"" + escaped(text) + "\" is not UTF-8");
    }
  }
  c.choices = std::move(texts);
}

std::optional<Grammar> compile_constraint(const ConstraintChoice& c) {
  if (!c.given()) return std::nullopt;
  Grammar grammar = c.grammar  ? grammar_from_gbnf(*c.grammar, c.grammar_file)
                    : c.schema ? compile_schema(*c.schema, c.schema_file)
                    : c.regex  ? grammar_from_regex(*c.regex)
                               : grammar_from_choices(c.choices);
  verbose("constraint: " + forms_in(c).front() + ", " + grammar.describe());
  return grammar;
}

std::shared_ptr<TokenMasks> constraint_for(Grammar grammar, const Model& model) {
  auto masks = std::make_shared<TokenMasks>(std::make_shared<const Grammar>(std::move(grammar)),
                                            std::make_shared<const TokenTree>(model.tokenizer()));
  if (Constraint begin(masks); !begin.must_end()) (void)begin.allowed();  // whether the vocabulary has what comes first
  return masks;
}

}  // namespace llm::app
