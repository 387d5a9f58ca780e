// Element-wise kernels and products with float weights: every instruction set of this machine against the same in
// double precision, and bit for bit against each other (vec.h promises that).
#include "float_cases.h"
#include "scratch.h"
#include "support/catch.h"
#include "support/e4m3.h"

namespace llm::cpu {
namespace {

using namespace test;

constexpr double kEpsilon = 0x1p-24;  // half an ulp of 1

/// Output of n floats with a sentinel behind it.
class Output {
 public:
  explicit Output(std::size_t n) : values_(n + 16, -77.0f), n_(n) {}
  float* data() { return values_.data(); }
  std::vector<float> values() const { return {values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(n_)}; }
  bool intact() const {
    return std::all_of(values_.begin() + static_cast<std::ptrdiff_t>(n_), values_.end(),
                       [](float f) { return f == -77; });
  }

 private:
  std::vector<float> values_;
  std::size_t n_;
};

/// Runs f(table, out) for every table; the results are equal and end at n. Returns them.
template <class F>
std::vector<float> on_all_tables(std::size_t n, const F& f) {
  std::vector<float> first;
  for (const Kernels* table : tables()) {
    INFO(table->isa);
    Output out(n);
    f(*table, out.data());
    CHECK(out.intact());
    if (first.empty()) first = out.values();
    CHECK(same_bits(out.values(), first));
  }
  return first;
}

/// Relative error in units of kEpsilon, of results above 2^-119: below, the exponential in an activation of -100 is
/// subnormal.
double error_in_epsilons(float got, double want) {
  return std::abs(static_cast<double>(got) - want) / (kEpsilon * std::max(std::abs(want), 0x1p-119));
}

TEST_CASE("activations are as exact as f32 allows") {
  std::vector<float> x;
  for (float v = -110; v <= 110; v += 0.0137f) x.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-42f, 3e38f, -3e38f}) x.push_back(v);
  const std::vector<float> ones(x.size(), 1);
  const auto n = static_cast<std::int64_t>(x.size());

  const auto silu =
      on_all_tables(x.size(), [&](const Kernels& k, float* y) { k.silu_mul(x.data(), ones.data(), y, n); });
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    worst = std::max(worst, error_in_epsilons(silu[i], v / (1 + std::exp(-v))));
  }
  CHECK(worst < 6);

  const auto gelu =
      on_all_tables(x.size(), [&](const Kernels& k, float* y) { k.gelu_mul(x.data(), ones.data(), y, n); });
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]), t = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    INFO("x = " << x[i]);
    // 1 + tanh(t) without cancellation; the error of t itself grows with it
    CHECK(error_in_epsilons(gelu[i], v / (1 + std::exp(-2 * t))) < 6 + 8 * std::min(std::abs(t), 100.0));
  }
}

TEST_CASE("activations without a gate, NaN among what they are given") {
  std::vector<float> x;
  for (float v = -20; v <= 20; v += 0.0137f) x.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e18f, -3e38f, kNan}) x.push_back(v);
  const std::vector<float> ones(x.size(), 1);
  const auto n = static_cast<std::int64_t>(x.size());
  const auto gelu = on_all_tables(x.size(), [&](const Kernels& k, float* y) { k.gelu(x.data(), y, n); });
  CHECK(same_bits(
      gelu, on_all_tables(x.size(), [&](const Kernels& k, float* y) { k.gelu_mul(x.data(), ones.data(), y, n); })));
  const auto squares = on_all_tables(x.size(), [&](const Kernels& k, float* y) { k.squared_relu(x.data(), y, n); });
  for (std::size_t i = 0; i + 1 < x.size(); ++i) CHECK(squares[i] == (x[i] > 0 ? x[i] * x[i] : 0));
  CHECK(std::isnan(squares.back()));
}

TEST_CASE("exponentials and what is made of them are as exact as f32 allows, NaN among what they are given") {
  std::vector<float> x;
  for (float v = -110; v <= 88.5f; v += 0.0137f) x.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-30f, -1e-30f, -3e38f, -kInf, kNan}) x.push_back(v);
  const auto n = static_cast<std::int64_t>(x.size());
  const auto compare = [&](UnaryFn Kernels::*kernel, double most, const auto& exact) {
    const auto y = on_all_tables(x.size(), [&](const Kernels& k, float* out) { (k.*kernel)(x.data(), out, n); });
    double worst = 0;
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      INFO("x = " << x[i]);
      const double error = error_in_epsilons(y[i], exact(static_cast<double>(x[i])));
      CHECK(error < most);
      worst = std::max(worst, error);
    }
    CHECK(worst > 0.5);  // it is f32, or nothing was compared
    CHECK(std::isnan(y.back()));
  };
  compare(&Kernels::exp, 3, [](double v) { return std::exp(v); });
  compare(&Kernels::sigmoid, 6, [](double v) { return 1 / (1 + std::exp(-v)); });
  compare(&Kernels::softplus, 8, [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); });
}

