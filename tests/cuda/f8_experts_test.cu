// Products of experts in E4M3 against double precision, of operands rounded by the format's definition: what is allowed
// for is only what tensor cores cut off of their sums, and weights that lie close to the middle of two numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "backend/cuda/weights.h"
#include "base/half.h"
#include "device_data.h"
#include "expert_data.h"
#include "kernels/quant_cases.h"
#include "support/catch.h"
#include "support/e4m3.h"
#include "support/graph_runner.h"
#include "tensor/decode.h"
#include "tensor/tensor.h"

namespace llm::cuda::test {
namespace {

using llm::test::e4m3_value;

bool no_wgmma() {
  if (no_device()) return true;
  if (has_wgmma()) return false;
  std::fputs("SKIPPED: the device's compute capability is not 9.0\n", stderr);
  return true;
}

/// The code whose value is nearest, of two the even one: as nearest_e4m3(), by a search.
std::uint8_t nearest(double x) {
  static const auto values = [] {
    std::array<double, 0x7f> v{};
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = double{e4m3_value(static_cast<std::uint8_t>(i))};
    return v;
  }();
  const double magnitude = std::abs(x);
  std::ptrdiff_t code = std::lower_bound(values.begin(), values.end(), magnitude) - values.begin();
  if (code == std::ssize(values)) --code;
  if (code > 0) {
    const double above = values[static_cast<std::size_t>(code)] - magnitude;
    const double below = magnitude - values[static_cast<std::size_t>(code - 1)];
    if (below < above || (below == above && code % 2 == 1)) --code;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

/// A weight in units of its row's factor: between these two numbers of E4M3, which mostly are one.
struct Weight {
  float low, high;
};

/// Matrices of random weights on the device, with the factors of their rows.
struct Experts {
  using Edit = std::function<void(std::vector<std::byte>& file, std::size_t row_bytes)>;
  Experts(DType type, int count, std::int64_t n, std::int64_t k, std::uint32_t seed, const Edit& edit = {})
      : type{type, k, n}, matrices(matrix_bytes(this->type) * static_cast<std::size_t>(count)) {
    const std::size_t row_bytes = TensorType{type, {k}}.row_bytes(), rows = static_cast<std::size_t>(count * n);
    std::vector<std::byte> file(rows * row_bytes);
    std::mt19937 rng(seed);
    cpu::test::random_blocks(type, file.data(), file.size(), rng);
    if (edit) edit(file, row_bytes);
    std::vector<float> row(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < rows; ++i) {
      decode(type, file.data() + i * row_bytes, row.data(), k);
      add_row(row);
    }
    const OnDevice<std::byte> on_device(file);
    for (int e = 0; e < count; ++e)
      pack_rows(this->type, on_device.data() + static_cast<std::size_t>(e * n) * row_bytes, 0, n,
                matrices.data() + static_cast<std::size_t>(e) * matrix_bytes(this->type), {});
    check_cuda(cudaDeviceSynchronize(), "packing");
    device_scales.emplace_back(scales);
  }
  void add_row(const std::vector<float>& row) {
    float largest = 0;
    for (const float x : row) largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest;
    scales.push_back(largest < 0x1p-100f ? 1.0f : largest / 448.0f);
    for (const float x : row) {
      // A product of code and scale, and a sum of it and an offset, are off by 2^-16 of a scale, which is 448 at most.
      const double exact = double{x} / double{scales.back()}, off = 448 * 0x1p-16 + std::abs(exact) * 0x1p-20;
      weights.push_back({e4m3_value(nearest(exact - off)), e4m3_value(nearest(exact + off))});
    }
  }
  const Weight* row(int expert, std::int64_t i) const { return weights.data() + (expert * type.n + i) * type.k; }
  double scale(int expert, std::int64_t i) const {
    return double{scales[static_cast<std::size_t>(expert * type.n + i)]};
  }

  MatrixType type;
  OnDevice<std::byte> matrices;
  std::vector<float> scales;
  std::vector<Weight> weights;
  std::vector<OnDevice<float>> device_scales;
};

/// Rows of E4M3, and factors that are mostly 1.
struct Bytes8 {
  Bytes8(int rows, std::int64_t k, std::uint32_t seed) : k(k), factors(static_cast<std::size_t>(rows), 1.0f) {
    Random random(seed);
    for (std::int64_t i = 0; i < rows * k; ++i) bytes.push_back(nearest(100 * double{random.normal()}));
    for (std::size_t i = 2; i < factors.size(); i += 5) factors[i] = 0.375f;
    device_factors.emplace_back(factors);
    place();
  }
  /// After a change of bytes.
  void place() {
    on_device.clear();
    on_device.emplace_back(bytes);
    values.clear();
    for (const std::uint8_t b : bytes) values.push_back(e4m3_value(b));
  }
  int rows() const { return static_cast<int>(factors.size()); }
  const float* row(int i) const { return values.data() + i * k; }

  std::int64_t k;
  std::vector<std::uint8_t> bytes;
  std::vector<float> values, factors;
  std::vector<OnDevice<std::uint8_t>> on_device;
  std::vector<OnDevice<float>> device_factors;
};

/// A sum of products, and by how much it may differ.
struct Expected {
  double sum = 0, allowed = 0;
};
/// 32 products are added to a sum at a time, all cut off at 2^-13 of the largest of them, or at less; of 2,048 of k the
/// sums are added in f32.
Expected expect(const Weight* w, const float* x, std::int64_t k) {
  constexpr std::int64_t kStep = 32, kPart = 2048;
  Expected all;
  for (std::int64_t part = 0; part < k; part += kPart) {
    double sum = 0;
    for (std::int64_t step = part; step < std::min(k, part + kPart); step += kStep) {
      double largest = std::abs(sum);
      for (std::int64_t i = step; i < std::min(k, step + kStep); ++i) {
        const double low = double{w[i].low} * double{x[i]}, high = double{w[i].high} * double{x[i]};
        sum += (low + high) / 2;
        all.allowed += std::abs(high - low) / 2;
        largest = std::max({largest, std::abs(low), std::abs(high)});
      }
      // Of 32 products half may be small enough to lose something, in either direction.
      all.allowed += 4 * 0x1p-12 * std::max(largest, std::abs(sum));
    }
    all.sum += sum;
    all.allowed += 0x1p-23 * std::abs(all.sum);
  }
  return all;
}

/// The largest difference of a result from what it should be, in units of what is allowed; infinity where one is not
/// written, or one without an id is.
double worst_result(const Experts& w, const Bytes8& x, const std::vector<std::int32_t>& ids, int per_row,
                    const std::vector<float>& bias, const std::vector<float>& scale, const std::vector<float>& y) {
  const std::int64_t k = w.type.k, n = w.type.n;
  double worst = 0;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    const int row = static_cast<int>(r) / per_row, e = ids[r];
    for (std::int64_t i = 0; i < n; ++i) {
      const float got = y[r * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)];
      if (e < 0) {
        if (!std::isnan(got)) return std::numeric_limits<double>::infinity();
        continue;
      }
      const Expected expected = expect(w.row(e, i), x.row(row), k);
      const double factor = w.scale(e, i) * double{x.factors[static_cast<std::size_t>(row)]} *
                            (scale.empty() ? 1.0 : double{scale[static_cast<std::size_t>(e)]});
      const double added = bias.empty() ? 0.0 : double{bias[static_cast<std::size_t>(e * n + i)]};
      const double want = expected.sum * factor + added;
      const double allowed = expected.allowed * std::abs(factor) + 0x1p-21 * (std::abs(want) + std::abs(added));
      const double off = std::abs(double{got} - want);
      if (off > 0 || std::isnan(off)) worst = off <= worst * allowed ? worst : off / allowed;
      if (std::isnan(off)) return std::numeric_limits<double>::infinity();
    }
  }
  return worst;
}

std::vector<float> run(const Experts& w, const Bytes8& x, const Groups& groups, std::size_t routes,
                       const std::vector<float>& bias = {}, const std::vector<float>& scale = {}) {
  const OnDevice<float> device_bias(bias), device_scale(scale), y(routes * static_cast<std::size_t>(w.type.n));
  const Float8Target target{.target = {.type = w.type,
                                       .matrix = w.matrices.data(),
                                       .bias = bias.empty() ? nullptr : device_bias.data(),
                                       .scale = scale.empty() ? nullptr : device_scale.data(),
                                       .y = y.data()},
                            .scales = w.device_scales[0].data()};
  wgmma_expert_products_f8({&target, 1}, reinterpret_cast<const std::byte*>(x.on_device[0].data()), x.rows(),
                           x.device_factors[0].data(), groups.view, {});
  return y.read();
}

constexpr DType kTypes[] = {
#define LLM_TYPE(name) DType::name,
    LLM_TILE_TYPES(LLM_TYPE)
#undef LLM_TYPE
};

}  // namespace

TEST_CASE("experts' products in FP8 of every type agree with double precision", "[f8][experts8]") {
  if (no_wgmma()) return;
  for (const DType type : kTypes) {
    const auto block = static_cast<std::int64_t>(info(type).block_elems);
    for (const std::int64_t k : {std::max<std::int64_t>(64, block), block == 256 ? 768 : 832 / block * block}) {
      constexpr int kExperts = 4, kTopK = 2;
      const Experts w(type, kExperts, 149, k, static_cast<std::uint32_t>(k));
      std::vector<std::int32_t> ids = random_ids(178, kExperts, 7);
      std::replace(ids.begin(), ids.end(), 1, 3);  // nobody goes to expert 1
      ids[5] = ids[66] = -1;
      const Bytes8 x(static_cast<int>(ids.size()) / kTopK, k, static_cast<std::uint32_t>(k + 1));
      const Groups groups(ids, kExperts, kFloat8Columns[1], kTopK);
      INFO(name(type) << " k " << k);
      CHECK(worst_result(w, x, ids, kTopK, {}, {}, run(w, x, groups, ids.size())) <= 1);
    }
  }
}

TEST_CASE("experts' products in FP8 take any number of routes, with scale and bias", "[f8][experts8]") {
  if (no_wgmma()) return;
  constexpr int kExperts = 3;
  const std::int64_t k = 512, n = 40;
  const Experts w(DType::Q4_K, kExperts, n, k, 3);
  Random random(4);
  const std::vector<float> bias = random.floats(kExperts * static_cast<std::size_t>(n)), scale = {0.5f, -2.0f, 3.0f};
  for (const int routes : {1, 31, 80, 81, 144, 145, 192, 193, 400}) {
    for (const int per_row : {1, 3}) {
      const std::vector<std::int32_t> one(static_cast<std::size_t>(routes), 2);
      const Bytes8 x((routes + per_row - 1) / per_row, k, 5);
      for (const auto& ids : {one, random_ids(routes, kExperts, 6)}) {
        for (const int columns : {kFloat8Columns[1], kFloat8Columns[2]}) {
          const Groups groups(ids, kExperts, columns, per_row);
          INFO("routes " << routes << " a row " << per_row << " groups of " << columns);
          CHECK(worst_result(w, x, ids, per_row, bias, scale, run(w, x, groups, ids.size(), bias, scale)) <= 1);
        }
      }
    }
  }
}

TEST_CASE("a route's bits in FP8 do not depend on its group", "[f8][experts8]") {
  if (no_wgmma()) return;
  const Experts w(DType::Q6_K, 2, 33, 512, 8);
  const std::vector<std::int32_t> ids = random_ids(400, 2, 9);
  const Bytes8 x(400, 512, 10);
  const std::vector<float> y = run(w, x, Groups(ids, 2, kFloat8Columns[1], 1), ids.size());
  for (const int columns : {kFloat8Columns[2], kFloat8Columns[1], 128, 64, 37, 8})
    CHECK(first_difference(y, run(w, x, Groups(ids, 2, columns, 1), ids.size())) == -1);
}

TEST_CASE("a number that is none stays in its route and in its row in FP8", "[f8][experts8]") {
  if (no_wgmma()) return;
  constexpr std::size_t kBadRow = 17, kRows = 20, kBadRoute = 7;
  const std::int64_t k = 96;
  const std::vector<std::int32_t> ids(40, 0);
  const Experts plain(DType::Q4_0, 1, kRows, k, 11);
  const Experts infinite(DType::Q4_0, 1, kRows, k, 11, [](std::vector<std::byte>& file, std::size_t row_bytes) {
    const std::uint16_t infinity = 0x7c00;
    std::memcpy(file.data() + kBadRow * row_bytes + 18, &infinity, sizeof infinity);  // of the second block
  });
  Bytes8 x(40, k, 12);
  const Groups groups(ids, 1, kFloat8Columns[1], 1);
  const std::vector<float> before = run(plain, x, groups, ids.size());
  const std::vector<float> of_weight = run(infinite, x, groups, ids.size());
  x.bytes[kBadRoute * static_cast<std::size_t>(k) + 95] = 0x7f;
  x.place();
  const std::vector<float> of_activation = run(plain, x, groups, ids.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    REQUIRE(std::isfinite(before[i]));
    REQUIRE((i % kRows == kBadRow ? std::isnan(of_weight[i]) : same(of_weight[i], before[i])));
    REQUIRE((i / kRows == kBadRoute ? std::isnan(of_activation[i]) : same(of_activation[i], before[i])));
  }
}

TEST_CASE("experts' products in FP8 have targets of several types and sizes", "[f8][experts8]") {
  if (no_wgmma()) return;
  const std::int64_t k = 256;
  const Experts w[] = {{DType::Q4_K, 2, 130, k, 13},
                       {DType::Q8_0, 2, 7, k, 14},
                       {DType::Q4_K, 2, 257, k, 15},
                       {DType::Q6_K, 2, 300, k, 22}};
  const std::vector<std::int32_t> ids = random_ids(50, 2, 16);
  const Bytes8 x(25, k, 17);
  const Groups groups(ids, 2, kFloat8Columns[1], 2);
  std::vector<OnDevice<float>> y;
  std::vector<Float8Target> targets;
  for (const Experts& one : w) {
    y.emplace_back(ids.size() * static_cast<std::size_t>(one.type.n));
    targets.push_back({.target = {.type = one.type, .matrix = one.matrices.data(), .y = y.back().data()},
                       .scales = one.device_scales[0].data()});
  }
  wgmma_expert_products_f8(targets, reinterpret_cast<const std::byte*>(x.on_device[0].data()), x.rows(),
                           x.device_factors[0].data(), groups.view, {});
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(worst_result(w[i], x, ids, 2, {}, {}, y[i].read()) <= 1);
}

TEST_CASE("blocks go from one group and tile to the next in FP8", "[f8][experts8]") {
  if (no_wgmma()) return;
  // Many more tiles than multiprocessors, of 2 lines each, and groups of all sizes.
  constexpr int kExperts = 40;
  const Experts w(DType::Q5_0, kExperts, 800, 256, 19);
  std::vector<std::int32_t> ids;
  for (int e = 0; e < kExperts; ++e) ids.insert(ids.end(), static_cast<std::size_t>(5 * e + 1), e);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(20));
  const Bytes8 x(static_cast<int>(ids.size()), 256, 21);
  CHECK(worst_result(w, x, ids, 1, {}, {}, run(w, x, Groups(ids, kExperts, kFloat8Columns[2], 1), ids.size())) <= 1);
}

