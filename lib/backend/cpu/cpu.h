// The CPU backend: the file's own bytes, kernels of the best instruction set, all threads of a team in each step.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace llm {

/// Throws ErrorKind::Device if the forced instruction set is unknown or cannot run here.
std::unique_ptr<Backend> make_cpu_backend(const BackendOptions&);

}  // namespace llm
