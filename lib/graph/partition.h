// Which backend runs which node: explicit rules, never a fallback.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace llm {

/// The last rule that matches a node decides. An unset field matches everything.
struct PlacementRule {
  std::optional<int> first_layer, last_layer;  ///< inclusive
  std::optional<Role> role;
  std::optional<int> tensor_override;  ///< Node::tensor_override
  int backend = 0;                     ///< index in the caller's list of backends
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
/// need are its outputs. Names are kept, so the segments bind by name. Other shapes of a value are nobody's output, nor
/// are rotary angles: each segment that uses them makes them. Angles since copies from one device to several wait for
/// one another, the next step's for the last device's.
struct Segment {
  int backend;
  Graph graph;
  std::vector<std::size_t> nodes;  ///< which of the whole graph's its own are
};

/// Weights by name, each with the number of the override that names it.
using OverriddenWeights = std::unordered_map<std::string, int>;
/// Marks the nodes of a graph as a family wrote it: those with such a weight, of a product its matrix; and activations,
/// gates and sums of experts behind them, so that as little as possible crosses. What a layer adds up stays, and what
/// writes and reads its cache, attention with a weight of sinks as well.
void mark_overrides(Graph&, const OverriddenWeights&);

/// What the rules say of a node; 0 where none matches.
int backend_of(const Node&, std::span<const PlacementRule>);

/// The layer whose keys and values a node attends to, if it is not the node's own.
std::optional<int> earlier_cache(const Graph&, const Node&);
/// The same if the rules give that layer's cache to another backend: each keeps what it appends itself.
std::optional<int> cache_elsewhere(const Graph&, const Node&, std::span<const PlacementRule>);

/// The graph with fleeting caches in the first layers, of which those that have caches take places in turns: one layer's
/// rows come while the one before is worked on.
Graph with_fleeting_caches(const Graph&, int layers);

/// Nodes [begin, end) as a graph of their own.
Graph cut(const Graph&, std::size_t begin, std::size_t end);

/// One rule or none gives exactly one segment: the whole graph.
std::vector<Segment> partition(const Graph&, std::span<const PlacementRule>);

}  // namespace llm
