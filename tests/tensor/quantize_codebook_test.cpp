// Rounding into the types of codebooks: what a block can express survives, and other values get the nearest row of the
// grid under the scale that their extreme asks for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "round_trip.h"
#include "support/catch.h"
#include "tensor/codebooks.h"
#include "tensor/decode.h"
#include "tensor/quantize.h"

using namespace llm;
using namespace llm::test;

namespace {

using Row = std::vector<float>;

/// The rows as numbers; codebooks.inc is checked by what all rows decode to (decode_test.cpp).
template <class Element, class Grid>
std::vector<Row> rows_of(const Grid& grid) {
  std::vector<Row> rows;
  for (const auto& row : grid.rows) {
    const auto* elements = reinterpret_cast<const Element*>(&row);
    rows.emplace_back(elements, elements + Grid::kElems);
  }
  return rows;
}

enum class Signs { Free, Even };  ///< of eight elements, all or an even number negative

struct GridType {
  DType type;
  std::vector<Row> rows;
  std::size_t group;  ///< elements under a scale
  float reach;        ///< the largest magnitude of the grid
  float unit;         ///< what d is multiplied by
  int top;            ///< the largest scale number
  Signs signs;
};

std::vector<GridType> grid_types() {
  using Byte = std::uint8_t;
  return {{DType::IQ2_XXS, rows_of<Byte>(kGridIQ2_XXS), 32, 43, 0.125f, 15, Signs::Even},
          {DType::IQ2_XS, rows_of<Byte>(kGridIQ2_XS), 16, 43, 0.125f, 15, Signs::Even},
          {DType::IQ2_S, rows_of<Byte>(kGridIQ2_S), 16, 43, 0.125f, 15, Signs::Free},
          {DType::IQ3_XXS, rows_of<Byte>(kGridIQ3_XXS), 32, 62, 0.25f, 15, Signs::Even},
          {DType::IQ3_S, rows_of<Byte>(kGridIQ3_S), 32, 15, 1.0f, 15, Signs::Free}};
}

struct TernaryType {
  DType type;
  std::size_t scale_group, delta_group;
};
constexpr TernaryType kTernaryTypes[] = {{DType::IQ1_S, 32, 32}, {DType::IQ1_M, 16, 8}};

std::vector<Row> with_element(const std::vector<Row>& rows, float element) {
  std::vector<Row> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const Row& row) { return std::find(row.begin(), row.end(), element) != row.end(); });
  return found;
}

/// Scales as the format's formula makes them from a block's values: the smallest that reaches each group's extreme.
std::vector<float> scales_of(const float* x, std::size_t group, float reach, float unit, int top) {
  std::vector<float> amax;
  for (std::size_t i = 0; i < 256; i += group) {
    float largest = 0;
    for (std::size_t j = i; j < i + group; ++j) largest = std::max(largest, std::fabs(x[j]));
    amax.push_back(largest);
  }
  const float largest = *std::max_element(amax.begin(), amax.end());
  const float step = unit * to_float(to_half(largest / (reach * unit * static_cast<float>(2 * top + 1))));
  std::vector<float> scales;
  for (const float a : amax) {
    int s = 0;
    while (s < top && static_cast<float>(2 * s + 1) * step * reach < a * 0.99999f) ++s;
    scales.push_back(static_cast<float>(2 * s + 1) * step);
  }
  return scales;
}

double squared_distance(const float* x, const float* y, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += (double{x[i]} - double{y[i]}) * (double{x[i]} - double{y[i]});
  return sum;
}

/// Of one scaled row to x, whose signs the row takes over.
double nearest_distance(const std::vector<Row>& rows, const float* x, float scale) {
  double best = std::numeric_limits<double>::infinity();
  for (const Row& row : rows) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double off = std::fabs(x[i]) - double{row[i]} * double{scale};
      sum += off * off;
    }
    best = std::min(best, sum);
  }
  return best;
}

double nearest_ternary(const std::vector<Row>& rows, const float* x, float scale, float delta) {
  double best = std::numeric_limits<double>::infinity();
  for (const Row& row : rows) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double off = double{x[i]} - double{scale} * (double{row[i]} + double{delta});
      sum += off * off;
    }
    best = std::min(best, sum);
  }
  return best;
}

std::vector<float> normal_values(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

}  // namespace

