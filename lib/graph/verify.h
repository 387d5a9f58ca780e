// The grammar of legal graphs: run after building and, in builds that define LLM_VERIFY_PASSES, after every pass.
#pragma once

#include "graph/graph.h"

namespace llm {

/// Throws ErrorKind::Internal naming the node: operand counts, kinds and shapes by the op's rule, topological order,
/// one producer per result, unique names, caches written before they are read, outputs that exist.
void verify(const Graph&);

}  // namespace llm
