// What is done to the results of a library's products, against double precision.
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cuda/kernels/finish.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool is_near(float found, double want, double magnitude) {
  if (std::isnan(want) || std::isinf(want)) return std::isnan(want) ? std::isnan(found) : found == want;
  return std::abs(static_cast<double>(found) - want) <= 0x1p-22 * magnitude;
}

}  // namespace

TEST_CASE("products' rows are scaled back, scaled, and get their bias") {
  if (no_device()) return;
  constexpr int kRows = 11;
  Random random(9);
  for (const int n : {1, 7, 32, 33, 1021, 4096}) {
    const auto at = [&](int row, int i) { return static_cast<std::size_t>(row) * n + i; };
    std::vector<float> y = random.floats(static_cast<std::size_t>(n) * kRows), bias = random.floats(static_cast<std::size_t>(n));
    y[at(1, random.below(n))] = kInf;
    y[at(2, random.below(n))] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> unscale = {1, 2, 1, 4, 1, 0x1p20f, 1, 1, 16, 1, 2}, scale = {0.3f};
    const OnDevice<float> device_unscale(unscale), device_scale(scale), device_bias(bias);
    for (int given = 0; given < 8; ++given) {
      const bool has_unscale = given % 2 != 0, has_scale = given / 2 % 2 != 0, has_bias = given / 4 != 0;
      const OnDevice<float> found(y);
      finish_products(found.data(), n, kRows, has_unscale ? device_unscale.data() : nullptr,
                      has_scale ? device_scale.data() : nullptr, has_bias ? device_bias.data() : nullptr, {});
      const std::vector<float> results = found.read();
      INFO("n " << n << " unscale " << has_unscale << " scale " << has_scale << " bias " << has_bias);
      std::size_t wrong = 0;
      for (int row = 0; row < kRows; ++row)
        for (int i = 0; i < n; ++i) {
          double product = static_cast<double>(y[at(row, i)]);
          if (has_unscale) product *= static_cast<double>(unscale[static_cast<std::size_t>(row)]);
          if (has_scale) product *= static_cast<double>(scale[0]);
          const double added = has_bias ? static_cast<double>(bias[static_cast<std::size_t>(i)]) : 0;
          const bool exact = !has_scale && !has_bias;  // factors of rows are powers of two
          wrong += !is_near(results[at(row, i)], product + added, exact ? 0 : std::abs(product) + std::abs(added));
        }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace llm::cuda::test
