// Which of some names a body reads before it assigns them: whether a macro has varargs, whether a loop has `loop`.
#pragma once

#include <set>
#include <string>

#include "text/jinja/ast.h"

namespace llm::jinja {

/// As Jinja's compiler finds them, which is no analysis of what runs when: it goes through all names once, those of
/// inner functions and scopes too, in the order in which its syntax tree has them, and what was assigned somewhere
/// before counts as assigned. That order (of a loop the target, the iterable, the bodies, the condition) is kept here,
/// since templates can tell.
std::set<std::string> undeclared(Body&, std::set<std::string> names);

}  // namespace llm::jinja
