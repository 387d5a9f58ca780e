// Attention to a window and to keys that stand for several positions, against its definition in double; alone and in
// any step.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "attention_scene.h"
#include "backend/cuda/kernels/attend_compressed.h"
#include "backend/cuda/kernels/attend_wide.h"

namespace llm::attention_test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

enum class Values { OwnRows, InKeys };
enum class Kernels { Exact, Prompt };

struct CompressedShape {
  int heads, dim, stride;
  KeyWindow window;
  int top_k = 0;  ///< 0: all compressed keys
};

/// Compressed rows lie in a cache of their own with the same blocks, those of a block side by side.
struct CompressedScene {
  CompressedShape shape;
  Scene s;
  std::vector<float> rows;  ///< compressed ones, as `bytes` hold them
  std::vector<std::byte> bytes;
  std::vector<Token> tokens;
  std::vector<float> q, sinks;
  std::vector<std::int32_t> chosen;
  float scale;

  CompressedScene(const CompressedShape& x, DType k, DType v, Values values, const std::vector<int>& lengths,
                  std::vector<Token> of, std::uint32_t seed)
      : shape(x), s({x.heads, 1, x.dim, x.dim}, k, v, lengths, seed), tokens(std::move(of)) {
    if (values == Values::InKeys) s.put_values_in_keys();
    Scene other({x.heads, 1, x.dim, x.dim}, k, k, lengths, seed);  // whose keys are the same, and so are its blocks
    REQUIRE(other.table == s.table);
    rows = std::move(other.v_rows);
    bytes = std::move(other.v_bytes);
    std::mt19937 random(seed + 1);
    q = random_floats(tokens.size() * q_row(), random, 2.0f);
    sinks = random_floats(at(x.heads), random);
    scale = 1 / std::sqrt(static_cast<float>(x.dim));
    for (const Token& t : tokens) choose(t, random);
  }
  std::size_t q_row() const { return at(shape.heads * shape.dim); }

  void choose(const Token& t, std::mt19937& random) {
    std::vector<std::int32_t> own(at((t.position + 1) / shape.stride));
    std::iota(own.begin(), own.end(), 0);
    for (std::size_t i = own.size(); i > 1; --i) std::swap(own[i - 1], own[random() % i]);
    own.resize(std::min(own.size(), at(shape.top_k)));
    std::sort(own.begin(), own.end());
    own.resize(at(shape.top_k), -1);
    chosen.insert(chosen.end(), own.begin(), own.end());
  }
  /// Of tokens [first, first + n) in a step of their own.
  std::vector<float> run(Kernels kernels, std::size_t first, std::size_t n, ActFormat format) const {
    const std::vector<Token> some(tokens.begin() + std::ptrdiff_t(first), tokens.begin() + std::ptrdiff_t(first + n));
    const DeviceCache cache(s);
    const DeviceStep step(s, some);
    const Device<std::byte> compressed(bytes);
    const Device<float> queries(std::vector<float>(q.begin() + std::ptrdiff_t(first * q_row()), q.end())),
        of_heads(sinks), y(poison(n * q_row()));
    const Device<std::int32_t> numbers(
        std::vector<std::int32_t>(chosen.begin() + std::ptrdiff_t(first * at(shape.top_k)), chosen.end()));
    const cuda::CompressedKeys keys{.rows = compressed.data(),
                                    .stride = shape.stride,
                                    .chosen = shape.top_k > 0 ? numbers.data() : nullptr,
                                    .top_k = shape.top_k};
    const cuda::AttentionShape a{
        .heads = shape.heads, .scale = scale, .window = shape.window, .query = format, .sinks = of_heads.data()};
    const auto count = static_cast<int>(n);
    if (kernels == Kernels::Prompt) {
      REQUIRE(cuda::attends_prompt_compressed(cache.view));
      cuda::attend_prompt_compressed(queries.data(), y.data(), cache.view, a, keys, step.view(), count, {});
      return y.read();
    }
    const std::int64_t most = std::int64_t{s.stride} * 64;
    const cuda::AttentionMemory need = cuda::compressed_attention_memory(cache.view, a, keys, count, most);
    const Device<std::byte> scratch(std::vector<std::byte>(need.scratch, std::byte{0xff}));
    const Device<std::byte> arrivals(std::vector<std::byte>(need.arrivals, std::byte{0}));
    const cuda::Stream stream;
    cuda::attend_compressed(queries.data(), y.data(), cache.view, a, keys, step.view(), count, most, scratch.data(),
                            arrivals.data(), {stream.get(), true});
    stream.synchronize("attending");
    return y.read();
  }
  std::vector<float> run(Kernels kernels, ActFormat format = ActFormat::F32) const {
    return run(kernels, 0, tokens.size(), format);
  }

