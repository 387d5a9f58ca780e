// Kernels that work row by row, against the scalar definitions of the operations and of quantised activations.
#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/rows.h"
#include "backend/host/ops.h"
#include "base/half.h"
#include "device_data.h"
#include "support/catch.h"
#include "tensor/activation.h"

namespace llm::cuda::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
const Launch kLaunch{};

/// Rows whose blocks differ in magnitude; from four rows on one holds a NaN, one an infinity, one next to nothing.
std::vector<float> odd_rows(Random& random, int n, int rows) {
  std::vector<float> x = random.floats(static_cast<std::size_t>(n) * rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(static_cast<float>(i / 32 % 23) - 11);
  if (rows < 4) return x;
  x[static_cast<std::size_t>(n) + random.below(n)] = kNan;
  x[2 * static_cast<std::size_t>(n) + random.below(n)] = -kInf;
  for (int i = 0; i < n; ++i) x[3 * static_cast<std::size_t>(n) + i] *= 0x1p-120f;
  return x;
}

/// All forms of some rows, poisoned.
struct AllForms {
  AllForms(int n, int rows, bool with_f16)
      : n(n),
        rows(rows),
        capacity(rows + 3),
        f32(static_cast<std::size_t>(n) * rows),
        bf16(f32.size()),
        unscale(rows),
        half(f32.size()),
        rest(f32.size()),
        q8x256(quantized_bytes(ActFormat::Q8x256, n, capacity)),
        q8x32(quantized_bytes(ActFormat::Q8x32, n, capacity)) {
    forms.f32 = f32.data();
    forms.rounded_bf16 = bf16.data();
    forms.q8x256 = reinterpret_cast<std::byte*>(q8x256.data());
    forms.q8x32 = reinterpret_cast<std::byte*>(q8x32.data());
    forms.capacity = capacity;
    if (!with_f16) return;
    forms.f16 = half.data();
    forms.f16_rest = rest.data();
    forms.f16_unscale = unscale.data();
  }
  int n, rows, capacity;
  OnDevice<float> f32, bf16, unscale;
  OnDevice<std::uint16_t> half, rest;
  OnDevice<std::uint8_t> q8x256, q8x32;
  Forms forms;

  /// Everything that was written is what the definitions make of x.
  void expect(const std::vector<float>& x) const {
    REQUIRE(first_difference(x, f32.read()) == -1);
    std::vector<float> rounded(x.size());
    round_trip_activation(ActFormat::BF16, x.data(), rounded.data(), static_cast<std::int64_t>(x.size()));
    REQUIRE(first_difference(rounded, bf16.read()) == -1);
    expect_codes(x, ActFormat::Q8x256, q8x256.read());
    expect_codes(x, ActFormat::Q8x32, q8x32.read());
    if (forms.f16 != nullptr) expect_half(x);
  }

  void expect_half(const std::vector<float>& x) const {
    const std::vector<std::uint16_t> halves = half.read(), rests = rest.read();
    const std::vector<float> factors = unscale.read();
    for (int row = 0; row < rows; ++row) {
      float largest = 0;
      for (int i = 0; i < n; ++i) {
        const float v = std::fabs(x[static_cast<std::size_t>(row) * n + i]);
        if (std::isfinite(v)) largest = std::max(largest, v);
      }
      float factor = 1;
      while (largest * factor > 32768) factor /= 2;
      INFO("row " << row);
      REQUIRE(factors[row] == 1 / factor);
      for (int i = 0; i < n; ++i) {
        const std::size_t at = static_cast<std::size_t>(row) * n + i;
        INFO("element " << i << ": " << x[at]);
        const float rounded = to_float(to_half(x[at] * factor)), left = x[at] * factor - rounded;
        REQUIRE(same(to_float(Half{halves[at]}), rounded));
        REQUIRE(same(to_float(Half{rests[at]}), std::isfinite(left) ? to_float(to_half(left / kRestUnit)) : 0.0f));
      }
    }
  }

  void expect_codes(const std::vector<float>& x, ActFormat f, const std::vector<std::uint8_t>& bytes) const {
    const std::byte* const data = reinterpret_cast<const std::byte*>(bytes.data());
    const auto blocks = static_cast<int>(k_blocks(n));
    for (int row = 0; row < rows; ++row) {
      std::vector<float> padded(static_cast<std::size_t>(blocks) * kBlockK);
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(row) * n, n, padded.begin());
      const int group = row / kColumns, column = row % kColumns;
      for (int block = 0; block < blocks; ++block) {
        INFO(name(f) << ", n " << n << ", row " << row << ", block " << block);
        std::array<std::int8_t, kBlockK> q;
        std::array<float, kSteps> scales;
        const float* const values = padded.data() + block * kBlockK;
        const int per_scale = static_cast<int>(act_block_elems(f));
        for (int k = 0; k < kBlockK; k += per_scale)
          scales[static_cast<std::size_t>(k / kStepK)] = quantize_activation_block(values + k, per_scale, q.data() + k);
        const std::byte* const codes = data + codes_offset(group, block, n);
        bool equal = true;
        for (int k = 0; k < kBlockK; ++k) equal &= static_cast<std::int8_t>(codes[code_offset(k, column)]) == q[k];
        REQUIRE(equal);
        const std::byte* const at = data + scales_offset(f, group, block, n, capacity);
        const auto sum = [&](int begin, int count) {
          int s = 0;
          for (int k = begin; k < begin + count; ++k) s += q[static_cast<std::size_t>(k)];
          return s;
        };
        if (f == ActFormat::Q8x256) {
          ColumnBlock found;
          std::memcpy(&found, at + column * sizeof found, sizeof found);
          REQUIRE(same(found.scale, scales[0]));
          for (int s = 0; s < 8; ++s) REQUIRE(found.low32[s] + 128 * found.high32[s] == sum(32 * s, 32));
          for (int s = 0; s < 16; ++s) REQUIRE(found.low16[s] + 128 * found.high16[s] == sum(16 * s, 16));
          for (int s = 0; s < 16; ++s) REQUIRE((found.low16[s] >= 0 && found.low32[s / 2] >= 0));
        } else {
          for (int step = 0; step < kSteps; ++step) {
            StepScale found;
            std::memcpy(&found, at + (step * kColumns + column) * sizeof found, sizeof found);
            REQUIRE(same(found.scale, scales[step]));
          }
        }
      }
    }
  }
};

