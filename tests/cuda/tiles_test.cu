// Tiles of every type against the decoders of lib/tensor, and their products against double precision; equality of bits
// where it is promised.
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "support/catch.h"
#include "tile_data.h"

using namespace llm;
using namespace llm::cuda;
using namespace llm::cuda::test;

namespace {

template <class T>
std::vector<std::byte> packed_on_host(const Rows& rows) {
  const auto& [type, k, n] = rows.type;
  std::vector<std::byte> matrix(matrix_bytes(rows.type));
  for (std::int64_t strip = 0; strip < strips(n); ++strip) {
    std::byte* to = matrix.data() + strip * strip_bytes<T>(k);
    for (std::int64_t piece = 0; piece < pieces<T>(k); ++piece) {
      PieceSource<T> from;
      from.row_bytes = static_cast<std::int64_t>(row_bytes(type, k));
      from.rows = reinterpret_cast<Bytes>(rows.bytes.data()) + strip * kTileRows * from.row_bytes;
      from.n_rows = static_cast<int>(std::min<std::int64_t>(n - strip * kTileRows, kTileRows));
      from.k0 = piece * T::kPieceK;
      from.k = k;
      for (int w = 0; w < T::Codes::kBytes / 4; ++w) {
        const std::uint32_t word = codes_word<T>(from, w);
        std::memcpy(to + codes_at<T>(piece) + 4 * w, &word, 4);
      }
      for (int w = 0; w < T::Scales::kBytes / 4; ++w) {
        const std::uint32_t word = T::Scales::word_of(from, w);
        std::memcpy(to + scales_at<T>(piece, k) + 4 * w, &word, 4);
      }
    }
  }
  return matrix;
}

template <class F>
void with_type(DType type, const F& f) {
  switch (type) {
#define LLM_TYPE(name) \
  case DType::name:    \
    return f(Tile<DType::name>());
    LLM_TILE_TYPES(LLM_TYPE)
#undef LLM_TYPE
    default:
      FAIL("no tiles");
  }
}

bool same_value(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Wanted {
  double value = 0, magnitude = 0;
};
Wanted product(const Rows& rows, std::int64_t row, const Columns& x, int column) {
  const float* w = rows.values.data() + row * rows.type.k;
  const float* a = x.values.data() + column * x.k;
  Wanted sum;
  for (std::int64_t i = 0; i < x.k; ++i) {
    const double term = static_cast<double>(w[i]) * static_cast<double>(a[i]);
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}
bool is_near(float y, const Wanted& want) {
  return std::abs(static_cast<double>(y) - want.value) <= 2e-6 * want.magnitude + 1e-30;
}

}  // namespace

TEST_CASE("tiles hold what the blocks of a file hold", "[tiles]") {
  for (const DType type : kTypes) {
    with_type(type, [&](auto tile) {
      using T = decltype(tile);
      for (const std::int64_t k : lengths(type)) {
        const Rows rows(type, 27, k, static_cast<std::uint32_t>(k));
        const std::vector<std::byte> matrix = packed_on_host<T>(rows);
        std::size_t wrong = 0, seen = 0;
        for (std::int64_t strip = 0; strip < 2; ++strip)
          for (std::int64_t index = 0; index < pieces<T>(k); ++index)
            for (int lane = 0; lane < 32; ++lane) {
              const std::byte* from = matrix.data() + strip * strip_bytes<T>(k);
              T piece;
              piece.template load<FromMemory>(from + codes_at<T>(index), from + scales_at<T>(index, k), lane);
              for (int step = 0; step < T::kSteps; ++step)
                for (int r = 0; r < 4; ++r) {
                  float y[4];
                  decode_four(piece, from + scales_at<T>(index, k), lane, step, r, y);
                  for (int b = 0; b < 4; ++b) {
                    const std::int64_t row = strip * kTileRows + place_row(lane, r);
                    const std::int64_t at = index * T::kPieceK + place_k(lane, step, r, b);
                    if (row >= 27 || at >= k) continue;
                    ++seen;
                    wrong += !same_value(y[b], rows.values[static_cast<std::size_t>(row * k + at)]);
                  }
                }
            }
        INFO(name(type) << " k " << k);
        CHECK(seen == rows.values.size());
        CHECK(wrong == 0);
      }
    });
  }
}

TEST_CASE("every type of weights lies as it is stored, but F64; the quantised ones as tiles", "[tiles]") {
  for (const DTypeInfo& type : dtypes()) {
    if (type.use != DTypeUse::Weight) continue;
    INFO(name(type.dtype));
    CHECK(device_type(type.dtype) == (type.dtype == DType::F64 ? DType::F32 : type.dtype));
    CHECK(has_tiles(type.dtype) == type.quantized());
    if (type.quantized()) {
      const bool in_steps = type.activation == ActFormat::Q8x32;
      with_type(type.dtype, [&](auto tile) {
        CHECK((decltype(tile)::kFormat == ActFormat::Q8x32) == in_steps);
        CHECK(decltype(tile)::kType == type.dtype);
      });
    }
  }
}

TEST_CASE("experts of whole strips lie as one matrix of all their rows", "[tiles]") {
  CHECK_FALSE(experts_are_rows({DType::IQ2_S, 512, 40}));
  CHECK(experts_are_rows({DType::F16, 64, 1}));
  CHECK_FALSE(experts_are_rows({DType::F32, 33, 3}));
  const std::int64_t k = 512, n = 32, experts = 3;
  for (const DType type : kTypes) {
    with_type(type, [&](auto tile) {
      using T = decltype(tile);
      const Rows all(type, experts * n, k, 60);
      const std::vector<std::byte> want = packed_on_host<T>(all);
      Rows one(type, n, k, 61);
      const std::size_t bytes = matrix_bytes(one.type);
      INFO(name(type));
      CHECK(experts_are_rows(one.type));
      REQUIRE(want.size() == experts * bytes);
      for (std::size_t e = 0; e < experts; ++e) {
        std::memcpy(one.bytes.data(), all.bytes.data() + e * one.bytes.size(), one.bytes.size());
        CHECK(std::memcmp(packed_on_host<T>(one).data(), want.data() + e * bytes, bytes) == 0);
      }
    });
  }
}

TEST_CASE("the device packs, decodes and gathers", "[tiles]") {
  if (!has_device()) return;
  for (const DType type : kTypes) {
    for (const std::int64_t k : lengths(type)) {
      const Rows rows(type, 43, k, static_cast<std::uint32_t>(k + 1));
      const DeviceBuffer matrix = packed(rows);
      INFO(name(type) << " k " << k);
      with_type(type, [&](auto tile) {
        using T = decltype(tile);
        const auto want = packed_on_host<T>(rows);
        const auto got = on_host<std::byte>(matrix);
        const auto used = static_cast<std::size_t>(pieces<T>(k) * T::kPieceBytes);
        for (std::int64_t s = 0; s < strips(43); ++s)
          CHECK(std::memcmp(got.data() + s * strip_bytes<T>(k), want.data() + s * strip_bytes<T>(k), used) == 0);
      });
      for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, 43}, {5, 1}, {15, 20}, {42, 1}}) {
        const DeviceBuffer out = poisoned(static_cast<std::size_t>(n * k) * 2);
        decode_rows_f16(rows.type, matrix.data(), first, n, out.data(), {});
        const auto halves = on_host<std::uint16_t>(out);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < halves.size(); ++i)
          wrong += !same_value(to_float(Half{halves[i]}),
                               to_float(to_half(rows.values[static_cast<std::size_t>(first * k) + i])));
        CHECK(wrong == 0);
      }
      const std::vector<std::int32_t> ids = {42, 0, 8, 15, -1, 23, 43, 7};
      const DeviceBuffer device_ids = on_device(ids), y = poisoned(ids.size() * static_cast<std::size_t>(k) * 4);
      gather_rows(rows.type, matrix.data(), at<std::int32_t>(device_ids), nullptr,
                  static_cast<std::int64_t>(ids.size()), at<float>(y), {});
      const auto values = on_host<float>(y);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int32_t id = ids[i / static_cast<std::size_t>(k)];
        const bool exists = id >= 0 && id < 43;
        const float want = exists ? rows.values[static_cast<std::size_t>(id * k) + i % static_cast<std::size_t>(k)]
                                  : std::numeric_limits<float>::quiet_NaN();
        wrong += !same_value(values[i], want);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("float matrices lie on the device as in the file", "[tiles]") {
  if (!has_device()) return;
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    const std::int64_t k = 37, n = 19;
    const MatrixType m{type, k, n};
    std::vector<float> values(static_cast<std::size_t>(n * k));
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (float& v : values) v = to_float(to_bfloat16(normal(rng)));  // 8 bits of mantissa: exact in every type
    std::vector<std::byte> file(values.size() * (type == DType::F32 ? 4 : 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half = type == DType::F16 ? to_half(values[i]).bits : to_bfloat16(values[i]).bits;
      if (type == DType::F32)
        std::memcpy(file.data() + 4 * i, &values[i], 4);
      else
        std::memcpy(file.data() + 2 * i, &half, 2);
    }
    const DeviceBuffer rows = on_device(file), matrix = poisoned(matrix_bytes(m));
    pack_rows(m, rows.data(), 0, n, matrix.data(), {});
    const DeviceBuffer out = poisoned(static_cast<std::size_t>(3 * k) * 2);
    decode_rows_f16(m, matrix.data(), 16, 3, out.data(), {});
    const auto halves = on_host<std::uint16_t>(out);
    INFO(name(type));
    for (std::size_t i = 0; i < halves.size(); ++i)
      REQUIRE(halves[i] == to_half(values[static_cast<std::size_t>(16 * k) + i]).bits);
    const std::vector<std::int32_t> ids = {18, -3, 2};
    const DeviceBuffer device_ids = on_device(ids), y = poisoned(static_cast<std::size_t>(3 * k) * 4);
    gather_rows(m, matrix.data(), at<std::int32_t>(device_ids), nullptr, 3, at<float>(y), {});
    const auto got = on_host<float>(y);
    for (std::int64_t i = 0; i < k; ++i) {
      REQUIRE(got[static_cast<std::size_t>(i)] == values[static_cast<std::size_t>(18 * k + i)]);
      REQUIRE(std::isnan(got[static_cast<std::size_t>(k + i)]));
      REQUIRE(got[static_cast<std::size_t>(2 * k + i)] == values[static_cast<std::size_t>(2 * k + i)]);
    }
  }
}

TEST_CASE("products of tiles agree with double precision; a column's bits do not depend on the others", "[tiles]") {
  if (!has_device()) return;
  constexpr int kCapacity = 100, kMost = 75;
  for (const DType type : kTypes) {
    for (const std::int64_t k : lengths(type)) {
      const std::int64_t n = 59;
      const Rows rows(type, n, k, static_cast<std::uint32_t>(k + 2));
      Columns x(info(type).activation, k, kMost, kCapacity, static_cast<std::uint32_t>(k + 3));
      const DeviceBuffer matrix = packed(rows), codes = on_device(x.bytes);
      const Stream stream;
      const auto run = [&](int columns, bool overlap) {
        const DeviceBuffer y = poisoned(static_cast<std::size_t>(columns * n) * 4);
        const Target target{.type = rows.type, .matrix = matrix.data(), .y = at<float>(y)};
        tile_products({&target, 1}, codes.data(), kCapacity, columns, {.stream = stream.get(), .overlap = overlap});
        return on_host<float>(y);
      };
      const std::vector<float> all = run(kMost, false);
      std::size_t wrong = 0;
      for (int c = 0; c < kMost; ++c)
        for (std::int64_t i = 0; i < n; ++i)
          wrong += !is_near(all[static_cast<std::size_t>(c * n + i)], product(rows, i, x, c));
      INFO(name(type) << " k " << k);
      CHECK(wrong == 0);
      for (const int columns : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65}) {
        const std::vector<float> some = run(columns, columns % 2 != 0);
        INFO(columns << " columns");
        CHECK(std::memcmp(some.data(), all.data(), some.size() * 4) == 0);
      }
      // a fault in one column is seen in that column alone
      x.values[static_cast<std::size_t>(3 * k)] = std::numeric_limits<float>::infinity();
      x.quantize(info(type).activation, 3);
      copy_to_device(codes.data(), x.bytes.data(), x.bytes.size(), "copying");
      const std::vector<float> faulty = run(6, false);
      std::size_t not_nan = 0;
      for (std::int64_t i = 0; i < n; ++i) not_nan += !std::isnan(faulty[static_cast<std::size_t>(3 * n + i)]);
      CHECK(not_nan == 0);
      CHECK(std::memcmp(faulty.data(), all.data(), static_cast<std::size_t>(3 * n) * 4) == 0);
      CHECK(std::memcmp(faulty.data() + 4 * n, all.data() + 4 * n, static_cast<std::size_t>(2 * n) * 4) == 0);
    }
  }
}

