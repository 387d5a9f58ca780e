// The CPU backend: the file's own bytes, kernels of the best instruction set, all threads in one parallel region per
// step.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace llm {

/// Throws ErrorKind::Device if the forced instruction set is unknown or cannot run here.
std::unique_ptr<Backend> make_cpu_backend(const BackendOptions&);

}  // namespace llm