constexpr std::array kLengths = {1,   3,    31,   32,   100,  128,  255,   256,   257,  512,
                                 516, 1000, 4096, 4100, 8192, 8200, 16384, 16388, 17001};

__global__ void quotients_kernel(const float* a, const float* b, int n, float* y) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = quotient(a[i], b[i]);
}

std::vector<float> row_of(const std::vector<float>& x, int n, int row) {
  return {x.begin() + static_cast<std::ptrdiff_t>(row) * n, x.begin() + static_cast<std::ptrdiff_t>(row + 1) * n};
}

}  // namespace

TEST_CASE("the words of a ColumnBlock are gathered from the lanes that have their sums") {
  Random random(1);
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::array<int, kBlockK> codes;
    for (int& c : codes) c = repetition == 0 ? -127 : repetition == 1 ? 127 : random.below(255) - 127;
    const auto sum = [&](int begin, int count) {
      int s = 0;
      for (int k = begin; k < begin + count; ++k) s += codes[static_cast<std::size_t>(k)];
      return s;
    };
    std::array<int, kWarp> of16{}, of32{}, offered{};
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int other = 0; other < kWarp; ++other) {
        const int both = pack_sums(sum(4 * other, 4), sum(128 + 4 * other, 4));
        if (other / 4 == lane / 4) of16[lane] += both;
        if (other / 8 == lane / 8) of32[lane] += both;
      }
      offered[lane] = lane % 4 == 1 ? of32[lane] : of16[lane];
    }
    ColumnBlock block{};
    for (int lane = 4; lane < 16; ++lane) {
      const SumWord from = sum_word(lane);
      unsigned word = 0;
      for (int i = 0; i < 4; ++i) {
        const int sums = offered[static_cast<std::size_t>(from.source(i))];
        word |= sum_byte(from.half != 0 ? packed_high(sums) : packed_low(sums), from.high) << (8 * i);
      }
      std::memcpy(reinterpret_cast<std::byte*>(&block) + 4 * lane, &word, sizeof word);
    }
    for (int s = 0; s < 8; ++s) REQUIRE(block.low32[s] + 128 * block.high32[s] == sum(32 * s, 32));
    for (int s = 0; s < 16; ++s) REQUIRE(block.low16[s] + 128 * block.high16[s] == sum(16 * s, 16));
  }
}

TEST_CASE("rows of F16 are brought to 32768 by the smallest power of two") {
  for (const float x : {0.0f, 1.0f, 32767.0f, 32768.0f, 32769.0f, 65504.0f, 65536.0f, 65537.0f, 1e9f, 3.4e38f}) {
    float factor = 1;
    while (x * factor > 32768) factor /= 2;
    REQUIRE(std::exp2(-static_cast<float>(half_exponent(bits_of(x)))) == factor);
  }
}

