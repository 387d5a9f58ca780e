// Grouped products, and those on wgmma, against double precision, of weights rounded to F16: what is allowed for is
// only how sums are rounded.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "base/half.h"
#include "device_data.h"
#include "expert_data.h"
#include "kernels/quant_cases.h"
#include "support/catch.h"
#include "tensor/decode.h"
#include "tensor/tensor.h"

using namespace llm;
using namespace llm::cuda;
using namespace llm::cuda::test;

namespace {

float as_half(float x) { return to_float(to_half(x)); }

/// Matrices of random weights on the device, and their values rounded to F16.
struct Experts {
  Experts(DType type, int count, std::int64_t n, std::int64_t k, std::uint32_t seed)
      : type{type, k, n}, count(count), matrices(matrix_bytes(this->type) * static_cast<std::size_t>(count)) {
    const std::size_t row_bytes = TensorType{type, {k}}.row_bytes(), rows = static_cast<std::size_t>(count * n);
    std::vector<std::byte> file(rows * row_bytes);
    std::mt19937 rng(seed);
    if (info(type).quantized()) {
      cpu::test::random_blocks(type, file.data(), file.size(), rng);
    } else {
      std::normal_distribution<float> normal;
      for (std::size_t i = 0; i < rows * static_cast<std::size_t>(k); ++i) {
        const float x = normal(rng);
        const std::uint16_t half = type == DType::F16 ? to_half(x).bits : to_bfloat16(x).bits;
        std::memcpy(file.data() + 2 * i, &half, 2);
      }
    }
    values.resize(rows * static_cast<std::size_t>(k));
    for (std::size_t row = 0; row < rows; ++row)
      decode(type, file.data() + row * row_bytes, values.data() + row * static_cast<std::size_t>(k), k);
    for (float& x : values) x = as_half(x);
    const OnDevice<std::byte> on_device(file);
    for (int e = 0; e < count; ++e)
      pack_rows(this->type, on_device.data() + static_cast<std::size_t>(e * n) * row_bytes, 0, n,
                matrices.data() + static_cast<std::size_t>(e) * matrix_bytes(this->type), {});
    check_cuda(cudaDeviceSynchronize(), "packing");
  }
  const float* row(int expert, std::int64_t i) const { return values.data() + (expert * type.n + i) * type.k; }

