// Whole-graph rewrites. Each takes a graph and returns one that computes the same values under the same names; values
// that nothing wants are gone, and those of which only some rows are wanted have those rows.
#pragma once

#include "graph/graph.h"

namespace llm {

/// Moves the selection of output rows up past everything that works row by row, so that the last layer's feed-forward
/// and the norms run only on rows whose results are wanted.
Graph rows_early(const Graph&);
/// Linears (and expert linears) that read the same value become one node with several weights: q, k, v; gate, up.
Graph merge_linears(const Graph&);
/// An addition followed by the norm of its sum becomes one node.
Graph fuse_add_norm(const Graph&);
/// Drops nodes whose results reach no output and no state.
Graph remove_dead(const Graph&);

/// All of the above in the order in which they help each other, verified after each in builds that define
/// LLM_VERIFY_PASSES.
Graph optimize(const Graph&);

}  // namespace llm
