// Products that make their column's form themselves, against the kernels that make it for others, bit for bit: the
// bytes in a block's memory, whole products, and launches that overlap; and against double precision.
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/column_source.cuh"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/tile_ring.h"
#include "device_data.h"
#include "support/catch.h"
#include "tensor/quantize.h"
#include "tile_data.h"

namespace llm::cuda::test {
namespace {

constexpr int kThreads = 9 * kWarp, kBlocks = 3;
constexpr float kEps = 1e-5f;

/// Of a block's column.
template <class Places>
LLM_HOST_DEVICE std::size_t block_bytes(const Places& places) {
  return (static_cast<std::size_t>(places.bytes()) + 127) / 128 * 128;
}

/// As the ring's blocks do, into `to` of this block: made of the source, or copied from forms where it has no x.
template <ActFormat format, int kSums, ColumnWay way>
__global__ void __launch_bounds__(kThreads)
    put_column(std::byte* to, const TileArguments forms, const ColumnSource source, int k) {
  __shared__ float4 of_parts[kMaxParts / 4];
  const ColumnsPlaces<format, kSums> places{1, static_cast<int>(k_blocks(k))};
  const int thread = static_cast<int>(threadIdx.x);
  to += blockIdx.x * block_bytes(places);
  if constexpr (way != ColumnWay::Copied) {
    make_column<way>(source, k, thread / kWarp, kThreads / kWarp, of_parts, StoreCodes<format, kSums>(to, places, 0));
  } else {
    copy_columns(to, places, forms, thread, kThreads);
  }
}

/// A column in all the ways that ColumnSource knows, and the kernels that make its form of them.
struct Case {
  enum Kind { Plain, Norm, AddNorm };
  Case(Kind kind, int k, Random& random) : Case(kind, values(k, random), random) {}
  Case(Kind kind, const std::vector<float>& column, Random& random)
      : kind(kind),
        k(static_cast<int>(column.size())),
        x(column),
        added(values(k, random)),
        norm(random.floats(column.size())),
        made_sum(column.size()),
        sum(column.size()) {
    source.x = x.data();
    if (kind == Plain) return;
    source.norm = norm.data();
    source.eps = kEps;
    if (kind == Norm) return;
    source.added = added.data();
    source.sum = made_sum.data();
  }
  /// Of magnitudes that differ from block to block.
  static std::vector<float> values(int k, Random& random) {
    std::vector<float> v = random.floats(k);
    for (int i = 0; i < k; ++i) v[static_cast<std::size_t>(i)] *= static_cast<float>(1 + i / 256 % 7 * 50);
    for (int i = k / 3; i < k / 3 + 40 && i < k; ++i) v[static_cast<std::size_t>(i)] = 0;
    return v;
  }
  void make(const Forms& forms, const Launch& at) const {
    if (kind == Plain) make_forms(x.data(), k, 1, forms, at);
    if (kind == Norm) rms_norm(x.data(), norm.data(), kEps, k, 1, forms, at);
    if (kind == AddNorm) add_rms_norm(x.data(), added.data(), norm.data(), kEps, k, 1, sum.data(), forms, at);
  }
  void expect_sums() const {
    if (kind == AddNorm) REQUIRE(first_difference(made_sum.read(), sum.read()) == -1);
  }
  Kind kind;
  int k;
  OnDevice<float> x, added, norm, made_sum, sum;
  ColumnSource source;
};
constexpr Case::Kind kKinds[] = {Case::Plain, Case::Norm, Case::AddNorm};

Forms forms_of(ActFormat format, const OnDevice<std::uint8_t>& q) {
  Forms forms;
  (format == ActFormat::Q8x256 ? forms.q8x256 : forms.q8x32) = reinterpret_cast<std::byte*>(q.data());
  forms.capacity = 1;
  return forms;
}

template <ActFormat format, int kSums>
void compare_bytes(const Case& c, const Stream& stream) {
  const OnDevice<std::uint8_t> q(quantized_bytes(format, c.k, 1));
  c.make(forms_of(format, q), {});
  TileArguments forms;
  forms.k = c.k;
  forms.x = reinterpret_cast<const std::byte*>(q.data());
  forms.x_scales = static_cast<std::uint32_t>(scales_offset(format, 0, 0, c.k, 1));
  forms.columns = 1;
  const ColumnsPlaces<format, kSums> places{1, static_cast<int>(k_blocks(c.k))};
  const OnDevice<std::uint8_t> made(block_bytes(places) * kBlocks), copied(made.size());
  const auto put = [&](const OnDevice<std::uint8_t>& to, const ColumnSource& source) {
    with_column_way(column_way(source, c.k, kThreads / kWarp), [&]<ColumnWay way>() {
      launch(put_column<format, kSums, way>, dim3(kBlocks), dim3(kThreads), 0,
             {.stream = stream.get(), .overlap = false}, reinterpret_cast<std::byte*>(to.data()), forms, source, c.k);
    });
  };
  put(made, c.source);
  put(copied, {});
  INFO("k " << c.k << ", kind " << c.kind << ", sums " << kSums);
  REQUIRE(copied.read() == made.read());
  c.expect_sums();
}

/// What x, its norm or the norm of its sum is, in double precision.
std::vector<double> exact_column(const Case& c) {
  const std::vector<float> x = c.x.read(), added = c.added.read(), norm = c.norm.read();
  std::vector<double> y(x.begin(), x.end());
  if (c.kind == Case::AddNorm)
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += added[i];
  if (c.kind == Case::Plain) return y;
  double squares = 0;
  for (const double v : y) squares += v * v;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(y.size()) + kEps);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] *= factor * norm[i];
  return y;
}

