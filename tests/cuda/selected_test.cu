// Selecting keys and attending to them: the choice against sums that f32 has exactly, so that the order among equal
// scores shows; attention against its definition in double; both alone and in any step.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "attention_scene.h"
#include "backend/cuda/kernels/attend_masked.h"
#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/select_keys.h"

namespace llm::attention_test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// An index and what is asked of it. Whole numbers are exact in every type without blocks, and so are their sums.
struct IndexScene {
  Scene keys;
  int heads, top_k;
  std::vector<Token> tokens;
  std::vector<float> q, w;
  int stride = 1;
  enum class Weights { None, Some } weights = Weights::Some;
  SelectKeys::Choice choice = SelectKeys::Choice::Positions;

  IndexScene(int heads, int dim, DType type, int top_k, const std::vector<int>& lengths, std::vector<Token> of,
             std::uint32_t seed)
      : keys({heads, 1, dim, 32}, type, DType::F16, lengths, seed), heads(heads), top_k(top_k), tokens(std::move(of)) {
    std::mt19937 bits(seed + 1);
    const auto whole = [&](int most) { return static_cast<float>(static_cast<int>(bits() % at(2 * most + 1)) - most); };
    if (!info(type).quantized()) {
      const std::size_t row_bytes = TensorType{type, {dim}}.bytes();
      std::vector<float> x(at(dim));
      for (std::size_t r = 0; r * at(dim) < keys.k_rows.size(); ++r) {
        if (std::isnan(keys.k_rows[r * at(dim)])) continue;
        for (float& e : x) e = bits() % 8 == 0 ? whole(4) : 0.0f;
        host::store_cache_row(type, x.data(), keys.k_bytes.data() + r * row_bytes, dim);
        decode(type, keys.k_bytes.data() + r * row_bytes, keys.k_rows.data() + r * at(dim), dim);
      }
    }
    q.resize(tokens.size() * at(heads * dim));
    w.resize(tokens.size() * at(heads));
    for (float& e : q) e = whole(4);
    for (float& e : w) e = whole(3);
  }

  std::vector<double> scores(std::size_t token) const {
    const int dim = keys.shape.dim_k;
    std::vector<double> all;
    for (int i = 0; i < (tokens[token].position + 1) / stride; ++i) {
      // The keys of a block lie side by side, where without a stride those of its first positions do.
      const int p = i * stride / 64 * 64 + i * stride % 64 / stride;
      const float* const key = keys.k_rows.data() + keys.row(tokens[token].sequence, p, 0) * at(dim);
      double sum = 0;
      for (int h = 0; h < heads; ++h) {
        const float* const query = q.data() + (token * at(heads) + at(h)) * at(dim);
        const double dot = std::inner_product(query, query + dim, key, 0.0);
        const double weight = weights == Weights::Some ? double{w[token * at(heads) + at(h)]} : 1.0;
        sum += weight * (dot > 0 ? dot : 0.0);
      }
      all.push_back(std::isnan(sum) ? -std::numeric_limits<double>::infinity() : sum);
    }
    return all;
  }
  std::vector<std::int32_t> expected(std::size_t token) const {
    const std::vector<double> all = scores(token);
    std::vector<std::int32_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return all[at(a)] > all[at(b)]; });
    const bool by_numbers = choice == SelectKeys::Choice::Keys;
    order.resize(std::min(order.size(), at(by_numbers ? top_k : (top_k + 1) / stride - 1)));
    std::sort(order.begin(), order.end());
    if (by_numbers) {
      order.resize(at(top_k), -1);
      return order;
    }
    std::vector<std::int32_t> positions;
    for (const std::int32_t key : order)
      for (int i = 0; i < stride; ++i) positions.push_back(key * stride + i);
    for (int p = static_cast<int>(std::ssize(all)) * stride; p <= tokens[token].position; ++p) positions.push_back(p);
    positions.resize(at(top_k), -1);
    return positions;
  }

  std::vector<std::int32_t> run(cuda::Scores kind, std::size_t first, std::size_t n,
                                ActFormat format = ActFormat::F32) const {
    const std::vector<Token> some(tokens.begin() + std::ptrdiff_t(first), tokens.begin() + std::ptrdiff_t(first + n));
    const DeviceCache cache(keys);
    cuda::CacheView index = cache.view;
    index.v = nullptr;
    index.head_dim_v = 0;
    const DeviceStep step(keys, some);
    const std::size_t q_row = at(heads * keys.shape.dim_k);
    const Device<float> queries(std::vector<float>(q.begin() + std::ptrdiff_t(first * q_row), q.end())),
        head_weights(std::vector<float>(w.begin() + std::ptrdiff_t(first * at(heads)), w.end()));
    const Device<std::int32_t> positions(std::vector<std::int32_t>(n * at(top_k), -7));
    const cuda::SelectionShape shape{heads, top_k, format, stride, choice};
    const std::int64_t most = std::int64_t{keys.stride} * 64;
    const Device<std::byte> scratch(
        std::vector<std::byte>(cuda::selection_scratch(index, shape, static_cast<int>(n), most), std::byte{0xff}));
    const float* const of_heads = weights == Weights::Some ? head_weights.data() : nullptr;
    cuda::select_keys(queries.data(), of_heads, index, shape, step.view(), static_cast<int>(n), most, kind,
                      positions.data(), scratch.data(), {});
    return positions.read();
  }
};