TEST_CASE("forms of rows are those of the definitions, bit for bit") {
  if (no_device()) return;
  Random random(2);
  for (const int n : kLengths) {
    for (const int rows : {1, 9}) {
      for (const bool with_f16 : {false, true}) {
        for (const std::size_t offset : {0, 1}) {
          std::vector<float> x = odd_rows(random, n, rows);
          if (with_f16) x[random.below(n)] = 1e6f;
          const OnDevice<float> on_device(x, offset);
          const AllForms y(n, rows, with_f16);
          make_forms(on_device.data(), n, rows, y.forms, kLaunch);
          y.expect(x);
        }
      }
    }
  }
}

TEST_CASE("norms, of rows and of sums") {
  if (no_device()) return;
  Random random(3);
  for (const int n : kLengths) {
    for (const bool with_f16 : {false, true}) {
      constexpr int kRows = 6;
      INFO("n " << n);
      const std::vector<float> a = odd_rows(random, n, kRows), w = random.floats(n);
      const std::vector<float> b = random.floats(a.size());
      std::vector<float> sum(a.size()), expected_sum(a.size()), expected(a.size());
      for (int row = 0; row < kRows; ++row) {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(row) * n;
        host::add_rms_norm<double>(a.data() + at, b.data() + at, w.data(), sum.data() + at, expected_sum.data() + at, n,
                                   1e-5f);
        host::rms_norm<double>(a.data() + at, w.data(), expected.data() + at, n, 1e-5f);
      }
      const OnDevice<float> device_a(a), device_b(b), device_w(w), device_sum(a.size());
      const AllForms of_rows(n, kRows, with_f16), of_sums(n, kRows, with_f16);
      rms_norm(device_a.data(), device_w.data(), 1e-5f, n, kRows, of_rows.forms, kLaunch);
      add_rms_norm(device_a.data(), device_b.data(), device_w.data(), 1e-5f, n, kRows, device_sum.data(), of_sums.forms,
                   kLaunch);
      REQUIRE(first_difference(sum, device_sum.read()) == -1);
      for (int row = 0; row < kRows; ++row) {
        INFO("row " << row);
        REQUIRE(worst(row_of(expected, n, row), row_of(of_rows.f32.read(), n, row), n) <= 1);
        REQUIRE(worst(row_of(expected_sum, n, row), row_of(of_sums.f32.read(), n, row), n) <= 1);
      }
      of_rows.expect(of_rows.f32.read());
      of_sums.expect(of_sums.f32.read());

      // Alone a row is what it is among others; the sum may take the place of an operand.
      const OnDevice<float> in_place(row_of(a, n, 5)), other(row_of(b, n, 5));
      const AllForms alone(n, 1, with_f16);
      add_rms_norm(in_place.data(), other.data(), device_w.data(), 1e-5f, n, 1, in_place.data(), alone.forms, kLaunch);
      REQUIRE(first_difference(row_of(of_sums.f32.read(), n, 5), alone.f32.read()) == -1);
      REQUIRE(first_difference(row_of(sum, n, 5), in_place.read()) == -1);
    }
  }
}

TEST_CASE("quotients are those of IEEE") {
  if (no_device()) return;
  Random random(10);
  const auto of_size = [&](int low, int high) {
    const float x = random.normal() + (random.below(2) != 0 ? 1.0f : -1.0f);
    return std::ldexp(x == 0 ? 1.0f : x / std::exp2(std::floor(std::log2(std::fabs(x)))),
                      low + random.below(high - low));
  };
  std::vector<float> a, b, expected;
  for (int i = 0; i < (1 << 20); ++i) {
    a.push_back(of_size(-100, 127));
    b.push_back(i % 4 == 0 ? 127.0f : i % 4 == 1 ? 1.0f + std::fabs(random.normal()) : of_size(-100, 126));
    if (i % 8 == 7) {
      a.back() = 127.0f;
      b.back() = of_size(-100, 100);
    }
    const float q = a.back() / b.back();
    if (std::fabs(q) < 0x1p-100f || !std::isfinite(q)) a.back() = b.back();
    expected.push_back(a.back() / b.back());
  }
  const OnDevice<float> device_a(a), device_b(b), y(a.size());
  const int n = static_cast<int>(a.size());
  launch(quotients_kernel, dim3((n + 255) / 256), dim3(256), 0, kLaunch, device_a.data(), device_b.data(), n, y.data());
  REQUIRE(first_difference(expected, y.read()) == -1);
}

