// Rows of F16 as wgmma reads them (wgmma.cuh), in the order of k in which tiles are decoded (tile_operands.cuh): panels
// of 64 elements, and of a panel a line of 128 bytes for each row. What a block multiplies at a time is one piece of
// memory then: neighbouring lines of a panel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/act_layout.h"

namespace llm::cuda {

inline constexpr int kPanelK = 64, kPanelLine = 2 * kPanelK;  ///< elements, and their bytes, of a row
inline constexpr int kMostPanelColumns = 128;                 ///< lines that are read together

/// Lines of a panel, of a buffer for `rows` rows.
LLM_HOST_DEVICE std::int64_t panel_lines(std::int64_t rows) { return (rows + 7) / 8 * 8; }
/// Rows of k elements are whole blocks of 256, with zeros at the end. Lines behind the last are read, not used.
LLM_HOST_DEVICE std::int64_t half_panels_bytes(std::int64_t k, std::int64_t rows) {
  return (k_blocks(k) * (kBlockK / kPanelK) * panel_lines(rows) + kMostPanelColumns) * kPanelLine;
}

/// Where elements k and k + 1 of a row lie, k a multiple of 2: slots 2t, 2t + 1, 2t + 8, 2t + 9 of 16 are elements
/// 4t .. 4t + 3, and the 16 bytes v of a line lie at v ^ (row % 8).
LLM_HOST_DEVICE std::int64_t half_panels_offset(std::int64_t k, std::int64_t row, std::int64_t lines) {
  const std::int64_t line = (k / kPanelK * lines + row) * kPanelLine;
  const std::int64_t in_panel = k % kPanelK, vector = in_panel / 16 * 2 + in_panel % 4 / 2, t = in_panel % 16 / 4;
  return line + ((vector ^ (row % 8)) * 16) + 4 * t;
}

}  // namespace llm::cuda