bool has_ring() { return !no_device() && device_limits().capability >= 9; }

}  // namespace

TEST_CASE("a column made in a block's memory is the one copied there", "[column]") {
  if (no_device()) return;
  Random random(5);
  const Stream stream;
  for (const Case::Kind kind : kKinds) {
    for (const int k :
         {256, 512, 768, 1024, 2048, 2304, 4096, 4608, 4864, 5120, 8192, 8448, 14336, 16384, 16640, 20480}) {
      const Case c(kind, k, random);
      compare_bytes<ActFormat::Q8x256, 0>(c, stream);
      compare_bytes<ActFormat::Q8x256, 16>(c, stream);
      compare_bytes<ActFormat::Q8x256, 32>(c, stream);
      compare_bytes<ActFormat::Q8x32, 0>(c, stream);
    }
    for (const int k : {32, 96, 288, 544, 2080, 4064, 9600})
      compare_bytes<ActFormat::Q8x32, 0>(Case(kind, k, random), stream);
  }
}

TEST_CASE("a column with NaN, infinities or nothing in it is made like the others", "[column]") {
  if (no_device()) return;
  Random random(6);
  const Stream stream;
  for (const Case::Kind kind : kKinds) {
    for (const float special : {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY, 3e38f, 1e-30f, 0.0f}) {
      for (const int k : {2048, 4096}) {
        std::vector<float> x = Case::values(k, random);
        x[static_cast<std::size_t>(random.below(k))] = special;
        if (special == 0) std::fill(x.begin(), x.end(), 0.0f);
        const Case c(kind, x, random);
        compare_bytes<ActFormat::Q8x256, 16>(c, stream);
        compare_bytes<ActFormat::Q8x32, 0>(c, stream);
      }
    }
  }
}

