// A backend that walks the graph node by node over one workspace: everything that the reference and the BLAS backends
// share. A subclass gives each node a kernel at compile time; a step then only resolves pointers and calls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host/host.h"
#include "graph/graph.h"

namespace llm::host {

/// A value during a step.
struct Operand {
  const ValueInfo* info = nullptr;
  std::byte* data = nullptr;   ///< null for caches
  std::int64_t rows = 0;       ///< that the step fills; 1 where nothing varies
  std::int64_t row_elems = 0;  ///< rows * row_elems elements are meant

  const float* f32() const { return reinterpret_cast<const float*>(data); }
  float* f32_out() const { return reinterpret_cast<float*>(data); }
  const std::int32_t* i32() const { return reinterpret_cast<const std::int32_t*>(data); }
  std::int32_t* i32_out() const { return reinterpret_cast<std::int32_t*>(data); }
  const Shape& shape() const { return info->type.shape; }
  std::int64_t width() const { return info->type.shape[0]; }
  std::int64_t elements() const { return rows * row_elems; }
  std::int64_t vectors() const { return elements() / width(); }  ///< of length width()
};

struct NodeRun {
  std::span<const Operand> in, out;
  std::byte* scratch = nullptr;
  const StepData& step;
};

struct NodeKernel {
  std::function<void(const NodeRun&)> run;
  std::string description;  ///< how it computes, for describe()
};

/// What a kernel may look at when it is made.
struct NodeSite {
  const Graph& graph;
  const Node& node;
  const HostWeights& weights;
  const HostCache& cache;

  const ValueInfo& in(std::size_t i) const { return graph.info(node.in[i]); }
  const ValueInfo& out(std::size_t i) const { return graph.info(node.out[i]); }
};

/// A small weight as f32: in place where it is stored so and aligned, decoded once otherwise.
class VectorWeight {
 public:
  VectorWeight() = default;
  VectorWeight(const ValueInfo&, const HostWeights&);
  const float* data() const { return decoded_.empty() ? in_place_ : decoded_.data(); }

 private:
  const float* in_place_ = nullptr;
  std::vector<float> decoded_;
};

/// What no backend over host memory runs, with the reason: types that cannot be matrices, widths that break quantised
/// blocks.
Support supports_on_host(const Graph&, const Node&);

class InterpretedBackend : public Backend {
 public:
  Support supports(const Graph&, const Node&) const override;
  Layout choose_layout(const WeightUse&) const override { return Layout::File; }
  std::vector<MemoryShare> memory(std::span<const Graph> largest) const override;
  std::unique_ptr<WeightStore> load(const WeightSource&, std::span<const WeightPlan>) override;
  std::unique_ptr<StateStore> allocate(const StateRequest&) override;
  std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int at_once) override;
  std::unique_ptr<Executable> compile(const Graph&, const WeightStore&, StateStore&, Workspace&) override;

 protected:
  /// Bytes that the node's kernel wants beside its operands, at the bucket's capacity.
  virtual std::size_t scratch_bytes(const Graph&, const Node&) const = 0;
  virtual NodeKernel make_kernel(const NodeSite&) const = 0;
  /// Called before each step: settings that libraries keep for the whole process.
  virtual std::function<void()> step_prologue() const {
    return [] {};
  }

 private:
  std::vector<std::uint64_t> node_scratch(const Graph&) const;
  std::uint64_t workspace_bytes(std::span<const Graph> largest) const;
};

}  // namespace llm::host