TEST_CASE("gates of infinite and of very large numbers") {
  if (no_device()) return;
  const std::vector<float> gate = {kInf,   -kInf,  kNan,    3e38f, -3e38f, 88.0f,
                                   -88.0f, -89.0f, -110.0f, 0.0f,  -0.0f,  1e-30f};
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> expected(gate.size());
  host::glu<double>({.activation = Activation::Silu}, gate.data(), up.data(), expected.data(),
                    static_cast<std::int64_t>(gate.size()));
  const OnDevice<float> device_gate(gate), device_up(up), y(gate.size());
  const int n = static_cast<int>(gate.size());
  glu({.activation = Activation::Silu}, device_gate.data(), device_up.data(), n, 1, {.f32 = y.data()}, kLaunch);
  const std::vector<float> found = y.read();
  for (std::size_t i = 0; i < gate.size(); ++i) {
    INFO("silu(" << gate[i] << ") * 2 = " << found[i] << ", expected " << expected[i]);
    if (std::isfinite(expected[i])) {
      REQUIRE(std::fabs(found[i] - expected[i]) <= 1e-6f * std::fabs(expected[i]) + 1e-30f);
    } else {
      REQUIRE(same(found[i], expected[i]));
    }
  }
}

TEST_CASE("gates") {
  if (no_device()) return;
  Random random(4);
  for (const Activation activation : {Activation::Silu, Activation::Gelu}) {
    for (const int n : {1, 33, 256, 260, 3072, 14336, 17001}) {
      for (const bool with_f16 : {false, true}) {
        constexpr int kRows = 5;
        const std::vector<float> gate = random.floats(static_cast<std::size_t>(n) * kRows, 4);
        std::vector<float> up = random.floats(gate.size());
        up[random.below(n)] = kNan;
        std::vector<float> expected(gate.size());
        host::glu<double>({.activation = activation}, gate.data(), up.data(), expected.data(),
                          static_cast<std::int64_t>(gate.size()));
        const OnDevice<float> device_gate(gate), device_up(up);
        const AllForms y(n, kRows, with_f16);
        glu({.activation = activation}, device_gate.data(), device_up.data(), n, kRows, y.forms, kLaunch);
        INFO("n " << n);
        REQUIRE(worst(expected, y.f32.read(), 1) <= 1);
        y.expect(y.f32.read());
      }
    }
  }
}

TEST_CASE("caps, activations without a gate, products with a weight, parts of rows") {
  if (no_device()) return;
  Random random(14);
  for (const int n : {1, 33, 256, 1021}) {
    constexpr int kRows = 5;
    const auto size = static_cast<std::size_t>(n) * kRows;
    std::vector<float> x = random.floats(size, 4);
    x[random.below(n)] = kNan;
    const OnDevice<float> dx(x), factor(std::vector<float>{1.25f}), y(size);
    std::vector<float> expected(size);
    const auto check = [&] {
      INFO("n " << n);
      REQUIRE(worst(expected, y.read(), 1) <= 1);
    };
    for (const float cap : {1.0f, 30.0f}) {
      for (std::size_t i = 0; i < size; ++i) expected[i] = static_cast<float>(host::soft_capped<double>(x[i], cap));
      soft_cap(dx.data(), cap, y.data(), static_cast<std::int64_t>(size), kLaunch);
      check();
    }
    for (const Activate& f : {Activate{.function = Nonlinearity::Gelu}, Activate{.function = Nonlinearity::SquaredRelu},
                              Activate{.function = Nonlinearity::Clamp, .limit = 2.5f},
                              Activate{.function = Nonlinearity::Xielu, .xielu = {0.7f, 1.1f, 0.5f, -1e-6f}},
                              Activate{.function = Nonlinearity::Sigmoid}}) {
      host::activate<double>(f, x.data(), expected.data(), static_cast<std::int64_t>(size));
      activate(f, dx.data(), y.data(), static_cast<std::int64_t>(size), kLaunch);
      check();
    }
    for (std::size_t i = 0; i < size; ++i) expected[i] = x[i] * (0.5f * 1.25f);
    scale(dx.data(), 0.5f, factor.data(), y.data(), static_cast<std::int64_t>(size), kLaunch);
    REQUIRE(first_difference(expected, y.read()) == -1);
    const int begin = n / 3, width = n - begin;
    const OnDevice<float> part(static_cast<std::size_t>(width) * kRows);
    slice(dx.data(), n, begin, width, kRows, part.data(), kLaunch);
    const std::vector<float> found = part.read();
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < width; ++i)
        REQUIRE(
            same(found[static_cast<std::size_t>(row * width + i)], x[static_cast<std::size_t>(row * n + begin + i)]));
    }
  }
}