TEST_CASE("products that make their column give the bits of those that read it, and are right", "[column]") {
  if (!has_ring()) return;
  Random random(7);
  const Stream stream;
  const Launch at{.stream = stream.get(), .overlap = true};
  struct Shapes {
    int k;
    std::vector<std::pair<DType, int>> matrices;
  };
  for (const Shapes& shapes :
       {Shapes{4096, {{DType::Q4_K, 4096}, {DType::Q4_K, 1024}, {DType::Q6_K, 1000}}},
        Shapes{4096, {{DType::Q6_K, 33}, {DType::Q5_K, 4096}}}, Shapes{2048, {{DType::Q3_K, 2048}, {DType::Q5_K, 100}}},
        Shapes{14336, {{DType::Q4_K, 4096}}}, Shapes{14336, {{DType::Q6_K, 300}}},
        Shapes{5120, {{DType::Q2_K, 1111}, {DType::Q2_K, 16}}}, Shapes{512, {{DType::Q4_K, 70}}},
        Shapes{256, {{DType::Q6_K, 1}}}, Shapes{1056, {{DType::Q8_0, 5000}, {DType::Q8_0, 17}}},
        Shapes{4096, {{DType::Q8_0, 2200}}}, Shapes{2880, {{DType::MXFP4, 500}}}, Shapes{4096, {{DType::Q5_1, 500}}}}) {
    std::vector<MatrixType> types;
    std::vector<DeviceBuffer> matrices;
    std::vector<Rows> rows;
    for (const auto& [type, n] : shapes.matrices) {
      types.push_back({type, shapes.k, n});
      rows.emplace_back(type, n, shapes.k, static_cast<std::uint32_t>(n));
      matrices.push_back(packed(rows.back()));
    }
    REQUIRE(makes_columns(types));
    for (const Case::Kind kind : kKinds) {
      const Case c(kind, shapes.k, random);
      const ActFormat format = info(types[0].type).activation;
      const OnDevice<std::uint8_t> q(quantized_bytes(format, c.k, 1));
      std::vector<DeviceBuffer> y[2];
      std::vector<Target> targets[2];
      for (const int own : {0, 1}) {
        for (std::size_t i = 0; i < types.size(); ++i) {
          y[own].push_back(poisoned(static_cast<std::size_t>(types[i].n) * sizeof(float)));
          targets[own].push_back(
              {.type = types[i], .matrix = matrices[i].data(), .y = cuda::test::at<float>(y[own][i])});
        }
      }
      c.make(forms_of(format, q), at);
      tile_products(targets[0], reinterpret_cast<const std::byte*>(q.data()), 1, 1, at);
      column_products(targets[1], c.source, at);
      const std::vector<double> exact = exact_column(c);
      for (std::size_t i = 0; i < types.size(); ++i) {
        INFO(name(types[i].type) << " k " << c.k << ", kind " << kind << ", n " << types[i].n);
        const auto expected = on_host<float>(y[0][i]), found = on_host<float>(y[1][i]);
        REQUIRE(first_difference(expected, found) == -1);
        // The column's rounding to int8: half a step of 127 to the largest of its block.
        double off = 0, all = 0;
        for (std::size_t row = 0; row < found.size(); ++row) {
          double sum = 0, squares = 0;
          for (std::size_t j = 0; j < exact.size(); ++j) {
            const double term = exact[j] * static_cast<double>(rows[i].values[row * exact.size() + j]);
            sum += term;
            squares += term * term;
          }
          off += (sum - static_cast<double>(found[row])) * (sum - static_cast<double>(found[row]));
          all += squares;
        }
        REQUIRE(off < 0.1 * 0.1 * all);
      }
      c.expect_sums();
    }
  }
}

TEST_CASE("products with a gate behind them give the bits of glu()", "[column]") {
  if (!has_ring()) return;
  Random random(9);
  const Stream stream;
  const Launch at{.stream = stream.get(), .overlap = true};
  for (const DType type : {DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::Q4_0}) {
    for (const int n : {1, 16, 33, 2113, 14336}) {
      constexpr int k = 1024;
      const std::size_t size = static_cast<std::size_t>(n);
      const MatrixType matrix{type, k, n};
      const DeviceBuffer gates = packed(Rows(type, n, k, 1)), ups = packed(Rows(type, n, k, 2));
      const OnDevice<float> bias(random.floats(size)), scale(std::vector<float>{0.7f});
      for (const Activation activation : {Activation::Silu, Activation::Gelu}) {
        const Case c(Case::AddNorm, k, random);
        const ActFormat format = info(type).activation;
        const OnDevice<std::uint8_t> q(quantized_bytes(format, k, 1));
        const OnDevice<float> gate(size), up(size), expected(size), y(size);
        const Target targets[] = {
            {.type = matrix, .matrix = gates.data(), .bias = bias.data(), .scale = nullptr, .y = gate.data()},
            {.type = matrix, .matrix = ups.data(), .bias = nullptr, .scale = scale.data(), .y = up.data()}};
        column_products(targets, c.source, at, {.y = y.data(), .activation = activation});
        REQUIRE(std::isnan(gate.read()[0]));  // results without the gate are not written
        c.make(forms_of(format, q), at);
        tile_products(targets, reinterpret_cast<const std::byte*>(q.data()), 1, 1, at);
        glu({.activation = activation}, gate.data(), up.data(), n, 1, {.f32 = expected.data()}, at);
        INFO(name(type) << " n " << n << " activation " << static_cast<int>(activation));
        REQUIRE(first_difference(expected.read(), y.read()) == -1);
        REQUIRE_FALSE(std::isnan(y.read()[size - 1]));
      }
    }
  }
}

