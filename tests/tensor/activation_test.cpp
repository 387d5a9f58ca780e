// Quantised activations: rounding, scales, and the values at the edges of f32.
#include "tensor/activation.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

using namespace llm;

namespace {

struct Quantised {
  float scale;
  std::vector<int> q;
};

Quantised quantised(const std::vector<float>& x) {
  std::vector<std::int8_t> q(x.size(), 99);
  const float scale = quantize_activation_block(x.data(), static_cast<std::int64_t>(x.size()), q.data());
  return {scale, {q.begin(), q.end()}};
}

}  // namespace

TEST_CASE("ties round to even") {
  // amax 127 makes the factor 1, so that the values are the quotients.
  const Quantised r =
      quantised({127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 3.4999998f, 3.5000002f, -0.0f});
  CHECK(r.scale == 1.0f);
  CHECK(r.q == std::vector<int>{127, 0, 2, 2, 0, -2, -2, 126, -126, 3, 4, 0});
  CHECK(quantised({-254, 1, 3, 5}).q == std::vector<int>{-127, 0, 2, 2});  // halves of the step 2
}

TEST_CASE("the definition holds at every magnitude") {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (int exponent = -95; exponent <= 120; exponent += 5) {
    for (const std::size_t n : {std::size_t{32}, std::size_t{256}}) {
      std::vector<float> x(n);
      float amax = 0;
      for (float& v : x) {
        v = std::ldexp(normal(rng), exponent);
        amax = std::max(amax, std::fabs(v));
      }
      std::vector<int> expected;
      const float factor = 127.0f / amax;
      for (const float v : x) {
        const float quotient = v * factor;
        expected.push_back(static_cast<int>(std::nearbyint(static_cast<double>(quotient))));
      }
      const Quantised r = quantised(x);
      REQUIRE(r.scale == amax / 127.0f);
      REQUIRE(r.q == expected);
      REQUIRE(*std::max_element(r.q.begin(), r.q.end(), [](int a, int b) { return std::abs(a) < std::abs(b); }) != 0);
      for (std::size_t i = 0; i < n; ++i) {
        const double error = static_cast<double>(r.scale) * r.q[i] - static_cast<double>(x[i]);
        REQUIRE(std::fabs(error) <= 0.50001 * static_cast<double>(r.scale));
      }
    }
  }
}

TEST_CASE("zeros and values below 2^-100 give scale 0") {
  for (const float v : {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), 0x1.fffffep-101f, -0x1.fffffep-101f}) {
    const Quantised r = quantised({0, v, 0, v});
    CHECK(r.scale == 0.0f);
    CHECK_FALSE(std::signbit(r.scale));
    CHECK(r.q == std::vector<int>{0, 0, 0, 0});
  }
  const Quantised least = quantised({0x1p-100f, -0x1p-101f});
  CHECK(least.scale == 0x1p-100f / 127.0f);
  CHECK(least.q == std::vector<int>{127, -64});  // -63.5 ties to -64
}

TEST_CASE("the largest finite values do not overflow") {
  const float largest = std::numeric_limits<float>::max();
  const Quantised r = quantised({largest, -largest, largest / 2, 1.0f});
  CHECK(r.scale == largest / 127.0f);
  CHECK(r.q[0] == 127);
  CHECK(r.q[1] == -127);
  CHECK(r.q[3] == 0);
}

TEST_CASE("a value that is not finite shows in the scale") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, -nan, infinity, -infinity, std::bit_cast<float>(0x7f800001u)}) {
    for (std::size_t at = 0; at < 32; at += 31) {
      std::vector<float> x(32, 1.0f);
      x[at] = bad;
      const Quantised r = quantised(x);
      CHECK(std::isnan(r.scale));
      CHECK(r.q == std::vector<int>(32, 0));
    }
  }
}

TEST_CASE("the values that quantised activations stand for") {
  CHECK(act_block_elems(ActFormat::F32) == 1);
  CHECK(act_block_elems(ActFormat::BF16) == 1);
  CHECK(act_block_elems(ActFormat::Q8x32) == 32);
  CHECK(act_block_elems(ActFormat::Q8x256) == 256);

  std::vector<float> x(512), y(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / 32 + 1) * (i % 32 == 0 ? 127.0f : -3.0f);
  round_trip_activation(ActFormat::Q8x32, x.data(), y.data(), 512);
  CHECK(y == x);  // one whole scale per 32

  round_trip_activation(ActFormat::Q8x256, x.data(), y.data(), 512);
  CHECK(y != x);
  CHECK(y[7 * 32] == x[7 * 32]);  // the largest of each 256
  CHECK(y[15 * 32] == x[15 * 32]);
  CHECK(y[0] == 8.0f * 16.0f);  // 127 in steps of 8: 15.875 rounds to 16
  CHECK(y[1] == 0.0f);          // -3 in steps of 8

  x[300] = NAN;
  round_trip_activation(ActFormat::F32, x.data(), y.data(), 300);
  CHECK(std::equal(x.begin(), x.begin() + 300, y.begin()));
  const std::vector<float> ties = {0x1.01p0f, 0x1.03p0f, -0x1.0101p0f, 0x1p-130f};  // of 8 bits: even, even, up
  round_trip_activation(ActFormat::BF16, ties.data(), y.data(), 4);
  CHECK(std::vector<float>(y.begin(), y.begin() + 4) == std::vector<float>{1.0f, 0x1.04p0f, -0x1.02p0f, 0x1p-130f});
  round_trip_activation(ActFormat::Q8x256, x.data(), y.data(), 512);
  CHECK(std::isfinite(y[255]));
  CHECK(std::isnan(y[256]));
  CHECK(std::isnan(y[511]));

  CHECK_THROWS_AS(round_trip_activation(ActFormat::Q8x256, x.data(), y.data(), 128), Error);
}