TEST_CASE("layer norms, and norms without weights") {
  if (no_device()) return;
  Random random(15);
  for (const int n : {1, 33, 256, 1021, 4096, 17001}) {
    for (const int weights : {1, 3}) {
      constexpr int kRows = 6;
      const auto size = static_cast<std::size_t>(n) * kRows;
      std::vector<float> x = random.floats(size, 3);
      for (float& v : x) v += 20;
      const std::vector<float> w = random.floats(static_cast<std::size_t>(n) * weights), bias = random.floats(w.size());
      const OnDevice<float> dx(x), dw(w), db(bias), y(size);
      std::vector<float> expected(size);
      for (const bool biased : {false, true}) {
        for (int row = 0; row < kRows; ++row) {
          const std::ptrdiff_t at = std::ptrdiff_t{row} * n, own = std::ptrdiff_t{row % weights} * n;
          host::layer_norm<double>(x.data() + at, w.data() + own, biased ? bias.data() + own : nullptr,
                                   expected.data() + at, n, 1e-5f);
        }
        layer_norm(dx.data(), dw.data(), biased ? db.data() : nullptr, weights, 1e-5f, n, kRows, y.data(), kLaunch);
        INFO("n " << n << ", " << weights << " weights");
        REQUIRE(worst(expected, y.read(), n) <= 1);
      }
      for (int row = 0; row < kRows; ++row) {
        const std::ptrdiff_t at = std::ptrdiff_t{row} * n;
        host::layer_norm<double>(x.data() + at, nullptr, nullptr, expected.data() + at, n, 1e-5f);
      }
      layer_norm(dx.data(), nullptr, nullptr, 1, 1e-5f, n, kRows, y.data(), kLaunch);
      REQUIRE(worst(expected, y.read(), n) <= 1);
      for (int row = 0; row < kRows; ++row)
        host::rms_norm<double>(x.data() + std::ptrdiff_t{row} * n, w.data() + std::ptrdiff_t{row % weights} * n,
                               expected.data() + std::ptrdiff_t{row} * n, n, 1e-5f);
      rms_norm_of_each(dx.data(), dw.data(), weights, 1e-5f, n, kRows, y.data(), kLaunch);
      REQUIRE(worst(expected, y.read(), n) <= 1);
      const AllForms forms(n, kRows, true);
      for (int row = 0; row < kRows; ++row)
        host::rms_norm<double>(x.data() + std::ptrdiff_t{row} * n, nullptr, expected.data() + std::ptrdiff_t{row} * n,
                               n, 1e-5f);
      rms_norm(dx.data(), nullptr, 1e-5f, n, kRows, forms.forms, kLaunch);
      REQUIRE(worst(expected, forms.f32.read(), n) <= 1);
      forms.expect(forms.f32.read());
    }
  }
}

TEST_CASE("sums, products with a number, rows picked out") {
  if (no_device()) return;
  Random random(5);
  for (const int n : {1, 7, 64, 1021, 4096}) {
    constexpr int kRows = 7;
    const std::size_t size = static_cast<std::size_t>(n) * kRows;
    const std::vector<float> a = odd_rows(random, n, kRows), b = random.floats(size);
    std::vector<float> sum(size), scaled(size);
    for (std::size_t i = 0; i < size; ++i) {
      sum[i] = a[i] + b[i];
      scaled[i] = a[i] * 0.3f;
    }
    for (const std::size_t offset : {0, 1}) {
      const OnDevice<float> da(a, offset), db(b, offset), y(size, offset), z(size, offset);
      add(da.data(), db.data(), y.data(), static_cast<std::int64_t>(size), kLaunch);
      scale(da.data(), 0.3f, nullptr, z.data(), static_cast<std::int64_t>(size), kLaunch);
      REQUIRE(first_difference(sum, y.read()) == -1);
      REQUIRE(first_difference(scaled, z.read()) == -1);
      add(da.data(), db.data(), da.data(), static_cast<std::int64_t>(size), kLaunch);
      REQUIRE(first_difference(sum, da.read()) == -1);
    }

    const OnDevice<std::int32_t> out_rows(std::vector<std::int32_t>{6, 0, 3, 3, 0}),
        counts(std::vector<std::int32_t>{7, 4, 1, 1});
    StepView step;
    step.out_rows = out_rows.data();
    step.counts = counts.data();
    const OnDevice<float> x(b), picked(static_cast<std::size_t>(n) * 5);
    select_rows(x.data(), n, step, 5, picked.data(), kLaunch);
    const std::vector<float> found = picked.read();
    for (int i = 0; i < 4; ++i)
      REQUIRE(first_difference(row_of(b, n, std::array{6, 0, 3, 3}[i]), row_of(found, n, i)) == -1);
    REQUIRE(std::all_of(found.begin() + 4 * n, found.end(), [](float f) { return std::isnan(f); }));
  }
}

