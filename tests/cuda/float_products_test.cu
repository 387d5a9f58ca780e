// Products of float matrices, against sums in double precision.
#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "backend/cuda/kernels/float_products.cuh"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/rows.h"
#include "base/half.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

const Launch kLaunch{};
constexpr std::array kTypes = {DType::F32, DType::F16, DType::BF16};

int bytes_of(DType t) { return t == DType::F32 ? 4 : 2; }

/// `count` matrices of n rows of k, as floats and as they lie in device memory, `stride` bytes apart.
struct Matrices {
  Matrices(Random& random, DType type, int k, int n, int count)
      : type{type, k, n},
        stride(count == 1 ? 0 : matrix_bytes(this->type)),
        values(random.floats(static_cast<std::size_t>(k) * n * count)) {
    const std::size_t size = static_cast<std::size_t>(k) * n, bytes = size * static_cast<std::size_t>(bytes_of(type));
    std::vector<std::uint8_t> stored(stride * static_cast<std::size_t>(count - 1) + bytes, 0xff);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint8_t* const at = stored.data() + i / size * stride + i % size * static_cast<std::size_t>(bytes_of(type));
      if (type == DType::F32) {
        std::memcpy(at, &values[i], 4);
      } else {
        const std::uint16_t bits = type == DType::F16 ? to_half(values[i]).bits : to_bfloat16(values[i]).bits;
        values[i] = type == DType::F16 ? to_float(Half{bits}) : to_float(BFloat16{bits});
        std::memcpy(at, &bits, 2);
      }
    }
    device = std::make_unique<OnDevice<std::uint8_t>>(stored);
  }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(device->data()); }
  double dot(int matrix, int row, const float* x) const {
    const float* const w = values.data() + (static_cast<std::size_t>(matrix) * type.n + row) * type.k;
    double sum = 0;
    for (int i = 0; i < type.k; ++i) sum += double{w[i]} * double{x[i]};
    return sum;
  }

  MatrixType type;
  std::size_t stride;
  std::vector<float> values;
  std::unique_ptr<OnDevice<std::uint8_t>> device;
};

std::vector<float> column(const std::vector<float>& y, int n, int c) {
  return {y.begin() + static_cast<std::ptrdiff_t>(n) * c, y.begin() + static_cast<std::ptrdiff_t>(n) * (c + 1)};
}

}  // namespace

TEST_CASE("every total is left in a lane, which knows which one it has") {
  for (const int count : {1, 2, 4, 8, 16, 32}) {
    // reduce_lanes(), all lanes at once: value i of lane l is 100 i + l, summed exactly.
    std::array<std::vector<double>, 32> v;
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < count; ++i) v[lane].push_back(100 * i + lane);
    }
    for (int width = 16; width > 0; width /= 2) {
      auto next = v;
      for (int lane = 0; lane < 32; ++lane) {
        const std::size_t half = v[lane].size() / 2;
        if (half == 0) {
          next[lane][0] = v[lane][0] + v[lane ^ width][0];
          continue;
        }
        next[lane].resize(half);
        for (std::size_t i = 0; i < half; ++i) {
          const std::size_t from = (lane & width) != 0 ? i + half : i;
          next[lane][i] = v[lane][from] + v[lane ^ width][from];
        }
      }
      v = next;
    }
    for (int lane = 0; lane < 32; ++lane) REQUIRE(v[lane][0] == 32 * 100 * total_of_lane(lane, count) + 496);
  }
}

TEST_CASE("float products of any size and number of columns") {
  if (no_device()) return;
  Random random(1);
  struct Case {
    int k, n;
  };
  for (const DType type : kTypes) {
    for (const Case c :
         {Case{1, 1}, Case{3, 5}, Case{8, 3}, Case{64, 7}, Case{257, 33}, Case{1000, 130}, Case{2048, 128},
          Case{4096, 600}, Case{520, 2051}, Case{264, 4099}, Case{72, 9001}, Case{77, 8200}}) {
      const Matrices w(random, type, c.k, c.n, 1);
      constexpr int kMost = 21;
      std::vector<float> x = random.floats(static_cast<std::size_t>(c.k) * kMost);
      x[static_cast<std::size_t>(c.k) * 19] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> bias = random.floats(static_cast<std::size_t>(c.n)), factor = {0.7f};
      const OnDevice<float> device_x(x), device_bias(bias), device_factor(factor);
      std::vector<float> most;
      for (const int columns : {21, 1, 2, 3, 4, 5, 8, 9, 20}) {
        INFO("k " << c.k << ", n " << c.n << ", columns " << columns << ", " << bytes_of(type) << " bytes");
        const OnDevice<float> y(static_cast<std::size_t>(c.n) * columns);
        const Target target{w.type, w.data(), device_bias.data(), device_factor.data(), y.data()};
        float_products(std::span(&target, 1), device_x.data(), columns, kLaunch);
        const std::vector<float> found = y.read();
        if (columns == kMost) {
          most = found;
          for (const int i : {0, 1, 7, 8, 19, 20}) {
            std::vector<float> expected(static_cast<std::size_t>(c.n));
            for (int row = 0; row < c.n; ++row) {
              const double sum = w.dot(0, row, x.data() + static_cast<std::ptrdiff_t>(i) * c.k);
              expected[static_cast<std::size_t>(row)] =
                  static_cast<float>(sum * double{factor[0]} + double{bias[static_cast<std::size_t>(row)]});
            }
            INFO("column " << i);
            // Sums of few rows may all be small beside their terms.
            expected.push_back(std::sqrt(static_cast<float>(c.k)));
            std::vector<float> actual = column(found, c.n, i);
            actual.push_back(expected.back());
            REQUIRE(worst(expected, actual, c.k) <= 1);
          }
        } else {
          most.resize(found.size() > most.size() ? found.size() : most.size());
          REQUIRE(first_difference({most.begin(), most.begin() + static_cast<std::ptrdiff_t>(found.size())}, found) ==
                  -1);
        }
      }
    }
  }
}

