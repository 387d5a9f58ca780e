// The activation format of every product, as law 6 fixes it: the one of its weight's storage type.
#pragma once

#include "graph/graph.h"

namespace llm::host {

/// The same graph with each product's activation format set. Backends that quantise activations run it before they
/// plan; the reference evaluates it with the same formats.
Graph quantize_activations(Graph);

}  // namespace llm::host