/// Single tokens of several sequences, one that is none, and a run of one sequence as prompts have it.
std::vector<Token> index_tokens(const std::vector<int>& lengths, int run) {
  std::vector<Token> tokens = some_tokens(lengths);
  const int longest = static_cast<int>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin());
  for (int i = 0; i < run; ++i) tokens.push_back({longest, lengths[at(longest)] - run + i});
  return tokens;
}

void check_choice(const IndexScene& s, cuda::Scores kind) {
  const std::vector<std::int32_t> chosen = s.run(kind, 0, s.tokens.size());
  for (std::size_t t = 0; t < s.tokens.size(); ++t) {
    const std::vector<std::int32_t> own(chosen.begin() + std::ptrdiff_t(t * at(s.top_k)),
                                        chosen.begin() + std::ptrdiff_t((t + 1) * at(s.top_k)));
    INFO(s.heads << " heads of " << s.keys.shape.dim_k << " " << name(s.keys.k_type) << ", " << s.top_k
                 << " keys, stride " << s.stride << ", token " << t << " at " << s.tokens[t].position);
    if (s.tokens[t].sequence < 0)
      CHECK(std::ranges::count(own, -7) == s.top_k);
    else
      REQUIRE(own == s.expected(t));
  }
}

/// Positions of `top_k` random keys of those that each token sees, or all.
std::vector<std::int32_t> random_selection(const std::vector<Token>& tokens, int top_k, std::mt19937& bits) {
  std::vector<std::int32_t> all;
  for (const Token& t : tokens) {
    std::vector<std::int32_t> own(at(t.position + 1));
    std::iota(own.begin(), own.end(), 0);
    for (std::size_t i = own.size(); i > 1; --i) std::swap(own[i - 1], own[bits() % i]);
    own.resize(std::min(own.size(), at(top_k)));
    std::sort(own.begin(), own.end());
    own.resize(at(top_k), -1);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// Of some heads, since the definition takes its time; y is 0 for the others.
bool is_checked(const HeadShape& shape, int head) {
  return head % (shape.heads / 8 + 1) == 0 || head + 1 == shape.heads;
}
std::vector<float> expected_of(const Scene& s, const std::vector<float>& values, const Token& t, const float* q,
                               float scale, std::span<const std::int32_t> selected, float soft_cap = 0) {
  const HeadShape& shape = s.shape;
  std::vector<float> y(at(shape.heads * shape.dim_v));
  std::vector<double> sums(at(shape.dim_v));
  for (int h = 0; h < shape.heads; ++h) {
    if (!is_checked(shape, h)) continue;
    host::AttentionHead a;
    a.q = q + h * shape.dim_k;
    a.y = y.data() + h * shape.dim_v;
    a.k = {reinterpret_cast<const std::byte*>(s.k_rows.data()), DType::F32, shape.kv_heads, shape.dim_k};
    a.v = {reinterpret_cast<const std::byte*>(values.data()), DType::F32, shape.kv_heads, shape.dim_v};
    a.kv_head = h / (shape.heads / shape.kv_heads);
    a.scale = scale;
    a.soft_cap = soft_cap;
    a.end_key = t.position + 1;
    a.blocks = s.table.data() + t.sequence * s.stride;
    a.selected = selected;
    host::attention_head<double, host::PlainRow<float>, host::PlainRow<float>>(a, sums.data(), nullptr);
  }
  return y;
}

/// Exact, or for prompts: the selected keys alone, or all with a mask.
enum class Kernels { Exact, Prompt, Masked };
std::vector<float> run_selected(const Scene& s, const std::vector<Token>& tokens, const std::vector<float>& q,
                                const std::vector<std::int32_t>& selected, float scale, Kernels kernels) {
  const DeviceCache cache(s);
  const DeviceStep step(s, tokens);
  const int n = static_cast<int>(tokens.size());
  const Device<float> queries(q), y(poison(tokens.size() * at(s.shape.heads * s.shape.dim_v)));
  const Device<std::int32_t> positions(selected);
  const cuda::Selected keys{positions.data(), static_cast<int>(selected.size() / tokens.size())};
  const cuda::AttentionShape shape{.heads = s.shape.heads, .scale = scale};
  if (kernels == Kernels::Prompt) {
    REQUIRE(cuda::attends_prompt_selected(cache.view));
    cuda::attend_prompt_selected(queries.data(), y.data(), cache.view, shape, keys, step.view(), n, {});
    return y.read();
  }
  const cuda::AttentionMemory need = cuda::selected_attention_memory(cache.view, shape, keys, n);
  const Device<std::byte> scratch(std::vector<std::byte>(need.scratch, std::byte{0xff}));
  const Device<std::byte> arrivals(std::vector<std::byte>(need.arrivals, std::byte{0}));
  const cuda::Stream stream;
  cuda::attend_selected(queries.data(), y.data(), cache.view, shape, keys, step.view(), n, scratch.data(),
                        arrivals.data(), {stream.get(), true});
  stream.synchronize("attending");
  return y.read();
}

struct AttendScene;
std::vector<float> run_masked(const AttendScene&);

struct AttendScene {
  Scene s;
  std::vector<Token> tokens;
  int top_k;
  std::vector<float> q;
  std::vector<std::int32_t> selected;
  float scale, soft_cap = 0;            ///< a cap of Kernels::Masked
  ActFormat query = ActFormat::F32;     ///< of Kernels::Masked, where keys are quantised
  std::optional<int> tokens_at_once{};  ///< of Kernels::Masked, as many as it has memory for
  int repeats = 1;                      ///< of the spans of Kernels::Masked, all with the same results

  AttendScene(Scene of, std::vector<Token> all, int top_k, std::uint32_t seed)
      : s(std::move(of)), tokens(std::move(all)), top_k(top_k) {
    std::mt19937 bits(seed);
    q = random_floats(tokens.size() * q_row(), bits, 2.0f);
    selected = random_selection(tokens, top_k, bits);
    scale = 1 / std::sqrt(static_cast<float>(s.shape.dim_k));
  }
  std::size_t q_row() const { return at(s.shape.heads * s.shape.dim_k); }
  std::size_t y_row() const { return at(s.shape.heads * s.shape.dim_v); }
  std::span<const std::int32_t> keys(std::size_t t) const {
    return std::span(selected).subspan(t * at(top_k), at(top_k));
  }
  std::vector<float> run(Kernels kernels) const {
    return kernels == Kernels::Masked ? run_masked(*this) : run_selected(s, tokens, q, selected, scale, kernels);
  }
};

std::vector<float> run_masked(const AttendScene& a) {
  const DeviceCache cache(a.s);
  const DeviceStep step(a.s, {});  // a prompt's spans say where its tokens are
  const std::vector<cuda::PromptSpan> spans = spans_of(a.tokens);
  std::vector<cuda::PromptSpan> repeated;
  for (int i = 0; i < a.repeats; ++i) repeated.insert(repeated.end(), spans.begin(), spans.end());
  int words = 1;
  for (const cuda::PromptSpan& span : spans) words = std::max(words, (span.first_position + span.n_tokens + 63) / 64);
  const Device<float> queries(a.q), y(poison(a.tokens.size() * a.y_row()));
  const Device<std::int32_t> positions(a.selected);
  const std::size_t mask_bytes = at(words) * 8 * at(a.tokens_at_once.value_or(std::ssize(a.tokens)));
  const Device<std::byte> masks(std::vector<std::byte>(mask_bytes, std::byte{0xff}));
  const cuda::AttentionShape shape{
      .heads = a.s.shape.heads, .scale = a.scale, .query = a.query, .soft_cap = a.soft_cap};
  const cuda::Stream stream;
  cuda::attend_prompt_masked(queries.data(), y.data(), cache.view, shape, {positions.data(), a.top_k}, step.view(),
                             repeated, masks.data(), mask_bytes, {stream.get(), true});
  stream.synchronize("attending");
  return y.read();
}

/// y with zeros for the heads that are not.
std::vector<float> of_checked_heads(const HeadShape& shape, const float* y) {
  std::vector<float> checked(at(shape.heads * shape.dim_v));
  for (int h = 0; h < shape.heads; ++h) {
    if (is_checked(shape, h)) std::copy_n(y + h * shape.dim_v, shape.dim_v, checked.begin() + h * shape.dim_v);
  }
  return checked;
}

void check_exact(const AttendScene& a) {
  const std::vector<float> y = a.run(Kernels::Exact);
  for (std::size_t t = 0; t < a.tokens.size(); ++t) {
    INFO(words(a.s.shape, a.s.k_type, a.s.v_type)
         << ", " << a.top_k << " keys, token " << t << " at " << a.tokens[t].position);
    const float* const own = y.data() + t * a.y_row();
    if (a.tokens[t].sequence < 0) {
      CHECK(std::all_of(own, own + a.y_row(), [](float x) { return std::bit_cast<std::uint32_t>(x) == 0xffffffffu; }));
      continue;
    }
    const std::vector<float> e =
        expected_of(a.s, a.s.v_rows, a.tokens[t], a.q.data() + t * a.q_row(), a.scale, a.keys(t));
    const std::vector<float> checked = of_checked_heads(a.s.shape, own);
    CHECK(worst(e, checked.data(), f32_limit(a.s.shape.dim_k) * largest(e)) <= 1);
  }
}

Scene latents(int heads, DType k, DType v, const std::vector<int>& lengths, std::uint32_t seed) {
  Scene s({heads, 1, 576, 512}, k, v, lengths, seed);
  if (k == v) s.put_values_in_keys();
  return s;
}

/// As in check_prompt().
void check_rounded(const AttendScene& a, Kernels kernels = Kernels::Prompt) {
  const bool bfloat16 = a.s.k_type == DType::BF16 && a.s.v_type == DType::BF16;
  const std::vector<float> y = a.run(kernels);
  Scene exact = a.s;
  for (float& x : exact.k_rows) x = rounded(x, bfloat16);
  for (float& x : exact.v_rows) x = rounded(x, bfloat16);
  std::vector<float> q = a.q;
  if (info(a.s.k_type).quantized()) round_trip_activation(a.query, a.q.data(), q.data(), std::ssize(q));
  for (float& x : q) x = rounded(x, bfloat16);
  double most_v = 0;
  for (const float x : exact.v_rows) {
    if (!std::isnan(x)) most_v = std::max(most_v, std::fabs(double{x}));
  }
  std::vector<float> sizes = exact.v_rows;
  for (float& x : sizes) x = std::fabs(x);
  for (std::size_t t = 0; t < a.tokens.size(); ++t) {
    const float* const own = y.data() + t * a.y_row();
    INFO(words(a.s.shape, a.s.k_type, a.s.v_type)
         << ", " << a.top_k << " keys, token " << t << " at " << a.tokens[t].position);
    if (a.tokens[t].sequence < 0) {
      CHECK(std::all_of(own, own + a.y_row(), [](float x) { return std::bit_cast<std::uint32_t>(x) == 0xffffffffu; }));
      continue;
    }
    const auto of = [&](const std::vector<float>& values) {
      return expected_of(exact, values, a.tokens[t], q.data() + t * a.q_row(), a.scale, a.keys(t), a.soft_cap);
    };
    const std::vector<float> e = of(exact.v_rows), magnitude = of(sizes);
    const std::vector<float> checked = of_checked_heads(a.s.shape, own);
    const double rest = (bfloat16 ? 0 : 0x1p-25 * a.top_k * most_v) + 4 * f32_limit(576) * largest(e);
    double over = 0;
    for (std::size_t i = 0; i < e.size(); ++i) {
      const double d = std::fabs(double{e[i]} - double{checked[i]});
      over = std::max(over, std::isnan(d) ? 1e9 : d / ((bfloat16 ? 0x1p-8 : 0x1p-11) * double{magnitude[i]} + rest));
    }
    CHECK(over <= 1);
  }
}

bool has_wide_kernels() {
  return !no_device() && cuda::attends_wide({nullptr, nullptr, DType::F16, DType::F16, 1, 576, 512});
}

const std::vector<int> kLengths = {1, 30, 64, 300, 1500};

}  // namespace

TEST_CASE("the keys of the greatest scores are selected, of equal ones the first") {
  if (no_device()) return;
  struct Shape {
    int heads, dim, top_k;
  };
  for (const Shape& x : {Shape{64, 128, 100}, {8, 128, 1}, {32, 128, 257}, {5, 128, 64}, {3, 40, 20}, {2, 300, 128}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::F32}) {
      for (const int run : {5, 150}) {
        const IndexScene s(x.heads, x.dim, type, x.top_k, kLengths, index_tokens(kLengths, run), 7);
        check_choice(s, cuda::Scores::Exact);
        check_choice(s, cuda::Scores::Rounded);
      }
    }
  }
}

