// Are all results of a step numbers? Asked on the device, where it costs microseconds, not milliseconds.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/launch.h"

namespace llm::cuda {

inline constexpr int kScreenParts = 16;  ///< of a row

/// found [rows][kScreenParts] = 1 where a part of y [rows][n] has NaN or infinity, else 0. Rows from *used on are taken
/// for finite.
void screen_rows(const float* y, int n, int rows, const std::int32_t* used, std::int32_t* found, const Launch&);

}  // namespace llm::cuda
