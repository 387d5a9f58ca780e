// Attention over a paged cache: every instruction set against softmax in double precision, and bit for bit for any
// tile, any split into chunks and whatever lies behind the last visible key.
#include <functional>

#include "backend/backend.h"
#include "float_cases.h"
#include "scratch.h"
#include "support/catch.h"
#include "tensor/activation.h"

namespace llm::cpu {
namespace {

using namespace test;

struct Shape {
  int heads, kv_heads, head_dim_k, head_dim_v;
  int length;  ///< positions in the cache
  int tokens;  ///< the last so many positions ask
  KeyWindow window = {};
  DType k, v;
  float soft_cap = 0;
  float max_bias = 0;
};

/// A cache filled with random keys and values, and the queries of its last positions.
struct AttentionProblem {
  AttentionProblem(const Kernels& kernels, const Shape& s, std::uint32_t seed)
      : kernels(kernels),
        s(s),
        rng(seed),
        k(kernels, CacheSide::Keys, s.k, s.kv_heads, s.head_dim_k, s.length, rng),
        v(kernels, CacheSide::Values, s.v, s.kv_heads, s.head_dim_v, s.length, rng) {
    v.blocks = k.blocks;
    for (int p = 0; p < s.length; ++p) {
      for (int h = 0; h < s.kv_heads; ++h) {
        k.write(h, p, random_floats(static_cast<std::size_t>(s.head_dim_k), rng).data());
        v.write(h, p, random_floats(static_cast<std::size_t>(s.head_dim_v), rng).data());
      }
    }
    q = random_floats(static_cast<std::size_t>(s.tokens * s.heads * s.head_dim_k), rng, 3);
    for (int t = 0; t < s.tokens; ++t) positions.push_back(s.length - s.tokens + t);
    for (int h = 0; s.max_bias > 0 && h < s.heads; ++h) slopes.push_back(static_cast<float>(slope(h)));
  }

  /// 2^(-max_bias i / n) for the first n heads, a power of two; those behind have odd i of 2 n.
  double slope(int head) const {
    int n = 1;
    while (2 * n <= s.heads) n *= 2;
    const double power = head < n ? (head + 1.0) / n : (2.0 * (head - n) + 1) / (2 * n);
    return std::pow(2.0, -static_cast<double>(s.max_bias) * power);
  }

  AttentionArgs args(float* y) const {
    AttentionArgs a;
    a.q = q.data();
    a.y = y;
    a.k = k.bytes.data();
    a.v = v.bytes.data();
    a.k_element = cache_element(s.k);
    a.v_element = cache_element(s.v);
    a.k_block_bytes = k.writer.layout().block_bytes();
    a.v_block_bytes = v.writer.layout().block_bytes();
    a.heads = s.heads;
    a.kv_heads = s.kv_heads;
    a.group = s.heads / s.kv_heads;
    a.head_dim_k = s.head_dim_k;
    a.head_dim_v = s.head_dim_v;
    a.scale = scale();
    a.soft_cap = s.soft_cap;
    if (!slopes.empty()) a.slopes = slopes.data();
    a.window = s.window;
    a.positions = positions.data();
    a.blocks = k.blocks.data();
    return a;
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(s.head_dim_k)); }
  int first_visible(int position) const {
    const int n = s.window.length;
    if (s.window.form == KeyWindow::Form::Chunked) return position - position % n;
    return n > 0 ? std::max(0, position - n + 1) : 0;
  }
  std::size_t y_size() const { return static_cast<std::size_t>(s.tokens * s.heads * s.head_dim_v); }

  /// Calls of so many tokens each.
  std::vector<float> run(int tokens_per_call) const {
    Scratch scratch;
    std::vector<float> y(y_size(), kNan);
    for (int h = 0; h < s.kv_heads; ++h) {
      for (int t = 0; t < s.tokens; t += tokens_per_call)
        kernels.attention(args(y.data()), h, t, std::min(s.tokens, t + tokens_per_call), scratch.data());
    }
    return y;
  }