TEST_CASE("keys of several positions each are selected together, and those behind the last of them always") {
  if (no_device()) return;
  struct Shape {
    int heads, dim, top_k, stride;
    IndexScene::Weights weights;
  };
  using enum IndexScene::Weights;
  for (const Shape& x : {Shape{64, 128, 99, 4, None},
                         {8, 128, 3, 2, Some},
                         {32, 128, 259, 4, None},
                         {16, 128, 95, 16, Some},
                         {8, 128, 255, 64, None},
                         {5, 128, 127, 32, None},
                         {3, 40, 23, 8, Some},
                         {2, 300, 127, 64, None},
                         {64, 128, 100, 1, None},
                         {3, 40, 20, 1, None}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::F32}) {
      for (const int run : {5, 150}) {
        IndexScene s(x.heads, x.dim, type, x.top_k, kLengths, index_tokens(kLengths, run), 7);
        s.stride = x.stride;
        s.weights = x.weights;
        check_choice(s, cuda::Scores::Exact);
        check_choice(s, cuda::Scores::Rounded);
      }
    }
  }
  const std::vector<int> lengths = {40000, 2059};
  IndexScene of_long(16, 128, DType::F16, 2051, lengths, {{0, 39999}, {0, 39998}, {1, 2051}, {1, 2050}, {1, 2058}}, 3);
  of_long.stride = 4;
  check_choice(of_long, cuda::Scores::Exact);
  of_long.weights = None;
  check_choice(of_long, cuda::Scores::Exact);
}

