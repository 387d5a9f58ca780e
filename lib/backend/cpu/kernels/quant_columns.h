// Addresses inside LinearArgs: columns, their quantised activations and their outputs.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

inline constexpr std::int64_t kSumElems = 16;  // elements under one of the stored sums

/// The quantised activations of one column.
struct Column {
  const std::int8_t* q;      ///< [k]
  const float* scales;       ///< [k / block]
  const std::int16_t* sums;  ///< [k / 16]
};

[[gnu::always_inline]] inline Column column(const LinearArgs& args, std::int64_t c) {
  const ActLayout& layout = *args.layout;
  const auto row = static_cast<std::size_t>(args.act_rows != nullptr ? args.act_rows[c] : c);
  return {reinterpret_cast<const std::int8_t*>(args.act + row * layout.row_bytes),
          reinterpret_cast<const float*>(args.act + layout.scales_offset + row * layout.scales_row_bytes),
          reinterpret_cast<const std::int16_t*>(args.act + layout.sums_offset + row * layout.sums_row_bytes)};
}

[[gnu::always_inline]] inline float* output(const LinearArgs& args, std::int64_t c) {
  return args.y + (args.out_rows != nullptr ? args.out_rows[c] : c) * args.ldy;
}

[[gnu::always_inline]] inline const std::uint8_t* weight_row(const LinearArgs& args, std::int64_t row) {
  return reinterpret_cast<const std::uint8_t*>(args.w) + static_cast<std::size_t>(row) * args.w_row_bytes;
}

}  // namespace llm::cpu::LLM_ISA