  /// The heads that share a KV head one by one, as threads that share them.
  std::vector<float> run_heads() const {
    Scratch scratch;
    std::vector<float> y(y_size(), kNan);
    for (int h = 0; h < s.heads; ++h) {
      const int group = s.heads / s.kv_heads, before = h % group;
      AttentionArgs a = args(y.data() + before * s.head_dim_v);
      a.q += before * s.head_dim_k;
      if (a.slopes != nullptr) a.slopes += before;
      a.group = 1;
      for (int t = 0; t < s.tokens; t += kQueryTile)
        kernels.attention(a, h / group, t, std::min(s.tokens, t + kQueryTile), scratch.data());
    }
    return y;
  }

  /// Chunk by chunk with a merge, as the threads of a long decode do.
  std::vector<float> run_chunks() const {
    Scratch scratch;
    std::vector<float> y(y_size(), kNan);
    const int group = s.heads / s.kv_heads;
    const auto stride = static_cast<std::size_t>(group * (2 + s.head_dim_v));
    for (int h = 0; h < s.kv_heads; ++h) {
      for (int t = 0; t < s.tokens; ++t) {
        const int position = positions[static_cast<std::size_t>(t)];
        const int first = first_visible(position) / kKeyChunk, last = position / kKeyChunk;
        std::vector<float> partials(stride * static_cast<std::size_t>(last - first + 1), kNan);
        for (int c = last; c >= first; --c)
          kernels.attention_chunk(args(y.data()), h, t, c,
                                  partials.data() + static_cast<std::size_t>(c - first) * stride, scratch.data());
        kernels.attention_merge(args(y.data()), h, t, last - first + 1, partials.data());
      }
    }
    return y;
  }

  double capped(double score) const {
    const auto cap = static_cast<double>(s.soft_cap);
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  }

  /// softmax(scale q k) v, the scores capped, in double precision from the elements as stored; queries for quantised
  /// keys as the definition of quantised activations has them.
  double expected(int token, int head, int d) {
    const int position = positions[static_cast<std::size_t>(token)], kv_head = head / (s.heads / s.kv_heads);
    std::vector<float> query(static_cast<std::size_t>(s.head_dim_k));
    round_trip_activation(info(s.k).quantized() ? ActFormat::Q8x32 : ActFormat::F32,
                          q.data() + (token * s.heads + head) * s.head_dim_k, query.data(), s.head_dim_k);
    std::vector<double> scores;
    for (int p = first_visible(position); p <= position; ++p) {
      double score = 0;
      for (int i = 0; i < s.head_dim_k; ++i)
        score += static_cast<double>(query[static_cast<std::size_t>(i)]) * k.at(kv_head, p, i);
      score = capped(score * static_cast<double>(scale()));
      scores.push_back(s.max_bias > 0 ? score - slope(head) * (position - p) : score);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0, value = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - largest);
      sum += weight;
      value += weight * v.at(kv_head, first_visible(position) + static_cast<int>(i), d);
    }
    return value / sum;
  }

  const Kernels& kernels;
  Shape s;
  std::mt19937 rng;
  PagedCache k, v;
  std::vector<float> q;
  std::vector<std::int32_t> positions;
  std::vector<float> slopes;
};

constexpr DType kF32 = DType::F32, kF16 = DType::F16, kBF16 = DType::BF16, kF8 = DType::F8_E4M3;