TEST_CASE("keys of several positions each are selected by their numbers") {
  if (no_device()) return;
  struct Shape {
    int heads, dim, top_k, stride;
  };
  for (const Shape& x : {Shape{64, 128, 100, 4}, {8, 128, 1, 2}, {16, 128, 23, 16}, {8, 128, 5, 64}, {3, 40, 75, 4}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::F32}) {
      for (const int run : {5, 150}) {
        IndexScene s(x.heads, x.dim, type, x.top_k, kLengths, index_tokens(kLengths, run), 8);
        s.stride = x.stride;
        s.choice = SelectKeys::Choice::Keys;
        check_choice(s, cuda::Scores::Exact);
        check_choice(s, cuda::Scores::Rounded);
      }
    }
  }
  // The last position whose token sees no more keys than are chosen, and the first behind it.
  IndexScene border(16, 128, DType::F16, 512, {2100}, {{0, 2050}, {0, 2051}, {0, 2052}, {0, 2099}}, 4);
  border.stride = 4;
  border.choice = SelectKeys::Choice::Keys;
  check_choice(border, cuda::Scores::Exact);
}

TEST_CASE("long contexts, all keys equal, weights that are not numbers") {
  if (no_device()) return;
  const std::vector<int> lengths = {40000, 2049};
  const std::vector<Token> tokens = {{0, 39999}, {1, 2048}, {1, 2047}, {0, 5000}};
  IndexScene s(16, 128, DType::F16, 2048, lengths, tokens, 3);
  check_choice(s, cuda::Scores::Exact);
  IndexScene equal = s;
  std::fill(equal.w.begin(), equal.w.end(), 0.0f);
  check_choice(equal, cuda::Scores::Exact);
  for (std::size_t t = 0; t < tokens.size(); ++t) s.w[t * 16 + t] = std::numeric_limits<float>::quiet_NaN();
  check_choice(s, cuda::Scores::Exact);
  check_choice(s, cuda::Scores::Rounded);
  IndexScene positive = equal;  // queries that are not finite
  positive.w.assign(positive.w.size(), 1.0f);
  positive.q[5] = std::numeric_limits<float>::infinity();
  positive.q[16 * 128 + 3] = std::numeric_limits<float>::quiet_NaN();
  check_choice(positive, cuda::Scores::Exact);
}

