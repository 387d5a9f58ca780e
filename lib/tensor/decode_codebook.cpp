// The types whose elements come from codebooks: IQ1, IQ2, IQ3, IQ4, MXFP4 and NVFP4.
#include "tensor/block_codec.h"
#include "tensor/codebooks.h"

namespace llm {
namespace {

/// Rows of 8 or 4 magnitudes with signs: bit i of `signs` makes element i negative.
template <class Row>
void decode_signed(const Row& row, unsigned signs, float scale, float* y) {
  const auto* magnitude = reinterpret_cast<const std::uint8_t*>(&row);
  for (unsigned i = 0; i < sizeof(Row); ++i) {
    const int sign = 1 - 2 * static_cast<int>((signs >> i) & 1);
    y[i] = scale * static_cast<float>(sign * magnitude[i]);
  }
}

/// (2 s + 1) of scale s, by which the IQ types multiply.
float odd(unsigned s) { return static_cast<float>(2 * s + 1); }

unsigned nibble(const std::uint8_t* bytes, int i) { return (bytes[i / 2] >> (4 * (i % 2))) & 0x0fu; }

/// A row of IQ1: `negative` tells which delta.
void decode_ternary(const std::uint64_t& row, bool negative, float scale, float* y) {
  const float delta = negative ? -0.125f : 0.125f;
  const auto* elements = reinterpret_cast<const std::int8_t*>(&row);
  for (int i = 0; i < 8; ++i) y[i] = scale * (static_cast<float>(elements[i]) + delta);
}

/// 2 n elements by the nibbles of n bytes, the low halves first.
void decode_nibbles(const std::uint8_t* qs, int n, const std::int8_t* values, float scale, float* y) {
  for (int i = 0; i < n; ++i) {
    y[i] = scale * static_cast<float>(values[qs[i] & 0x0f]);
    y[n + i] = scale * static_cast<float>(values[qs[i] >> 4]);
  }
}

}  // namespace

void decode_block(const BlockIQ2_XXS& b, float* y) {
  const float d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    const SignsAndScale s = signs_and_scale(b, r / 4);
    decode_signed(kGridIQ2_XXS.rows[iq2_xxs_row(b, r)], seven_signs((s >> (7 * (r % 4))) & 0x7f), d * odd(s >> 28),
                  y + 8 * r);
  }
}

void decode_block(const BlockIQ2_XS& b, float* y) {
  const float d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    decode_signed(kGridIQ2_XS.rows[b.qs[r] & 0x1ff], seven_signs(b.qs[r] >> 9u), d * odd(nibble(b.scales, r / 2)),
                  y + 8 * r);
  }
}

void decode_block(const BlockIQ2_S& b, float* y) {
  const float d = to_float(b.d) * 0.125f;
  for (int r = 0; r < 32; ++r) {
    const int high = (b.qh[r / 4] >> (2 * (r % 4))) & 3;
    decode_signed(kGridIQ2_S.rows[b.qs[r] | (high << 8)], b.signs[r], d * odd(nibble(b.scales, r / 2)), y + 8 * r);
  }
}

void decode_block(const BlockIQ3_XXS& b, float* y) {
  const float d = to_float(b.d) * 0.25f;
  for (int r = 0; r < 64; ++r) {
    const SignsAndScale s = signs_and_scale(b, r / 8);
    const unsigned signs = seven_signs((s >> (7 * (r % 8 / 2))) & 0x7f);
    decode_signed(kGridIQ3_XXS.rows[b.qs[r]], signs >> (4 * (r % 2)), d * odd(s >> 28), y + 4 * r);
  }
}

void decode_block(const BlockIQ3_S& b, float* y) {
  const float d = to_float(b.d);
  for (int r = 0; r < 64; ++r) {
    const int high = (b.qh[r / 8] >> (r % 8)) & 1;
    const unsigned signs = nibble(b.signs, r);
    decode_signed(kGridIQ3_S.rows[b.qs[r] | (high << 8)], signs, d * odd(nibble(b.scales, r / 8)), y + 4 * r);
  }
}

void decode_block(const BlockIQ1_S& b, float* y) {
  const float d = to_float(b.d);
  for (int r = 0; r < 32; ++r) {
    const unsigned h = b.qh[r / 4];
    const unsigned row = b.qs[r] | (((h >> (3 * (r % 4))) & 7) << 8);
    decode_ternary(kGridIQ1.rows[row], (h & 0x8000) != 0, d * odd((h >> 12) & 7), y + 8 * r);
  }
}

void decode_block(const BlockIQ1_M& b, float* y) {
  const float d = to_float(iq1_m_d(b));
  for (int r = 0; r < 32; ++r) {
    const unsigned h = nibble(b.qh, r);
    const unsigned scale = (b.scales[r / 8] >> (3 * (r / 2 % 4))) & 7u;
    decode_ternary(kGridIQ1.rows[b.qs[r] | ((h & 7) << 8)], (h & 8) != 0, d * odd(scale), y + 8 * r);
  }
}

void decode_block(const BlockIQ4_NL& b, float* y) { decode_nibbles(b.qs, 16, kValuesIQ4, to_float(b.d), y); }

void decode_block(const BlockIQ4_XS& b, float* y) {
  const float d = to_float(b.d);
  for (int g = 0; g < 8; ++g)
    decode_nibbles(b.qs + 16 * g, 16, kValuesIQ4, d * static_cast<float>(iq4_xs_scale(b, g)), y + 32 * g);
}

void decode_block(const BlockMXFP4& b, float* y) { decode_nibbles(b.qs, 16, kValuesE2M1, e8m0_half(b.e), y); }

void decode_block(const BlockNVFP4& b, float* y) {
  for (int g = 0; g < 4; ++g) decode_nibbles(b.qs + 8 * g, 8, kValuesE2M1, ue4m3_half(b.d[g]), y + 16 * g);
}

}  // namespace llm
