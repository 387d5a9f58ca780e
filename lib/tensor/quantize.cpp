// Plain rounding into every storage type: the table of encoders that dtypes.def makes, and those of all types but the
// ones of codebooks, which are in quantize_codebook.cpp.
//
// In K-quants the scales of the groups inside a block are themselves quantised, upwards, so that a group's values stay
// inside what it can express; quants are then rounded against the scale as it will be decoded.
#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/error.h"
#include "tensor/block_codec.h"
#include "tensor/pack.h"
#include "tensor/rounding.h"

namespace llm {
namespace {

template <class Int>
Int saturate(float x) {
  // In double: the largest int64 is not exact there either, but the power of two above it is.
  const double rounded = std::nearbyint(static_cast<double>(x));
  if (std::isnan(rounded)) return 0;
  if (rounded <= static_cast<double>(std::numeric_limits<Int>::min())) return std::numeric_limits<Int>::min();
  if (rounded >= -static_cast<double>(std::numeric_limits<Int>::min())) return std::numeric_limits<Int>::max();
  return static_cast<Int>(rounded);
}

}  // namespace

// --- types of one element ---

void encode_block(const float* x, float& y) { y = *x; }
void encode_block(const float* x, Half& y) { y = to_half(*x); }
void encode_block(const float* x, BFloat16& y) { y = to_bfloat16(*x); }
void encode_block(const float* x, Float8E4M3& y) { y = to_float8_e4m3(*x); }
void encode_block(const float* x, double& y) { y = *x; }
void encode_block(const float* x, std::int8_t& y) { y = saturate<std::int8_t>(*x); }
void encode_block(const float* x, std::int16_t& y) { y = saturate<std::int16_t>(*x); }
void encode_block(const float* x, std::int32_t& y) { y = saturate<std::int32_t>(*x); }
void encode_block(const float* x, std::int64_t& y) { y = saturate<std::int64_t>(*x); }

// --- 32 elements ---

namespace {

/// Quants 0 .. 2 `half` - 1 standing for q - half, the extreme value at -half.
Half quantize_signed(const float* x, int half, std::uint8_t* q) {
  const Half d = finite_half(extreme({x, 32}) / static_cast<float>(-half));
  const float inv = inverse(to_float(d));
  for (int i = 0; i < 32; ++i) q[i] = static_cast<std::uint8_t>(round_between(x[i] * inv, -half, half - 1) + half);
  return d;
}

struct ScaleAndMin {
  Half d, m;
};

/// Quants 0 .. `top` from the smallest value to the largest.
ScaleAndMin quantize_ranged(const float* x, int top, std::uint8_t* q) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const Half m = finite_half(*low);
  const Half d = finite_half((*high - to_float(m)) / static_cast<float>(top));
  const float inv = inverse(to_float(d));
  for (int i = 0; i < 32; ++i) q[i] = static_cast<std::uint8_t>(round_between((x[i] - to_float(m)) * inv, 0, top));
  return {d, m};
}

/// Returns the scale amax / 127 as it was used.
template <class Round>
float quantize_bytes(std::span<const float> x, std::int8_t* q, Round stored) {
  const float d = stored(std::fabs(extreme(x)) / 127.0f);
  const float inv = inverse(d);
  for (std::size_t i = 0; i < x.size(); ++i) q[i] = static_cast<std::int8_t>(round_between(x[i] * inv, -127, 127));
  return d;
}

}  // namespace

void encode_block(const float* x, BlockQ4_0& b) {
  std::uint8_t q[32];
  b.d = quantize_signed(x, 8, q);
  pack_nibbles(q, b.qs);
}

void encode_block(const float* x, BlockQ4_1& b) {
  std::uint8_t q[32];
  const ScaleAndMin s = quantize_ranged(x, 15, q);
  b.d = s.d;
  b.m = s.m;
  pack_nibbles(q, b.qs);
}

void encode_block(const float* x, BlockQ5_0& b) {
  std::uint8_t q[32];
  b.d = quantize_signed(x, 16, q);
  pack_nibbles(q, b.qs);
  pack_fifth_bits(q, b.qh);
}

void encode_block(const float* x, BlockQ5_1& b) {
  std::uint8_t q[32];
  const ScaleAndMin s = quantize_ranged(x, 31, q);
  b.d = s.d;
  b.m = s.m;
  pack_nibbles(q, b.qs);
  pack_fifth_bits(q, b.qh);
}

