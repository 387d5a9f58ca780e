// A compiled graph: steps of few tokens are one recorded CUDA graph, others are launched kernel by kernel.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/cache.h"
#include "backend/cuda/forms_plan.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/weights.h"
#include "backend/cuda/workspace.h"

namespace llm::cuda {

struct ProgramOptions {
  bool overlap = false;           ///< the device can start a kernel's blocks before the kernel ahead of it has ended
  bool prompt_attention = false;  ///< prompts may be attended to by tensor cores
  Many many = Many::AsFew;
};

/// The graph as it is planned and compiled: each value that another segment hands over arrives by a node of its own, a
/// reshape to itself, which gives it memory before anything is computed and makes its forms.
Graph with_arrivals(const Graph&);

/// Rows of logits, which steps may draw from, are all that the graph ends in.
bool ends_in_logits(const Graph&);

/// Of a graph with arrivals. `stream` and everything else outlive the program. `gemm` is null with Many::AsFew.
std::unique_ptr<Executable> make_program(const Graph&, const CudaWeights&, CudaCache&, CudaWorkspace&, Gemm* gemm,
                                         const Stream& stream, ProgramOptions);

}  // namespace llm::cuda