  std::string words(std::size_t t) const {
    return attention_test::words(s.shape, s.k_type, s.v_type) + ", stride " + std::to_string(shape.stride) +
           ", window " + std::to_string(shape.window.length) + ", " + std::to_string(shape.top_k) + " keys, token " +
           std::to_string(t) + " at " + std::to_string(tokens[t].position);
  }
};

/// Of some heads, since the definition takes its time.
bool is_checked(int heads, int head) { return head % (heads / 8 + 1) == 0 || head + 1 == heads; }

/// What the definition makes of rows and queries; 0 for heads that are not checked. Values may be others than keys.
struct Definition {
  const std::vector<float>&k, &v, &compressed, &compressed_values, &q;
};
std::vector<float> expected_of(const CompressedScene& c, const Definition& d, std::size_t t) {
  const int dim = c.shape.dim;
  const Token& token = c.tokens[t];
  std::vector<float> y(c.q_row());
  for (int h = 0; h < c.shape.heads; ++h) {
    if (!is_checked(c.shape.heads, h)) continue;
    const float* const query = d.q.data() + t * c.q_row() + at(h * dim);
    std::vector<double> scores{c.sinks[at(h)]};
    std::vector<const float*> values{nullptr};
    const auto add = [&](const float* key, const float* value) {
      double dot = 0;
      for (int e = 0; e < dim; ++e) dot += double{query[e]} * double{key[e]};
      scores.push_back(double{c.scale} * dot);
      values.push_back(value);
    };
    for (int p = first_seen(c.shape.window, token.position); p <= token.position; ++p) {
      const std::size_t row = c.s.row(token.sequence, p, 0) * at(dim);
      add(d.k.data() + row, d.v.data() + row);
    }
    for (int key = 0; key < (token.position + 1) / c.shape.stride; ++key) {
      const auto own = c.chosen.begin() + std::ptrdiff_t(t * at(c.shape.top_k));
      if (c.shape.top_k > 0 && std::find(own, own + c.shape.top_k, key) == own + c.shape.top_k) continue;
      const int last = (key + 1) * c.shape.stride - 1;
      const std::size_t row = c.s.row(token.sequence, last / 64 * 64 + last % 64 / c.shape.stride, 0) * at(dim);
      add(d.compressed.data() + row, d.compressed_values.data() + row);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    std::vector<double> sums(at(dim));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - most);
      total += weight;
      for (int e = 0; values[i] != nullptr && e < dim; ++e) sums[at(e)] += weight * double{values[i][e]};
    }
    for (int e = 0; e < dim; ++e) y[at(h * dim + e)] = static_cast<float>(sums[at(e)] / total);
  }
  return y;
}
std::vector<float> of_checked_heads(const CompressedScene& c, const float* y) {
  std::vector<float> checked(c.q_row());
  for (int h = 0; h < c.shape.heads; ++h) {
    if (is_checked(c.shape.heads, h)) std::copy_n(y + h * c.shape.dim, c.shape.dim, checked.begin() + h * c.shape.dim);
  }
  return checked;
}
bool untouched(const float* y, std::size_t n) {
  return std::all_of(y, y + n, [](float x) { return std::bit_cast<std::uint32_t>(x) == 0xffffffffu; });
}