TEST_CASE("a row's bits do not depend on how many rows a product has", "[tiles]") {
  if (!has_device()) return;
  for (const DType type : {DType::Q4_K, DType::Q6_K, DType::Q8_0}) {
    const std::int64_t k = 20 * 256, n = 5000, few = 100;  // more strips than there are multiprocessors, and fewer
    const Rows rows(type, n, k, 11);
    const Columns x(info(type).activation, k, 8, 16, 12);
    const DeviceBuffer matrix = packed(rows), codes = on_device(x.bytes);
    const DeviceBuffer y = poisoned(static_cast<std::size_t>(8 * n) * 4),
                       y_few = poisoned(static_cast<std::size_t>(8 * few) * 4);
    const Target all{.type = rows.type, .matrix = matrix.data(), .y = at<float>(y)};
    Target some{.type = rows.type, .matrix = matrix.data(), .y = at<float>(y_few)};
    some.type.n = few;
    tile_products({&all, 1}, codes.data(), 16, 8, {});
    tile_products({&some, 1}, codes.data(), 16, 8, {});
    const auto a = on_host<float>(y), b = on_host<float>(y_few);
    INFO(name(type));
    for (std::size_t c = 0; c < 8; ++c)
      CHECK(std::memcmp(a.data() + c * static_cast<std::size_t>(n), b.data() + c * static_cast<std::size_t>(few),
                        static_cast<std::size_t>(few) * 4) == 0);
  }
}

