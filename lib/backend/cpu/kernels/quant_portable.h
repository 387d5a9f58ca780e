// The products of quant_linear.h in plain C++: a block of weights is unpacked to integers once and meets every column.
#pragma once

#include "backend/cpu/kernels/quant_columns.h"
#include "tensor/blocks.h"

namespace llm::cpu::LLM_ISA {

/// One block as integers: element e is q[e], under scale[e / 16] and min[e / 16].
struct PlainBlock {
  std::int8_t q[256];
  std::int32_t scale[16];
  std::int32_t min[16];
  float d, dmin;
};

inline void unpack_plain(const BlockQ4_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>((b.qs[i] & 0x0f) - 8);
    out.q[16 + i] = static_cast<std::int8_t>((b.qs[i] >> 4) - 8);
  }
}

inline void unpack_plain(const BlockQ4_1& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.m);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>(b.qs[i] & 0x0f);
    out.q[16 + i] = static_cast<std::int8_t>(b.qs[i] >> 4);
  }
}

/// Bit 4 of element `e` of Q5_0 and Q5_1.
inline int fifth_bit(const std::uint8_t* qh, int e) { return ((qh[e / 8] >> (e % 8)) & 1) << 4; }

inline void unpack_plain(const BlockQ5_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>(((b.qs[i] & 0x0f) | fifth_bit(b.qh, i)) - 16);
    out.q[16 + i] = static_cast<std::int8_t>(((b.qs[i] >> 4) | fifth_bit(b.qh, 16 + i)) - 16);
  }
}

inline void unpack_plain(const BlockQ5_1& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.m);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>((b.qs[i] & 0x0f) | fifth_bit(b.qh, i));
    out.q[16 + i] = static_cast<std::int8_t>((b.qs[i] >> 4) | fifth_bit(b.qh, 16 + i));
  }
}

inline void unpack_plain(const BlockQ8_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 32; ++i) out.q[i] = b.qs[i];
}

inline void unpack_plain(const BlockQ2_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.dmin);
  for (int s = 0; s < 16; ++s) {
    out.scale[s] = b.scales[s] & 0x0f;
    out.min[s] = b.scales[s] >> 4;
  }
  for (int e = 0; e < 256; ++e)
    out.q[e] = static_cast<std::int8_t>((b.qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3);
}

inline void unpack_plain(const BlockQ3_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  std::int8_t scale[16];
  unpack_scales_q3_k(b.scales, scale);
  for (int s = 0; s < 16; ++s) out.scale[s] = scale[s];
  for (int e = 0; e < 256; ++e) {
    const int low = (b.qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out.q[e] = static_cast<std::int8_t>(low - (((b.hmask[e % 32] >> (e / 32)) & 1) != 0 ? 0 : 4));
  }
}

/// Scales and mins of Q4_K and Q5_K, which are per 32 elements.
inline void unpack_plain_scales(const std::uint8_t* packed, PlainBlock& out) {
  std::uint8_t scale[8], min[8];
  unpack_scales_q4_k(packed, scale, min);
  for (int s = 0; s < 16; ++s) {
    out.scale[s] = scale[s / 2];
    out.min[s] = min[s / 2];
  }
}

inline void unpack_plain(const BlockQ4_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.dmin);
  unpack_plain_scales(b.scales, out);
  for (int e = 0; e < 256; ++e)
    out.q[e] = static_cast<std::int8_t>((b.qs[e / 64 * 32 + e % 32] >> (4 * (e % 64 / 32))) & 0x0f);
}

inline void unpack_plain(const BlockQ5_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.dmin);
  unpack_plain_scales(b.scales, out);
  for (int e = 0; e < 256; ++e) {
    const int low = (b.qs[e / 64 * 32 + e % 32] >> (4 * (e % 64 / 32))) & 0x0f;
    out.q[e] = static_cast<std::int8_t>(low | (((b.qh[e % 32] >> (e / 32)) & 1) << 4));
  }
}

inline void unpack_plain(const BlockQ6_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int s = 0; s < 16; ++s) out.scale[s] = b.scales[s];
  for (int e = 0; e < 256; ++e) {
    const int low = (b.ql[e / 128 * 64 + e % 64] >> (4 * (e % 128 / 64))) & 0x0f;
    const int high = (b.qh[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out.q[e] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

enum class Mins { None, Present };

/// y += one block of 32 elements, as defined in quant_linear.h.
template <Mins mins>
inline float add_block_32(const PlainBlock& w, const std::int8_t* a, float d_act, float acc) {
  std::int32_t isum = 0, asum = 0;
  for (int i = 0; i < 32; ++i) {
    isum += w.q[i] * a[i];
    asum += a[i];
  }
  float y = w.d * static_cast<float>(isum);
  if constexpr (mins == Mins::Present) y = __builtin_fmaf(w.dmin, static_cast<float>(asum), y);
  return __builtin_fmaf(d_act, y, acc);
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

/// `Block` is a struct of tensor/blocks.h of `elems` elements.
template <class Block, int elems, Mins mins>
void linear_plain(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  PlainBlock w;
  const std::int64_t n_blocks = args.k / elems;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const auto* blocks = reinterpret_cast<const Block*>(weight_row(args, row));
    for (std::int64_t c = 0; c < args.n_cols; ++c) output(args, c)[row] = 0;
    for (std::int64_t b = 0; b < n_blocks; ++b) {
      unpack_plain(blocks[b], w);
      for (std::int64_t c = 0; c < args.n_cols; ++c) {
        const Column col = column(args, c);
        float& y = output(args, c)[row];
        const std::int8_t* a = col.q + b * elems;
        if constexpr (elems == 32)
          y = add_block_32<mins>(w, a, col.scales[b], y);
        else
          y = add_block_256<mins>(w, a, col.sums + b * 16, col.scales[b], y);
      }
    }
  }
}

}  // namespace llm::cpu::LLM_ISA
