// The layout of quantised activations, shared by the kernels of all instruction sets.
#include "backend/cpu/kernels/kernels.h"
#include "base/half.h"
#include "tensor/activation.h"

namespace llm::cpu {
namespace {

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// An odd number of units: a tile reads the same k of several rows, which then fall into different sets of a cache,
/// however far apart.
constexpr std::size_t odd_pitch(std::size_t bytes, std::size_t unit) { return ((bytes + unit - 1) / unit | 1) * unit; }

}  // namespace

ActLayout act_layout(int act_format, std::int64_t k, std::int64_t rows) {
  const auto format = static_cast<ActFormat>(act_format);
  const auto n = static_cast<std::size_t>(k);
  const auto n_rows = static_cast<std::size_t>(rows);
  ActLayout layout;
  layout.k = k;
  layout.block = act_block_elems(format);
  if (format == ActFormat::F32) {
    layout.row_bytes = n * sizeof(float);
    layout.bytes = layout.row_bytes * n_rows;
    return layout;
  }
  if (format == ActFormat::BF16) {
    // Room for whole groups of 16 rows, of which AMX's tiles are, an odd number of 16 KiB apart. The other sets just
    // have the longer pitch.
    layout.row_bytes = odd_pitch(n * sizeof(BFloat16), 1024);
    layout.bytes = layout.row_bytes * round_up(n_rows, 16);
    return layout;
  }
  layout.row_bytes = odd_pitch(n, 64);
  layout.scales_offset = layout.row_bytes * n_rows;
  layout.scales_row_bytes = round_up(n / static_cast<std::size_t>(layout.block) * sizeof(float), 64);
  layout.sums_offset = layout.scales_offset + layout.scales_row_bytes * n_rows;
  layout.sums_row_bytes = round_up(n / 16 * sizeof(std::int16_t), 64);
  // kernels read sums two registers at a time, as far as a cache line beyond the last row
  layout.bytes = layout.sums_offset + layout.sums_row_bytes * n_rows + 64;
  return layout;
}

}  // namespace llm::cpu