TEST_CASE("targets of several types and sizes, with scale and bias", "[tiles]") {
  if (!has_device()) return;
  const std::int64_t k = 9 * 256;
  const DType types[] = {DType::Q4_K, DType::Q6_K, DType::Q4_K};
  const std::int64_t n[] = {70, 33, 16};
  const Columns x(ActFormat::Q8x256, k, 5, 5, 21);
  const DeviceBuffer codes = on_device(x.bytes);
  std::vector<Rows> rows;
  std::vector<DeviceBuffer> memory;
  std::vector<Target> targets;
  std::vector<float*> y;
  for (std::size_t i = 0; i < 3; ++i) {
    rows.emplace_back(types[i], n[i], k, static_cast<std::uint32_t>(30 + i));
    memory.push_back(packed(rows.back()));
    Target t{.type = rows.back().type, .matrix = memory.back().data()};
    memory.push_back(on_device(std::vector<float>(static_cast<std::size_t>(n[i]), 3.0f)));
    if (i != 1) t.bias = at<float>(memory.back());
    memory.push_back(on_device(std::vector<float>{0.5f}));
    if (i != 2) t.scale = at<float>(memory.back());
    memory.push_back(poisoned(static_cast<std::size_t>(5 * n[i]) * 4));
    t.y = at<float>(memory.back());
    targets.push_back(t);
  }
  tile_products(targets, codes.data(), 5, 5, {});
  for (std::size_t i = 0; i < 3; ++i) {
    const auto got = on_host<float>(memory[4 * i + 3]);
    std::size_t wrong = 0;
    for (int c = 0; c < 5; ++c)
      for (std::int64_t row = 0; row < n[i]; ++row) {
        Wanted want = product(rows[i], row, x, c);
        if (i != 2) want.value *= 0.5;
        if (i != 1) want.value += 3.0, want.magnitude += 3.0;
        wrong += !is_near(got[static_cast<std::size_t>(c * n[i] + row)], want);
      }
    INFO("target " << i);
    CHECK(wrong == 0);
  }
}

