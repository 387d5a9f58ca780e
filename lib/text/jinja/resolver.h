// Which variable a name means. Jinja decides that when it compiles a template, from where names are read and assigned
// in a scope, not from the order in which things happen; so it is done here in the same way, before anything runs.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/source.h"

namespace llm::jinja {

/// Fills in all places and scopes. Throws ErrorKind::Notation for what Jinja refuses when it compiles: unknown filters
/// and tests outside conditions, assignments to `loop`, `caller` as a parameter without a default.
void resolve(const Source&, Tree&);

}  // namespace llm::jinja
