// Graphs for people: text (one line per node, golden-tested) and Graphviz.
#pragma once

#include <string>

#include "graph/graph.h"

namespace llm {

std::string to_text(const Graph&);
std::string to_dot(const Graph&);

}  // namespace llm