TEST_CASE("however many blocks of threads choose a token's keys, they choose the same") {
  if (no_device()) return;
  const std::vector<int> lengths = {20000, 2049};
  for (const int run : {1, 13, 28, 60}) {  // clusters of eight, of four and of two
    std::vector<Token> tokens{{0, 19999}, {-1, 0}, {1, 2048}};
    for (int i = 0; i < run; ++i) tokens.push_back({0, 17000 + 37 * i});
    IndexScene s(8, 128, DType::F16, 1000, lengths, tokens, 5);
    check_choice(s, cuda::Scores::Exact);
    std::fill(s.w.begin(), s.w.end(), 0.0f);  // all keys are equal
    check_choice(s, cuda::Scores::Exact);
  }
}

TEST_CASE("what is chosen of an index of blocks is what its rows and rounded queries say") {
  if (no_device()) return;
  for (const DType type : {DType::Q8_0, DType::Q4_0, DType::Q5_1}) {
    for (const cuda::Scores kind : {cuda::Scores::Exact, cuda::Scores::Rounded}) {
      IndexScene s(16, 128, type, 100, {300, 1500}, index_tokens({300, 1500}, 70), 19);
      std::mt19937 bits(5);
      s.q = random_floats(s.q.size(), bits);
      const std::vector<std::int32_t> chosen = s.run(kind, 0, s.tokens.size(), ActFormat::Q8x32);
      std::vector<float> seen(s.q.size());
      round_trip_activation(ActFormat::Q8x32, s.q.data(), seen.data(), std::ssize(seen));
      s.q = seen;
      // Products are rounded to F16 in places: what is left out may be better than what is chosen by so much.
      for (std::size_t t = 0; t < s.tokens.size(); ++t) {
        if (s.tokens[t].sequence < 0) continue;
        const std::vector<double> scores = s.scores(t);
        double size = 0, least = std::numeric_limits<double>::infinity(), most = -least;
        for (const double x : scores) size = std::max(size, std::fabs(x));
        std::vector<bool> in(scores.size());
        for (int i = 0; i < s.top_k && chosen[t * 100 + at(i)] >= 0; ++i) in[at(chosen[t * 100 + at(i)])] = true;
        for (std::size_t p = 0; p < scores.size(); ++p)
          (in[p] ? least : most) = in[p] ? std::min(least, scores[p]) : std::max(most, scores[p]);
        INFO(name(type) << ", token " << t << " at " << s.tokens[t].position);
        CHECK(std::count(in.begin(), in.end(), true) == std::min<std::int64_t>(100, std::ssize(scores)));
        CHECK(most - least <= (kind == cuda::Scores::Exact ? 1e-5 : 2e-3) * size);
      }
    }
  }
}

