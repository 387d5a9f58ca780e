// The quality baseline: weights decoded to f32, activations never quantised (the activation attribute of products is
// ignored on purpose), products by OpenBLAS. What quantised kernels lose is measured against it, and it is fast enough
// for whole models.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace llm {

/// Throws ErrorKind::Device where the program was built without OpenBLAS or does not find it, ErrorKind::Memory where
/// that has no room.
std::unique_ptr<Backend> make_blas_backend(const BackendOptions&);

}  // namespace llm
