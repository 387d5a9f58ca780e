// The architectures that this build knows.
#pragma once

#include <span>

#include "gguf/metadata.h"
#include "model/arch.h"

namespace llm {

/// The explicit list (models/registry.cpp).
std::span<const Architecture> architectures();

/// The spec of a file's architecture; throws ErrorKind::Model naming an unknown one and those that are known.
ModelSpec open_model(const Metadata&);

}  // namespace llm