TEST_CASE("soft caps are as exact as f32 allows, for small numbers, too") {
  std::vector<float> x;
  for (float v = -400; v <= 400; v += 0.0973f) x.push_back(v);
  for (float v = 1e-30f; v < 1; v *= 1.37f) x.insert(x.end(), {v, -v});
  for (float v : {0.0f, -0.0f, 3e38f, -3e38f, kInf, -kInf, kNan}) x.push_back(v);
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    const auto y = on_all_tables(x.size(), [&](const Kernels& k, float* out) {
      k.soft_cap(x.data(), out, static_cast<std::int64_t>(x.size()), cap);
    });
    double worst = 0;
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      const auto c = static_cast<double>(cap);
      INFO("x = " << x[i] << ", cap = " << cap);
      const double error = error_in_epsilons(y[i], c * std::tanh(static_cast<double>(x[i]) / c));
      CHECK(error < 8);
      worst = std::max(worst, error);
      CHECK(std::abs(y[i]) <= cap);
    }
    CHECK(worst > 0.5);  // it is f32, or nothing was compared
    CHECK(std::isnan(y.back()));
  }
}

TEST_CASE("activations multiply by their second operand, and carry NaN") {
  const std::vector<float> a = {1, -2, kNan, 0.5f, kInf}, b = {3, kNan, 2, -1, 1};
  for (const Kernels* table : tables()) {
    INFO(table->isa);
    std::vector<float> y(5);
    table->silu_mul(a.data(), b.data(), y.data(), 5);
    CHECK(y[0] == Approx(3 / (1 + std::exp(-1.0))));
    CHECK(std::isnan(y[1]));
    CHECK(std::isnan(y[2]));
    CHECK(y[3] == Approx(-0.5 / (1 + std::exp(-0.5))));
    CHECK(y[4] == kInf);
    table->gelu_mul(a.data(), b.data(), y.data(), 5);
    CHECK(y[0] == Approx(3 * 0.8411919906).epsilon(1e-6));
    CHECK(std::isnan(y[2]));
    table->clamped_silu_mul(a.data(), b.data(), y.data(), 5);
    CHECK(y[0] == Approx(4 / (1 + std::exp(-1.702))));
    CHECK(std::isnan(y[1]));
    CHECK(std::isnan(y[2]));
    CHECK(y[3] == 0);
    CHECK(y[4] == Approx(2 * 7 / (1 + std::exp(-1.702 * 7))));
    const std::vector<float> more = {7.5f, -90, 3, 1, -kInf}, far = {-7.5f, 2, 8, kInf, 1};
    table->clamped_silu_mul(more.data(), far.data(), y.data(), 5);
    CHECK(y[0] == Approx(-6 * 7 / (1 + std::exp(-1.702 * 7))));
    CHECK(std::abs(y[1]) < 1e-30f);
    CHECK(y[2] == Approx(8 * 3 / (1 + std::exp(-1.702 * 3))));
    CHECK(y[3] == Approx(8 / (1 + std::exp(-1.702))));
  }
}

