// What is left to do after a product that a library computed.
#pragma once

#include "backend/cuda/kernels/launch.h"

namespace llm::cuda {

/// y [rows][n] = y * unscale[row] * scale[0] + bias[n]; each of the three may be null.
void finish_products(float* y, int n, int rows, const float* unscale, const float* scale, const float* bias,
                     const Launch&);

}  // namespace llm::cuda