const Shape kShapes[] = {
    // heads, kv heads, dimensions of keys and values, length, tokens, window
    {1, 1, 64, 64, 1, 1, 0, kF16, kF16},
    {4, 1, 64, 64, 255, 5, 0, kF16, kF16},
    {8, 2, 64, 64, 256, 3, 0, kF16, kF16},
    {4, 4, 128, 128, 257, 4, 0, kF16, kF16},
    {8, 1, 64, 64, 600, 8, 0, kF16, kF16},
    {3, 1, 80, 80, 300, 21, 0, kF16, kF16},  // 63 pairs
    {6, 2, 96, 96, 130, 21, 0, kBF16, kBF16},
    {2, 2, 20, 36, 70, 64, 0, kF32, kF16},
    {3, 1, 7, 5, 260, 20, 0, kBF16, kF32},
    {1, 1, 1, 1, 20, 20, 0, kF32, kF32},
    {4, 1, 256, 256, 40, 2, 0, kF32, kBF16},
    {4, 1, 64, 64, 600, 16, 5, kF16, kF16},
    {4, 2, 64, 64, 600, 16, 100, kF32, kF32},
    {4, 1, 72, 64, 600, 16, 300, kF16, kBF16},
    {2, 1, 32, 32, 530, 32, 20, kF16, kF16},  // the window leaves chunk 0 and 1 within the tile
    {4, 1, 64, 64, 600, 16, {5, KeyWindow::Form::Chunked}, kF16, kF16},
    {4, 2, 64, 64, 600, 64, {280, KeyWindow::Form::Chunked}, kF32, kF32},
    {70, 1, 16, 16, 65, 2, 0, kF16, kF16},     // more heads than a tile has pairs
    {2, 1, 1024, 1024, 20, 2, 0, kF32, kF32},  // kMaxHeadDim
    {8, 2, 64, 64, 600, 8, 0, kF8, kF8},
    {3, 1, 80, 80, 300, 21, 100, kF8, kF8},
    {3, 1, 7, 5, 260, 20, 0, kF8, kF8},
    {4, 2, 37, 64, 130, 5, 0, kF8, kF16},
    {4, 2, 64, 83, 300, 5, 20, kF32, kF8},
    {2, 1, 1024, 1024, 20, 2, 0, kF8, kF8},
    // with a cap that most scores come near, and one that they are far below
    {8, 2, 64, 64, 600, 8, 0, kF16, kF16, 1.5f},
    {4, 2, 64, 64, 600, 16, 100, kF32, kF32, 50},
    {3, 1, 7, 5, 260, 20, 0, kBF16, kF8, 1},
    {8, 2, 64, 64, 600, 8, 300, DType::Q8_0, DType::Q8_0, 2},
    {6, 2, 64, 32, 130, 21, 0, DType::Q4_1, DType::Q5_1, 2},
    // quantised
    {1, 1, 64, 64, 1, 1, 0, DType::Q8_0, DType::Q8_0},
    {8, 2, 64, 64, 600, 8, 0, DType::Q8_0, DType::Q8_0},
    {9, 1, 32, 96, 257, 7, 0, DType::Q8_0, DType::Q4_0},  // 63 pairs
    {4, 2, 128, 64, 300, 9, 100, DType::Q4_0, DType::Q4_0},
    {6, 2, 64, 32, 130, 21, 0, DType::Q4_1, DType::Q5_1},
    {5, 1, 96, 64, 600, 13, 300, DType::Q5_0, DType::Q5_0},
    {4, 1, 64, 160, 270, 16, 5, DType::Q5_1, DType::Q4_1},
    {3, 3, 64, 64, 90, 64, 0, DType::IQ4_NL, DType::IQ4_NL},
    {4, 2, 64, 72, 300, 5, 0, DType::Q8_0, kF16},
    {4, 2, 72, 64, 300, 5, 0, kBF16, DType::Q8_0},
    {4, 2, 72, 64, 300, 5, 0, kF8, DType::Q8_0},
    {4, 2, 64, 72, 300, 5, 0, DType::Q4_0, kF8},
    {2, 1, 1024, 1024, 20, 2, 0, DType::Q5_1, DType::Q8_0},
    // with ALiBi
    {8, 2, 64, 64, 600, 8, 0, kF16, kF16, 0, 8},
    {6, 1, 80, 80, 300, 21, 100, kF32, kF32, 0, 8},
    {12, 2, 64, 64, 600, 8, 0, DType::Q8_0, DType::Q8_0, 2, 4},
};

void each_problem(const std::function<void(AttentionProblem&)>& f) {
  std::uint32_t seed = 0;
  for (const Shape& shape : kShapes) {
    ++seed;
    for (const Kernels* table : tables()) {
      INFO("shape " << seed << ", " << table->isa);
      AttentionProblem p(*table, shape, seed);
      f(p);
    }
  }
}

