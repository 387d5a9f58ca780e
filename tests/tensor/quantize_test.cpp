// Rounding into storage types: errors below bounds that follow from the step between two values a block can express.
#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "round_trip.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr std::size_t kElems = 1024;

struct Extent {
  float low = 0, high = 0;  ///< with 0 between them
  float amax() const { return std::max(-low, high); }
};

Extent extent(const float* x, std::size_t n) {
  Extent e;
  for (std::size_t i = 0; i < n; ++i) {
    e.low = std::min(e.low, x[i]);
    e.high = std::max(e.high, x[i]);
  }
  return e;
}

/// A scale kept as a half is off by 2^-11 of itself, below 2^-14 by 2^-25.
float half_error(float x) { return std::max(std::fabs(x) * 0x1p-11f, 0x1p-25f); }

/// Largest error of a signed type: quants -half .. half - 1 leave one step uncovered on the side away from the extreme.
float signed_bound(float amax, float half) { return amax / half + half_error(amax / half) * half; }

/// Of a type with a minimum: half a step, and what the rounding of the scale and the minimum moves the ends by.
float ranged_bound(float low, float high, float top) {
  const float step = (high - low) / top;
  return 0.5f * step + half_error(step) * top + 2 * half_error(low);
}

/// Groups of a K-quant whose scale and min are multiples of a block's: both were rounded up, by at most one unit.
float ranged_group_bound(const Extent& group, const Extent& block, float top, float scale_top) {
  const float min_unit = -block.low / scale_top + 0x1p-25f;
  const float unit = (block.high - block.low + min_unit) / (top * scale_top) + 0x1p-25f;
  const float step = (group.high - group.low + min_unit) / top + unit;
  return 0.5f * step + half_error(unit) * scale_top * top + half_error(min_unit) * scale_top;
}

float signed_group_bound(const Extent& group, const Extent& block, float half, float scale_half) {
  const float unit = block.amax() / (half * scale_half) + 0x1p-25f;
  const float step = group.amax() / half + unit;
  // The largest scale of the other sign is one unit short.
  return step + unit * half + half_error(unit) * scale_half * half;
}

/// Scales of odd multiples of a unit, of which the largest, `top`, serves the block's extreme: how large a group's may
/// be.
float odd_scale_bound(const Extent& group, const Extent& block, float reach, float top) {
  return group.amax() / reach + 2 * (block.amax() / (reach * top) * 1.001f + 0x1p-25f);
}

/// A row of a grid of magnitudes is chosen as a whole: one element may get the smallest for the largest, and where
/// signs come by sevens, an element may get the smallest of the other sign.
float grid_bound(float amax, float scale, float smallest) { return amax + smallest * scale; }

/// The largest error that element i of x may have.
float bound(DType t, const std::vector<float>& x, std::size_t i) {
  const auto group = [&](std::size_t n) { return extent(x.data() + i / n * n, n); };
  const float v = std::fabs(x[i]);
  switch (t) {
    case DType::F32:
    case DType::F64:
      return 0;
    case DType::F16:
      return half_error(v);
    case DType::BF16:
      return v * 0x1p-8f;
    case DType::F8_E4M3:  // half a unit of 3 bits of mantissa, or of the subnormal numbers; 448 for what is beyond
      return std::max({v * 0x1p-4f, 0x1p-10f, v - 448});
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
      return 0.5f;
    case DType::Q4_0:
      return signed_bound(group(32).amax(), 8);
    case DType::Q5_0:
      return signed_bound(group(32).amax(), 16);
    case DType::Q4_1:
    case DType::Q5_1: {
      const float* first = x.data() + i / 32 * 32;
      const auto [low, high] = std::minmax_element(first, first + 32);
      return ranged_bound(*low, *high, t == DType::Q4_1 ? 15 : 31);
    }
    case DType::Q8_0:
    case DType::Q8_1:
      return 0.5f * group(32).amax() / 127 + half_error(group(32).amax() / 127) * 127;
    case DType::Q8_K:
      return 0.501f * group(256).amax() / 127;
    case DType::Q2_K:
      return ranged_group_bound(group(16), group(256), 3, 15);
    case DType::Q4_K:
      return ranged_group_bound(group(32), group(256), 15, 63);
    case DType::Q5_K:
      return ranged_group_bound(group(32), group(256), 31, 63);
    case DType::Q3_K:
      return signed_group_bound(group(16), group(256), 4, 32);
    case DType::Q6_K:
      return signed_group_bound(group(16), group(256), 32, 128);
    case DType::IQ2_XXS:
      return grid_bound(group(32).amax(), odd_scale_bound(group(32), group(256), 43, 31), 8);
    case DType::IQ2_XS:
    case DType::IQ2_S:
      return grid_bound(group(16).amax(), odd_scale_bound(group(16), group(256), 43, 31), 8);
    case DType::IQ3_XXS:
      return grid_bound(group(32).amax(), odd_scale_bound(group(32), group(256), 62, 31), 4);
    case DType::IQ3_S:
      return grid_bound(group(32).amax(), odd_scale_bound(group(32), group(256), 15, 31), 1);
    case DType::IQ1_S:
      return 1.25f * odd_scale_bound(group(32), group(256), 1.125f, 15);
    case DType::IQ1_M:
      return 1.25f * odd_scale_bound(group(16), group(256), 1.125f, 15);
    case DType::IQ4_NL:  // from 113, the largest of the other sign, to 127
      return 14 * group(32).amax() / 127 + half_error(group(32).amax() / 127) * 127;
    case DType::IQ4_XS: {
      const float unit = group(256).amax() / (127 * 32) + 0x1p-25f;
      return 14 * (group(32).amax() / 127 + unit) + unit * 127 + half_error(unit) * 32 * 127;
    }
    case DType::TQ1_0:
    case DType::TQ2_0:
      return 0.5f * group(256).amax() + half_error(group(256).amax());
    case DType::Q2_0:
      return 0.5f * group(64).amax() + half_error(group(64).amax());
    case DType::Q1_0:
      return group(128).amax();
    case DType::MXFP4: {  // from 4 to 6 times a power of two, and from 6 to the 8 that is the next one's 4
      const float amax = group(32).amax();
      const float scale = amax == 0 ? 0 : std::ldexp(1.0f, std::ilogb(amax) - 2);
      return std::max(scale, amax - 6 * scale);
    }
    case DType::NVFP4: {  // scales of 3 bits of mantissa, rounded up, to 448
      const float sixth = group(16).amax() / 6;
      return std::max(std::max(sixth * 1.125f, sixth + 0x1p-9f), group(16).amax() - 6 * 448);
    }
  }
  return 0;
}