TEST_CASE("sums of more than 2,048 of k are added in f32", "[f8][experts8]") {
  if (no_wgmma()) return;
  for (const DType type : {DType::Q8_0, DType::Q4_K}) {
    constexpr std::int64_t k = 5120, kPart = 2048, n = 36;
    const Experts w(type, 1, n, k, 23);
    // Row 2 i + 1 is row 2 i with zeros behind the first part, beside which the others are too small to be seen.
    constexpr int kPairs = 70;
    Bytes8 x(2 * kPairs, k, 24);
    x.factors.assign(x.factors.size(), 1.0f);
    x.device_factors.clear();
    x.device_factors.emplace_back(x.factors);
    for (int row = 0; row < 2 * kPairs; ++row)
      for (std::int64_t i = 0; i < k; ++i) {
        std::uint8_t& byte = x.bytes[static_cast<std::size_t>(row * k + i)];
        if (i >= kPart) byte = row % 2 == 1 ? std::uint8_t{0} : nearest(double{e4m3_value(byte)} / 1024);
        if (row % 2 == 1 && i < kPart) byte = x.bytes[static_cast<std::size_t>((row - 1) * k + i)];
      }
    x.place();
    const std::vector<std::int32_t> ids(2 * kPairs, 0);
    const std::vector<float> y = run(w, x, Groups(ids, 1, kFloat8Columns[1], 1), ids.size());
    INFO(name(type));
    CHECK(worst_result(w, x, ids, 1, {}, {}, y) <= 1);
    std::size_t wrong = 0;
    for (int pair = 0; pair < kPairs; ++pair)
      for (std::int64_t i = 0; i < n; ++i) {
        const Expected rest = expect(w.row(0, i) + kPart, x.row(2 * pair) + kPart, k - kPart);
        const auto at = [&](int row) { return double{y[static_cast<std::size_t>(row * n + i)]}; };
        const double rounding = 0x1p-21 * std::max(std::abs(at(2 * pair)), std::abs(at(2 * pair + 1)));
        const double off = std::abs(at(2 * pair) - at(2 * pair + 1) - rest.sum * w.scale(0, i));
        wrong += !(off <= rest.allowed * w.scale(0, i) + rounding);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("factors of experts' rows take memory where experts lie as tiles", "[f8][experts8]") {
  CHECK(f8_scale_bytes({DType::Q4_K, {2048, 768, 128}}) == 4u * 768 * 128);
  CHECK(f8_scale_bytes({DType::Q4_K, {256, 20, 3}}) == 256);  // 240, rounded up to 128
  CHECK(f8_scale_bytes({DType::F16, {256, 20, 3}}) == 0);     // multiplied in F16
  CHECK(f8_scale_bytes({DType::Q4_K, {256, 20}}) == 128);
  CHECK(f8_scale_bytes({DType::F32, {256}}) == 0);
}

TEST_CASE("factors of experts' rows are found when weights are loaded", "[f8][experts8]") {
  if (no_device()) return;
  // Experts that follow one another as one matrix would, and such that end within 16 rows.
  llm::test::MemoryWeights file;
  std::vector<WeightPlan> plans;
  std::size_t bytes = 0;
  for (const TensorType& type : {TensorType{DType::Q8_0, {96, 32, 5}}, TensorType{DType::Q8_0, {96, 20, 5}}}) {
    plans.push_back({.name = "w" + std::to_string(plans.size()), .type = type, .layout = Layout::Device});
    file.add_random(plans.back().name, type, static_cast<std::uint32_t>(plans.size()));
    bytes += device_bytes(type) + f8_scale_bytes(type);
  }
  const CudaWeights weights(file, plans, CudaWeights::F8Scales::Present, 1);
  CHECK(weights.bytes() == bytes);
  for (const WeightPlan& plan : plans) {
    const std::int64_t k = plan.type.shape[0];
    const std::vector<float> values = file.decoded(plan.name);
    std::vector<float> expected, found(values.size() / static_cast<std::size_t>(k));
    for (auto row = values.begin(); row != values.end(); row += k)
      expected.push_back(
          std::fabs(*std::max_element(row, row + k, [](float a, float b) { return std::fabs(a) < std::fabs(b); })) /
          448.0f);
    check_cuda(
        cudaMemcpy(found.data(), weights.f8_scales(plan.name), found.size() * sizeof(float), cudaMemcpyDeviceToHost),
        "copying factors");
    INFO(plan.type.shape[1] << " rows");
    CHECK(found == expected);
  }
}

}  // namespace llm::cuda::test