TEST_CASE("products that make their columns of each other's results, overlapping", "[column]") {
  if (!has_ring()) return;
  constexpr int kRounds = 80, k = 2048;
  Random random(8);
  const Stream stream;
  for (const DType type : {DType::Q4_K, DType::Q6_K, DType::Q8_0}) {
    const ActFormat format = info(type).activation;
    const DeviceBuffer matrix = packed(Rows(type, k, k, 1));
    const OnDevice<float> norm(random.floats(k, 0.05f)), first(random.floats(k));
    const OnDevice<std::uint8_t> q(quantized_bytes(format, k, 1));
    std::vector<float> results[2];
    for (const int own : {0, 1}) {
      // Sums and products of all rounds, [round][k] each.
      const OnDevice<float> sums(std::size_t{kRounds + 1} * k), y(std::size_t{kRounds + 1} * k);
      for (const OnDevice<float>* to : {&sums, &y})
        copy_to_device(to->data(), first.data(), k * sizeof(float), "copying");
      const Launch at{.stream = stream.get(), .overlap = own != 0};
      for (int i = 0; i < kRounds; ++i) {
        const float *const before = y.data() + std::size_t{k} * i, *const residual = sums.data() + std::size_t{k} * i;
        float* const sum = sums.data() + std::size_t{k} * (i + 1);
        const Target target{.type = {type, k, k}, .matrix = matrix.data(), .y = y.data() + std::size_t{k} * (i + 1)};
        if (own != 0) {
          column_products({&target, 1}, {.x = residual, .norm = norm.data(), .eps = kEps, .added = before, .sum = sum},
                          at);
        } else {
          add_rms_norm(residual, before, norm.data(), kEps, k, 1, sum, forms_of(format, q), at);
          tile_products({&target, 1}, reinterpret_cast<const std::byte*>(q.data()), 1, 1, at);
        }
      }
      results[own] = y.read();
      const std::vector<float> of_sums = sums.read();
      results[own].insert(results[own].end(), of_sums.begin(), of_sums.end());
    }
    INFO(name(type));
    REQUIRE(first_difference(results[0], results[1]) == -1);
  }
}

namespace {

/// Float rows as they lie on the device.
OnDevice<std::uint8_t> float_rows(DType type, std::size_t n, Random& random) {
  const std::vector<float> values = random.floats(n);
  std::vector<std::uint8_t> bytes(n * info(type).block_bytes);
  encode(type, values.data(), reinterpret_cast<std::byte*>(bytes.data()), static_cast<std::int64_t>(n));
  return OnDevice<std::uint8_t>(bytes);
}

/// What float_products() gives for the column that other kernels make.
void expect_written(const Case& c, DType type, std::span<const Target> targets, const Launch& at) {
  const OnDevice<float> y(static_cast<std::size_t>(c.k));
  Forms forms;
  (type == DType::BF16 ? forms.rounded_bf16 : forms.f32) = y.data();
  c.make(forms, at);
  float_products(targets, y.data(), 1, at);
}

}  // namespace

TEST_CASE("products of float rows that make their column give the bits of those that read it", "[column]") {
  if (no_device()) return;
  Random random(17);
  const Stream stream;
  const Launch at{.stream = stream.get(), .overlap = true};
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    for (const auto& [k, sizes] : {std::pair{2048, std::vector<int>{2048, 512, 512}},
                                   {2048, {128}},
                                   {256, {8}},
                                   {4096, {14336}},
                                   {8192, {33, 1000}},
                                   {2304, {7}}}) {
      for (const Case::Kind kind : kKinds) {
        const Case c(kind, k, random);
        const OnDevice<float> bias(random.floats(20000)), scale(std::vector<float>{0.7f}),
            normed(static_cast<std::size_t>(k));
        std::vector<OnDevice<std::uint8_t>> matrices;
        std::vector<OnDevice<float>> y[2];
        std::vector<Target> targets[2];
        std::vector<MatrixType> types;
        for (const int n : sizes) {
          types.push_back({type, k, n});
          matrices.push_back(float_rows(type, static_cast<std::size_t>(k) * static_cast<std::size_t>(n), random));
          for (const int own : {0, 1}) {
            y[own].emplace_back(static_cast<std::size_t>(n));
            targets[own].push_back({.type = types.back(),
                                    .matrix = reinterpret_cast<const std::byte*>(matrices.back().data()),
                                    .bias = n % 2 != 0 ? bias.data() : nullptr,
                                    .scale = n > 500 ? scale.data() : nullptr,
                                    .y = y[own].back().data()});
          }
        }
        REQUIRE(makes_columns(types));
        expect_written(c, type, targets[0], at);
        ColumnSource source = c.source;
        if (kind != Case::Plain) source.normed = normed.data();
        column_products(targets[1], source, at);
        INFO(name(type) << " k " << k << ", kind " << kind);
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          REQUIRE(first_difference(y[0][i].read(), y[1][i].read()) == -1);
          REQUIRE_FALSE(std::isnan(y[1][i].read().back()));
        }
        c.expect_sums();
        if (kind == Case::Plain) continue;
        const OnDevice<float> expected(static_cast<std::size_t>(k));
        c.make({.f32 = expected.data()}, at);
        REQUIRE(first_difference(expected.read(), normed.read()) == -1);
      }
    }
  }
}