  MatrixType type;
  int count;
  OnDevice<std::byte> matrices;
  std::vector<float> values;
};

/// Rows as the F16 forms have them: values of F16, and factors that are mostly 1.
struct Halves {
  Halves(int rows, std::int64_t k, std::uint32_t seed) : k(k), unscale(static_cast<std::size_t>(rows), 1.0f) {
    Random random(seed);
    for (std::int64_t i = 0; i < rows * k; ++i) bits.push_back(to_half(random.normal()).bits);
    for (std::size_t i = 2; i < unscale.size(); i += 5) unscale[i] = 8;
    factors.emplace_back(unscale);
    place();
  }
  /// After a change of bits.
  void place() {
    values.clear();
    for (const std::uint16_t b : bits) values.push_back(to_float(Half{b}));
    std::vector<std::byte> placed(static_cast<std::size_t>(half_panels_bytes(k, capacity())), std::byte{0xff});
    for (int row = 0; row < rows(); ++row)
      for (std::int64_t i = 0; i < k_blocks(k) * kBlockK; ++i) {
        const std::uint16_t b = i < k ? bits[static_cast<std::size_t>(row * k + i)] : std::uint16_t{0};
        std::memcpy(placed.data() + half_panels_offset(i / 2 * 2, row, panel_lines(capacity())) + 2 * (i % 2), &b, 2);
      }
    on_device.clear(), panels.clear();
    on_device.emplace_back(bits);
    panels.emplace_back(placed);
  }
  int rows() const { return static_cast<int>(unscale.size()); }
  int capacity() const { return rows() + 3; }
  const float* row(int i) const { return values.data() + i * k; }
  std::int64_t k;
  std::vector<std::uint16_t> bits;
  std::vector<float> values, unscale;
  std::vector<OnDevice<std::uint16_t>> on_device;
  std::vector<OnDevice<std::byte>> panels;
  std::vector<OnDevice<float>> factors;
};

/// The two families of kernels, one with each choice of sizes of groups, and whether one takes a type here.
enum class Way { Grouped, WgmmaFew, WgmmaSome, WgmmaMany };
constexpr Way kWays[] = {Way::Grouped, Way::WgmmaFew, Way::WgmmaSome, Way::WgmmaMany};
bool takes(Way way, DType type) { return way == Way::Grouped || (has_wgmma() && has_tiles(type)); }
void multiply(Way way, std::span<const Target> targets, const Halves& x, const RouteGroups& groups) {
  if (way == Way::Grouped)
    return grouped_products(targets, {x.on_device[0].data(), nullptr, x.factors[0].data()}, groups, {});
  const int routes_of_expert = way == Way::WgmmaFew ? 8 : way == Way::WgmmaSome ? 9 : 17;
  wgmma_expert_products(targets, x.panels[0].data(), x.capacity(), x.factors[0].data(), groups, routes_of_expert, {});
}

/// Routes that differ from what they should be, and those without an id that were written to.
std::size_t wrong_results(const Experts& w, const Halves& x, const std::vector<std::int32_t>& ids, int per_row,
                          const std::vector<float>& bias, const std::vector<float>& scale,
                          const std::vector<float>& y) {
  const std::int64_t k = w.type.k, n = w.type.n;
  // Each of the k / 16 products adds to its sum with 22 bits at least; the rest rounds once each. A weight that lies
  // close to the middle of two numbers of F16 may be either, 2^-10 of it apart, which few are; not one of F16.
  const double of_weights = w.type.type == DType::F16 ? 0 : 0x1p-10;
  const double unit = 0x1p-22 * (static_cast<double>(k) / 16 + 4);
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    const int row = static_cast<int>(r) / per_row, e = ids[r];
    for (std::int64_t i = 0; i < n; ++i) {
      const float got = y[r * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)];
      if (e < 0) {
        wrong += !std::isnan(got);
        continue;
      }
      double sum = 0, magnitude = 0, squares = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        const double term = double{w.row(e, i)[j]} * double{x.row(row)[j]};
        sum += term;
        magnitude += std::abs(term);
        squares += term * term;
      }
      const double factor = double{x.unscale[static_cast<std::size_t>(row)]} *
                            (scale.empty() ? 1.0 : double{scale[static_cast<std::size_t>(e)]});
      const double added = bias.empty() ? 0.0 : double{bias[static_cast<std::size_t>(e * n + i)]};
      const double want = sum * factor + added;
      const double allowed =
          (unit * magnitude + of_weights * std::sqrt(squares)) * std::abs(factor) + unit * std::abs(added);
      wrong += !(std::abs(double{got} - want) <= allowed);
    }
  }
  return wrong;
}

std::vector<float> run(Way way, const Experts& w, const Halves& x, const Groups& groups, std::size_t routes,
                       const std::vector<float>& bias = {}, const std::vector<float>& scale = {}) {
  const OnDevice<float> device_bias(bias), device_scale(scale), y(routes * static_cast<std::size_t>(w.type.n));
  const Target target{.type = w.type,
                      .matrix = w.matrices.data(),
                      .bias = bias.empty() ? nullptr : device_bias.data(),
                      .scale = scale.empty() ? nullptr : device_scale.data(),
                      .y = y.data()};
  multiply(way, {&target, 1}, x, groups.view);
  return y.read();
}

constexpr DType kTypes[] = {
#define LLM_TYPE(name) DType::name,
    LLM_TILE_TYPES(LLM_TYPE)
#undef LLM_TYPE
        DType::F16,
    DType::BF16};

}  // namespace

TEST_CASE("grouped products of every type agree with double precision", "[grouped]") {
  if (no_device()) return;
  for (const DType type : kTypes) {
    const auto block = static_cast<std::int64_t>(info(type).block_elems);
    const std::int64_t lengths[] = {block == 1 ? 8 : std::max<std::int64_t>(64, block), block == 1 ? 584
                                                                                        : block == 256
                                                                                            ? 768
                                                                                            : 832 / block * block};
    for (const std::int64_t k : lengths) {
      constexpr int kExperts = 4, kTopK = 2;
      const Experts w(type, kExperts, 149, k, static_cast<std::uint32_t>(k));
      std::vector<std::int32_t> ids = random_ids(178, kExperts, 7);
      std::replace(ids.begin(), ids.end(), 1, 3);  // nobody goes to expert 1
      ids[5] = ids[66] = -1;
      const Halves x(static_cast<int>(ids.size()) / kTopK, k, static_cast<std::uint32_t>(k + 1));
      const Groups groups(ids, kExperts, kGroupedColumns, kTopK);
      for (const Way way : kWays) {
        if (!takes(way, type)) continue;
        INFO(name(type) << " k " << k << " way " << static_cast<int>(way));
        CHECK(wrong_results(w, x, ids, kTopK, {}, {}, run(way, w, x, groups, ids.size())) == 0);
      }
    }
  }
}