TEST_CASE("scales of queries grow with the position") {
  if (no_device()) return;
  const std::vector<std::int32_t> positions = {0, 1, 17, 8190, 8191, 1000000};
  const int tokens = static_cast<int>(positions.size());
  const OnDevice<std::int32_t> device_positions(positions);
  StepView step;
  step.positions = device_positions.data();
  const OnDevice<float> y(positions.size());
  position_scale({.slope = 0.1f, .length = 8192, .offset = 1}, step, tokens, y.data(), kLaunch);
  const std::vector<float> scales = y.read();
  for (std::size_t i = 0; i < positions.size(); ++i)
    REQUIRE(std::fabs(scales[i] - (1 + 0.1f * std::log(std::floor((positions[i] + 1) / 8192.0) + 1))) <= 1e-6);
}

TEST_CASE("rotary embedding") {
  if (no_device()) return;
  Random random(6);
  struct Case {
    int head_dim, n_rot, heads;
  };
  for (const Case c :
       {Case{128, 128, 32}, Case{64, 64, 5}, Case{80, 32, 3}, Case{10, 6, 2}, Case{2, 2, 1}, Case{12, 8, 7}}) {
    constexpr int kTokens = 5;
    const std::vector<std::int32_t> positions = {0, 1, 17, 4095, 1000000};
    std::vector<double> theta(static_cast<std::size_t>(c.n_rot / 2));
    for (std::size_t i = 0; i < theta.size(); ++i)
      theta[i] = std::pow(10000.0, -2.0 * static_cast<double>(i) / c.n_rot);
    const OnDevice<std::int32_t> device_positions(positions);
    const OnDevice<double> device_theta(theta);
    StepView step;
    step.positions = device_positions.data();
    const OnDevice<float> table(static_cast<std::size_t>(c.n_rot) * kTokens);
    rope_table(device_theta.data(), 1.25, 0, c.n_rot, step, kTokens, table.data(), kLaunch);
    const std::vector<float> angles = table.read();
    for (int token = 0; token < kTokens; ++token) {
      for (int i = 0; i < c.n_rot / 2; ++i) {
        const double angle = positions[token] * theta[static_cast<std::size_t>(i)];
        const std::size_t at = static_cast<std::size_t>(token) * c.n_rot + 2 * i;
        REQUIRE(std::fabs(angles[at] - std::cos(angle) * 1.25) <= 1e-7);
        REQUIRE(std::fabs(angles[at + 1] - std::sin(angle) * 1.25) <= 1e-7);
      }
    }
    const std::vector<float> x = random.floats(static_cast<std::size_t>(c.head_dim) * c.heads * kTokens);
    for (const RopePairing pairing : {RopePairing::Interleaved, RopePairing::Halves}) {
      const Rope op{pairing, c.n_rot};
      std::vector<float> expected(x.size());
      for (int token = 0; token < kTokens; ++token) {
        for (int head = 0; head < c.heads; ++head) {
          const std::ptrdiff_t at = (static_cast<std::ptrdiff_t>(token) * c.heads + head) * c.head_dim;
          host::rope_head<double>(op, x.data() + at, angles.data() + token * c.n_rot, expected.data() + at, c.head_dim);
        }
      }
      for (const std::size_t offset : {0, 1}) {
        const OnDevice<float> device_x(x, offset), y(x.size(), offset);
        rope(op, device_x.data(), table.data(), c.heads, c.head_dim, kTokens, y.data(), kLaunch);
        INFO("head_dim " << c.head_dim << ", n_rot " << c.n_rot);
        REQUIRE(worst(expected, y.read(), 2) <= 1);
        rope(op, device_x.data(), table.data(), c.heads, c.head_dim, kTokens, device_x.data(), kLaunch);
        REQUIRE(first_difference(y.read(), device_x.read()) == -1);
      }
    }
  }
}