TEST_CASE("rows of a grid under scales of every size survive") {
  std::mt19937 rng(21);
  for (const GridType& t : grid_types()) {
    const std::vector<Row> reaching = with_element(t.rows, t.reach);
    REQUIRE_FALSE(reaching.empty());
    const std::size_t width = t.rows[0].size();
    std::vector<float> x(256 * 40);
    float scale = 0;
    for (std::size_t i = 0; i < x.size(); i += width) {
      if (i % t.group == 0) {
        const int s = i % 256 == 0 ? t.top : static_cast<int>(rng() % static_cast<unsigned>(t.top + 1));
        scale = 0x1p-5f * t.unit * static_cast<float>(2 * s + 1);
      }
      const auto& rows = i % t.group == 0 ? reaching : t.rows;
      const Row& row = rows[rng() % rows.size()];
      for (std::size_t j = 0; j < width; ++j) x[i + j] = (rng() % 2 ? scale : -scale) * row[j];
    }
    if (t.signs == Signs::Even) {
      for (std::size_t i = 0; i < x.size(); i += 8) {
        if (std::count_if(&x[i], &x[i] + 8, [](float v) { return v < 0; }) % 2 != 0) x[i] = -x[i];
      }
    }
    INFO(name(t.type));
    CHECK(round_trip(t.type, x) == x);
  }
}

TEST_CASE("values between rows of a grid get the nearest row") {
  for (const GridType& t : grid_types()) {
    const auto x = normal_values(256 * 4, 22);
    const auto y = round_trip(t.type, x);
    int compared = 0;
    for (std::size_t block = 0; block < x.size(); block += 256) {
      const auto scales = scales_of(&x[block], t.group, t.reach, t.unit, t.top);
      for (std::size_t i = block; i < block + 256; i += 8) {
        const bool even = std::count_if(&x[i], &x[i] + 8, [](float v) { return v < 0; }) % 2 == 0;
        if (t.signs == Signs::Even && !even) continue;  // the smallest magnitude changes its sign first
        const float scale = scales[(i - block) / t.group];
        double best = 0;
        for (std::size_t j = i; j < i + 8; j += t.rows[0].size()) best += nearest_distance(t.rows, &x[j], scale);
        INFO(name(t.type) << " elements from " << i);
        CHECK(squared_distance(&x[i], &y[i], 8) == Approx(best).epsilon(1e-4));
        ++compared;
      }
    }
    CHECK(compared > 40);
  }
}

TEST_CASE("an odd number of minus signs costs the smallest magnitude its own") {
  for (const GridType& t : grid_types()) {
    if (t.signs == Signs::Free) continue;
    std::vector<float> x(256, 1.0f);
    x[3] = -1.0f;
    x[5] = 0.01f;
    const auto y = round_trip(t.type, x);
    INFO(name(t.type));
    for (std::size_t i = 0; i < 8; ++i) CHECK(std::signbit(y[i]) == (i == 3 || i == 5));
    CHECK(std::none_of(y.begin() + 8, y.end(), [](float v) { return v < 0; }));
  }
}

TEST_CASE("rows of IQ1 with either delta survive") {
  const auto rows = rows_of<std::int8_t>(kGridIQ1);
  const auto with_one = with_element(rows, 1), with_minus_one = with_element(rows, -1);
  std::mt19937 rng(23);
  for (const TernaryType& t : kTernaryTypes) {
    std::vector<float> x(256 * 40);
    float scale = 0, delta = 0;
    for (std::size_t i = 0; i < x.size(); i += 8) {
      const auto s = static_cast<float>(i % 256 == 0 ? 7 : rng() % 8);
      if (i % t.scale_group == 0) scale = 0x1p-5f * (2 * s + 1);
      if (i % t.delta_group == 0) delta = rng() % 2 ? 0.125f : -0.125f;
      // The first row of a scale reaches its extreme, 1 and 1/8.
      const auto& allowed = i % t.scale_group != 0 ? rows : delta > 0 ? with_one : with_minus_one;
      const Row& row = allowed[rng() % allowed.size()];
      for (std::size_t j = 0; j < 8; ++j) x[i + j] = scale * (row[j] + delta);
    }
    INFO(name(t.type));
    CHECK(round_trip(t.type, x) == x);
  }
}

