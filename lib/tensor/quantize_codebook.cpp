// Plain rounding into the types of decode_codebook.cpp. The scale of a group lets its extreme value be expressed; then
// each row of elements becomes the nearest row of the grid that the format can store, by comparing with all of them.
#include <bit>

#include "tensor/block_codec.h"
#include "tensor/codebooks.h"
#include "tensor/pack.h"
#include "tensor/rounding.h"

namespace llm {
namespace {

struct Nearest {
  int row = 0;
  float error = 0;  ///< squared distance
};

/// The first of the rows nearest to x, with `shift` added to every element of a row. What the two halves of a row add
/// to the error is looked up by their levels.
template <class Row, int n, int n_levels>
Nearest nearest_row(const Grid<Row, n>& grid, const std::int8_t (&levels)[n_levels], const float* x, float shift = 0) {
  using G = Grid<Row, n>;
  constexpr int kBits = G::kLevelBits, kHalf = G::kElems / 2, kCombinations = 1 << (kBits * kHalf);
  float errors[2][kCombinations];
  for (int half = 0; half < 2; ++half) {
    errors[half][0] = 0;
    for (int i = 0, known = 1; i < kHalf; ++i, known <<= kBits) {  // combinations of the elements so far
      for (int level = n_levels - 1; level >= 0; --level) {        // 0 last: it replaces what the others build on
        const float off = x[kHalf * half + i] - (static_cast<float>(levels[level]) + shift);
        for (int c = 0; c < known; ++c) errors[half][level * known + c] = errors[half][c] + off * off;
      }
    }
  }
  Nearest best{0, std::numeric_limits<float>::infinity()};
  for (int r = 0; r < n; ++r) {
    const float error = errors[0][grid.levels[r] % kCombinations] + errors[1][grid.levels[r] / kCombinations];
    if (error < best.error) best = {r, error};
  }
  return best;
}

constexpr float kBeyondGrids = 128;  ///< whose square is finite

/// Eight elements as magnitudes in units of the grid, and which of them are negative.
struct Magnitudes {
  float x[8];
  std::uint8_t signs = 0;
};

Magnitudes magnitudes(const float* x, float inv) {
  Magnitudes m;
  for (int i = 0; i < 8; ++i) {
    m.x[i] = std::min(std::fabs(x[i]) * inv, kBeyondGrids);
    if (x[i] < 0) m.signs = static_cast<std::uint8_t>(m.signs | (1 << i));
  }
  return m;
}

/// For types that store seven signs: if an odd number is negative, the smallest magnitude changes sides.
Magnitudes even_magnitudes(const float* x, float inv) {
  Magnitudes m = magnitudes(x, inv);
  if (std::popcount(m.signs) % 2 == 0) return m;
  const auto smallest = std::min_element(m.x, m.x + 8) - m.x;
  m.x[smallest] = -m.x[smallest];
  m.signs = static_cast<std::uint8_t>(m.signs ^ (1 << smallest));
  return m;
}

/// Scales (2 s + 1) * unit with s of 0 .. top, for 256 / n groups of n elements; `reach` is what a scale of 1
/// expresses.
template <int n>
struct OddScales {
  static constexpr int kGroups = 256 / n;
  Half d;
  std::uint8_t s[kGroups];
  float inv[kGroups];  ///< 1 / scale

  /// `unit`: d in the format's formula is multiplied by it.
  OddScales(const float* x, float reach, float unit, int top) {
    float ideal[kGroups];
    float largest = 0;
    for (int g = 0; g < kGroups; ++g) {
      ideal[g] = std::fabs(extreme({x + n * g, n})) / reach;
      largest = std::max(largest, ideal[g]);
    }
    d = finite_half(largest / (unit * static_cast<float>(2 * top + 1)));
    const float step = to_float(d) * unit;
    for (int g = 0; g < kGroups; ++g) {
      // (2 s + 1) step >= ideal, so s >= (ideal / step - 1) / 2
      const float multiple = (ideal[g] * inverse(step) - 1) / 2;
      s[g] = multiples_up(std::max(multiple, 0.0f), 1.0f, top);
      inv[g] = inverse(step * static_cast<float>(2 * s[g] + 1));
    }
  }
};

/// Index of the nearest value, the first of equals.
int nearest_value(const std::int8_t (&values)[16], float x) {
  x = std::clamp(x, -kBeyondGrids, kBeyondGrids);
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    if (std::fabs(x - static_cast<float>(values[i])) < std::fabs(x - static_cast<float>(values[best]))) best = i;
  }
  return best;
}

/// 2 n elements into n bytes, the low halves first.
void encode_nibbles(const float* x, int n, const std::int8_t (&values)[16], float inv, std::uint8_t* qs) {
  for (int i = 0; i < n; ++i) {
    qs[i] = static_cast<std::uint8_t>(nearest_value(values, x[i] * inv) | (nearest_value(values, x[n + i] * inv) << 4));
  }
}

constexpr float kReachIQ4 = -127;  ///< the value of the largest magnitude

}  // namespace