TEST_CASE("float products of several types in one call") {
  if (no_device()) return;
  Random random(2);
  constexpr int kK = 512, kColumns = 3;
  const Matrices a(random, DType::F16, kK, 640, 1), b(random, DType::F32, kK, 100, 1),
      c(random, DType::F16, kK, 2200, 1), d(random, DType::BF16, kK, 3, 1);
  const std::vector<float> x = random.floats(kK * kColumns);
  const OnDevice<float> device_x(x);
  std::vector<OnDevice<float>> results;
  std::vector<Target> targets;
  const std::array all = {&a, &b, &c, &d};
  for (const Matrices* m : all) results.emplace_back(static_cast<std::size_t>(m->type.n) * kColumns);
  for (std::size_t i = 0; i < all.size(); ++i)
    targets.push_back({all[i]->type, all[i]->data(), nullptr, nullptr, results[i].data()});
  float_products(targets, device_x.data(), kColumns, kLaunch);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const OnDevice<float> alone(results[i].size());
    targets[i].y = alone.data();
    float_products(std::span(&targets[i], 1), device_x.data(), kColumns, kLaunch);
    REQUIRE(first_difference(alone.read(), results[i].read()) == -1);
    std::vector<float> expected;
    for (int column = 0; column < kColumns; ++column) {
      for (int row = 0; row < all[i]->type.n; ++row)
        expected.push_back(static_cast<float>(all[i]->dot(0, row, x.data() + column * kK)));
    }
    REQUIRE(worst(expected, alone.read(), kK) <= 1);
  }
}

TEST_CASE("float products of experts") {
  if (no_device()) return;
  Random random(3);
  struct Case {
    int k, n, experts, top_k, tokens, columns;
    bool row_per_route;
  };
  for (const DType type : kTypes) {
    for (const Case c :
         {Case{256, 96, 8, 2, 1, 8, false}, Case{264, 130, 4, 3, 40, 32, false}, Case{264, 130, 4, 3, 40, 16, true},
          Case{77, 21, 16, 4, 9, 8, true}, Case{128, 2, 8, 2, 5, 8, false}}) {
      const Matrices gate(random, type, c.k, c.n, c.experts), up(random, DType::F32, c.k, c.n + 3, c.experts);
      const int routes = c.tokens * c.top_k, rows = c.row_per_route ? routes : c.tokens;
      const std::vector<float> x = random.floats(static_cast<std::size_t>(c.k) * rows);
      const std::vector<float> bias = random.floats(static_cast<std::size_t>(c.n) * c.experts),
                               factor = random.floats(static_cast<std::size_t>(c.experts));
      std::vector<std::int32_t> ids;
      for (int token = 0; token < c.tokens; ++token) {
        std::set<int> chosen;
        while (static_cast<int>(chosen.size()) < c.top_k) chosen.insert(random.below(random.below(c.experts) + 1));
        ids.insert(ids.end(), chosen.begin(), chosen.end());
      }
      const OnDevice<std::int32_t> device_ids(ids), counts(std::vector<std::int32_t>{c.tokens, 1, 1, 1});
      const OnDevice<std::uint8_t> memory(route_groups_bytes(c.experts, c.tokens, c.top_k));
      StepView step;
      step.counts = counts.data();
      RouteGroups groups = group_routes(device_ids.data(), c.experts, c.tokens, c.top_k, c.columns, step,
                                        reinterpret_cast<std::byte*>(memory.data()), kLaunch);
      groups.routes_per_row = c.row_per_route ? 1 : c.top_k;
      const OnDevice<float> device_x(x), device_bias(bias), device_factor(factor);
      const OnDevice<float> y(static_cast<std::size_t>(c.n) * routes), z(static_cast<std::size_t>(c.n + 3) * routes);
      const std::array targets = {Target{gate.type, gate.data(), device_bias.data(), device_factor.data(), y.data()},
                                  Target{up.type, up.data(), nullptr, nullptr, z.data()}};
      expert_float_products(targets, device_x.data(), groups, kLaunch);
      std::vector<float> expected_y, expected_z;
      for (int r = 0; r < routes; ++r) {
        const int e = ids[static_cast<std::size_t>(r)];
        const float* const row = x.data() + static_cast<std::ptrdiff_t>(c.row_per_route ? r : r / c.top_k) * c.k;
        for (int i = 0; i < c.n; ++i) {
          expected_y.push_back(static_cast<float>(gate.dot(e, i, row) * double{factor[static_cast<std::size_t>(e)]} +
                                                  double{bias[static_cast<std::size_t>(e * c.n + i)]}));
        }
        for (int i = 0; i < c.n + 3; ++i) expected_z.push_back(static_cast<float>(up.dot(e, i, row)));
      }
      INFO("k " << c.k << ", n " << c.n << ", tokens " << c.tokens);
      REQUIRE(worst(expected_y, y.read(), c.k) <= 1);
      REQUIRE(worst(expected_z, z.read(), c.k) <= 1);

      // A route's result is that of its matrix and row alone.
      const int e = ids[0];
      const OnDevice<float> alone(static_cast<std::size_t>(c.n));
      const Target first{gate.type, gate.data() + static_cast<std::size_t>(e) * gate.stride,
                         device_bias.data() + e * c.n, device_factor.data() + e, alone.data()};
      float_products(std::span(&first, 1), device_x.data(), 1, kLaunch);
      REQUIRE(first_difference(alone.read(), column(y.read(), c.n, 0)) == -1);
    }
  }
}

}  // namespace llm::cuda::test
