// wgmma_products() against double precision, of weights rounded to F16: what is allowed for is only how sums are
// rounded.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/wgmma_plan.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "base/half.h"
#include "device_data.h"
#include "support/catch.h"
#include "tile_data.h"

using namespace llm;
using namespace llm::cuda;
using namespace llm::cuda::test;

namespace {

bool no_wgmma() {
  if (no_device()) return true;
  if (has_wgmma()) return false;
  std::fputs("SKIPPED: the device's compute capability is not 9.0\n", stderr);
  return true;
}

float as_half(float x) { return to_float(to_half(x)); }

/// Rows of F16 on the device as panels, and factors that are mostly 1. What nobody reads is NaN.
struct Panels {
  Panels(int columns, int capacity, std::int64_t k, std::uint32_t seed)
      : k(k), capacity(capacity), unscale(static_cast<std::size_t>(columns), 1.0f) {
    Random random(seed);
    std::vector<std::byte> panels(static_cast<std::size_t>(half_panels_bytes(k, capacity)), std::byte{0xff});
    for (int c = 0; c < columns; ++c)
      for (std::int64_t i = 0; i < k_blocks(k) * kBlockK; ++i) {
        const Half half = to_half(i < k ? random.normal() : 0.0f);
        if (i < k) values.push_back(to_float(half));
        std::memcpy(panels.data() + place(c, i), &half.bits, 2);
      }
    for (std::size_t i = 2; i < unscale.size(); i += 5) unscale[i] = 8;
    bytes.emplace_back(panels);
    factors.emplace_back(unscale);
  }
  std::int64_t place(int column, std::int64_t i) const {
    return half_panels_offset(i / 2 * 2, column, panel_lines(capacity)) + 2 * (i % 2);
  }
  const float* column(int c) const { return values.data() + c * k; }
  std::int64_t k;
  int capacity;
  std::vector<float> values, unscale;
  std::vector<OnDevice<std::byte>> bytes;
  std::vector<OnDevice<float>> factors;
};

struct Matrix {
  Matrix(DType type, std::int64_t n, std::int64_t k, std::uint32_t seed) : rows(type, n, k, seed), data(packed(rows)) {
    for (float& x : rows.values) x = as_half(x);
  }
  cuda::test::Rows rows;
  DeviceBuffer data;
};

std::size_t wrong_results(const Matrix& w, const Panels& x, const std::vector<float>& bias, float scale,
                          const std::vector<float>& y) {
  const std::int64_t k = x.k, n = w.rows.type.n;
  // As of grouped products: each of the k / 16 products adds to its sum with 22 bits at least, the rest rounds once
  // each, and a weight close to the middle of two numbers of F16 may be either.
  const double unit = 0x1p-22 * (static_cast<double>(k) / 16 + 8);
  std::size_t wrong = 0;
  for (std::size_t c = 0; c < x.unscale.size(); ++c)
    for (std::int64_t i = 0; i < n; ++i) {
      const float *row = w.rows.values.data() + i * k, *column = x.column(static_cast<int>(c));
      double sum = 0, magnitude = 0, squares = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        const double term = double{row[j]} * double{column[j]};
        sum += term;
        magnitude += std::abs(term);
        squares += term * term;
      }
      const double factor = double{x.unscale[c]} * double{scale};
      const double added = bias.empty() ? 0.0 : double{bias[static_cast<std::size_t>(i)]};
      const double allowed =
          (unit * magnitude + 0x1p-10 * std::sqrt(squares)) * std::abs(factor) + unit * std::abs(added);
      const float got = y[c * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)];
      wrong += !(std::abs(double{got} - (sum * factor + added)) <= allowed);
    }
  return wrong;
}

std::vector<float> run(const Matrix& w, const Panels& x, const std::vector<float>& bias = {}, float scale = 1) {
  const auto columns = static_cast<int>(x.unscale.size());
  const OnDevice<float> device_bias(bias), device_scale(std::vector<float>{scale});
  const OnDevice<float> y(x.unscale.size() * static_cast<std::size_t>(w.rows.type.n));
  const Target target{.type = w.rows.type,
                      .matrix = w.data.data(),
                      .bias = bias.empty() ? nullptr : device_bias.data(),
                      .scale = scale == 1 ? nullptr : device_scale.data(),
                      .y = y.data()};
  wgmma_products({&target, 1}, x.bytes[0].data(), x.capacity, x.factors[0].data(), columns, {});
  return y.read();
}

}  // namespace