void check_exact(const CompressedScene& c) {
  const std::vector<float> y = c.run(Kernels::Exact, ActFormat::Q8x32);
  std::vector<float> seen = c.q;
  if (info(c.s.k_type).quantized()) round_trip_activation(ActFormat::Q8x32, c.q.data(), seen.data(), std::ssize(seen));
  for (std::size_t t = 0; t < c.tokens.size(); ++t) {
    INFO(c.words(t));
    const float* const own = y.data() + t * c.q_row();
    if (c.tokens[t].sequence < 0) {
      CHECK(untouched(own, c.q_row()));
      continue;
    }
    const std::vector<float> e = expected_of(c, {c.s.k_rows, c.s.v_rows, c.rows, c.rows, seen}, t);
    CHECK(worst(e, of_checked_heads(c, own).data(), f32_limit(c.shape.dim) * largest(e)) <= 1);
  }
}

/// As in check_prompt().
void check_rounded(const CompressedScene& c) {
  const bool bfloat16 = c.s.k_type == DType::BF16;
  const std::vector<float> y = c.run(Kernels::Prompt, ActFormat::Q8x32);
  const auto rounded_all = [&](std::vector<float> x) {
    for (float& e : x) e = rounded(e, bfloat16);
    return x;
  };
  const auto sizes = [](std::vector<float> x) {
    for (float& e : x) e = std::fabs(e);
    return x;
  };
  std::vector<float> seen = c.q;
  if (info(c.s.k_type).quantized()) round_trip_activation(ActFormat::Q8x32, c.q.data(), seen.data(), std::ssize(seen));
  const std::vector<float> q = rounded_all(seen), k = rounded_all(c.s.k_rows), more = rounded_all(c.rows);
  const std::vector<float> k_sizes = sizes(k), more_sizes = sizes(more);
  double most = 0;
  for (const std::vector<float>* const of : {&k_sizes, &more_sizes}) {
    for (const float x : *of) most = std::isnan(x) ? most : std::max(most, double{x});
  }
  for (std::size_t t = 0; t < c.tokens.size(); ++t) {
    const float* const own = y.data() + t * c.q_row();
    if (c.tokens[t].sequence < 0) {
      CHECK(untouched(own, c.q_row()));
      continue;
    }
    INFO(c.words(t));
    const std::vector<float> e = expected_of(c, {k, k, more, more, q}, t);
    const std::vector<float> magnitude = expected_of(c, {k, k_sizes, more, more_sizes, q}, t);
    const std::vector<float> checked = of_checked_heads(c, own);
    const double keys = c.tokens[t].position + 1.0 + (c.tokens[t].position + 1.0) / c.shape.stride;
    const double rest = (bfloat16 ? 0 : 0x1p-25 * keys * most) + 4 * f32_limit(c.shape.dim) * largest(e);
    double over = 0;
    for (std::size_t i = 0; i < e.size(); ++i) {
      const double d = std::fabs(double{e[i]} - double{checked[i]});
      over = std::max(over, std::isnan(d) ? 1e9 : d / ((bfloat16 ? 0x1p-8 : 0x1p-11) * double{magnitude[i]} + rest));
    }
    CHECK(over <= 1);
  }
}

bool has_wide_kernels() {
  return !no_device() && cuda::attends_wide({nullptr, nullptr, DType::F16, DType::F16, 1, 512, 512});
}

const std::vector<int> kLengths = {1, 30, 64, 128, 300, 1500};

constexpr CompressedShape kPacked[] = {{8, 64, 4, 20},    {24, 32, 128, 100},   {4, 96, 64, 1},
                                       {8, 64, 4, 20, 7}, {5, 128, 2, 64, 300}, {3, 160, 4, 128, 64}};

