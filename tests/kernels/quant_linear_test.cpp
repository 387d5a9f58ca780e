// Products of quantised weights: every instruction set of this machine, type and awkward shape against double
// precision, and equality of bits wherever law 6 promises it.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "kernels/quant_cases.h"
#include "kernels/scratch.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::cpu;
using namespace llm::cpu::test;

namespace {

constexpr float kUntouched = -12345.0f;
/// Beyond the numbers from which any set goes another way (64 at most), and no multiple of a tile.
constexpr std::int64_t kManyColumns = 70;

/// What processors want: Zen 5, Intel's, Zen 4.
constexpr Ways kWays[] = {{},
                          {.streams = Streams::Two, .few_columns = 32, .narrow_tiles = false},
                          {.streams = Streams::TwoAhead, .few_columns = 12}};

LinearFn linear(const Kernels& kernels, DType type) { return kernels.linear[static_cast<int>(type)]; }

std::vector<float> product(const Kernels& kernels, const Problem& p, std::int64_t n_cols, std::int64_t row_begin,
                           std::int64_t row_end, const Ways& ways = {}) {
  static Scratch scratch;
  std::vector<float> y(static_cast<std::size_t>(n_cols * p.rows), kUntouched);
  LinearArgs args = p.args(y.data(), n_cols);
  args.ways = ways;
  linear(kernels, p.type)(args, row_begin, row_end, scratch.data());
  return y;
}

/// Rounding: one f32 rounding or two per block on each side (the reference's weights are rounded as well).
double tolerance(const Problem& p) { return 0x1p-23 * (4.0 + 0.5 * static_cast<double>(p.k / p.layout.block)); }

std::size_t count_wrong(const std::vector<float>& y, const Expected& want, const Problem& p) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    wrong += !(std::abs(static_cast<double>(y[i]) - want.value[i]) <= tolerance(p) * want.magnitude[i] + 1e-30);
  return wrong;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<std::int64_t> lengths(DType t) {
  const std::int64_t n = info(t).block_elems;
  return n == 256 ? std::vector<std::int64_t>{n, 3 * n, 9 * n} : std::vector<std::int64_t>{n, 3 * n, 15 * n, 33 * n};
}

}  // namespace

TEST_CASE("weights read at two places give what those of one do", "[quant_linear]") {
  for (const DType t : quant_types()) {
    for (const std::int64_t k : lengths(t)) {
      constexpr std::int64_t kRows = 83, kCols = 6;
      Problem p(t, kRows, k, kCols, static_cast<std::uint32_t>(k));
      for (const Kernels* table : tables()) {
        p.quantize(*table);
        for (std::int64_t n = 1; n <= kCols; ++n) {
          INFO(name(t) << " " << table->isa << ", k = " << k << ", columns " << n);
          for (const auto& [begin, end] : {std::pair{0, 83}, {1, 82}, {0, 64}, {5, 37}, {0, 31}}) {
            const std::vector<float> one = product(*table, p, n, begin, end);
            for (const Streams two : {Streams::Two, Streams::TwoAhead})
              REQUIRE(same_bits(product(*table, p, n, begin, end, {.streams = two}), one));
          }
        }
      }
    }
  }
}

TEST_CASE("quantised products agree with double precision and across instruction sets", "[quant_linear]") {
  const auto kernels = tables();
  for (const DType t : quant_types()) {
    for (std::int64_t k : lengths(t)) {
      for (std::int64_t rows : {1, 31, 32, 33, 100}) {
        Problem p(t, rows, k, kManyColumns, static_cast<std::uint32_t>(k + rows));
        p.quantize(*kernels[0]);
        const Expected want(p);
        const std::vector<float> first = product(*kernels[0], p, kManyColumns, 0, rows);
        INFO(name(t) << " k " << k << " rows " << rows);
        CHECK(count_wrong(first, want, p) == 0);
        for (const Kernels* other : kernels) {
          INFO(other->isa);
          CHECK(same_bits(product(*other, p, kManyColumns, 0, rows), first));
        }
      }
    }
  }
}

