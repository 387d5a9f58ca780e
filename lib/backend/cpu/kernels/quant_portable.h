// The products of quant_linear.h in plain C++: a block of weights is unpacked to integers once (quant_portable_codes.h,
// quant_portable_grid.h) and meets every column.
#pragma once

#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_portable_codes.h"
#include "backend/cpu/kernels/quant_portable_grid.h"

namespace llm::cpu::LLM_ISA {

enum class Mins { None, Present };

/// y of one block of 32 or 16 elements, as defined in quant_linear.h.
template <int elems, Mins mins>
inline float block_term(const PlainBlock& w, const std::int8_t* a) {
  std::int32_t isum = 0, asum = 0;
  for (int i = 0; i < elems; ++i) {
    isum += w.q[i] * a[i];
    asum += a[i];
  }
  const float y = w.d * static_cast<float>(isum);
  return mins == Mins::Present ? __builtin_fmaf(w.dmin, static_cast<float>(asum), y) : y;
}

template <Mins mins>
inline float add_block_256(const PlainBlock& w, const std::int8_t* a, const std::int16_t* sums, float d_act,
                           float acc) {
  std::int32_t isum = 0, msum = 0;
  for (int s = 0; s < 16; ++s) {
    std::int32_t sub = 0;
    for (int i = 0; i < 16; ++i) sub += w.q[16 * s + i] * a[16 * s + i];
    isum += w.scale[s] * sub;
    if constexpr (mins == Mins::Present) msum += w.min[s] * sums[s];
  }
  float y = w.d * static_cast<float>(isum);
  if constexpr (mins == Mins::Present) y = __builtin_fmaf(-w.dmin, static_cast<float>(msum), y);
  return __builtin_fmaf(d_act, y, acc);
}

/// Types whose blocks have parts have an unpack_plain() for one of them.
template <class Block>
inline void unpack_plain(const Block& b, int, PlainBlock& out) {
  unpack_plain(b, out);
}

/// `Block` is a struct of tensor/blocks.h with `parts` times `elems` elements.
template <class Block, int elems, Mins mins, int parts = 1>
void linear_plain(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  constexpr int kScaled = elems == 16 ? 2 : 1;  // blocks under one scale of activations
  PlainBlock w[kScaled];
  const std::int64_t n_blocks = args.k / elems;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const auto* blocks = reinterpret_cast<const Block*>(weight_row(args, row));
    for (std::int64_t c = 0; c < args.n_cols; ++c) output(args, c)[row] = 0;
    for (std::int64_t b = 0; b < n_blocks; b += kScaled) {
      for (int i = 0; i < kScaled; ++i) unpack_plain(blocks[(b + i) / parts], static_cast<int>((b + i) % parts), w[i]);
      for (std::int64_t c = 0; c < args.n_cols; ++c) {
        const Column col = column(args, c);
        float& y = output(args, c)[row];
        const std::int8_t* a = col.q + b * elems;
        if constexpr (elems == 256) {
          y = add_block_256<mins>(w[0], a, col.sums + b * 16, col.scales[b], y);
        } else {
          float term = block_term<elems, mins>(w[0], a);
          if constexpr (kScaled == 2) term += block_term<elems, mins>(w[1], a + elems);
          y = __builtin_fmaf(col.scales[b * elems / 32], term, y);
        }
      }
    }
  }
}

}  // namespace llm::cpu::LLM_ISA
