// Operands in FP8 (E4M3: support/e4m3.h) and products of them, against the format's definition and double precision.
#include <array>
#include <cmath>
#include <string>

#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/float8.cuh"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/rows.h"
#include "base/half.h"
#include "device_data.h"
#include "support/catch.h"
#include "support/e4m3.h"
#include "tile_data.h"

namespace llm::cuda::test {
namespace {

using llm::test::e4m3_value;
using llm::test::nearest_e4m3;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float scale_of(const float* row, std::int64_t n) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isfinite(row[i])) largest = std::max(largest, std::fabs(row[i]));
  }
  return largest < 0x1p-100f ? 1.0f : largest / 448.0f;
}

/// Indices at which the rows' bytes are not those of `values` divided by their scales.
std::size_t wrong_bytes(const std::vector<std::uint8_t>& bytes, const float* values, const std::vector<float>& scales) {
  std::size_t wrong = 0;
  const std::size_t k = bytes.size() / scales.size();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const float want = e4m3_value(nearest_e4m3(values[i] * (1.0f / scales[i / k]))), got = e4m3_value(bytes[i]);
    wrong += !(got == want || (std::isnan(got) && std::isnan(want)));
  }
  return wrong;
}

/// Of pair i of codes, in its low and its high byte: both ways to F16, from neighbours and from two words.
__global__ void widen_pairs(uint4* out) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, low = i & 0xffu, high = i >> 8;
  out[i] = make_uint4(f8_neighbours(low << 16 | high << 24, 2), f8_twins(low << 8, high << 8, 1),
                      f8_halves_of_word(low << 16 | high << 24, 2), f8_halves_of_words(low << 8, high << 8, 1));
}
__global__ void unit_of_pairs(float* out) { *out = kOneF8; }

}  // namespace

TEST_CASE("codes of E4M3 become F16, by an instruction and by their bits", "[f8]") {
  if (no_device()) return;
  constexpr unsigned kPairs = 1u << 16;
  const OnDevice<std::uint32_t> out(4 * kPairs);
  const OnDevice<float> unit(1);
  widen_pairs<<<kPairs / 256, 256>>>(reinterpret_cast<uint4*>(out.data()));
  unit_of_pairs<<<1, 1>>>(unit.data());
  const std::vector<std::uint32_t> got = out.read();
  const float units[] = {unit.read()[0], 0x1p-8f};
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < kPairs; ++i) {
    for (unsigned way = 0; way < 4; ++way) {
      const std::uint32_t halves = got[4 * i + way];
      for (unsigned of = 0; of < 2; ++of) {
        const float want = e4m3_value(static_cast<std::uint8_t>(i >> (8 * of))) * units[way / 2];
        const float is = to_float(Half{static_cast<std::uint16_t>(halves >> (16 * of))});
        wrong += std::isnan(want) ? !std::isnan(is) : std::memcmp(&is, &want, sizeof is) != 0;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("activations in FP8 are divided by a factor of their row", "[f8]") {
  if (no_device()) return;
  for (const int n : {16, 272, 4096, 20480}) {
    INFO("rows of " << n);
    const int rows = 5;
    Random random(static_cast<std::uint32_t>(n));
    std::vector<float> x = random.floats(static_cast<std::size_t>(rows * n), 3);
    for (int i = 0; i < n; ++i) {
      x[static_cast<std::size_t>(n + i)] = 0;
      x[static_cast<std::size_t>(2 * n + i)] *= 1e-35f;
      x[static_cast<std::size_t>(3 * n + i)] *= 1e34f;
    }
    x[3] = kNan;
    x[7] = std::numeric_limits<float>::infinity();
    const OnDevice<float> from(x), scales(static_cast<std::size_t>(rows));
    const OnDevice<std::uint8_t> bytes(x.size());
    make_forms(from.data(), n, rows, {.f8 = bytes.data(), .f8_scale = scales.data()}, {});
    std::vector<float> expected;
    for (int row = 0; row < rows; ++row) expected.push_back(scale_of(x.data() + row * n, n));
    REQUIRE(scales.read() == expected);
    CHECK(wrong_bytes(bytes.read(), x.data(), expected) == 0);
  }
}

TEST_CASE("weights in FP8 are divided by a factor of their row", "[f8]") {
  if (no_device()) return;
  const std::int64_t n = 43, k = 512;
  const auto expect = [&](const MatrixType& m, const DeviceBuffer& matrix, const std::vector<float>& values) {
    const DeviceBuffer found = poisoned(static_cast<std::size_t>(n) * 4);
    find_f8_scales(m, matrix.data(), at<float>(found), {});
    std::vector<float> scales;
    for (std::int64_t row = 0; row < n; ++row) scales.push_back(scale_of(values.data() + row * k, k));
    REQUIRE(on_host<float>(found) == scales);
    for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, n}, {5, 1}, {16, 27}, {15, 20}}) {
      INFO("rows " << first << " to " << first + rows);
      const DeviceBuffer out = poisoned(static_cast<std::size_t>(rows * k));
      decode_rows_f8(m, matrix.data(), first, rows, at<float>(found) + first, out.data(), {});
      CHECK(wrong_bytes(on_host<std::uint8_t>(out), values.data() + first * k,
                        {scales.begin() + first, scales.begin() + first + rows}) == 0);
    }
  };
  for (const DType type : kTypes) {
    INFO(name(type));
    const Rows rows(type, n, k, 11);
    expect(rows.type, packed(rows), rows.values);
  }
  for (const DType type : {DType::F16, DType::BF16}) {
    INFO(name(type));
    Random random(5);
    std::vector<float> values = random.floats(static_cast<std::size_t>(n * k));
    std::vector<std::uint16_t> file;
    for (float& v : values) {
      v = to_float(to_bfloat16(v));  // 8 bits of mantissa: exact in both
      file.push_back(type == DType::F16 ? to_half(v).bits : to_bfloat16(v).bits);
    }
    expect({type, k, n}, on_device(file), values);
  }
}