std::vector<CompressedShape> wide_shapes() {
  std::vector<CompressedShape> all;
  for (const int heads : {3, 16, 64, 128}) {
    all.push_back({heads, 512, 4, 128, 20});
    all.push_back({heads, 512, 128, 128});
    if (heads == 64) all.push_back({heads, 512, 4, 40, 512});
    if (heads == 16) all.push_back({heads, 512, 2, 1, 1});
  }
  return all;
}

}  // namespace

TEST_CASE("attention to a window and compressed keys equals its definition: heads and types") {
  if (no_device()) return;
  for (const CompressedShape& x : kPacked) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q4_1, DType::F32}) {
      check_exact({x, type, type, Values::OwnRows, kLengths, some_tokens(kLengths), 41});
    }
    check_exact({x, DType::Q8_0, DType::F16, Values::OwnRows, kLengths, some_tokens(kLengths), 42});
    check_exact({x, DType::F16, DType::Q4_0, Values::OwnRows, kLengths, some_tokens(kLengths), 43});
  }
  for (const DType v : {DType::F16, DType::Q8_0, DType::F32}) {
    const CompressedShape wide{2, 512, 4, 128, 20};
    check_exact({wide, v == DType::F32 ? v : DType::F16, v, Values::OwnRows, kLengths, some_tokens(kLengths), 44});
  }
}

TEST_CASE("attention of heads of 512 to a window and compressed keys that are their values equals its definition") {
  if (!has_wide_kernels()) return;
  for (const CompressedShape& x : wide_shapes()) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3})
      check_exact({x, type, type, Values::InKeys, kLengths, some_tokens(kLengths), 51});
  }
  const std::vector<int> long_one = {9000};
  check_exact({{64, 512, 128, 128}, DType::F16, DType::F16, Values::InKeys, long_one, {{0, 8999}, {0, 127}}, 52});
}

TEST_CASE("a token's bits beside compressed keys do not depend on the step around it") {
  if (no_device()) return;
  std::vector<Token> tokens = some_tokens(kLengths);
  for (int i = 0; i < 40; ++i) tokens.push_back({5, 1400 + i});
  const auto check = [&](const CompressedScene& c) {
    const std::vector<float> y = c.run(Kernels::Exact);
    for (const std::size_t t : {std::size_t{0}, std::size_t{6}, tokens.size() - 1}) {
      INFO(c.words(t));
      const std::vector<float> own = c.run(Kernels::Exact, t, 1, ActFormat::F32);
      CHECK(std::memcmp(own.data(), y.data() + t * c.q_row(), own.size() * sizeof(float)) == 0);
    }
  };
  check({kPacked[3], DType::F16, DType::F16, Values::OwnRows, kLengths, tokens, 61});
  check({kPacked[1], DType::Q8_0, DType::Q4_0, Values::OwnRows, kLengths, tokens, 62});
  if (!has_wide_kernels()) return;
  for (const DType type : {DType::F16, DType::F8_E4M3}) {
    check({{64, 512, 4, 128, 300}, type, type, Values::InKeys, kLengths, tokens, 63});
    check({{16, 512, 128, 128}, type, type, Values::InKeys, kLengths, tokens, 64});
  }
}

TEST_CASE("prompts' attention to a window and compressed keys equals its definition within rounding") {
  if (!has_wide_kernels()) return;
  for (const CompressedShape& x : wide_shapes()) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q5_1})
      check_rounded({x, type, type, Values::InKeys, kLengths, some_tokens(kLengths), 71});
  }
}

TEST_CASE("keys and values in two types, and F32, beside compressed keys are not rounded") {
  if (no_device()) return;
  const auto view = [](DType k, DType v, int dim) {
    return cuda::CacheView{nullptr, nullptr, k, v, 1, dim, dim, k == v};
  };
  CHECK_FALSE(cuda::attends_prompt_compressed(view(DType::F16, DType::Q8_0, 512)));
  CHECK_FALSE(cuda::attends_prompt_compressed(view(DType::F32, DType::F32, 512)));
  CHECK_FALSE(cuda::attends_prompt_compressed(view(DType::F16, DType::F16, 128)));
}

}  // namespace llm::attention_test