void encode_block(const float* x, BlockQ8_0& b) {
  quantize_bytes({x, 32}, b.qs, [&](float d) { return to_float(b.d = finite_half(d)); });
}

void encode_block(const float* x, BlockQ8_1& b) {
  const float d = quantize_bytes({x, 32}, b.qs, [&](float s) { return to_float(b.d = finite_half(s)); });
  int sum = 0;
  for (const std::int8_t q : b.qs) sum += q;
  b.s = finite_half(d * static_cast<float>(sum));
}

// --- 256 elements ---

namespace {

/// Scales and mins per group of a block, and quants 0 .. top: what Q2_K, Q4_K and Q5_K share before packing.
struct RangedBlock {
  Half d, dmin;
  std::uint8_t scales[16], mins[16];
  std::uint8_t q[256];
};

/// `groups` groups; scales and mins are whole numbers up to `scale_top`.
void quantize_ranged_groups(const float* x, int groups, int top, int scale_top, RangedBlock& out) {
  const int size = 256 / groups;
  float least[16], range[16];
  float largest_min = 0, largest_range = 0;
  for (int g = 0; g < groups; ++g) {
    const auto [low, high] = std::minmax_element(x + g * size, x + (g + 1) * size);
    least[g] = std::min(*low, 0.0f);  // a min is subtracted and never negative
    range[g] = std::max(*high, 0.0f);
    largest_min = std::max(largest_min, -least[g]);
  }
  out.dmin = finite_half(largest_min / static_cast<float>(scale_top));
  const float dmin = to_float(out.dmin);
  for (int g = 0; g < groups; ++g) {
    out.mins[g] = multiples_up(-least[g], dmin, scale_top);
    range[g] += dmin * static_cast<float>(out.mins[g]);
    largest_range = std::max(largest_range, range[g]);
  }
  out.d = finite_half(largest_range / static_cast<float>(top * scale_top));
  const float d = to_float(out.d);
  for (int g = 0; g < groups; ++g) {
    out.scales[g] = multiples_up(range[g] / static_cast<float>(top), d, scale_top);
    const float inv = inverse(d * static_cast<float>(out.scales[g]));
    const float min = dmin * static_cast<float>(out.mins[g]);
    for (int i = g * size; i < (g + 1) * size; ++i) {
      out.q[i] = static_cast<std::uint8_t>(round_between((x[i] + min) * inv, 0, top));
    }
  }
}

/// Signed scales per group of 16 and quants 0 .. 2 `half` - 1 standing for q - half: what Q3_K and Q6_K share.
struct SignedBlock {
  Half d;
  std::int8_t scales[16];
  std::uint8_t q[256];
};

/// Scales are whole numbers -scale_half .. scale_half - 1, the extreme one at -scale_half.
void quantize_signed_groups(const float* x, int half, int scale_half, SignedBlock& out) {
  float ideal[16];
  for (int g = 0; g < 16; ++g) ideal[g] = extreme({x + 16 * g, 16}) / static_cast<float>(-half);
  out.d = finite_half(extreme(ideal) / static_cast<float>(-scale_half));
  const float d = to_float(out.d);
  for (int g = 0; g < 16; ++g) {
    const float multiple = ideal[g] * inverse(d);
    const int away = static_cast<int>(multiples_up(std::fabs(multiple), 1.0f, scale_half));
    const int scale = std::min(multiple < 0 ? -away : away, scale_half - 1);
    out.scales[g] = static_cast<std::int8_t>(scale);
    const float inv = inverse(d * static_cast<float>(scale));
    for (int i = 16 * g; i < 16 * (g + 1); ++i) {
      out.q[i] = static_cast<std::uint8_t>(round_between(x[i] * inv, -half, half - 1) + half);
    }
  }
}

}  // namespace

void encode_block(const float* x, BlockQ2_K& b) {
  RangedBlock r;
  quantize_ranged_groups(x, 16, 3, 15, r);
  b.d = r.d;
  b.dmin = r.dmin;
  for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<std::uint8_t>(r.scales[g] | (r.mins[g] << 4));
  pack_pairs_of_bits(r.q, b.qs);
}

void encode_block(const float* x, BlockQ3_K& b) {
  SignedBlock s;
  quantize_signed_groups(x, 4, 32, s);
  b.d = s.d;
  pack_scales_q3_k(s.scales, b.scales);
  pack_pairs_of_bits(s.q, b.qs);
  pack_high_bit(s.q, 2, b.hmask);
}

