// Several backends that look like one: each computes its part of every graph, values that cross from one part to the
// next go through this machine's memory, or from device to device where these reach each other.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/partition.h"

namespace llm {

/// Which of `devices`, at least one, computes which nodes: rules name them by index. All graphs are those of one model,
/// of which `model` is one: it says where each weight and each cache belongs, which is the same in long steps. `name`
/// tells this placement from any other of the same model.
std::unique_ptr<Backend> make_composite_backend(std::vector<std::unique_ptr<Backend>> devices, StepRules rules,
                                                const Graph& model, std::string name);

/// What Backend::memory() of such a backend says.
std::vector<MemoryShare> composite_memory(std::span<const std::unique_ptr<Backend>> devices, const StepRules& rules,
                                          std::span<const Graph> largest);

}  // namespace llm