TEST_CASE("attention equals softmax in double precision") {
  each_problem([](AttentionProblem& p) {
    const auto y = p.run(std::max(1, kQueryTile / (p.s.heads / p.s.kv_heads)));
    double worst = 0;
    for (int t = 0; t < p.s.tokens; t += 3) {
      for (int h = 0; h<p.s.heads; h += h> 8 ? 13 : 1) {
        for (int d = 0; d < p.s.head_dim_v; d += 3) {
          const double got = static_cast<double>(y[static_cast<std::size_t>((t * p.s.heads + h) * p.s.head_dim_v + d)]);
          worst = std::max(worst, std::abs(got - p.expected(t, h, d)));
          if (std::isnan(got)) worst = HUGE_VAL;
        }
      }
    }
    // Values are below 1, scores below 3 sqrt(head_dim); weights of quantised values have 16 bits.
    CHECK(worst < (info(p.s.v).quantized() ? 8e-5 : 2e-6));
  });
}

TEST_CASE("an attention result has the same bits in any tile, in chunks and on every instruction set") {
  std::vector<float> portable;
  each_problem([&](AttentionProblem& p) {
    const auto single = p.run(1);
    if (p.kernels.isa == std::string("portable")) portable = single;
    CHECK(same_bits(single, portable));
    for (const int tokens : {2, 3, std::max(1, kQueryTile / (p.s.heads / p.s.kv_heads))})
      CHECK(same_bits(p.run(tokens), single));
    CHECK(same_bits(p.run_heads(), single));
    CHECK(same_bits(p.run_chunks(), single));
  });
}

TEST_CASE("keys that a query does not see change nothing") {
  each_problem([](AttentionProblem& p) {
    if (p.s.tokens < 2) return;
    const auto before = p.run(4);
    // All but the first query's keys become NaN: its own result stays.
    for (int t = 1; t < p.s.tokens; ++t) {
      for (int h = 0; h < p.s.kv_heads; ++h) {
        const std::vector<float> nan(1024, kNan);
        p.k.write(h, p.positions[static_cast<std::size_t>(t)], nan.data());
        p.v.write(h, p.positions[static_cast<std::size_t>(t)], nan.data());
      }
    }
    const auto after = p.run(4);
    const auto row = static_cast<std::size_t>(p.s.heads * p.s.head_dim_v);
    CHECK(std::memcmp(after.data(), before.data(), row * sizeof(float)) == 0);
    for (std::size_t i = row; i < after.size(); ++i) REQUIRE(std::isnan(after[i]));
  });
}

TEST_CASE("NaN reaches what sees it") {
  for (const DType type : kCacheTypes) {
    for (const Kernels* table : tables()) {
      INFO(table->isa << " " << name(type));
      AttentionProblem p(*table, {4, 2, 64, 64, 300, 4, 0, type, type}, 5);
      std::vector<float> key = random_floats(64, p.rng), value = key;
      key[63] = kNan;
      p.k.write(0, 100, key.data());  // a key: all of its KV head's queries
      value[7] = kNan;
      p.v.write(1, 299, value.data());  // a value that the last token alone sees: the elements that share its scale
      const int shared = static_cast<int>(info(type).block_elems);
      const auto y = p.run(4);
      for (int t = 0; t < 4; ++t)
        for (int h = 0; h < 4; ++h)
          for (int d = 0; d < 64; ++d) {
            const bool expected = h < 2 || (t == 3 && d / shared == 7 / shared);
            REQUIRE(std::isnan(y[static_cast<std::size_t>((t * 4 + h) * 64 + d)]) == expected);
          }
      CHECK(same_bits(p.run_chunks(), y));
    }
  }
}

TEST_CASE("scores far apart neither overflow nor vanish") {
  for (const Kernels* table : tables()) {
    INFO(table->isa);
    AttentionProblem p(*table, {1, 1, 16, 16, 600, 1, 0, kF32, kF32}, 6);
    for (float& f : p.q) f *= 1000;
    const auto y = p.run(1);
    for (int d = 0; d < 16; ++d)
      CHECK(std::abs(static_cast<double>(y[static_cast<std::size_t>(d)]) - p.expected(0, 0, d)) < 1e-3);
    // Equal scores: the mean of the values.
    std::fill(p.q.begin(), p.q.end(), 0.0f);
    const auto mean = p.run(1);
    for (int d = 0; d < 16; ++d)
      CHECK(std::abs(static_cast<double>(mean[static_cast<std::size_t>(d)]) - p.expected(0, 0, d)) < 1e-6);
  }
}

}  // namespace
}  // namespace llm::cpu
