// A compiled node: what is launched for it in a step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/forms_plan.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/step_view.h"
#include "backend/cuda/weights.h"
#include "backend/cuda/workspace.h"
#include "graph/graph.h"

namespace llm::cuda {

/// What a launch may depend on. A recorded step is launched once, with the bucket's capacities.
struct StepLaunch {
  Launch at;
  int tokens = 0, outputs = 0;
  const std::vector<PromptSpan>* spans = nullptr;  ///< null in recorded steps
  int rows(RowSpace s) const { return s == RowSpace::Outputs ? outputs : s == RowSpace::Tokens ? tokens : 1; }
};

struct Instruction {
  std::size_t node = 0;
  std::string how;  ///< for describe(): kernel, layouts, what was fused
  std::function<void(const StepLaunch&)> launch;
};

/// What instructions are made from; all of it outlives them.
struct Site {
  const Graph& graph;
  const CudaWeights& weights;
  CudaCache& cache;
  CudaWorkspace& workspace;
  const StepPlan& plan;
  const StreamedWeights& streamed;
  const StepView& step;
  Gemm* gemm = nullptr;  ///< null with Many::AsFew
  Many many = Many::AsFew;
  bool prompt_attention = false;
};

struct Compiled {
  std::vector<Instruction> instructions;
  std::vector<DeviceBuffer> constants;
  /// Per value of expert ids: its routes as the step's last launch grouped them.
  std::map<std::uint32_t, std::shared_ptr<RouteGroups>> routes;
};
/// One node alone; `f32_reads` as NodeSite has it.
void compile_node(const Site&, std::size_t index, const std::vector<bool>* f32_reads, Compiled& into);
/// Node by node: what an observed step runs.
Compiled compile_nodes(const Site&);
/// The same with neighbouring nodes fused.
Compiled compile_fused(const Site&);

/// Why a node cannot run; empty if it can.
std::string refusal(const Graph&, const Node&);

/// Where a value that is a result lies.
std::byte* value_data(const Site&, std::uint32_t value);

}  // namespace llm::cuda