TEST_CASE("grouped products take any number of routes, by token or by route, with scale and bias", "[grouped]") {
  if (no_device()) return;
  constexpr int kExperts = 3;
  const std::int64_t k = 512, n = 40;
  const Experts w(DType::Q4_K, kExperts, n, k, 3);
  Random random(4);
  const std::vector<float> bias = random.floats(kExperts * static_cast<std::size_t>(n)), scale = {0.5f, -2.0f, 3.0f};
  for (const int routes : {1, 31, 32, 33, 96, 128, 129, 300}) {
    for (const int per_row : {1, 3}) {
      const std::vector<std::int32_t> one(static_cast<std::size_t>(routes), 2);
      const Halves x((routes + per_row - 1) / per_row, k, 5);
      for (const auto& ids : {one, random_ids(routes, kExperts, 6)}) {
        const Groups groups(ids, kExperts, kGroupedColumns, per_row);
        for (const Way way : kWays) {
          if (!takes(way, w.type.type)) continue;
          INFO("routes " << routes << " a row " << per_row << " way " << static_cast<int>(way));
          CHECK(wrong_results(w, x, ids, per_row, bias, scale, run(way, w, x, groups, ids.size(), bias, scale)) == 0);
        }
      }
    }
  }
}

TEST_CASE("products of what rounding has left of activations are added to the first", "[grouped]") {
  if (no_device()) return;
  constexpr int kExperts = 3;
  const std::int64_t k = 584, n = 149;
  const Experts w(DType::F16, kExperts, n, k, 23);
  Random random(24);
  const std::vector<float> bias = random.floats(kExperts * static_cast<std::size_t>(n)), scale = {0.5f, -2.0f, 3.0f};
  const std::vector<std::int32_t> ids = random_ids(300, kExperts, 25);
  Halves x(150, k, 26);
  const Halves rest(150, k, 27);
  const Groups groups(ids, kExperts, kGroupedColumns, 2);
  const OnDevice<float> device_bias(bias), device_scale(scale), y(ids.size() * static_cast<std::size_t>(n));
  const Target target{.type = w.type,
                      .matrix = w.matrices.data(),
                      .bias = device_bias.data(),
                      .scale = device_scale.data(),
                      .y = y.data()};
  grouped_products({&target, 1}, {x.on_device[0].data(), rest.on_device[0].data(), x.factors[0].data()}, groups.view,
                   {});
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += rest.values[i] * kRestUnit;
  CHECK(wrong_results(w, x, ids, 2, bias, scale, y.read()) == 0);
}

TEST_CASE("a route's bits do not depend on its group", "[grouped]") {
  if (no_device()) return;
  const Experts w(DType::Q6_K, 2, 33, 512, 8);
  const std::vector<std::int32_t> ids = random_ids(200, 2, 9);
  const Halves x(200, 512, 10);
  for (const Way way : kWays) {
    if (!takes(way, w.type.type)) continue;
    const std::vector<float> y = run(way, w, x, Groups(ids, 2, kGroupedColumns, 1), ids.size());
    for (const int columns : {kGroupedColumns, 64, 37, 8})
      CHECK(first_difference(y, run(way, w, x, Groups(ids, 2, columns, 1), ids.size())) == -1);
  }
}

TEST_CASE("a number that is none stays in its route", "[grouped]") {
  if (no_device()) return;
  const Experts w(DType::Q4_0, 1, 20, 96, 11);
  const std::vector<std::int32_t> ids(40, 0);
  Halves x(40, 96, 12);
  for (const Way way : kWays) {
    if (!takes(way, w.type.type)) continue;
    x.bits[7 * 96 + 95] = to_half(1.0f).bits;
    x.place();
    const std::vector<float> before = run(way, w, x, Groups(ids, 1, kGroupedColumns, 1), ids.size());
    x.bits[7 * 96 + 95] = 0x7e00;
    x.place();
    const std::vector<float> y = run(way, w, x, Groups(ids, 1, kGroupedColumns, 1), ids.size());
    for (std::size_t i = 0; i < y.size(); ++i) REQUIRE((i / 20 == 7 ? std::isnan(y[i]) : same(y[i], before[i])));
  }
}