void encode_block(const float* x, BlockIQ2_XXS& b) {
  const OddScales<32> scales(x, 43, 0.125f, 15);
  b.d = scales.d;
  for (int g = 0; g < 8; ++g) {
    std::uint32_t rows = 0, word = static_cast<std::uint32_t>(scales.s[g]) << 28;
    for (int r = 0; r < 4; ++r) {
      const Magnitudes m = even_magnitudes(x + 32 * g + 8 * r, scales.inv[g]);
      rows |= static_cast<std::uint32_t>(nearest_row(kGridIQ2_XXS, kLevelsIQ2, m.x).row) << (8 * r);
      word |= static_cast<std::uint32_t>(m.signs & 0x7f) << (7 * r);
    }
    b.qs[4 * g] = static_cast<std::uint16_t>(rows);
    b.qs[4 * g + 1] = static_cast<std::uint16_t>(rows >> 16);
    b.qs[4 * g + 2] = static_cast<std::uint16_t>(word);
    b.qs[4 * g + 3] = static_cast<std::uint16_t>(word >> 16);
  }
}

void encode_block(const float* x, BlockIQ2_XS& b) {
  const OddScales<16> scales(x, 43, 0.125f, 15);
  b.d = scales.d;
  pack_pairs_of_nibbles(scales.s, b.scales);
  for (int r = 0; r < 32; ++r) {
    const Magnitudes m = even_magnitudes(x + 8 * r, scales.inv[r / 2]);
    const int row = nearest_row(kGridIQ2_XS, kLevelsIQ2, m.x).row;
    b.qs[r] = static_cast<std::uint16_t>(row | ((m.signs & 0x7f) << 9));
  }
}

void encode_block(const float* x, BlockIQ2_S& b) {
  const OddScales<16> scales(x, 43, 0.125f, 15);
  b.d = scales.d;
  pack_pairs_of_nibbles(scales.s, b.scales);
  std::fill_n(b.qh, 8, std::uint8_t{0});
  for (int r = 0; r < 32; ++r) {
    const Magnitudes m = magnitudes(x + 8 * r, scales.inv[r / 2]);
    const int row = nearest_row(kGridIQ2_S, kLevelsIQ2, m.x).row;
    b.qs[r] = static_cast<std::uint8_t>(row);
    b.qh[r / 4] = static_cast<std::uint8_t>(b.qh[r / 4] | ((row >> 8) << (2 * (r % 4))));
    b.signs[r] = m.signs;
  }
}

void encode_block(const float* x, BlockIQ3_XXS& b) {
  const OddScales<32> scales(x, 62, 0.25f, 15);
  b.d = scales.d;
  for (int g = 0; g < 8; ++g) {
    SignsAndScale word = static_cast<std::uint32_t>(scales.s[g]) << 28;
    for (int r = 0; r < 4; ++r) {
      const Magnitudes m = even_magnitudes(x + 32 * g + 8 * r, scales.inv[g]);
      for (int half = 0; half < 2; ++half) {
        const int row = nearest_row(kGridIQ3_XXS, kLevelsIQ3_XXS, m.x + 4 * half).row;
        b.qs[8 * g + 2 * r + half] = static_cast<std::uint8_t>(row);
      }
      word |= static_cast<std::uint32_t>(m.signs & 0x7f) << (7 * r);
    }
    __builtin_memcpy(b.signs + 4 * g, &word, sizeof word);
  }
}

void encode_block(const float* x, BlockIQ3_S& b) {
  const OddScales<32> scales(x, 15, 1, 15);
  b.d = scales.d;
  pack_pairs_of_nibbles(scales.s, b.scales);
  std::fill_n(b.qh, 8, std::uint8_t{0});
  for (int r = 0; r < 32; ++r) {
    const Magnitudes m = magnitudes(x + 8 * r, scales.inv[r / 4]);
    b.signs[r] = m.signs;
    for (int half = 0; half < 2; ++half) {
      const int row = nearest_row(kGridIQ3_S, kLevelsIQ3_S, m.x + 4 * half).row;
      const int at = 2 * r + half;
      b.qs[at] = static_cast<std::uint8_t>(row);
      b.qh[at / 8] = static_cast<std::uint8_t>(b.qh[at / 8] | ((row >> 8) << (at % 8)));
    }
  }
}

namespace {

/// The rows of n / 8 times 8 elements that share a delta, for the better one.
template <int n>
struct TernaryRows {
  int rows[n / 8];
  bool negative = false;  ///< the delta