std::vector<float> normal_values(float deviation, float mean, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> x(kElems);
  for (float& v : x) v = normal(rng);
  return x;
}

/// Each group of 16 at its own scale, from 1 down to 1/256.
std::vector<float> uneven_values(unsigned seed) {
  auto x = normal_values(1.0f, 0.0f, seed);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], -static_cast<int>(i / 16 * 5 % 9));
  return x;
}

}  // namespace

TEST_CASE("encoded values decode to values within the step's bound") {
  auto spike = normal_values(0.01f, 0.0f, 4);
  for (std::size_t i = 0; i < spike.size(); i += 100) spike[i] = i % 200 == 0 ? 30.0f : -30.0f;
  const std::vector<std::vector<float>> cases{
      normal_values(1.0f, 0.0f, 1),      normal_values(0.02f, 0.5f, 2),
      normal_values(3.0f, -20.0f, 3),    normal_values(1e-6f, 0.0f, 5),
      normal_values(1000.0f, 0.0f, 6),   uneven_values(7),
      std::vector<float>(kElems, 0),     std::vector<float>(kElems, 0.3f),
      std::vector<float>(kElems, -0.3f), spike,
  };
  for (const DTypeInfo& t : dtypes()) {
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const std::vector<float>& x = cases[c];
      if (t.dtype == DType::I8 && extent(x.data(), x.size()).amax() > 127) continue;
      const auto y = round_trip(t.dtype, x);
      double worst = 0;  // of error / bound
      double squared_error = 0, squared_bound = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i]));
        const double limit = static_cast<double>(bound(t.dtype, x, i)) * 1.001;
        worst = std::max(worst, error == 0 ? 0 : error / limit);
        squared_error += error * error;
        squared_bound += limit * limit;
      }
      INFO(t.name << " case " << c);
      CHECK(worst <= 1);
      // Errors spread evenly between plus and minus the bound have a mean square of a third of its square. Constant
      // inputs do not spread, nor do values that all lie between two of a codebook's.
      const bool even_steps = t.gguf_id <= info(DType::Q8_K).gguf_id;
      const bool around_zero = c != 1 && c != 2;
      if (t.quantized() && c < 6 && (even_steps || around_zero)) CHECK(squared_error <= 0.37 * squared_bound);
    }
  }
}

TEST_CASE("what a block can express exactly survives") {
  // Whole numbers that reach the extremes of the quants, so that the scale is a power of two.
  const auto exact = [](DType t, int low, int high, float scale) {
    std::vector<float> x(256);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int span = high - low + 1;
      x[i] = scale * static_cast<float>(low + static_cast<int>(i * 7 % 16 + (i % 16 < 8 ? 0 : 16)) % span);
      if (i % 16 == 0) x[i] = scale * static_cast<float>(low);
      if (i % 16 == 1) x[i] = scale * static_cast<float>(high);
    }
    INFO(name(t));
    CHECK(round_trip(t, x) == x);
  };
  exact(DType::Q4_0, -8, 7, 0.25f);
  exact(DType::Q5_0, -16, 15, 2.0f);
  exact(DType::Q4_1, -3, 12, 0.5f);
  exact(DType::Q5_1, 4, 35, 0.5f);
  exact(DType::Q8_0, -127, 127, 0.125f);
  exact(DType::Q8_1, -127, 127, 0.125f);
  exact(DType::Q8_K, -127, 127, 0.125f);
  exact(DType::Q2_K, 0, 3, 15.0f / 8);
  exact(DType::Q3_K, -4, 3, 32.0f / 64);
  exact(DType::Q4_K, 0, 15, 63.0f / 64);
  exact(DType::Q5_K, 0, 31, 63.0f / 64);
  exact(DType::Q6_K, -32, 31, 128.0f / 64);
}

