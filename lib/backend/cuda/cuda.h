// The CUDA backend: the whole graph, or segments of it, on the GPU that the options name. Steps of few tokens are
// recorded once per bucket as a CUDA graph and replayed; prompts are launched kernel by kernel, with products by
// cuBLASLt on decoded weights.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace llm {

/// Throws ErrorKind::Device where the program was built without CUDA, or no usable GPU or driver is here.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&);

}  // namespace llm
