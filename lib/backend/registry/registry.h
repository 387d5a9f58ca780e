// The backends of this build by name, and what is known of GPUs before one is made. Includes every backend's factory, so
// it is a target of its own above them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/cuda/gpus.h"

namespace llm {

/// Names that make_backend takes, those built without their library included.
std::span<const std::string_view> backend_names();

/// Throws ErrorKind::Device for a name that is unknown, not built in, or not able to run here, with the reason.
std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions&);

}  // namespace llm