TEST_CASE("every scale and quant of a K block lands where the decoder looks for it") {
  // Group g holds multiples of g + 1 (signed types: at the extreme of its quants), so that a misplaced scale shows.
  const auto check_groups = [](DType t, int groups, int low, int high) {
    std::vector<float> x(256);
    const int size = 256 / groups;
    for (int i = 0; i < 256; ++i) {
      const int g = i / size, span = high - low + 1;
      const int q = i % size == 0 ? low : i % size == 1 ? high : low + (i * 5 + g) % span;
      x[static_cast<std::size_t>(i)] = static_cast<float>((g + 1) * q);
    }
    // The unit of the scales is made 1 by the last group.
    const int top = std::max(-low, high);
    const int scale_top = t == DType::Q2_K ? 15 : t == DType::Q3_K ? 32 : t == DType::Q6_K ? 128 : 63;
    for (int i = 256 - size; i < 256; ++i)
      x[static_cast<std::size_t>(i)] *= static_cast<float>(scale_top) / static_cast<float>(groups);
    INFO(name(t) << " top " << top);
    const auto y = round_trip(t, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO(i);
      REQUIRE(y[i] == Approx(x[i]).margin(1e-4).epsilon(1e-5));
    }
  };
  check_groups(DType::Q3_K, 16, -4, 3);
  check_groups(DType::Q6_K, 16, -32, 31);
  check_groups(DType::Q4_K, 8, 0, 15);
  check_groups(DType::Q5_K, 8, 0, 31);
}

TEST_CASE("the sums that Q8_1 and Q8_K keep") {
  const auto x = normal_values(1.0f, 0.2f, 9);
  const auto q8_1 = encoded(DType::Q8_1, x);
  for (std::size_t b = 0; b < kElems / 32; ++b) {
    const std::byte* block = q8_1.data() + 36 * b;
    Half d, s;
    std::int8_t q[32];
    std::memcpy(&d, block, 2);
    std::memcpy(&s, block + 2, 2);
    std::memcpy(q, block + 4, 32);
    int sum = 0;
    for (const std::int8_t v : q) sum += v;
    REQUIRE(s.bits == to_half(to_float(d) * static_cast<float>(sum)).bits);
  }
  const auto q8_k = encoded(DType::Q8_K, x);
  for (std::size_t b = 0; b < kElems / 256; ++b) {
    std::int8_t q[256];
    std::int16_t sums[16];
    std::memcpy(q, q8_k.data() + 292 * b + 4, 256);
    std::memcpy(sums, q8_k.data() + 292 * b + 260, 32);
    for (int g = 0; g < 16; ++g) {
      int sum = 0;
      for (int i = 0; i < 16; ++i) sum += q[16 * g + i];
      REQUIRE(sums[g] == sum);
    }
  }
}

TEST_CASE("integers round to even and saturate") {
  std::vector<float> x{0.5f, 1.5f, -0.5f, -2.5f, 126.6f, 127.5f, 1e30f, -1e30f, -128.4f, NAN};
  CHECK(round_trip(DType::I8, x) == std::vector<float>{0, 2, 0, -2, 127, 127, 127, -128, -128, 0});
  CHECK(round_trip(DType::I64, x)[6] == 0x1p63f);
  CHECK(round_trip(DType::I64, x)[7] == -0x1p63f);
  CHECK(round_trip(DType::I32, x)[6] == 0x1p31f);
}

TEST_CASE("scales never become infinite") {
  for (const float huge : {1e30f, -1e30f, std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()}) {
    auto x = normal_values(1.0f, 0.0f, 10);
    for (std::size_t i = 0; i < x.size(); i += 16) x[i] = huge;
    for (const DTypeInfo& t : dtypes()) {
      if (!t.quantized()) continue;
      const auto y = round_trip(t.dtype, x);
      INFO(t.name << " " << huge);
      CHECK(std::all_of(y.begin(), y.end(), [](float v) { return std::isfinite(v); }));
    }
  }
}

TEST_CASE("half a block cannot be encoded") {
  std::byte block[18];
  const float x[32]{};
  CHECK_THROWS_AS(encode(DType::Q4_0, x, block, 16), Error);
}
