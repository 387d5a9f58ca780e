// Which backend runs which node: explicit rules, never a fallback.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace llm {

/// The last rule that matches a node decides. An unset field matches everything.
struct PlacementRule {
  std::optional<int> first_layer, last_layer;  ///< inclusive
  std::optional<Role> role;
  std::string tensor_pattern;  ///< shell pattern over the names of the node's weights; empty matches all
  int backend = 0;             ///< index in the caller's list of backends
};

/// Long steps may be cut in another way: a device then computes with weights and caches that it does not keep.
struct StepRules {
  std::vector<PlacementRule> rules;
  int streamed_from = 0;                      ///< least tokens of a long step's bucket; 0: none is long
  std::vector<PlacementRule> streaming = {};  ///< of long steps
  int fleeting_layers = 0;                    ///< so many, from the first, have caches that those steps bring

  bool streams(const Bucket& b) const { return streamed_from > 0 && b.tokens >= streamed_from; }
};

/// A run of nodes for one backend as a graph of its own: values of other segments are its inputs, values that others
/// need are its outputs. Names are kept, so the segments bind by name. Rotary angles are nobody's output: each segment
/// that uses them makes them, since copies from one device to several wait for one another, the next step's for the
/// last device's.
struct Segment {
  int backend;
  Graph graph;
  std::vector<std::size_t> nodes;  ///< which of the whole graph's its own are
};

/// What the rules say of a node; 0 where none matches.
int backend_of(const Graph&, const Node&, std::span<const PlacementRule>);

/// The graph with fleeting caches in the first layers.
Graph with_fleeting_caches(const Graph&, int layers);

/// Nodes [begin, end) as a graph of their own.
Graph cut(const Graph&, std::size_t begin, std::size_t end);

/// One rule or none gives exactly one segment: the whole graph.
std::vector<Segment> partition(const Graph&, std::span<const PlacementRule>);

}  // namespace llm
