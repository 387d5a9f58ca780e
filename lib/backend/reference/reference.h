// The meaning of every operation: scalar, one thread, double precision inside an op, results stored as f32.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace llm {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace llm