TEST_CASE("a token's choice depends neither on the step around it nor on how long it may get") {
  if (no_device()) return;
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
    IndexScene s(64, 128, type, 200, {900, 1500}, index_tokens({900, 1500}, 200), 23);
    std::mt19937 bits(6);
    s.q = random_floats(s.q.size(), bits);
    s.w = random_floats(s.w.size(), bits);
    const std::vector<std::int32_t> all = s.run(cuda::Scores::Exact, 0, s.tokens.size());
    for (const std::size_t t : {std::size_t{0}, std::size_t{4}, s.tokens.size() - 60}) {
      const std::vector<std::int32_t> own = s.run(cuda::Scores::Exact, t, 1);
      CHECK(std::equal(own.begin(), own.end(), all.begin() + std::ptrdiff_t(t * 200)));
    }
  }
}

TEST_CASE("attention to selected keys equals its definition: heads and types") {
  if (no_device()) return;
  std::vector<Token> tokens = index_tokens(kLengths, 20);
  for (const HeadShape& shape : {HeadShape{4, 1, 128, 128}, {6, 2, 40, 24}, {3, 1, 576, 512}, {4, 4, 64, 64}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q4_1, DType::F32}) {
      if (!fits(type, shape.dim_k) || !fits(type, shape.dim_v) || (type == DType::F32 && shape.dim_k > 512)) continue;
      for (const int top_k : {1, 70, 256}) check_exact({Scene(shape, type, type, kLengths, 41), tokens, top_k, 3});
    }
  }
  check_exact({Scene({4, 1, 64, 64}, DType::Q8_0, DType::F16, kLengths, 42), tokens, 100, 3});
}

TEST_CASE("attention to selected keys of which the last are missing equals its definition") {
  if (no_device()) return;
  for (const int missing : {1, 3, 31, 63}) {
    for (const int top_k : {64, 100, 260}) {
      AttendScene a(Scene({6, 2, 64, 64}, DType::F16, DType::F16, kLengths, 43), index_tokens(kLengths, 20), top_k, 3);
      for (std::size_t t = 0; t < a.tokens.size(); ++t) {
        if (a.tokens[t].position < top_k) continue;
        const auto end = a.selected.begin() + std::ptrdiff_t((t + 1) * at(top_k));
        std::fill(end - missing, end, -1);
      }
      check_exact(a);
    }
  }
}