TEST_CASE("the router chooses as the definition does") {
  if (no_device()) return;
  Random random(7);
  for (const int experts : {1, 2, 8, 32, 33, 64, 128, 200, 256, 512, 600}) {
    for (const RouteWeights weights : {RouteWeights::AsGated, RouteWeights::Renormalized}) {
      constexpr int kTokens = 21;
      Route op;
      op.top_k = std::min(experts, experts == 600 ? 40 : 8);
      op.weights = weights;
      op.scale = 2.5f;
      std::vector<float> logits = random.floats(static_cast<std::size_t>(experts) * kTokens, 3);
      // Ties, also of the two zeros; in the last token NaN and nothing but NaN in the one before.
      for (int i = 0; i < 8 * experts; ++i)
        logits[static_cast<std::size_t>(i)] =
            static_cast<float>(random.below(3) - 1) * (random.below(2) != 0 ? 1.0f : -1.0f);
      logits[logits.size() - 1 - static_cast<std::size_t>(random.below(experts))] = kNan;
      for (int i = 0; i < experts; ++i) logits[static_cast<std::size_t>(experts) * (kTokens - 2) + i] = -kNan;
      const OnDevice<float> device_logits(logits), device_weights(static_cast<std::size_t>(op.top_k) * kTokens);
      const OnDevice<std::int32_t> device_ids(static_cast<std::size_t>(op.top_k) * kTokens);
      route({op}, device_logits.data(), experts, kTokens, device_ids.data(), device_weights.data(), kLaunch);
      const std::vector<std::int32_t> ids = device_ids.read();
      const std::vector<float> found = device_weights.read();
      for (int token = 0; token < kTokens; ++token) {
        INFO("experts " << experts << ", token " << token);
        const std::size_t at = static_cast<std::size_t>(token) * op.top_k;
        const std::set<std::int32_t> distinct(ids.begin() + at, ids.begin() + at + op.top_k);
        REQUIRE(static_cast<int>(distinct.size()) == op.top_k);
        REQUIRE((*distinct.begin() >= 0 && *distinct.rbegin() < experts));
        if (token >= kTokens - 2) {
          for (int slot = 0; slot < op.top_k; ++slot) REQUIRE(std::isnan(found[at + slot]));
          continue;
        }
        std::vector<std::int32_t> expected_ids(op.top_k);
        std::vector<float> expected(op.top_k);
        std::vector<double> scores(experts);
        host::route_token(op, logits.data() + static_cast<std::ptrdiff_t>(token) * experts, nullptr, experts,
                          expected_ids.data(), expected.data(), scores.data());
        REQUIRE(std::equal(expected_ids.begin(), expected_ids.end(), ids.begin() + at));
        REQUIRE(worst(expected, {found.begin() + at, found.begin() + at + op.top_k}, experts) <= 1);
      }
    }
  }
}

TEST_CASE("the router chooses by gates with a bias and from groups as the definition does") {
  if (no_device()) return;
  Random random(8);
  constexpr int kTokens = 33;
  for (const Gating gating : {Gating::Softmax, Gating::Sigmoid}) {
    for (const auto& [experts, groups, used, best] :
         {std::array{20, 1, 1, 1}, {160, 1, 1, 1}, {160, 8, 3, 1}, {256, 8, 4, 2}, {15, 5, 3, 2}, {384, 32, 9, 2}}) {
      for (const bool biased : {false, true}) {
        const Route op{.top_k = 6,
                       .gating = gating,
                       .weights = RouteWeights::Renormalized,
                       .scale = 2.5f,
                       .groups = groups,
                       .groups_used = used,
                       .group_best = best};
        const std::vector<float> logits = random.floats(static_cast<std::size_t>(experts) * kTokens, 2);
        const std::vector<float> biases = random.floats(static_cast<std::size_t>(experts), 0.4f);
        const OnDevice<float> device_logits(logits), device_biases(biases), device_weights(6 * kTokens);
        const OnDevice<std::int32_t> device_ids(6 * kTokens);
        const Router router{op, biased ? device_biases.data() : nullptr};
        route(router, device_logits.data(), experts, kTokens, device_ids.data(), device_weights.data(), kLaunch);
        const std::vector<std::int32_t> ids = device_ids.read();
        const std::vector<float> found = device_weights.read();
        for (int token = 0; token < kTokens; ++token) {
          INFO(name(gating) << ", " << experts << " experts in " << groups << " groups, token " << token);
          std::vector<std::int32_t> expected_ids(6);
          std::vector<float> expected(6);
          std::vector<double> scores(static_cast<std::size_t>(experts));
          host::route_token(op, logits.data() + static_cast<std::ptrdiff_t>(token) * experts,
                            biased ? biases.data() : nullptr, experts, expected_ids.data(), expected.data(),
                            scores.data());
          REQUIRE(std::equal(expected_ids.begin(), expected_ids.end(), ids.begin() + token * 6));
          REQUIRE(worst(expected, {found.begin() + token * 6, found.begin() + token * 6 + 6}, experts) <= 1);
        }
      }
    }
  }
}