TEST_CASE("products of float rows with a gate behind them give the bits of glu()", "[column]") {
  if (no_device()) return;
  Random random(18);
  const Stream stream;
  const Launch at{.stream = stream.get(), .overlap = true};
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    for (const int n : {4, 300, 5461, 8192}) {
      constexpr int k = 1024;
      const Case c(Case::AddNorm, k, random);
      const std::size_t size = static_cast<std::size_t>(n);
      const OnDevice<std::uint8_t> gates = float_rows(type, size * k, random), ups = float_rows(type, size * k, random);
      const OnDevice<float> bias(random.floats(size)), scale(std::vector<float>{0.7f});
      const OnDevice<float> gate(size), up(size), expected(size), y(size);
      const auto target = [&](const OnDevice<std::uint8_t>& rows, const OnDevice<float>& to) {
        return Target{.type = {type, k, n}, .matrix = reinterpret_cast<const std::byte*>(rows.data()), .y = to.data()};
      };
      Target targets[] = {target(gates, gate), target(ups, up)};
      targets[0].bias = bias.data();
      targets[1].scale = scale.data();
      for (const Activation activation : {Activation::Silu, Activation::Gelu}) {
        column_products(targets, c.source, at, {.y = y.data(), .activation = activation});
        const std::vector<float> found = y.read();
        expect_written(c, type, targets, at);
        glu({.activation = activation}, gate.data(), up.data(), n, 1, {.f32 = expected.data()}, at);
        INFO(name(type) << " n " << n << " activation " << static_cast<int>(activation));
        REQUIRE(first_difference(expected.read(), found) == -1);
        REQUIRE_FALSE(std::isnan(found.back()));
      }
    }
  }
}

TEST_CASE("which matrices can make their column", "[column]") {
  if (!has_ring()) return;
  const auto can = [](std::vector<MatrixType> types) { return makes_columns(types); };
  REQUIRE(can({{DType::Q4_K, 4096, 4096}, {DType::Q4_K, 4096, 1024}, {DType::Q6_K, 4096, 1024}}));
  REQUIRE(can({{DType::Q8_0, 28672, 8192}}));
  REQUIRE_FALSE(can({}));
  REQUIRE(can({{DType::F16, 4096, 4096}, {DType::F16, 4096, 1024}}));
  REQUIRE(can({{DType::F32, 2048, 128}}));
  REQUIRE_FALSE(can({{DType::F16, 4096, 4096}, {DType::BF16, 4096, 1024}}));
  REQUIRE_FALSE(can({{DType::F16, 4099, 4096}}));   // rows begin anywhere
  REQUIRE_FALSE(can({{DType::F16, 28672, 4096}}));  // too long for a block's memory
  REQUIRE_FALSE(can({{DType::Q4_K, 4096, 4096}, {DType::F32, 4096, 16}}));
  REQUIRE_FALSE(can({{DType::Q4_K, 4096, 64}, {DType::Q5_K, 4096, 64}, {DType::Q6_K, 4096, 64}}));  // three types
  REQUIRE_FALSE(can({{DType::Q4_K, 4096, 4096}, {DType::Q8_0, 4096, 1024}}));                       // two formats
  REQUIRE(makes_norms(std::vector<MatrixType>{{DType::Q8_0, 4096, 4096}}));
  REQUIRE(makes_norms(std::vector<MatrixType>{{DType::F32, 4096, 128}}));
  REQUIRE_FALSE(makes_norms(std::vector<MatrixType>{{DType::F32, 4096, 128}, {DType::F16, 4096, 512}}));
  REQUIRE_FALSE(can({{DType::Q4_K, 256 * 1024, 64}}));  // the column leaves no room for weights
}

}  // namespace llm::cuda::test
