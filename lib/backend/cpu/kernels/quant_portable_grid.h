// One block of weights as integers, in plain C++: the types whose elements are rows of a grid. Values, scales and
// factors are those of quant_linear.h: 2 s + 1, and an eighth or a fourth of d.
#pragma once

#include "backend/cpu/kernels/quant_portable_codes.h"

namespace llm::cpu::LLM_ISA {

inline int plain_nibble(const std::uint8_t* bytes, int i) { return (bytes[i / 2] >> (4 * (i % 2))) & 0x0f; }

/// A row of magnitudes; bit i of `signs` makes element i negative.
template <class Row>
inline void unpack_signed(const Row& row, unsigned signs, std::int8_t* q) {
  std::int8_t magnitude[sizeof(Row)];
  __builtin_memcpy(magnitude, &row, sizeof(Row));
  for (unsigned i = 0; i < sizeof(Row); ++i)
    q[i] = static_cast<std::int8_t>(((signs >> i) & 1) != 0 ? -magnitude[i] : magnitude[i]);
}

inline void set_odd_scale(PlainBlock& out, int piece, unsigned s) {
  out.scale[piece] = static_cast<std::int32_t>(2 * s + 1);
}

inline void unpack_plain(const BlockIQ2_XXS& b, PlainBlock& out) {
  out.d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    const SignsAndScale s = signs_and_scale(b, r / 4);
    unpack_signed(kGridIQ2_XXS.rows[iq2_xxs_row(b, r)], seven_signs((s >> (7 * (r % 4))) & 0x7f), out.q + 8 * r);
    set_odd_scale(out, r / 2, s >> 28);
  }
}

inline void unpack_plain(const BlockIQ2_XS& b, PlainBlock& out) {
  out.d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    unpack_signed(kGridIQ2_XS.rows[b.qs[r] & 0x1ff], seven_signs(b.qs[r] >> 9u), out.q + 8 * r);
    set_odd_scale(out, r / 2, static_cast<unsigned>(plain_nibble(b.scales, r / 2)));
  }
}

inline void unpack_plain(const BlockIQ2_S& b, PlainBlock& out) {
  out.d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    const int high = (b.qh[r / 4] >> (2 * (r % 4))) & 3;
    unpack_signed(kGridIQ2_S.rows[b.qs[r] | (high << 8)], b.signs[r], out.q + 8 * r);
    set_odd_scale(out, r / 2, static_cast<unsigned>(plain_nibble(b.scales, r / 2)));
  }
}

inline void unpack_plain(const BlockIQ3_XXS& b, PlainBlock& out) {
  out.d = to_float(b.d) * 0.25f;
  for (int r = 0; r < 64; ++r) {
    const SignsAndScale s = signs_and_scale(b, r / 8);
    const unsigned signs = seven_signs((s >> (7 * (r % 8 / 2))) & 0x7f);
    unpack_signed(kGridIQ3_XXS.rows[b.qs[r]], signs >> (4 * (r % 2)), out.q + 4 * r);
    set_odd_scale(out, r / 4, s >> 28);
  }
}

inline void unpack_plain(const BlockIQ3_S& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int r = 0; r < 64; ++r) {
    const int high = (b.qh[r / 8] >> (r % 8)) & 1;
    const auto signs = static_cast<unsigned>(plain_nibble(b.signs, r));
    unpack_signed(kGridIQ3_S.rows[b.qs[r] | (high << 8)], signs, out.q + 4 * r);
    set_odd_scale(out, r / 4, static_cast<unsigned>(plain_nibble(b.scales, r / 8)));
  }
}

/// A row of IQ1 times 8, and its delta of 1 / 8.
inline void unpack_ternary(const std::uint64_t& row, bool negative, std::int8_t* q) {
  std::int8_t value[8];
  __builtin_memcpy(value, &row, 8);
  for (int i = 0; i < 8; ++i) q[i] = static_cast<std::int8_t>(8 * value[i] + (negative ? -1 : 1));
}

inline void unpack_plain(const BlockIQ1_S& b, PlainBlock& out) {
  out.d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    const unsigned h = b.qh[r / 4];
    unpack_ternary(kGridIQ1.rows[b.qs[r] | (((h >> (3 * (r % 4))) & 7) << 8)], (h & 0x8000) != 0, out.q + 8 * r);
    set_odd_scale(out, r / 2, (h >> 12) & 7);
  }
}

inline void unpack_plain(const BlockIQ1_M& b, PlainBlock& out) {
  out.d = to_float(iq1_m_d(b)) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    const int h = plain_nibble(b.qh, r);
    unpack_ternary(kGridIQ1.rows[b.qs[r] | ((h & 7) << 8)], (h & 8) != 0, out.q + 8 * r);
    set_odd_scale(out, r / 2, (b.scales[r / 8] >> (3 * (r / 2 % 4))) & 7u);
  }
}

}  // namespace llm::cpu::LLM_ISA