TEST_CASE("routes are grouped by expert") {
  if (no_device()) return;
  Random random(8);
  struct Case {
    int experts, max_tokens, tokens, top_k, columns;
  };
  for (const Case c :
       {Case{8, 1, 1, 2, 8}, Case{128, 1, 1, 8, 8}, Case{128, 8, 5, 8, 8}, Case{512, 4096, 4000, 16, 32},
        Case{64, 512, 512, 8, 16}, Case{4, 300, 299, 1, 8}, Case{2000, 64, 64, 3, 8}, Case{128, 16, 0, 8, 8}}) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(c.max_tokens) * c.top_k);
    for (int token = 0; token < c.max_tokens; ++token) {
      std::set<int> chosen;  // some experts are liked more than others
      while (static_cast<int>(chosen.size()) < std::min(c.top_k, c.experts))
        chosen.insert(random.below(random.below(c.experts) + 1));
      std::copy(chosen.begin(), chosen.end(), ids.begin() + static_cast<std::ptrdiff_t>(token) * c.top_k);
    }
    const OnDevice<std::int32_t> device_ids(ids), counts(std::vector<std::int32_t>{c.tokens, 1, 1, 1});
    StepView step;
    step.counts = counts.data();
    const std::size_t bytes = route_groups_bytes(c.experts, c.max_tokens, c.top_k);
    const OnDevice<std::int32_t> memory(bytes / sizeof(std::int32_t));
    const RouteGroups g = group_routes(device_ids.data(), c.experts, c.max_tokens, c.top_k, c.columns, step,
                                       reinterpret_cast<std::byte*>(memory.data()), kLaunch);
    const std::vector<std::int32_t> words = memory.read();
    const auto at = [&](const std::int32_t* list, int i) {
      return words[static_cast<std::size_t>(list - memory.data() + i)];
    };
    INFO("experts " << c.experts << ", tokens " << c.tokens);
    REQUIRE(g.columns == c.columns);
    int group = 0, next = 0;
    for (int e = 0; e < c.experts; ++e) {
      std::vector<int> routes;
      for (int i = 0; i < c.tokens * c.top_k; ++i) {
        if (ids[static_cast<std::size_t>(i)] == e) routes.push_back(i);
      }
      for (std::size_t done = 0; done < routes.size(); ++group) {
        const int count = std::min<int>(c.columns, static_cast<int>(routes.size() - done));
        REQUIRE(at(g.expert, group) == e);
        REQUIRE(at(g.first, group) == next);
        REQUIRE(at(g.count, group) == count);
        for (int i = 0; i < count; ++i) REQUIRE(at(g.routes, next + i) == routes[done + static_cast<std::size_t>(i)]);
        next += count;
        done += static_cast<std::size_t>(count);
      }
    }
    REQUIRE(at(g.n_groups, 0) == group);
    REQUIRE(group <= g.max_groups);
    REQUIRE(g.max_groups <= std::min(c.max_tokens * c.top_k, c.experts + c.max_tokens * c.top_k / c.columns));
  }
}

TEST_CASE("the weighted sum of experts") {
  if (no_device()) return;
  Random random(9);
  for (const int n : {1, 30, 256, 2048, 2049}) {
    for (const int top_k : {1, 2, 8, 11}) {
      constexpr int kTokens = 3;
      const std::vector<float> x = random.floats(static_cast<std::size_t>(n) * top_k * kTokens);
      const std::vector<float> weights = random.floats(static_cast<std::size_t>(top_k) * kTokens);
      std::vector<float> expected(static_cast<std::size_t>(n) * kTokens);
      for (int token = 0; token < kTokens; ++token) {
        host::combine_token<double>(x.data() + static_cast<std::ptrdiff_t>(token) * top_k * n,
                                    weights.data() + token * top_k, top_k,
                                    expected.data() + static_cast<std::ptrdiff_t>(token) * n, n);
      }
      const OnDevice<float> device_x(x), device_weights(weights), y(expected.size());
      combine(device_x.data(), device_weights.data(), top_k, n, kTokens, y.data(), kLaunch);
      REQUIRE(worst(expected, y.read(), top_k) <= 1);
    }
  }
}

}  // namespace llm::cuda::test