TEST_CASE("attention of latents to selected keys equals its definition, and that of all where these are no more") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {1, 65, 300, 2500};
  for (const int heads : {3, 16, 64, 128}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3}) {
      for (const int top_k : {1, 64, 100, 2048}) {
        if (top_k < 2048 || heads == 64)
          check_exact({latents(heads, type, type, lengths, 51), index_tokens(lengths, 2), top_k, 9});
      }
      const AttendScene all(latents(heads, type, type, lengths, 52), index_tokens(lengths, 1), 4096, 10);
      const std::vector<float> y = all.run(Kernels::Exact);
      const std::vector<float> whole =
          run_attend(all.s, DeviceCache(all.s), all.tokens, all.q, {.heads = heads, .scale = all.scale});
      CHECK(std::memcmp(y.data(), whole.data(), y.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a token's bits of attention to selected latents do not depend on the step around it") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {65, 300, 3000};
  for (const DType type : {DType::F16, DType::Q8_0}) {
    const AttendScene a(latents(64, type, type, lengths, 61), index_tokens(lengths, 150), 1000, 11);
    const std::vector<float> y = a.run(Kernels::Exact);
    for (const std::size_t t : {std::size_t{0}, a.tokens.size() - 1}) {
      const std::vector<float> q(a.q.begin() + std::ptrdiff_t(t * a.q_row()),
                                 a.q.begin() + std::ptrdiff_t((t + 1) * a.q_row()));
      const std::vector<std::int32_t> keys(a.keys(t).begin(), a.keys(t).end());
      const std::vector<float> own = run_selected(a.s, {a.tokens[t]}, q, keys, a.scale, Kernels::Exact);
      CHECK(std::memcmp(own.data(), y.data() + t * a.y_row(), own.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("prompts' attention to selected latents equals its definition within rounding") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {1, 65, 1200};
  for (const int heads : {5, 64, 128}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q5_1}) {
      for (const int top_k : {1, 100, 700})
        check_rounded({latents(heads, type, type, lengths, 71), index_tokens(lengths, 2), top_k, 12});
    }
  }
  check_rounded({latents(20, DType::F16, DType::F8_E4M3, lengths, 72), index_tokens(lengths, 8), 300, 12});
  check_rounded({latents(20, DType::Q8_0, DType::F16, lengths, 73), index_tokens(lengths, 8), 300, 12});
}

namespace {

/// Prompts of several sequences, of lengths that end inside tiles of rows and of keys, single tokens between them, and
/// one that is nobody's.
std::vector<Token> prompt_tokens(const std::vector<int>& lengths) {
  std::vector<Token> tokens = some_tokens(lengths);
  for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
    const int run = std::min(lengths[at(s)], 30 + 40 * s);
    for (int i = 0; i < run; ++i) tokens.push_back({s, lengths[at(s)] - run + i});
  }
  return tokens;
}

bool takes_masks(const Scene& s) {
  const DeviceCache cache(s);
  const char* const refusal = cuda::prompt_attention_refusal(cache.view);  // GPUs with 99 KB of shared memory
  if (refusal != nullptr) WARN(words(s.shape, s.k_type, s.v_type) << ": " << refusal);
  CHECK(cuda::prompt_attention_masks(cache.view) == (refusal == nullptr));
  return refusal == nullptr;
}

void check_masked(const AttendScene& a) {
  if (takes_masks(a.s)) check_rounded(a, Kernels::Masked);
}

Scene scene_of(const HeadShape& shape, DType type, const std::vector<int>& lengths, std::uint32_t seed) {
  return shape.dim_k == 576 ? latents(shape.heads, type, type, lengths, seed) : Scene(shape, type, type, lengths, seed);
}

/// Of each token as many of its last keys, all in few tiles.
void select_last(AttendScene& a) {
  for (std::size_t t = 0; t < a.tokens.size(); ++t) {
    const int n = std::min(a.tokens[t].position + 1, a.top_k);
    for (int i = 0; i < a.top_k; ++i)
      a.selected[t * at(a.top_k) + at(i)] = i < n ? a.tokens[t].position + 1 - n + i : -1;
  }
}

}  // namespace

TEST_CASE("prompts' attention with a mask of selected keys equals its definition within rounding", "[masked]") {
  if (no_device()) return;
  const std::vector<int> lengths = {1, 65, 300, 1200};
  for (const HeadShape& shape :
       {HeadShape{16, 2, 256, 256}, {8, 1, 128, 128}, {6, 2, 64, 64}, {3, 3, 128, 128}, {40, 1, 64, 64}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q4_1}) {
      if (!fits(type, shape.dim_k)) continue;
      for (const int top_k : {67, 1, 259}) {
        if (top_k == 67 || type == DType::F16)
          check_masked({Scene(shape, type, type, lengths, 81), prompt_tokens(lengths), top_k, 13});
      }
    }
  }
  check_masked({Scene({4, 1, 64, 64}, DType::Q8_0, DType::F16, lengths, 82), prompt_tokens(lengths), 100, 13});
  AttendScene of_codes(Scene({4, 1, 64, 64}, DType::Q8_0, DType::Q8_0, lengths, 83), prompt_tokens(lengths), 100, 13);
  of_codes.query = ActFormat::Q8x32;
  check_masked(of_codes);
  AttendScene capped(Scene({4, 1, 128, 128}, DType::F16, DType::F16, lengths, 84), prompt_tokens(lengths), 100, 13);
  capped.soft_cap = 3;
  check_masked(capped);
}

TEST_CASE("prompts' attention of wide heads with a mask of selected keys equals its definition", "[masked]") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {1, 65, 700};
  for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
    for (const int heads : {3, 16, 128})
      check_masked({latents(heads, type, type, lengths, 91), prompt_tokens(lengths), 100, 14});
  }
  check_masked({latents(20, DType::F16, DType::Q8_0, lengths, 92), prompt_tokens(lengths), 67, 14});
  check_masked({latents(20, DType::F8_E4M3, DType::F16, lengths, 93), prompt_tokens(lengths), 67, 14});
  AttendScene capped(latents(16, DType::F16, DType::F16, lengths, 95), prompt_tokens(lengths), 100, 13);
  capped.soft_cap = 3;
  check_masked(capped);
}