TEST_CASE("a column's bits do not depend on how many columns share a call", "[quant_linear]") {
  for (const Kernels* table : tables()) {
    const Kernels& kernels = *table;
    for (const DType t : quant_types()) {
      for (std::int64_t k : lengths(t)) {
        const std::int64_t rows = 67;
        Problem p(t, rows, k, kManyColumns, static_cast<std::uint32_t>(3 * k));
        p.quantize(kernels);
        const std::vector<float> all = product(kernels, p, kManyColumns, 0, rows);
        for (std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 20, 33, 64, 65}) {
          for (const Ways& ways : kWays) {
            const std::vector<float> some = product(kernels, p, n, 0, rows, ways);
            INFO(kernels.isa << " " << name(t) << " k " << k << " columns " << n);
            CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("as many columns as no set takes at a time, and columns as long", "[quant_linear]") {
  for (const DType t : {DType::Q4_K, DType::Q2_K, DType::Q8_0, DType::NVFP4}) {
    for (const auto& [columns, rows, k] : {std::array{2 * 512 + 21, 37, 512}, {40, 101, 2 * 4096 + 512}}) {
      Problem p(t, rows, k, columns, 23);
      const auto kernels = tables();
      p.quantize(*kernels[0]);
      const std::vector<float> first = product(*kernels[0], p, columns, 0, rows);
      CHECK(count_wrong(first, Expected(p), p) == 0);
      for (const Kernels* other : kernels) {
        INFO(other->isa << " " << name(t) << ", k = " << k);
        CHECK(same_bits(product(*other, p, columns, 0, rows), first));
      }
    }
  }
}

TEST_CASE("row ranges of any start and length give the same bits and touch nothing else", "[quant_linear]") {
  for (const Kernels* table : tables()) {
    const Kernels& kernels = *table;
    for (const DType t : quant_types()) {
      const std::int64_t rows = 101, k = info(t).block_elems * (info(t).block_elems == 256 ? 5 : 7);
      Problem p(t, rows, k, kManyColumns, 7);
      p.quantize(kernels);
      for (std::int64_t n : {std::int64_t{1}, std::int64_t{3}, std::int64_t{9}, kManyColumns}) {
        const std::vector<float> all = product(kernels, p, n, 0, rows);
        for (auto [begin, end] : {std::pair{0, 1}, {1, 33}, {5, 69}, {17, 18}, {64, 101}, {99, 101}, {40, 40}}) {
          std::vector<float> want(all.size(), kUntouched);
          for (std::int64_t c = 0; c < n; ++c)
            std::copy(all.begin() + c * rows + begin, all.begin() + c * rows + end, want.begin() + c * rows + begin);
          INFO(kernels.isa << " " << name(t) << " columns " << n << " rows " << begin << " to " << end);
          CHECK(same_bits(product(kernels, p, n, begin, end), want));
        }
      }
    }
  }
}

TEST_CASE("columns may be taken from and put to rows of any order", "[quant_linear]") {
  Scratch scratch;
  for (const Kernels* table : tables()) {
    const Kernels& kernels = *table;
    for (const DType t : quant_types()) {
      const std::int64_t rows = 40, k = 512;
      Problem p(t, rows, k, 12, 11);
      p.quantize(kernels);
      const std::vector<float> all = product(kernels, p, 12, 0, rows);
      constexpr std::int64_t kOutputs = 73;  // a prime: every row of y is met once
      std::int32_t from[kManyColumns], to[kManyColumns];
      for (std::int32_t c = 0; c < kManyColumns; ++c) {
        from[c] = (c * c + 11) % 12;
        to[c] = (29 * c + 2) % kOutputs;
      }
      for (std::int64_t n : {std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, std::int64_t{20}, kManyColumns}) {
        std::vector<float> y(static_cast<std::size_t>(kOutputs * rows), kUntouched), want = y;
        LinearArgs args = p.args(y.data(), n);
        args.act_rows = from;
        args.out_rows = to;
        linear(kernels, t)(args, 0, rows, scratch.data());
        for (std::int64_t c = 0; c < n; ++c)
          std::copy_n(all.begin() + from[c] * rows, rows, want.begin() + to[c] * rows);
        INFO(kernels.isa << " " << name(t) << " columns " << n);
        CHECK(same_bits(y, want));
      }
    }
  }
}

TEST_CASE("rows of weights may have gaps between them", "[quant_linear]") {
  Scratch scratch;
  for (const Kernels* table : tables()) {
    const Kernels& kernels = *table;
    for (const DType t : quant_types()) {
      const std::int64_t rows = 37, k = 768;
      Problem p(t, rows, k, kManyColumns, 13);
      p.quantize(kernels);
      const std::vector<float> all = product(kernels, p, kManyColumns, 0, rows);
      const std::size_t pitch = p.row_bytes + 38;
      GuardedBytes apart(pitch * static_cast<std::size_t>(rows - 1) + p.row_bytes);
      for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
        std::memcpy(apart.data() + r * pitch, p.weights.data() + r * p.row_bytes, p.row_bytes);
      for (std::int64_t n : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{9}, kManyColumns}) {
        std::vector<float> y(static_cast<std::size_t>(n * rows), kUntouched);
        LinearArgs args = p.args(y.data(), n);
        args.w = apart.data();
        args.w_row_bytes = pitch;
        linear(kernels, t)(args, 0, rows, scratch.data());
        INFO(kernels.isa << " " << name(t) << " columns " << n);
        CHECK(std::memcmp(y.data(), all.data(), y.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("long rows give the same bits on every instruction set", "[quant_linear]") {
  const auto kernels = tables();
  for (const DType t : quant_types()) {
    for (std::int64_t k : {8192 + 512, 28672}) {
      Problem p(t, 35, k, 20, 5);
      p.quantize(*kernels[0]);
      const std::vector<float> first = product(*kernels[0], p, 20, 0, 35);
      CHECK(count_wrong(first, Expected(p), p) == 0);
      for (const Kernels* other : kernels) {
        INFO(other->isa << " " << name(t) << " k " << k);
        CHECK(same_bits(product(*other, p, 20, 0, 35), first));
        const std::vector<float> one = product(*other, p, 1, 0, 35);
        CHECK(std::memcmp(one.data(), first.data(), one.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("extreme quants, scales and activations stay exact", "[quant_linear]") {
  const auto kernels = tables();
  for (const DType t : quant_types()) {
    for (int fill : {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x20, 0xdf}) {
      const std::int64_t rows = 33, k = 512;
      Problem p(t, rows, k, kManyColumns, 1);
      const std::size_t block = info(t).block_bytes;
      std::memset(p.weights.data(), fill, p.row_bytes * rows);
      for (std::size_t b = 0; b < p.row_bytes * rows; b += block)
        set_factors(t, p.weights.data() + b, 0x3c00);  // about 1.0
      for (std::size_t i = 0; i < p.x.size(); ++i)     // the largest quants, of one sign, of both, in turns
        p.x[i] = (i / k) % 3 == 0 ? 1.0f : (i / k) % 3 == 1 ? -1.0f : i % 2 == 0 ? 1.0f : -1.0f;
      p.quantize(*kernels[0]);
      const Expected want(p);
      for (const Kernels* other : kernels) {
        INFO(other->isa << " " << name(t) << " bytes " << fill);
        for (std::int64_t n : {std::int64_t{1}, std::int64_t{9}, kManyColumns})
          CHECK(count_wrong(product(*other, p, n, 0, rows), want, p) == 0);
      }
    }
  }
}

TEST_CASE("scales that are not numbers reach the outputs of their row or column only", "[quant_linear]") {
  for (const Kernels* table : tables()) {
    const Kernels& kernels = *table;
    for (const DType t : quant_types()) {
      const std::int64_t rows = 35, k = 768;
      Problem p(t, rows, k, kManyColumns, 3);
      const bool has_nan = t != DType::MXFP4 && t != DType::NVFP4;  // every byte of these is a number
      if (has_nan) set_factors(t, p.weights.data() + 20 * p.row_bytes + info(t).block_bytes, 0x7e00);
      p.x[static_cast<std::size_t>(4 * k + 700)] = std::numeric_limits<float>::infinity();
      p.quantize(kernels);
      for (std::int64_t n : {std::int64_t{1}, std::int64_t{9}, kManyColumns}) {
        const std::vector<float> y = product(kernels, p, n, 0, rows);
        std::size_t wrong = 0;
        for (std::int64_t c = 0; c < n; ++c)
          for (std::int64_t r = 0; r < rows; ++r)
            wrong += std::isnan(y[static_cast<std::size_t>(c * rows + r)]) != (c == 4 || (has_nan && r == 20));
        INFO(kernels.isa << " " << name(t) << " columns " << n);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("a byte of exponent scales by every power of two, subnormal ones too", "[quant_linear]") {
  const std::int64_t rows = 232, k = 32;
  Problem p(DType::MXFP4, rows, k, 2, 17);
  for (std::size_t r = 0; r < rows; ++r) p.weights.data()[r * p.row_bytes] = static_cast<std::byte>(r);
  for (std::size_t i = 0; i < 2 * k; ++i) p.x[i] = (i < k ? 1e30f : 1e-20f) * (static_cast<float>(i % 7) - 2.0f);
  for (const Kernels* kernels : tables()) {
    p.quantize(*kernels);
    const Expected want(p);
    const std::vector<float> y = product(*kernels, p, 2, 0, rows);
    std::size_t wrong = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::size_t i = want.index(r < 128 ? 0 : 1, r);
      wrong += !(std::abs(static_cast<double>(y[i]) - want.value[i]) <= 0x1p-20 * want.magnitude[i]);
    }
    INFO(kernels->isa);
    CHECK(wrong == 0);
  }
}

TEST_CASE("blocks whose factors are far apart beside others give the same bits on every set", "[quant_linear]") {
  const std::int64_t rows = 300, k = 1024, columns = 2 * 512 + 21;
  Problem p(DType::NVFP4, rows, k, columns, 29);
  unsigned factor = 0;
  for (std::int64_t row : {70, 140, 141, 290})  // every factor that there is
    for (std::size_t b = 0; b < p.row_bytes; b += info(p.type).block_bytes)
      for (std::size_t i = 0; i < 4; ++i)
        p.weights.data()[static_cast<std::size_t>(row) * p.row_bytes + b + i] = static_cast<std::byte>(factor++);
  const auto kernels = tables();
  p.quantize(*kernels[0]);
  const std::vector<float> first = product(*kernels[0], p, columns, 0, rows);
  CHECK(count_wrong(first, Expected(p), p) == 0);
  for (const Kernels* other : kernels) {
    for (std::int64_t n : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, kManyColumns, columns}) {
      INFO(other->isa << " columns " << n);
      const std::vector<float> y = product(*other, p, n, 0, rows);
      CHECK(std::memcmp(y.data(), first.data(), y.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("activations are quantised bit for bit as defined", "[quant_linear]") {
  const std::int64_t k = 1280, rows = 9;
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows * k));
  for (float& v : x) v = normal(rng);
  for (std::int64_t i = 0; i < 256; ++i) {
    const auto at = static_cast<std::size_t>(i);
    x[at] = 0;                                                    // zeros
    x[256 + at] = (static_cast<float>(i % 250) - 125.0f) + 0.5f;  // ties: the largest is 127
    x[512 + at] = normal(rng) * 0x1p-101f;                        // below and about the smallest
    x[768 + at] = normal(rng) * 0x1p-140f;                        // subnormal
    x[1024 + at] = normal(rng) * 0x1p120f;
  }
  for (std::size_t block = 256; block < 512; block += 32) x[block] = 127.0f;
  x[2 * k + 5] = std::numeric_limits<float>::quiet_NaN();
  x[2 * k + 700] = -std::numeric_limits<float>::infinity();
  for (const Kernels* table : tables()) {
    const Kernels& kernels = *table;
    for (ActFormat format : {ActFormat::Q8x32, ActFormat::Q8x256}) {
      const ActLayout layout = act_layout(static_cast<int>(format), k, rows);
      REQUIRE(layout.block == act_block_elems(format));
      REQUIRE(layout.row_bytes % 64 == 0);
      REQUIRE(layout.row_bytes % 4096 != 0);
      GuardedBytes act(layout.bytes);
      const auto quantize = kernels.quantize_rows[static_cast<int>(format)];
      quantize(x.data(), k, act.data(), layout, 0, 4);
      quantize(x.data(), k, act.data(), layout, 4, rows);
      std::size_t wrong_q = 0, wrong_scale = 0, wrong_sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        const auto* q = reinterpret_cast<const std::int8_t*>(act.data() + row * layout.row_bytes);
        const auto* scales =
            reinterpret_cast<const float*>(act.data() + layout.scales_offset + row * layout.scales_row_bytes);
        const auto* sums =
            reinterpret_cast<const std::int16_t*>(act.data() + layout.sums_offset + row * layout.sums_row_bytes);
        for (std::int64_t b = 0; b < k / layout.block; ++b) {
          std::int8_t want[256];
          const float scale = quantize_activation_block(x.data() + r * k + b * layout.block, layout.block, want);
          wrong_scale += std::memcmp(&scale, scales + b, 4) != 0;
          wrong_q += std::memcmp(want, q + b * layout.block, static_cast<std::size_t>(layout.block)) != 0;
          for (std::int64_t s = 0; s < layout.block / 16; ++s) {
            int sum = 0;
            for (int i = 0; i < 16; ++i) sum += int{want[16 * s + i]};
            wrong_sum += sum != sums[b * layout.block / 16 + s];
          }
        }
      }
      INFO(kernels.isa << " " << name(format));
      CHECK(wrong_q == 0);
      CHECK(wrong_scale == 0);
      CHECK(wrong_sum == 0);
    }
  }
}

TEST_CASE("pitches of activation rows keep eight rows in different sets", "[quant_linear]") {
  for (std::int64_t k : {256, 4096, 8192, 14336, 28672}) {
    const ActLayout layout = act_layout(static_cast<int>(ActFormat::Q8x256), k, 3);
    CHECK(layout.row_bytes % 64 == 0);
    CHECK(layout.row_bytes % 4096 != 0);
    CHECK(layout.row_bytes >= static_cast<std::size_t>(k));
    CHECK(layout.scales_offset >= 3 * layout.row_bytes);
    CHECK(layout.sums_offset >= layout.scales_offset + 3 * sizeof(float) * static_cast<std::size_t>(k / 256));
    CHECK(layout.bytes >= layout.sums_offset + 3 * sizeof(std::int16_t) * static_cast<std::size_t>(k / 16));
  }
}
