// A node of a compiled graph with all that its instructions need: where operands and their forms lie, how many rows a
// step has, which matrices it multiplies with. Single nodes (instructions.cpp) and fused ones (fused_instructions.cpp)
// are compiled from here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/instructions.h"
#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/rows.h"
#include "base/error.h"

namespace llm::cuda {

class NodeSite {
 public:
  /// `f32_reads`: values_read_as_f32(), or null where all f32 values are to be there.
  NodeSite(const Site& site, std::size_t index, const std::vector<bool>* f32_reads, Compiled& into)
      : site_(site),
        graph_(site.graph),
        node_(site.graph.nodes()[index]),
        index_(index),
        f32_reads_(f32_reads),
        into_(into) {}

 protected:
  using Emit = std::function<void(const StepLaunch&)>;
  using Count = std::function<int(const StepLaunch&)>;

  const ValueInfo& in(std::size_t i) const { return graph_.info(node_.in[i]); }
  const ValueInfo& out(std::size_t i) const { return graph_.info(node_.out[i]); }
  int width(std::uint32_t value) const { return static_cast<int>(graph_.info(value).type.shape[0]); }
  const CudaWeights::Matrix& matrix(std::size_t i) const { return matrix_of(node_, i); }
  const CudaWeights::Matrix& matrix_of(const Node& node, std::size_t i) const {
    const ValueInfo& weight = graph_.info(node.in[i]);
    if (!weight.streamed) return site_.weights.matrix(weight.name);
    const auto index = static_cast<std::size_t>(&node - graph_.nodes().data());
    return site_.streamed.matrices.at({index, weight.name});
  }
  const float* vector(std::size_t i) const { return vector_of(node_.in[i]); }
  /// Null where the node has not so many operands.
  const float* optional_vector(std::size_t i) const { return i < node_.in.size() ? vector(i) : nullptr; }
  const float* vector_of(std::uint32_t weight) const {
    const float* const data = site_.weights.vector(graph_.info(weight).name);
    check(data != nullptr, "a vector lies as f32");
    return data;
  }
  std::int32_t* i32(std::uint32_t value) const { return reinterpret_cast<std::int32_t*>(value_data(site_, value)); }
  /// Of the step, or what a node has made.
  const std::int32_t* ids_of(std::uint32_t value) const;
  float* f32(const ValueInfo& v) const {
    const auto id = static_cast<std::uint32_t>(&v - graph_.values().data());
    return reinterpret_cast<float*>(value_data(site_, id));
  }
  std::byte* form(std::uint32_t value, Form f) const {
    const std::uint64_t offset = site_.plan.form(value, f);
    return offset == MemoryPlan::kNone ? nullptr : site_.workspace.data() + offset;
  }

  /// Rows of a value in a step; a token may have several.
  Count counter(std::uint32_t value) const;
  Count tokens(const ValueInfo& v) const;
  std::function<std::int64_t(const StepLaunch&)> elements(const ValueInfo& v) const;
  /// For any number of tokens that a step of this program may have: work is split the more, the fewer there are.
  AttentionMemory attention_memory(const CacheView& cache, const AttentionShape& shape) const;

  /// What attention of this node has beside its operands.
  struct AttentionSite {
    CacheView cache;
    AttentionShape shape;
    Selected keys;  ///< top_k is 0: all are seen
    std::int64_t positions;
    std::byte *scratch, *arrivals;
  };
  AttentionSite attention_site() const;
  /// The keys that a value of the graph names.
  Selected selected(std::uint32_t positions) const;
  /// What a Route reads and writes.
  struct RouteSite {
    Router router;
    int experts;
    const float* logits;
    std::int32_t* ids;
    float* weights;
    Count count;
  };
  RouteSite route_site() const;
  /// The experts that this Route chooses, not grouped.
  void route_alone();
  void add(std::string how, Emit launch);
  /// That a value's own kernel writes.
  Forms forms(std::uint32_t value) const;
  std::string forms_text(std::uint32_t value) const;
  /// Forms of a value whose own kernel does not write them.
  void convert(std::uint32_t value);
  std::vector<Target> make_targets(const Node& node) const;
  static std::string few_text(const std::vector<Target>& targets);

  const Site& site_;
  const Graph& graph_;
  const Node& node_;
  std::size_t index_;
  const std::vector<bool>* f32_reads_;
  Compiled& into_;
};

/// Of an Attention node over a cache.
AttentionShape attention_shape(const Graph&, const Node& attention, const CacheView&);
/// Whether what the node's graph appends to the cache are keys that begin with their value, or are it, both in one
/// type.
bool values_in_keys(const Graph&, const Node& attention, const CacheView&);

}  // namespace llm::cuda