TEST_CASE("sums, multiples and norms of any length and alignment") {
  std::mt19937 rng(1);
  for (std::size_t n : {1u, 7u, 15u, 16u, 17u, 31u, 33u, 64u, 100u, 1003u}) {
    for (std::size_t shift : {0u, 1u, 3u}) {
      INFO("n = " << n << ", shift = " << shift);
      const auto a_all = random_floats(n + 4, rng, 3), b_all = random_floats(n + 4, rng, 3),
                 w_all = random_floats(n + 4, rng);
      const float *a = a_all.data() + shift, *b = b_all.data() + shift, *w = w_all.data() + shift;
      const auto count = static_cast<std::int64_t>(n);

      const auto sum = on_all_tables(n, [&](const Kernels& k, float* y) { k.add(a, b, y, count); });
      for (std::size_t i = 0; i < n; ++i) REQUIRE(sum[i] == a[i] + b[i]);
      const auto multiple = on_all_tables(n, [&](const Kernels& k, float* y) { k.scale(a, y, count, 1.7f); });
      for (std::size_t i = 0; i < n; ++i) REQUIRE(multiple[i] == a[i] * 1.7f);
      const auto axpy = on_all_tables(n, [&](const Kernels& k, float* y) {
        std::copy(b, b + n, y);
        k.axpy(-0.37f, a, y, count);
      });
      for (std::size_t i = 0; i < n; ++i) REQUIRE(axpy[i] == std::fma(-0.37f, a[i], b[i]));

      const auto check_norm = [&](const std::vector<float>& got, const float* x) {
        double squares = 0;
        for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
        for (std::size_t i = 0; i < n; ++i)
          REQUIRE(error_in_epsilons(got[i], static_cast<double>(x[i]) * factor * static_cast<double>(w[i])) < 16);
      };
      check_norm(on_all_tables(n, [&](const Kernels& k, float* y) { k.rms_norm(a, w, y, count, 1e-5f); }), a);
      const std::vector<float> ones(n, 1);
      CHECK(same_bits(
          on_all_tables(n, [&](const Kernels& k, float* y) { k.rms_norm(a, nullptr, y, count, 1e-5f); }),
          on_all_tables(n, [&](const Kernels& k, float* y) { k.rms_norm(a, ones.data(), y, count, 1e-5f); })));
      std::vector<float> residual(n);
      const auto norm = on_all_tables(
          n, [&](const Kernels& k, float* y) { k.add_rms_norm(a, b, w, residual.data(), y, count, 1e-5f); });
      CHECK(same_bits(residual, sum));
      check_norm(norm, residual.data());
      const auto in_place = on_all_tables(n, [&](const Kernels& k, float* y) {
        std::copy(a, a + n, y);
        k.rms_norm(y, w, y, count, 1e-5f);
      });
      CHECK(same_bits(in_place,
                      on_all_tables(n, [&](const Kernels& k, float* y) { k.rms_norm(a, w, y, count, 1e-5f); })));
    }
  }
}

TEST_CASE("layer norms of any length and alignment, far from 0, too") {
  std::mt19937 rng(9);
  for (std::size_t n : {1u, 7u, 16u, 17u, 33u, 64u, 100u, 1003u}) {
    for (const float shift : {0.0f, 300.0f}) {
      INFO("n = " << n << ", around " << shift);
      auto x = random_floats(n + 1, rng, 3);
      for (float& v : x) v += shift;
      const auto w = random_floats(n, rng), bias = random_floats(n, rng);
      const auto count = static_cast<std::int64_t>(n);
      const float* const from = x.data() + 1;
      const auto biased = on_all_tables(
          n, [&](const Kernels& k, float* y) { k.layer_norm(from, w.data(), bias.data(), y, count, 1e-5f); });
      const auto plain =
          on_all_tables(n, [&](const Kernels& k, float* y) { k.layer_norm(from, w.data(), nullptr, y, count, 1e-5f); });
      CHECK(same_bits(plain, on_all_tables(n, [&](const Kernels& k, float* y) {
                        std::copy(from, from + n, y);
                        k.layer_norm(y, w.data(), nullptr, y, count, 1e-5f);
                      })));
      double mean = 0, squares = 0;
      for (std::size_t i = 0; i < n; ++i) mean += static_cast<double>(from[i]) / static_cast<double>(n);
      for (std::size_t i = 0; i < n; ++i) squares += std::pow(static_cast<double>(from[i]) - mean, 2);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
      // The mean has the roundings of what is summed, which the factor makes larger.
      const double allowed = 16 * kEpsilon * (1 + (std::abs(mean) + 3) * factor);
      for (std::size_t i = 0; i < n; ++i) {
        const double want = (static_cast<double>(from[i]) - mean) * factor * static_cast<double>(w[i]);
        REQUIRE(std::abs(static_cast<double>(plain[i]) - want) <= allowed);
        REQUIRE(std::abs(static_cast<double>(biased[i]) - want - static_cast<double>(bias[i])) <= allowed);
      }
    }
  }
}