TEST_CASE("with a mask tiles that no token selects are not read, and lists may be short", "[masked]") {
  if (no_device()) return;
  const std::vector<int> lengths = {300, 4500};
  for (const HeadShape& shape : {HeadShape{16, 2, 256, 256}, {4, 1, 128, 128}, {16, 1, 576, 512}}) {
    if (shape.dim_k == 576 && !has_wide_kernels()) continue;
    AttendScene a(scene_of(shape, DType::F16, lengths, 101), prompt_tokens(lengths), 130, 15);
    std::erase_if(a.tokens, [](const Token& t) { return t.position < 200; });
    a.q.resize(a.tokens.size() * a.q_row());
    a.selected.assign(a.tokens.size() * at(a.top_k), -1);
    select_last(a);
    // Of the longer sequence there are a token at 2,249 and others from 4,430 on, each with 130 keys.
    for (int position = 0; position < 4288; ++position) {
      if (position >= 2112 && position < 2304) continue;  // whole tiles
      for (int h = 0; h < shape.kv_heads; ++h) {
        const std::size_t row = a.s.row(1, position, h);
        std::fill_n(a.s.k_bytes.begin() + std::ptrdiff_t(row * at(shape.dim_k) * 2), shape.dim_k * 2, std::byte{0xff});
        if (a.s.values_in_keys) continue;
        std::fill_n(a.s.v_bytes.begin() + std::ptrdiff_t(row * at(shape.dim_v) * 2), shape.dim_v * 2, std::byte{0xff});
      }
    }
    check_masked(a);
    // Far apart: one key in every other stretch of 32 tiles, and its own.
    AttendScene sparse = a;
    sparse.s = scene_of(shape, DType::F16, lengths, 102);
    for (std::size_t t = 0; t < sparse.tokens.size(); ++t) {
      int n = 0;
      const auto own = sparse.selected.begin() + std::ptrdiff_t(t * at(sparse.top_k));
      std::fill_n(own, sparse.top_k, -1);
      for (int p = 77; p < sparse.tokens[t].position; p += 4096) own[n++] = p;
      own[n] = sparse.tokens[t].position;
    }
    check_masked(sparse);
  }
}

TEST_CASE("with a mask a token's bits do not depend on the room for it, on others' keys, on how work is cut",
          "[masked]") {
  if (no_device()) return;
  const std::vector<int> lengths = {65, 300, 1200};
  for (const HeadShape& shape : {HeadShape{16, 2, 256, 256}, {6, 1, 128, 128}, {6, 2, 64, 64}, {20, 1, 576, 512}}) {
    if (shape.dim_k == 576 && !has_wide_kernels()) continue;
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3}) {
      AttendScene a(scene_of(shape, type, lengths, 111), prompt_tokens(lengths), 67, 16);
      if (!takes_masks(a.s)) continue;
      const std::vector<float> y = a.run(Kernels::Masked);
      for (const int n : {1, 7, 64}) {
        AttendScene part = a;
        part.tokens_at_once = n;
        CHECK(std::memcmp(part.run(Kernels::Masked).data(), y.data(), y.size() * sizeof(float)) == 0);
      }
      AttendScene many = a;  // so many that CTAs take twice as many rows
      many.repeats = cuda::device_limits().multiprocessors + 1;
      CHECK(std::memcmp(many.run(Kernels::Masked).data(), y.data(), y.size() * sizeof(float)) == 0);
      AttendScene other = a;  // odd tokens select their last keys
      select_last(other);
      for (std::size_t t = 0; t < a.tokens.size(); t += 2)
        std::copy_n(a.selected.begin() + std::ptrdiff_t(t * 67), 67, other.selected.begin() + std::ptrdiff_t(t * 67));
      const std::vector<float> of_other = other.run(Kernels::Masked);
      for (std::size_t t = 0; t < a.tokens.size(); t += 2)
        CHECK(std::memcmp(of_other.data() + t * a.y_row(), y.data() + t * a.y_row(), a.y_row() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a mask of all keys gives the bits of attention to all", "[masked]") {
  if (no_device()) return;
  const std::vector<int> lengths = {65, 700};
  for (const HeadShape& shape : {HeadShape{16, 2, 256, 256}, {6, 1, 128, 128}, {6, 2, 64, 64}, {20, 1, 576, 512}}) {
    if (shape.dim_k > 256 && !has_wide_kernels()) continue;
    for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
      const AttendScene a(scene_of(shape, type, lengths, 121), prompt_tokens(lengths), 700, 17);
      if (!takes_masks(a.s)) continue;
      const std::vector<float> y = a.run(Kernels::Masked);
      const DeviceCache cache(a.s);
      const DeviceStep step(a.s, {});
      const Device<float> queries(a.q), all(poison(y.size()));
      const std::vector<cuda::PromptSpan> spans = spans_of(a.tokens);
      cuda::attend_prompt(queries.data(), all.data(), cache.view, {.heads = shape.heads, .scale = a.scale}, step.view(),
                          spans.data(), static_cast<int>(spans.size()), {});
      INFO(words(shape, type, type));
      CHECK(std::memcmp(all.read().data(), y.data(), y.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace llm::attention_test