TEST_CASE("products on wgmma of every type agree with double precision", "[wgmma]") {
  if (no_wgmma()) return;
  for (const DType type : kTypes) {
    const auto block = static_cast<std::int64_t>(info(type).block_elems);
    for (const std::int64_t k : {std::max<std::int64_t>(64, block), 832 / block * block}) {
      const Matrix w(type, 149, k, static_cast<std::uint32_t>(k));
      const Panels x(70, 80, k, static_cast<std::uint32_t>(k + 1));
      INFO(name(type) << " k " << k);
      CHECK(wrong_results(w, x, {}, 1, run(w, x)) == 0);
    }
  }
}

TEST_CASE("products on wgmma take any number of columns and rows, with scale and bias", "[wgmma]") {
  if (no_wgmma()) return;
  Random random(4);
  for (const std::int64_t n : {40, 256, 258, 515}) {
    const Matrix w(DType::Q4_K, n, 512, 3);
    const std::vector<float> bias = random.floats(static_cast<std::size_t>(n));
    for (const int columns : {1, 65, 95, 96, 97, 128, 129, 192, 193, 300}) {
      const Panels x(columns, columns + columns % 7, 512, 5);
      INFO(n << " rows, " << columns << " columns");
      CHECK(wrong_results(w, x, bias, -2, run(w, x, bias, -2)) == 0);
    }
  }
}

TEST_CASE("blocks of a cluster share out any number of pieces", "[wgmma]") {
  if (no_wgmma()) return;
  for (const DType type : {DType::Q6_K, DType::Q8_0})
    for (const std::int64_t k : {256, 512, 768, 1280, 2304, 4352}) {
      const Matrix w(type, 270, k, 6);
      const Panels x(100, 100, k, 7);
      INFO(name(type) << " k " << k);
      CHECK(wrong_results(w, x, {}, 1, run(w, x)) == 0);
    }
}

TEST_CASE("products on wgmma go round their rings", "[wgmma]") {
  if (no_wgmma()) return;
  // so many tiles that none is shared: all of k by one block
  const std::int64_t k = 3072, n = 256 * 150;
  const Matrix w(DType::Q4_0, n, k, 8);
  const Panels x(66, 66, k, 9);
  const std::vector<float> y = run(w, x);
  CHECK(wrong_results(w, x, {}, 1, y) == 0);
  CHECK(first_difference(y, run(w, x)) == -1);
}

TEST_CASE("a number that is none stays in its column of wgmma's products", "[wgmma]") {
  if (no_wgmma()) return;
  const Matrix w(DType::Q4_0, 20, 96, 11);
  Panels x(72, 72, 96, 12);
  const std::vector<float> before = run(w, x);
  std::vector<std::byte> bytes = x.bytes[0].read();
  const std::uint16_t nan = 0x7e00;
  std::memcpy(bytes.data() + x.place(7, 95), &nan, 2);
  x.bytes[0] = OnDevice<std::byte>(bytes);
  const std::vector<float> y = run(w, x);
  for (std::size_t i = 0; i < y.size(); ++i) REQUIRE((i / 20 == 7 ? std::isnan(y[i]) : same(y[i], before[i])));
}

TEST_CASE("products on wgmma have targets of several types and sizes", "[wgmma]") {
  if (no_wgmma()) return;
  const Matrix w[] = {{DType::Q4_K, 300, 512, 13}, {DType::Q6_K, 7, 512, 14}, {DType::Q4_K, 257, 512, 15}};
  const Panels x(130, 256, 512, 17);
  std::vector<OnDevice<float>> y;
  std::vector<Target> targets;
  for (const Matrix& m : w) {
    y.emplace_back(x.unscale.size() * static_cast<std::size_t>(m.rows.type.n));
    targets.push_back({.type = m.rows.type, .matrix = m.data.data(), .y = y.back().data()});
  }
  wgmma_products(targets, x.bytes[0].data(), x.capacity, x.factors[0].data(), 130, {});
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(wrong_results(w[i], x, {}, 1, y[i].read()) == 0);
}

