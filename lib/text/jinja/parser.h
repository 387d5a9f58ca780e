// A template's tokens as a tree, by Jinja's grammar.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/source.h"

namespace llm::jinja {

/// Throws ErrorKind::Notation. The names are not resolved yet.
Tree parse(const Source&);

}  // namespace llm::jinja
