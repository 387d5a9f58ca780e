// Rows in which something is not a number or infinite, part by part.
#include <limits>
#include <vector>

#include "backend/cuda/kernels/screen.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

constexpr int kRows = 3, kUsed = 2;  // the last row is not the step's

/// found [kRows][kScreenParts] of rows of n.
std::vector<std::int32_t> screened(const std::vector<float>& y, int n) {
  const OnDevice<float> rows(y);
  const OnDevice<std::int32_t> used(std::vector<std::int32_t>{kUsed});
  const OnDevice<std::int32_t> found(static_cast<std::size_t>(kRows) * kScreenParts);
  screen_rows(rows.data(), n, kRows, used.data(), found.data(), {});
  return found.read();
}

/// All are finite, the largest, the smallest and zeros of both signs among them.
std::vector<float> finite_rows(int n, Random& random) {
  std::vector<float> y = random.floats(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(n), 100);
  using Limits = std::numeric_limits<float>;
  const float special[] = {Limits::max(), Limits::lowest(), Limits::denorm_min(), -Limits::denorm_min(), 0.0f, -0.0f};
  for (std::size_t i = 0; i < y.size(); i += 7) y[i] = special[i / 7 % std::size(special)];
  return y;
}

}  // namespace

TEST_CASE("whatever is not finite is found in its part of its row, and nothing in rows that the step has not") {
  if (no_device()) return;
  Random random(1);
  using Limits = std::numeric_limits<float>;
  const float wrong[] = {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(), Limits::infinity(),
                         -Limits::infinity()};
  for (const int n : {1, 5, 17, 300, 1003, 32003}) {  // none a multiple of the parts' number
    const std::vector<float> finite = finite_rows(n, random);
    REQUIRE(screened(finite, n) == std::vector<std::int32_t>(std::size_t{kRows} * kScreenParts, 0));
    const int length = (n + 15) / 16;
    std::vector<int> elements = {0, n - 1};
    for (int border = length; border < n; border += length) elements.insert(elements.end(), {border - 1, border});
    for (int row = 0; row < kRows; ++row) {
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const int element = elements[i];
        std::vector<float> y = finite;
        y[static_cast<std::size_t>(row) * static_cast<std::size_t>(n) + static_cast<std::size_t>(element)] =
            wrong[(i + static_cast<std::size_t>(row)) % std::size(wrong)];
        std::vector<std::int32_t> expected(std::size_t{kRows} * kScreenParts, 0);
        if (row < kUsed) expected[static_cast<std::size_t>(row * kScreenParts + element / length)] = 1;
        INFO("element " << element << " of row " << row << " of " << n);
        REQUIRE(screened(y, n) == expected);
      }
    }
    std::vector<float> y = finite;  // all at once
    for (const int element : elements) {
      for (int row = 0; row < kRows; ++row)
        y[static_cast<std::size_t>(row) * static_cast<std::size_t>(n) + static_cast<std::size_t>(element)] =
            wrong[static_cast<std::size_t>(element + row) % std::size(wrong)];
    }
    std::vector<std::int32_t> expected(std::size_t{kRows} * kScreenParts, 0);
    for (int row = 0; row < kUsed; ++row) {
      for (const int element : elements) expected[static_cast<std::size_t>(row * kScreenParts + element / length)] = 1;
    }
    REQUIRE(screened(y, n) == expected);
  }
}

}  // namespace llm::cuda::test