TEST_CASE("rotations turn pairs by their angles and leave the rest") {
  std::mt19937 rng(2);
  struct Shape {
    int heads, head_dim, n_rot;
  };
  for (const Shape s :
       {Shape{3, 64, 64}, {2, 128, 128}, {1, 80, 80}, {4, 20, 20}, {3, 48, 18}, {2, 7, 2}, {1, 96, 32}, {2, 70, 70}}) {
    INFO("head_dim = " << s.head_dim << ", n_rot = " << s.n_rot);
    const auto n = static_cast<std::size_t>(s.heads * s.head_dim);
    const auto x = random_floats(n, rng, 2);
    std::vector<float> table(static_cast<std::size_t>(s.n_rot));
    for (std::size_t i = 0; i < table.size(); i += 2) {
      const double angle = static_cast<double>(rng() % 1000);
      table[i] = static_cast<float>(std::cos(angle));
      table[i + 1] = static_cast<float>(std::sin(angle));
    }
    for (const bool halves : {false, true}) {
      const auto run = [&](const Kernels& k, const float* from, float* y) {
        (halves ? k.rope_halves : k.rope_interleaved)(from, y, table.data(), s.heads, s.head_dim, s.n_rot);
      };
      const auto y = on_all_tables(n, [&](const Kernels& k, float* out) { run(k, x.data(), out); });
      const auto in_place = on_all_tables(n, [&](const Kernels& k, float* out) {
        std::copy(x.begin(), x.end(), out);
        run(k, out, out);
      });
      CHECK(same_bits(y, in_place));
      for (int h = 0; h < s.heads; ++h) {
        const auto base = static_cast<std::size_t>(h * s.head_dim);
        for (int i = 0; i < s.n_rot / 2; ++i) {
          const std::size_t first = base + static_cast<std::size_t>(halves ? i : 2 * i);
          const std::size_t second = halves ? first + static_cast<std::size_t>(s.n_rot / 2) : first + 1;
          const double a = static_cast<double>(x[first]), b = static_cast<double>(x[second]);
          const double c = static_cast<double>(table[static_cast<std::size_t>(2 * i)]);
          const double t = static_cast<double>(table[static_cast<std::size_t>(2 * i + 1)]);
          REQUIRE(std::abs(static_cast<double>(y[first]) - (a * c - b * t)) < 4 * 2 * kEpsilon);
          REQUIRE(std::abs(static_cast<double>(y[second]) - (b * c + a * t)) < 4 * 2 * kEpsilon);
        }
        for (int i = s.n_rot; i < s.head_dim; ++i)
          REQUIRE(y[base + static_cast<std::size_t>(i)] == x[base + static_cast<std::size_t>(i)]);
      }
    }
  }
}

TEST_CASE("cache rows are rounded to nearest even") {
  std::mt19937 rng(3);
  std::vector<float> x(5003);
  for (float& f : x) {
    const auto bits = static_cast<std::uint32_t>(rng());
    std::memcpy(&f, &bits, sizeof f);
    if (std::isnan(f)) f = kNan;
  }
  // Ties in the range of F16, its overflow and its subnormals.
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::uint32_t bits =
        ((102 + i % 45) << 23) | (static_cast<std::uint32_t>(rng()) & 0x7ff000u) | ((i & 1) << 31);
    std::memcpy(&x[i], &bits, sizeof bits);
  }
  // The same of E4M3.
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::uint32_t bits =
        ((115 + i % 23) << 23) | (static_cast<std::uint32_t>(rng()) & 0x780000u) | ((i & 1) << 31);
    std::memcpy(&x[2000 + i], &bits, sizeof bits);
  }
  for (const Kernels* table : tables()) {
    INFO(table->isa);
    for (std::size_t n : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17}, x.size()}) {
      std::vector<std::uint16_t> half(n + 1, 0x1234), brain(n + 1, 0x1234);
      std::vector<std::uint8_t> eight(n + 1, 0x12);
      std::vector<float> full(n + 1, -77);
      const auto count = static_cast<std::int64_t>(n);
      table->store_row[static_cast<int>(CacheElement::F16)](x.data(), reinterpret_cast<std::byte*>(half.data()), count);
      table->store_row[static_cast<int>(CacheElement::BF16)](x.data(), reinterpret_cast<std::byte*>(brain.data()),
                                                             count);
      table->store_row[static_cast<int>(CacheElement::F8_E4M3)](x.data(), reinterpret_cast<std::byte*>(eight.data()),
                                                                count);
      table->store_row[static_cast<int>(CacheElement::F32)](x.data(), reinterpret_cast<std::byte*>(full.data()), count);
      CHECK((half[n] == 0x1234 && brain[n] == 0x1234 && eight[n] == 0x12 && full[n] == -77));
      CHECK(std::memcmp(full.data(), x.data(), n * sizeof(float)) == 0);
      for (std::size_t i = 0; i < n; ++i) {
        REQUIRE(half[i] == to_half(x[i]).bits);
        REQUIRE(brain[i] == to_bfloat16(x[i]).bits);
        REQUIRE(eight[i] == llm::test::nearest_e4m3(x[i]));
      }
    }
  }
}

