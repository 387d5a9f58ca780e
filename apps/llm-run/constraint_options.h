// The options that say what form the answer has: a grammar, a JSON schema, a regular expression or a choice.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/command.h"
#include "common/escapes.h"

namespace llm {
class Grammar;
class Model;
class TokenMasks;
}  // namespace llm

namespace llm::app {

struct ConstraintChoice {
  std::optional<std::string> grammar, schema, regex;  ///< finish_constraint() puts the files' texts here
  std::string grammar_file, schema_file;
  std::vector<std::string> choices;  ///< as given, each with alternatives between |, until finish_constraint()

  bool given() const {
    return grammar || schema || regex || !grammar_file.empty() || !schema_file.empty() || !choices.empty();
  }
};

void add_constraint_options(Command&, ConstraintChoice&);

/// Reads the files, and makes one text of each choice, once it is known whether escapes are processed. Throws
/// ErrorKind::Usage for more than one form, a file that cannot be read or a choice that is not UTF-8.
void finish_constraint(ConstraintChoice&, Escapes);

/// Nothing if no form is asked for. Needs no model, so that errors come before one is loaded. Prints warnings. Throws
/// ErrorKind::Notation for a form that cannot be used.
std::optional<Grammar> compile_constraint(const ConstraintChoice&);

/// Throws ErrorKind::Notation if the model's vocabulary cannot write how the form begins.
std::shared_ptr<TokenMasks> constraint_for(Grammar, const Model&);

}  // namespace llm::app