TEST_CASE("experts take the columns of their routes", "[tiles]") {
  if (!has_device()) return;
  constexpr std::int64_t kExperts = 5;
  for (const DType type : {DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::MXFP4, DType::Q1_0, DType::IQ2_S}) {
    for (const std::int64_t k : {std::int64_t{768}, std::int64_t{2048}}) {
      const std::int64_t n = 40;
      const std::size_t expert_bytes = matrix_bytes({type, k, n});
      std::vector<Rows> experts;
      const DeviceBuffer matrices = poisoned(expert_bytes * kExperts);
      for (std::int64_t e = 0; e < kExperts; ++e) {
        experts.emplace_back(type, n, k, static_cast<std::uint32_t>(40 + e));
        const DeviceBuffer one = packed(experts.back());
        copy_to_device(matrices.data() + static_cast<std::size_t>(e) * expert_bytes, one.data(), expert_bytes,
                       "copying");
      }
      std::vector<float> bias(static_cast<std::size_t>(kExperts * n)), scale(kExperts);
      for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) / 8;
      for (std::size_t e = 0; e < scale.size(); ++e) scale[e] = 1.0f + static_cast<float>(e);
      const DeviceBuffer device_bias = on_device(bias), device_scale = on_device(scale);
      // three groups of a possible five: expert 3 twice, expert 0 once; routes out of order, some of none
      const std::vector<std::int32_t> n_groups = {3}, expert = {3, 3, 0, 77, 77}, first = {0, 8, 11, 0, 0},
                                      count = {8, 3, 5, 0, 0},
                                      routes = {1, 2, 5, 8, 13, 21, 22, 30, 31, 34, 39, 0, 3, 4, 7, 36};
      const DeviceBuffer d_n = on_device(n_groups), d_expert = on_device(expert), d_first = on_device(first),
                         d_count = on_device(count), d_routes = on_device(routes);
      for (const int per_row : {1, 4}) {
        for (const int columns : {8, 16, 32}) {
          constexpr int kRoutes = 40;
          const Columns x(info(type).activation, k, kRoutes / per_row, kRoutes, 50);
          const DeviceBuffer codes = on_device(x.bytes), y = poisoned(static_cast<std::size_t>(kRoutes * n) * 4);
          const Target target{.type = {type, k, n},
                              .matrix = matrices.data(),
                              .bias = at<float>(device_bias),
                              .scale = at<float>(device_scale),
                              .y = at<float>(y)};
          const RouteGroups groups{.n_groups = at<std::int32_t>(d_n),
                                   .expert = at<std::int32_t>(d_expert),
                                   .first = at<std::int32_t>(d_first),
                                   .count = at<std::int32_t>(d_count),
                                   .routes = at<std::int32_t>(d_routes),
                                   .max_groups = 5,
                                   .columns = columns,
                                   .routes_per_row = per_row};
          expert_tile_products({&target, 1}, codes.data(), kRoutes, groups, {});
          const auto got = on_host<float>(y);
          std::size_t wrong = 0, written = 0;
          for (std::size_t g = 0; g < 3; ++g)
            for (int c = 0; c < count[g]; ++c) {
              const std::int32_t route = routes[static_cast<std::size_t>(first[g] + c)];
              const auto e = static_cast<std::size_t>(expert[g]);
              for (std::int64_t i = 0; i < n; ++i) {
                Wanted want = product(experts[e], i, x, route / per_row);
                want.value = want.value * static_cast<double>(scale[e]) +
                             static_cast<double>(bias[e * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)]);
                want.magnitude = want.magnitude * static_cast<double>(scale[e]) + std::abs(want.value);
                wrong += !is_near(got[static_cast<std::size_t>(route * n + i)], want);
              }
            }
          for (const float v : got) written += !std::isnan(v);
          INFO(name(type) << " k " << k << " routes per row " << per_row << " columns " << columns);
          CHECK(wrong == 0);
          CHECK(written == routes.size() * static_cast<std::size_t>(n));
        }
      }
    }
  }
}