TEST_CASE("products of rows in FP8 agree with double precision", "[f8]") {
  if (no_device()) return;
  std::string why_not;
  const auto gemm = Gemm::load(current_device(), why_not);
  if (gemm != nullptr) why_not = gemm->f8_refusal();
  if (!why_not.empty()) {
    std::fprintf(stderr, "SKIPPED: %s\n", why_not.c_str());
    return;
  }
  for (const GemmShape& s :
       {GemmShape{256, 128, 256, 256}, GemmShape{48, 77, 1024, 64}, GemmShape{4096, 300, 2048, 4096}}) {
    INFO(s.n << " x " << s.rows << " x " << s.k);
    Random random(static_cast<std::uint32_t>(s.n));
    const auto some_rows = [&](int rows) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows) * static_cast<std::size_t>(s.k));
      for (std::uint8_t& b : bytes) {
        do b = static_cast<std::uint8_t>(random.below(256));
        while (std::isnan(e4m3_value(b)));
      }
      return bytes;
    };
    const std::vector<std::uint8_t> w = some_rows(s.n), x = some_rows(s.rows);
    std::vector<float> w_scales, x_scales;
    for (int i = 0; i < s.n; ++i) w_scales.push_back(std::exp(random.normal()));
    for (int i = 0; i < s.rows; ++i) x_scales.push_back(std::exp(random.normal()));
    const OnDevice<std::uint8_t> w_there(w), x_there(x);
    const OnDevice<float> ws(w_scales), xs(x_scales), y(static_cast<std::size_t>(s.rows * s.ldy));
    gemm->run_f8({w_there.data(), ws.data()}, {x_there.data(), xs.data()}, y.data(), s, nullptr);
    const std::vector<float> got = y.read();
    std::size_t wrong = 0;
    for (int row = 0; row<s.rows; row += s.rows> 100 ? 37 : 1) {
      for (int i = 0; i < s.ldy; ++i) {
        const float result = got[static_cast<std::size_t>(row * s.ldy + i)];
        if (i >= s.n) {
          wrong += !std::isnan(result);  // not written
          continue;
        }
        double sum = 0, magnitude = 0;
        for (int j = 0; j < s.k; ++j) {
          const double term = double{e4m3_value(w[static_cast<std::size_t>(i * s.k + j)])} *
                              double{e4m3_value(x[static_cast<std::size_t>(row * s.k + j)])};
          sum += term;
          magnitude += term * term;
        }
        // The tensor cores add with fewer bits than f32 has: some 13 of the sum so far, promoted every 128 products.
        const double factor =
            double{w_scales[static_cast<std::size_t>(i)]} * double{x_scales[static_cast<std::size_t>(row)]};
        wrong += !(std::fabs(result - sum * factor) <= 2e-3 * std::sqrt(magnitude) * factor);
      }
    }
    CHECK(wrong == 0);
  }
}

}  // namespace llm::cuda::test