TEST_CASE("grouped products have targets of several types and sizes", "[grouped]") {
  if (no_device()) return;
  const std::int64_t k = 256;
  const Experts w[] = {{DType::Q4_K, 2, 130, k, 13},
                       {DType::BF16, 2, 7, k, 14},
                       {DType::Q4_K, 2, 257, k, 15},
                       {DType::Q6_K, 2, 300, k, 22}};
  const std::vector<std::int32_t> ids = random_ids(50, 2, 16);
  const Halves x(25, k, 17);
  const Groups groups(ids, 2, kGroupedColumns, 2);
  for (const Way way : kWays) {
    std::vector<OnDevice<float>> y;
    std::vector<Target> targets;
    std::vector<std::size_t> of;
    for (std::size_t i = 0; i < std::size(w); ++i) {
      if (!takes(way, w[i].type.type)) continue;
      of.push_back(i);
      y.emplace_back(ids.size() * static_cast<std::size_t>(w[i].type.n));
      targets.push_back({.type = w[i].type, .matrix = w[i].matrices.data(), .y = y.back().data()});
    }
    multiply(way, targets, x, groups.view);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(wrong_results(w[of[i]], x, ids, 2, {}, {}, y[i].read()) == 0);
  }
}

TEST_CASE("blocks go from one group and tile to the next", "[grouped]") {
  if (no_device()) return;
  // Many more tiles than multiprocessors, of 4 chunks each, and groups of all sizes.
  constexpr int kExperts = 40;
  const Experts w(DType::Q5_0, kExperts, 1100, 256, 19);
  std::vector<std::int32_t> ids;
  for (int e = 0; e < kExperts; ++e) ids.insert(ids.end(), static_cast<std::size_t>(7 * e + 1), e);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(20));
  const Halves x(static_cast<int>(ids.size()), 256, 21);
  for (const Way way : kWays) {
    if (!takes(way, w.type.type)) continue;
    const std::vector<float> y = run(way, w, x, Groups(ids, kExperts, kGroupedColumns, 1), ids.size());
    CHECK(wrong_results(w, x, ids, 1, {}, {}, y) == 0);
  }
}

TEST_CASE("routes are grouped by 128", "[grouped][routes]") {
  if (no_device()) return;
  constexpr int kExperts = 5, kTopK = 2, kTokens = 400;
  std::vector<std::int32_t> ids = random_ids(kTokens * kTopK, kExperts, 18);
  std::replace(ids.begin(), ids.end(), 4, 0);
  const OnDevice<std::int32_t> device_ids(ids), counts(std::vector<std::int32_t>{kTokens, 0, 0, 0});
  const OnDevice<std::byte> memory(route_groups_bytes(kExperts, kTokens, kTopK));
  StepView step;
  step.counts = counts.data();
  const RouteGroups made =
      group_routes(device_ids.data(), kExperts, kTokens, kTopK, kGroupedColumns, step, memory.data(), {});
  const Groups want(ids, kExperts, kGroupedColumns, 1);
  const auto list = [](const std::int32_t* from, std::size_t n) {
    std::vector<std::int32_t> values(n);
    check_cuda(cudaDeviceSynchronize(), "grouping");
    check_cuda(cudaMemcpy(values.data(), from, n * sizeof(std::int32_t), cudaMemcpyDeviceToHost), "copying");
    return values;
  };
  const auto n_groups = static_cast<std::size_t>(want.lists[0].read()[0]);
  REQUIRE(list(made.n_groups, 1) == want.lists[0].read());
  CHECK(made.max_groups >= static_cast<int>(n_groups));
  CHECK(list(made.expert, n_groups) == list(want.view.expert, n_groups));
  CHECK(list(made.first, n_groups) == list(want.view.first, n_groups));
  CHECK(list(made.count, n_groups) == list(want.view.count, n_groups));
  CHECK(list(made.routes, ids.size()) == list(want.view.routes, ids.size()));
}