TEST_CASE("F32 activations are copied row by row") {
  std::mt19937 rng(4);
  const auto x = random_floats(5 * 40, rng);
  ActLayout layout;
  layout.k = 37;
  layout.row_bytes = 192;
  for (const Kernels* table : tables()) {
    std::vector<std::byte> act(5 * 192, std::byte{0x55});
    table->quantize_rows[static_cast<int>(ActFormat::F32)](x.data(), 40, act.data(), layout, 1, 4);
    for (std::size_t row = 1; row < 4; ++row)
      CHECK(std::memcmp(act.data() + row * 192, x.data() + row * 40, 37 * 4) == 0);
    CHECK((act[0] == std::byte{0x55} && act[191] == std::byte{0x55} && act[4 * 192] == std::byte{0x55}));
  }
}

// ---- products ----

constexpr DType kFloatTypes[] = {DType::F32, DType::F16, DType::BF16, DType::F64};

/// Random weights of a float type and activations whose rows are followed by NaN. What a product sees of them is in
/// `seen`: rounded for BF16 weights.
struct FloatProblem {
  FloatProblem(DType type, int rows, int k, int act_rows, std::mt19937& rng)
      : type(type), rows(rows), k(k), weights(static_cast<std::size_t>(rows * k) * info(type).block_bytes) {
    const auto count = static_cast<std::size_t>(rows * k);
    const std::vector<float> w = random_floats(count, rng);
    values.resize(count);
    for (std::size_t i = 0; i < count; ++i) put(i, w[i]);
    layout = act_layout(static_cast<int>(info(type).activation), k, act_rows);
    if (info(type).activation == ActFormat::F32)
      layout.row_bytes = (static_cast<std::size_t>(k) * 4 + 63) / 64 * 64 + 64;
    x = random_floats(static_cast<std::size_t>(k * act_rows), rng, 2);
    act.resize(std::max(layout.bytes, layout.row_bytes * static_cast<std::size_t>(act_rows)));
    round_activations(*tables().front());
  }
  void round_activations(const Kernels& kernels) {
    const auto rows = static_cast<std::int64_t>(x.size()) / k;
    std::fill(act.begin(), act.end(), std::byte{0xff});
    kernels.quantize_rows[static_cast<int>(info(type).activation)](x.data(), k, act.data(), layout, 0, rows);
  }
  double seen(int c, int i) {
    const float f = row(c)[i];
    return static_cast<double>(type == DType::BF16 ? to_float(to_bfloat16(f)) : f);
  }
  void put(std::size_t i, float w) {
    std::byte* p = weights.data() + i * info(type).block_bytes;
    const Half half = to_half(w);
    const BFloat16 brain = to_bfloat16(w);
    const double wide = static_cast<double>(w) / 3;
    switch (type) {
      case DType::F16:
        std::memcpy(p, &half, 2);
        values[i] = static_cast<double>(to_float(half));
        break;
      case DType::BF16:
        std::memcpy(p, &brain, 2);
        values[i] = static_cast<double>(to_float(brain));
        break;
      case DType::F64:
        std::memcpy(p, &wide, 8);
        values[i] = wide;
        break;
      default:
        std::memcpy(p, &w, 4);
        values[i] = static_cast<double>(w);
    }
  }
  float* row(int r) { return x.data() + static_cast<std::ptrdiff_t>(r) * k; }
  LinearArgs args(float* y, std::int64_t n_cols) const {
    LinearArgs a;
    a.w = weights.data();
    a.w_row_bytes = static_cast<std::size_t>(k) * info(type).block_bytes;
    a.k = k;
    a.act = act.data();
    a.layout = &layout;
    a.n_cols = n_cols;
    a.y = y;
    a.ldy = rows + 3;
    return a;
  }
  std::vector<float> run(const Kernels& kernels, std::int64_t n_cols, const std::vector<std::int64_t>& cuts = {}) {
    round_activations(kernels);
    Scratch scratch;
    std::vector<float> y(static_cast<std::size_t>((rows + 3) * n_cols), -77);
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      kernels.linear[static_cast<int>(type)](args(y.data(), n_cols), begin, end, scratch.data());
      begin = end;
    }
    kernels.linear[static_cast<int>(type)](args(y.data(), n_cols), begin, rows, scratch.data());
    return y;
  }

  DType type;
  int rows, k;
  GuardedBytes weights;
  std::vector<double> values;
  ActLayout layout;
  std::vector<float> x;
  std::vector<std::byte> act;
};