  TernaryRows(const float* x, float inv) {
    float least = std::numeric_limits<float>::infinity();
    for (const float delta : {0.125f, -0.125f}) {
      int found[n / 8];
      float error = 0;
      for (int r = 0; r < n / 8; ++r) {
        float scaled[8];
        for (int i = 0; i < 8; ++i) scaled[i] = std::clamp(x[8 * r + i] * inv, -kBeyondGrids, kBeyondGrids);
        const Nearest nearest = nearest_row(kGridIQ1, kLevelsIQ1, scaled, delta);
        found[r] = nearest.row;
        error += nearest.error;
      }
      if (error >= least) continue;
      least = error;
      negative = delta < 0;
      std::copy_n(found, n / 8, rows);
    }
  }
};

constexpr float kReachIQ1 = 1.125f;  ///< 1 and the delta

}  // namespace

void encode_block(const float* x, BlockIQ1_S& b) {
  const OddScales<32> scales(x, kReachIQ1, 1, 7);
  b.d = scales.d;
  for (int g = 0; g < 8; ++g) {
    const TernaryRows<32> t(x + 32 * g, scales.inv[g]);
    int h = (scales.s[g] << 12) | (t.negative ? 0x8000 : 0);
    for (int r = 0; r < 4; ++r) {
      b.qs[4 * g + r] = static_cast<std::uint8_t>(t.rows[r]);
      h |= (t.rows[r] >> 8) << (3 * r);
    }
    b.qh[g] = static_cast<std::uint16_t>(h);
  }
}

void encode_block(const float* x, BlockIQ1_M& b) {
  const OddScales<16> scales(x, kReachIQ1, 1, 7);
  pack_iq1_m_scales(scales.d, scales.s, b);
  std::uint8_t high[32];
  for (int r = 0; r < 32; ++r) {
    const TernaryRows<8> t(x + 8 * r, scales.inv[r / 2]);
    b.qs[r] = static_cast<std::uint8_t>(t.rows[0]);
    high[r] = static_cast<std::uint8_t>((t.rows[0] >> 8) | (t.negative ? 8 : 0));
  }
  pack_pairs_of_nibbles(high, b.qh);
}

void encode_block(const float* x, BlockIQ4_NL& b) {
  b.d = finite_half(extreme({x, 32}) / kReachIQ4);
  encode_nibbles(x, 16, kValuesIQ4, inverse(to_float(b.d)), b.qs);
}

void encode_block(const float* x, BlockIQ4_XS& b) {
  float ideal[8];
  for (int g = 0; g < 8; ++g) ideal[g] = extreme({x + 32 * g, 32}) / kReachIQ4;
  b.d = finite_half(extreme(ideal) / -32);
  const float d = to_float(b.d);
  std::int8_t scales[8];
  for (int g = 0; g < 8; ++g) {
    const float multiple = ideal[g] * inverse(d);
    const int away = multiples_up(std::fabs(multiple), 1.0f, 32);
    const int scale = std::min(multiple < 0 ? -away : away, 31);
    scales[g] = static_cast<std::int8_t>(scale);
    encode_nibbles(x + 32 * g, 16, kValuesIQ4, inverse(d * static_cast<float>(scale)), b.qs + 16 * g);
  }
  pack_iq4_xs_scales(scales, b);
}

/// The power of two that the OCP format prescribes: that of the extreme, divided by that of the largest value, 6. What
/// lies above 6 times it becomes 6 times it.
void encode_block(const float* x, BlockMXFP4& b) {
  const float amax = std::fabs(extreme({x, 32}));
  const int exponent = amax > 0 ? std::ilogb(std::min(amax, std::numeric_limits<float>::max())) - 2 + 127 : 0;
  b.e = static_cast<std::uint8_t>(std::max(exponent, 0));
  encode_nibbles(x, 16, kValuesE2M1, inverse(e8m0_half(b.e)), b.qs);
}

namespace {

/// The smallest scale of NVFP4 that is at least `x`, or its largest.
std::uint8_t ue4m3_half_up(float x) {
  constexpr std::uint8_t kLargest = 0x7e;
  std::uint8_t code = 0;
  while (code < kLargest && ue4m3_half(code) < x) ++code;
  return code;
}

}  // namespace

void encode_block(const float* x, BlockNVFP4& b) {
  constexpr float kReach = 12;
  for (int g = 0; g < 4; ++g) {
    b.d[g] = ue4m3_half_up(std::fabs(extreme({x + 16 * g, 16})) / kReach * (1 - 0x1p-20f));
    encode_nibbles(x + 16 * g, 8, kValuesE2M1, inverse(ue4m3_half(b.d[g])), b.qs + 8 * g);
  }
}

}  // namespace llm