TEST_CASE("rows as panels are the rows of F16", "[wgmma]") {
  if (no_device()) return;
  Random random(18);
  for (const int n : {64, 96, 256, 1000, 4096, 40000}) {
    constexpr int kRows = 67, kCapacity = 70;
    std::vector<float> values = random.floats(static_cast<std::size_t>(kRows * n));
    values[static_cast<std::size_t>(3 * n + 5)] = 1e6f;  // a row with a factor of its own
    const OnDevice<float> x(values), unscale(kRows), panel_unscale(kRows);
    const OnDevice<std::uint16_t> f16(values.size());
    const OnDevice<std::byte> panels(static_cast<std::size_t>(half_panels_bytes(n, kCapacity)));
    make_forms(x.data(), n, kRows, {.f16 = f16.data(), .f16_unscale = unscale.data()}, {});
    make_forms(x.data(), n, kRows,
               {.f16_panels = panels.data(), .f16_unscale = panel_unscale.data(), .capacity = kCapacity}, {});
    const std::vector<std::uint16_t> want = f16.read();
    const std::vector<std::byte> got = panels.read();
    CHECK(unscale.read() == panel_unscale.read());
    std::size_t wrong = 0;
    for (int row = 0; row < kRows; ++row)
      for (std::int64_t i = 0; i < k_blocks(n) * kBlockK; ++i) {
        std::uint16_t half;
        std::memcpy(&half, got.data() + half_panels_offset(i / 2 * 2, row, panel_lines(kCapacity)) + 2 * (i % 2), 2);
        wrong += half != (i < n ? want[static_cast<std::size_t>(row * n + i)] : 0);
      }
    INFO(n);
    CHECK(wrong == 0);
  }
}

TEST_CASE("panels are dense, and lines of 8 neighbouring rows permute their 16 bytes", "[wgmma]") {
  for (const std::int64_t rows : {1, 8, 67}) {
    const std::int64_t k = 320, lines = panel_lines(rows);
    std::vector<int> used(static_cast<std::size_t>(half_panels_bytes(k, rows)), 0);
    for (std::int64_t row = 0; row < lines; ++row)
      for (std::int64_t i = 0; i < k_blocks(k) * kBlockK; i += 2)
        for (int b = 0; b < 4; ++b) ++used[static_cast<std::size_t>(half_panels_offset(i, row, lines) + b)];
    const auto panels = used.begin() + k_blocks(k) * 4 * lines * 128;
    CHECK(std::all_of(used.begin(), panels, [](int n) { return n == 1; }));
    CHECK(std::all_of(panels, used.end(), [](int n) { return n == 0; }));
    CHECK(used.end() - panels == 128 * 128);
  }
  // elements 4t .. 4t + 3 of 16 are slots 2t, 2t + 1, 2t + 8, 2t + 9
  CHECK(half_panels_offset(0, 0, 8) == 0);
  CHECK(half_panels_offset(2, 0, 8) == 16);
  CHECK(half_panels_offset(4, 0, 8) == 4);
  CHECK(half_panels_offset(14, 0, 8) == 16 + 12);
  CHECK(half_panels_offset(16, 0, 8) == 32);
  CHECK(half_panels_offset(16, 5, 8) == 5 * 128 + (2 ^ 5) * 16);
  CHECK(half_panels_offset(64, 1, 8) == 8 * 128 + 128 + 16);
}

TEST_CASE("products on wgmma are shared out so that no multiprocessor is without", "[wgmma]") {
  const WgmmaClusters clusters = {132, 66, 39, 30, 22, 17, 15, 15};  // of an H100
  const auto plan = [&](int tiles, int pieces, int columns) {
    return plan_wgmma({.tiles = tiles, .pieces = pieces, .piece_chunks = 4, .piece_bytes = 37888, .columns = columns},
                      clusters);
  };
  // an 8B model's products, 128 columns: gate and up, q, k and v, attention's output, down
  CHECK(plan(112, 16, 128).cluster == 1);
  CHECK(plan(24, 16, 128).cluster == 4);
  CHECK(plan(16, 16, 128).cluster == 6);
  CHECK(plan(16, 56, 128).cluster == 6);
  CHECK(plan(1, 2, 128).cluster <= 2);  // no block is without a piece
  for (const auto& [columns, groups, width] : {std::array<int, 3>{65, 1, 96},
                                               {96, 1, 96},
                                               {97, 1, 128},
                                               {129, 2, 96},
                                               {192, 2, 96},
                                               {193, 2, 128},
                                               {512, 4, 128}}) {
    CHECK(plan(8, 8, columns).groups == groups);
    CHECK(plan(8, 8, columns).columns == width);
  }
  for (const int cluster : {1, 2, 3, 7, 8})
    for (const int pieces : {8, 9, 15, 56}) {
      CHECK(wgmma_first_piece(pieces, cluster, 0) == 0);
      CHECK(wgmma_first_piece(pieces, cluster, cluster) == pieces);
    }
}