/// Whether its products of BF16 have the order of tiles, and not that of pairs.
bool has_bf16_tiles(const Kernels& table) { return table.isa == std::string_view("amx"); }

TEST_CASE("float products equal double precision within rounding, on every shape") {
  std::mt19937 rng(5);
  for (const DType type : kFloatTypes) {
    for (const int k : {1, 15, 16, 17, 48, 100, 1024, 1025, 1055, 2100}) {
      const int rows = k > 1000 ? 9 : 35, cols = 14;
      INFO(name(type) << ", k = " << k);
      FloatProblem p(type, rows, k, cols, rng);
      std::vector<float> first;
      for (const Kernels* table : tables()) {
        INFO(table->isa);
        const auto y = p.run(*table, cols);
        const bool own_order = type == DType::BF16 && has_bf16_tiles(*table);
        if (!own_order && !first.empty()) {
          REQUIRE(same_bits(y, first));
          continue;
        }
        if (!own_order) first = y;
        for (int c = 0; c < cols; ++c) {
          for (int r = 0; r < rows; ++r) {
            double want = 0, size = 0;
            for (int i = 0; i < k; ++i) {
              const double term = p.values[static_cast<std::size_t>(r * k + i)] * p.seen(c, i);
              want += term;
              size += std::abs(term);
            }
            const double got = static_cast<double>(y[static_cast<std::size_t>(c * (rows + 3) + r)]);
            REQUIRE(std::abs(got - want) <= 16 * kEpsilon * size);
          }
          for (int r = rows; r < rows + 3; ++r) REQUIRE(y[static_cast<std::size_t>(c * (rows + 3) + r)] == -77);
        }
      }
    }
  }
}

TEST_CASE("a float product does not depend on its neighbours") {
  std::mt19937 rng(6);
  for (const DType type : kFloatTypes) {
    FloatProblem p(type, 67, 1100, 20, rng);
    for (const Kernels* table : tables()) {
      INFO(name(type) << " " << table->isa);
      const auto all = p.run(*table, 20);
      for (const std::int64_t cols : {1, 2, 3, 4, 5, 6, 7, 11, 13}) {
        const auto some = p.run(*table, cols);
        CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
      }
      CHECK(same_bits(p.run(*table, 20, {1, 4, 36, 64}), all));
      CHECK(same_bits(p.run(*table, 20, {32, 33}), all));
    }
  }
}

TEST_CASE("many columns and rows give what each column gives with a few others") {
  std::mt19937 rng(11);
  constexpr int kRows = 301, kCols = 530, kTogether = 5;
  for (const DType type : {DType::F16, DType::BF16}) {
    FloatProblem p(type, kRows, 555, kCols, rng);
    for (const Kernels* table : tables()) {
      INFO(name(type) << " " << table->isa);
      const auto all = p.run(*table, kCols);
      std::vector<std::int32_t> backwards(kCols);
      for (int c = 0; c < kCols; ++c) backwards[static_cast<std::size_t>(c)] = kCols - 1 - c;
      Scratch scratch;
      std::vector<float> gathered(all.size(), -77), few(all.size(), -77);
      LinearArgs a = p.args(gathered.data(), kCols);
      a.act_rows = a.out_rows = backwards.data();
      table->linear[static_cast<int>(type)](a, 0, kRows, scratch.data());
      CHECK(same_bits(gathered, all));
      for (int c = 0; c < kCols; c += kTogether) {
        a = p.args(few.data(), kTogether);
        a.act_rows = a.out_rows = backwards.data() + c;
        table->linear[static_cast<int>(type)](a, 0, kRows, scratch.data());
      }
      CHECK(same_bits(few, all));
    }
  }
}