TEST_CASE("values between rows of IQ1 get the nearest rows of the better delta") {
  const auto rows = rows_of<std::int8_t>(kGridIQ1);
  for (const TernaryType& t : kTernaryTypes) {
    const auto x = normal_values(512, 24);
    const auto y = round_trip(t.type, x);
    for (std::size_t block = 0; block < x.size(); block += 256) {
      const auto scales = scales_of(&x[block], t.scale_group, 1.125f, 1.0f, 7);
      for (std::size_t i = block; i < block + 256; i += t.delta_group) {
        const float scale = scales[(i - block) / t.scale_group];
        double plus = 0, minus = 0;
        for (std::size_t j = i; j < i + t.delta_group; j += 8) {
          plus += nearest_ternary(rows, &x[j], scale, 0.125f);
          minus += nearest_ternary(rows, &x[j], scale, -0.125f);
        }
        INFO(name(t.type) << " elements from " << i);
        CHECK(squared_distance(&x[i], &y[i], t.delta_group) == Approx(std::min(plus, minus)).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("the values of IQ4 survive, and others become the nearest") {
  std::vector<float> x(256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.5f * kValuesIQ4[i * 5 % 16];
  CHECK(round_trip(DType::IQ4_NL, x) == x);
  // Scales -32 in the first group, then -7, -2, 3 .. 23.
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float scale = i < 32 ? -32.0f : static_cast<float>(i / 32) * 5 - 12;
    x[i] = 0.25f * scale * kValuesIQ4[i * 5 % 16];
  }
  CHECK(round_trip(DType::IQ4_XS, x) == x);

  std::vector<float> between(32, 0);
  between[0] = -127;
  for (int i = 1; i < 32; ++i) between[static_cast<std::size_t>(i)] = static_cast<float>(8 * i - 127) + 0.25f;
  const auto y = round_trip(DType::IQ4_NL, between);
  for (std::size_t i = 0; i < between.size(); ++i) {
    float nearest = kValuesIQ4[0];
    for (const float v : kValuesIQ4)
      if (std::fabs(between[i] - v) < std::fabs(between[i] - nearest)) nearest = v;
    CHECK(y[i] == nearest);
  }
}

TEST_CASE("MXFP4 takes the power of two that the OCP format prescribes") {
  constexpr float kE2M1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (const int exponent : {-120, -40, -1, 0, 3, 50, 124}) {
    std::vector<float> x(32);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(kE2M1[i % 15], exponent);
    INFO(exponent);
    CHECK(round_trip(DType::MXFP4, x) == x);
  }
  // Shared exponent floor(log2(7.9)) - 2 = 0: 7.9 becomes the largest, 6; 5 lies between 4 and 6, 0.26 nearer to 0.5.
  std::vector<float> x(32, 0);
  x[0] = 7.9f;
  x[1] = -5.1f;
  x[17] = 0.26f;
  std::vector<float> expected(32, 0);
  expected[0] = 6;
  expected[1] = -6;
  expected[17] = 0.5f;
  CHECK(round_trip(DType::MXFP4, x) == expected);
  CHECK(round_trip(DType::MXFP4, std::vector<float>(32, 1e-40f)) == std::vector<float>(32, 0));
}

TEST_CASE("NVFP4 takes the smallest of its scales that reaches the extreme") {
  constexpr float kE2M1[] = {6, 0, 0.5f, 1, 1.5f, 2, 3, 4, -0.5f, -1, -1.5f, -2, -3, -4, -6, 6};
  for (int code = 1; code <= 0x7e; ++code) {  // 4 bits of exponent, bias 7, and 3 of mantissa
    const int exponent = code >> 3, mantissa = code & 7;
    const float scale = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                      : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    std::vector<float> x(64);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i < 16 ? scale : 1.0f) * kE2M1[i % 16];
    INFO(code);
    CHECK(round_trip(DType::NVFP4, x) == x);
  }
  std::vector<float> x(64, 0);
  x[0] = 6.01f;  // 1 does not reach it, 1.125 does
  x[20] = 1e6f;  // beyond 6 * 448
  const auto y = round_trip(DType::NVFP4, x);
  CHECK(y[0] == 6.75f);
  CHECK(y[20] == 6 * 448.0f);
}

TEST_CASE("values of one or two bits") {
  std::mt19937 rng(25);
  for (const DType t : {DType::TQ1_0, DType::TQ2_0, DType::Q2_0}) {
    std::vector<float> x(1024);
    for (float& v : x) v = 0.75f * (static_cast<float>(rng() % 3) - 1);
    INFO(name(t));
    CHECK(round_trip(t, x) == x);
  }
  std::vector<float> x(128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = (rng() % 2 ? 1.0f : -1.0f) * (i % 2 ? 0.25f : 0.75f);
  const auto y = round_trip(DType::Q1_0, x);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == std::copysign(0.5f, x[i]));  // the mean magnitude
}