void encode_block(const float* x, BlockQ4_K& b) {
  RangedBlock r;
  quantize_ranged_groups(x, 8, 15, 63, r);
  b.d = r.d;
  b.dmin = r.dmin;
  pack_scales_q4_k(r.scales, r.mins, b.scales);
  pack_nibbles_q4_k(r.q, b.qs);
}

void encode_block(const float* x, BlockQ5_K& b) {
  RangedBlock r;
  quantize_ranged_groups(x, 8, 31, 63, r);
  b.d = r.d;
  b.dmin = r.dmin;
  pack_scales_q4_k(r.scales, r.mins, b.scales);
  pack_nibbles_q4_k(r.q, b.qs);
  pack_high_bit(r.q, 4, b.qh);
}

void encode_block(const float* x, BlockQ6_K& b) {
  SignedBlock s;
  quantize_signed_groups(x, 32, 128, s);
  b.d = s.d;
  std::copy_n(s.scales, 16, b.scales);
  pack_q6_k(s.q, b.ql, b.qh);
}

void encode_block(const float* x, BlockQ8_K& b) {
  const float largest = std::nextafter(std::numeric_limits<float>::max() / 127.0f, 0.0f);  // 127 of it stay finite
  b.d = quantize_bytes({x, 256}, b.qs, [largest](float d) { return std::min(d, largest); });
  for (int g = 0; g < 16; ++g) {
    int sum = 0;
    for (int i = 0; i < 16; ++i) sum += b.qs[16 * g + i];
    b.bsums[g] = static_cast<std::int16_t>(sum);
  }
}

// --- one or two bits ---

namespace {

/// The largest magnitude as a scale, and quants -1, 0, 1 as 0, 1, 2.
Half quantize_ternary(std::span<const float> x, std::uint8_t* q) {
  const Half d = finite_half(std::fabs(extreme(x)));
  const float inv = inverse(to_float(d));
  for (std::size_t i = 0; i < x.size(); ++i) q[i] = static_cast<std::uint8_t>(round_between(x[i] * inv, -1, 1) + 1);
  return d;
}

}  // namespace

void encode_block(const float* x, BlockTQ1_0& b) {
  std::uint8_t q[256];
  b.d = quantize_ternary({x, 256}, q);
  pack_trits(q, b.qs, b.qh);
}

void encode_block(const float* x, BlockTQ2_0& b) {
  std::uint8_t q[256];
  b.d = quantize_ternary({x, 256}, q);
  pack_pairs_of_bits(q, b.qs);
}

void encode_block(const float* x, BlockQ2_0& b) {
  std::uint8_t q[64];
  b.d = quantize_ternary({x, 64}, q);
  pack_fours(q, b.qs);
}

/// Of two values d and -d, the mean magnitude is the best d.
void encode_block(const float* x, BlockQ1_0& b) {
  double sum = 0;
  for (int i = 0; i < 128; ++i) sum += std::fabs(x[i]);
  b.d = finite_half(static_cast<float>(sum / 128));
  std::fill_n(b.qs, 16, std::uint8_t{0});
  for (int i = 0; i < 128; ++i) b.qs[i / 8] = static_cast<std::uint8_t>(b.qs[i / 8] | ((x[i] >= 0 ? 1 : 0) << (i % 8)));
}

// --- the table ---

namespace {

template <class Block, int kElems>
void encode_all(const float* src, std::byte* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n / kElems; ++i) {
    Block block;
    encode_block(src + i * kElems, block);
    std::memcpy(dst + i * static_cast<std::int64_t>(sizeof(Block)), &block, sizeof(Block));
  }
}

using EncodeFn = void (*)(const float* src, std::byte* dst, std::int64_t n);
constexpr EncodeFn kEncoders[] = {
#define LLM_DTYPE(name, id, elems, block, use, activation) &encode_all<block, elems>,
#include "tensor/dtypes.def"
#undef LLM_DTYPE
};

}  // namespace

void encode(DType t, const float* src, std::byte* dst, std::int64_t n) {
  check(n % info(t).block_elems == 0, "only whole blocks are encoded");
  kEncoders[static_cast<std::size_t>(t)](src, dst, n);
}

}  // namespace llm