TEST_CASE("float weights read at two places give what those of one do") {
  std::mt19937 rng(13);
  for (const DType type : kFloatTypes) {
    for (const int k : {45, 2100}) {
      FloatProblem p(type, 37, k, 3, rng);
      for (const Kernels* table : tables()) {
        for (const std::int64_t cols : {1, 2, 3}) {
          INFO(name(type) << " " << table->isa << ", k = " << k << ", columns " << cols);
          const auto one = p.run(*table, cols);
          std::vector<float> two(one.size(), -77);
          LinearArgs a = p.args(two.data(), cols);
          a.ways.streams = Streams::Two;
          Scratch scratch;
          table->linear[static_cast<int>(type)](a, 0, 37, scratch.data());
          CHECK(same_bits(two, one));
        }
      }
    }
  }
}

// Shapes that tiles of BF16 read from where the weights lie, alone and beside rows and elements that are too few for
// one.
TEST_CASE("few columns give what they give among many, of whole tiles of weights as well") {
  std::mt19937 rng(12);
  constexpr int kRows = 67, kCols = 50;
  for (const DType type : {DType::F16, DType::BF16}) {
    for (const int k : {64, 2048, 2112, 4130}) {
      FloatProblem p(type, kRows, k, kCols, rng);
      std::vector<std::int32_t> rows(kCols);
      for (int c = 0; c < kCols; ++c) rows[static_cast<std::size_t>(c)] = c;
      for (const Kernels* table : tables()) {
        INFO(name(type) << " " << table->isa << ", k = " << k);
        const auto all = p.run(*table, kCols);
        for (const std::int64_t cols : {1, 2, 16, 17, 32, 33}) {
          const auto some = p.run(*table, cols);
          CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
          std::vector<float> gathered(some.size(), -77);
          LinearArgs a = p.args(gathered.data(), cols);
          a.act_rows = rows.data();
          Scratch scratch;
          table->linear[static_cast<int>(type)](a, 0, kRows, scratch.data());
          CHECK(same_bits(gathered, some));
        }
        CHECK(same_bits(p.run(*table, kCols, {32, 33, 65}), all));
      }
    }
  }
}

TEST_CASE("float products gather their columns and scatter their results") {
  std::mt19937 rng(7);
  const std::vector<std::int32_t> act_rows = {7, 0, 3, 3, 9, 1, 2, 8}, out_rows = {4, 0, 7, 1, 6, 5, 2, 3};
  for (const DType type : kFloatTypes) {
    FloatProblem p(type, 37, 130, 10, rng);
    for (const Kernels* table : tables()) {
      INFO(name(type) << " " << table->isa);
      const auto direct = p.run(*table, 10);
      std::vector<float> y(static_cast<std::size_t>(40 * 8), -77);
      LinearArgs a = p.args(y.data(), 8);
      a.act_rows = act_rows.data();
      a.out_rows = out_rows.data();
      Scratch scratch;
      table->linear[static_cast<int>(type)](a, 0, 37, scratch.data());
      for (std::size_t c = 0; c < 8; ++c) {
        CHECK(std::memcmp(y.data() + out_rows[c] * 40, direct.data() + act_rows[c] * 40, 40 * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("NaN and infinity in a float product stay in their row and column") {
  std::mt19937 rng(8);
  for (const DType type : kFloatTypes) {
    FloatProblem p(type, 37, 100, 9, rng);
    p.put(5 * 100 + 99, kNan);
    p.put(11 * 100 + 3, kInf);
    p.row(4)[50] = kNan;
    for (const Kernels* table : tables()) {
      INFO(name(type) << " " << table->isa);
      for (const std::int64_t cols : {5, 9}) {
        const auto y = p.run(*table, cols);
        for (int c = 0; c < cols; ++c)
          for (int r = 0; r < 37; ++r) {
            const float v = y[static_cast<std::size_t>(c * 40 + r)];
            if (r == 5 || c == 4) {
              CHECK(std::isnan(v));
            } else {
              CHECK(std::isinf(v) == (r == 11));
            }
          }
      }
    }
  }
}

#if defined(__x86_64__) || defined(__aarch64__)

float flushed(float f) { return std::abs(f) < 0x1p-126f ? std::copysign(0.0f, f) : f; }

/// A sum of products of BF16 by float_tile.h's words, with the arithmetic of vdpbf16ps as Intel's manual has it.
float bf16_product(const BFloat16* w, const BFloat16* x, int k) {
  float y = 0;
  for (int begin = 0; begin < k; begin += 2048) {
    float s[32] = {};  // two chains of 16 lanes
    for (int i = begin; i < std::min(k, begin + 2048); i += 2) {
      float& sum = s[i / 2 % 32];
      for (const int e : {i + 1, i})
        if (e < k) sum = flushed(std::fma(flushed(to_float(w[e])), flushed(to_float(x[e])), sum));
    }
    for (int step = 16; step > 0; step /= 2)
      for (int i = 0; i < step; ++i) s[i] = flushed(s[i] + s[i + step]);
    y = begin == 0 ? s[0] : flushed(y + s[0]);
  }
  return y;
}

/// The same by the words of bf16_linear_amx.cpp, with the arithmetic of TDPBF16PS.
float bf16_tile_product(const BFloat16* w, const BFloat16* x, int k) {
  float y = 0;
  for (int begin = 0; begin < k; begin += 32) {
    float sums[2] = {};  // of even and of odd elements
    for (int e = begin; e < std::min(k, begin + 32); ++e)
      sums[e % 2] = flushed(std::fma(flushed(to_float(w[e])), flushed(to_float(x[e])), sums[e % 2]));
    y = flushed(y + flushed(sums[0] + sums[1]));
  }
  return y;
}

TEST_CASE("products of BF16 do the operations of the instruction for them, subnormal numbers are zero") {
  std::mt19937 rng(10);
  // sums that round, that underflow, that overflow; exponents [first, first + 2^bits)
  struct Range {
    std::uint32_t first, bits;
  };
  for (const Range range : {Range{119, 4}, {56, 4}, {186, 3}, {0, 8}, {62, 1}}) {
    for (const int k : {1, 2, 31, 64, 333, 2500}) {
      INFO("exponents from " << range.first << ", k = " << k);
      constexpr int kRows = 37, kCols = 7;
      FloatProblem p(DType::BF16, kRows, k, kCols, rng);
      const auto number = [&] {
        const auto r = static_cast<std::uint32_t>(rng());
        const std::uint32_t exponent = std::min(254u, range.first + (r >> 16) % (1u << range.bits));
        return BFloat16{static_cast<std::uint16_t>((r & 0x807f) | exponent << 7)};
      };
      std::vector<BFloat16> w(static_cast<std::size_t>(kRows * k)), x(static_cast<std::size_t>(kCols * k));
      for (BFloat16& f : w) f = number();
      std::memcpy(p.weights.data(), w.data(), w.size() * sizeof(BFloat16));
      for (std::size_t i = 0; i < x.size(); ++i) p.x[i] = to_float(x[i] = number());
      for (const Kernels* table : tables()) {
        INFO(table->isa);
        const auto y = p.run(*table, kCols);
        for (int c = 0; c < kCols; ++c) {
          for (int r = 0; r < kRows; ++r) {
            const float got = y[static_cast<std::size_t>(c * (kRows + 3) + r)];
            const auto product = has_bf16_tiles(*table) ? bf16_tile_product : bf16_product;
            const float want = product(w.data() + r * k, x.data() + c * k, k);
            REQUIRE((got == want || (std::isnan(got) && std::isnan(want))));
          }
        }
      }
    }
  }
  CHECK(std::numeric_limits<float>::denorm_min() * 2.0f != 0.0f);  // and they are numbers again afterwards
}

#endif

TEST_CASE("weights need no alignment") {
  std::mt19937 rng(9);
  for (const DType type : kFloatTypes) {
    for (const int k : {45, 64}) {
      FloatProblem p(type, 33, k, 3, rng);
      const std::size_t bytes = 33 * static_cast<std::size_t>(k) * info(type).block_bytes;
      std::vector<std::byte> odd(bytes + 1);
      std::memcpy(odd.data() + 1, p.weights.data(), bytes);
      for (const Kernels* table : tables()) {
        INFO(name(type) << " " << table->isa << ", k = " << k);
        p.round_activations(*table);
        std::vector<float> y(36 * 3, -77);
        LinearArgs a = p.args(y.data(), 3);
        a.w = odd.data() + 1;
        Scratch scratch;
        table->linear[static_cast<int>(type)](a, 0, 33, scratch.data());
        CHECK(same_bits(y, p.run(*table, 3)));
      }
    }
  }
}

}  // namespace
}  // namespace llm::cpu
