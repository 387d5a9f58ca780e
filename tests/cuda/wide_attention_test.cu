// Attention of heads of 512 and 576 elements (attend_wide.h) against the scalar definition in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "attention_scene.h"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/node_site.h"
#include "graph/builder.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::attention_test;

namespace {

constexpr DType kExactTypes[] = {DType::F16, DType::BF16, DType::F8_E4M3};

std::vector<float> random_sinks(int heads) {
  std::mt19937 bits(17);
  return random_floats(static_cast<std::size_t>(heads), bits, 3.0f);
}

Scene latent_scene(int heads, DType type, const std::vector<int>& lengths, std::uint32_t seed, int table_stride = 0) {
  Scene s({heads, 1, 576, 512}, type, type, lengths, seed, table_stride);
  s.put_values_in_keys();
  return s;
}

/// Whether this GPU has the kernels; those of tests that do not say so would test the general one.
bool has_wide_kernels() {
  if (no_device()) return false;
  if (cuda::attends_wide({nullptr, nullptr, DType::F16, DType::F16, 1, 576, 512})) return true;
  WARN("the GPU has too little shared memory for wide heads");
  return false;
}

}  // namespace

TEST_CASE("a token's tiles are each taken once, those of a stripe in their order") {
  for (const int stripes : {1, 16, 32, 128}) {
    for (const int splits : {1, 2, 5, 16, 128}) {
      if (splits > stripes) continue;
      for (const int tiles : {1, 2, 15, 31, 32, 33, 65, 500}) {
        const cuda::WideTiles keys(tiles * cuda::kWideKeys - 1, tiles * cuda::kWideKeys - 1, 0, stripes);
        REQUIRE(keys.tiles == tiles);
        std::multiset<int> taken;
        for (int split = 0; split < splits && split < keys.stripes(); ++split) {
          int before = -1;
          for (int u = split; u < tiles; u = keys.after(u, splits)) {
            if (before >= 0 && before % stripes == u % stripes) REQUIRE(u == before + stripes);
            taken.insert(before = u);
          }
          REQUIRE(keys.after(tiles, splits) == tiles);
        }
        REQUIRE(static_cast<int>(taken.size()) == tiles);
        for (int u = 0; u < tiles; ++u) REQUIRE(taken.count(u) == 1);
      }
    }
  }
  const cuda::WideTiles seen(1000, 1010, 100, 1);  // from key 901 on
  CHECK(seen.first_key == 901);
  CHECK(seen.first == 14);
  CHECK(seen.tiles == 2);
  CHECK(seen.end_key == 1011);
}

TEST_CASE("plans of wide heads: stripes are a matter of the model, scratch has a bound") {
  struct Kind {
    int rows, head_tiles, stripes;
    bool operator==(const Kind&) const = default;
  };
  for (const DType type : kExactTypes) {
    for (const auto& [heads, kv_heads] : {std::pair{32, 4}, {20, 1}, {128, 1}, {16, 1}, {1, 1}, {64, 8}}) {
      const cuda::CacheView c{nullptr, nullptr, type, type, kv_heads, 576, 512};
      const auto kind = [](const cuda::WidePlan& p) { return Kind{p.rows, p.head_tiles, p.stripes}; };
      const Kind first = kind(cuda::plan_attend_wide(c, heads, 1, 256, 132));
      for (const int multiprocessors : {84, 132, 170}) {
        for (const std::int64_t positions : {64, 1024, 131072}) {
          for (const int tokens : {1, 2, 7, 64, 2048}) {
            const cuda::WidePlan p = cuda::plan_attend_wide(c, heads, tokens, positions, multiprocessors);
            INFO(heads << "/" << kv_heads << " heads, " << tokens << " tokens of " << positions);
            CHECK((kind(p) == first));
            CHECK(p.rows * p.head_tiles >= heads / kv_heads);
            CHECK(p.splits <= p.stripes);
            CHECK(p.scratch_bytes() <= cuda::kMostWideScratch);
          }
        }
      }
    }
  }
  const cuda::CacheView glm{nullptr, nullptr, DType::F16, DType::F16, 1, 576, 512};
  CHECK(cuda::plan_attend_wide(glm, 20, 1, 131072, 132).splits == 128);  // or one token would be few CTAs' work
  CHECK(cuda::plan_attend_wide(glm, 20, 32, 131072, 132).splits == 4);
}

TEST_CASE("wide heads equal their definition: heads and types") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {1, 64, 65, 700};
  for (const DType type : kExactTypes) {
    for (const HeadShape& shape : {HeadShape{1, 1, 512, 512},
                                   {8, 2, 512, 512},
                                   {34, 2, 512, 512},
                                   {5, 1, 576, 512},
                                   {20, 1, 576, 512},
                                   {70, 1, 576, 512}}) {
      check_attend(Scene(shape, type, type, lengths, 21), 0, some_tokens(lengths), ActFormat::F32, 5);
    }
    for (const int heads : {16, 20}) {
      check_attend(latent_scene(heads, type, lengths, 22), 0, some_tokens(lengths), ActFormat::F32, 6);
    }
  }
}

TEST_CASE("wide heads equal their definition: caps of scores, windows, sinks") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {40, 64, 700, 1300};
  for (const DType type : kExactTypes) {
    const Scene s({8, 2, 512, 512}, type, type, lengths, 31);
    for (const float cap : {1.5f, 50.0f}) check_attend(s, 0, some_tokens(lengths), ActFormat::F32, 7, cap);
    for (const int window : {1, 20, 64, 100, 257, 1299, 1300, 5000}) {
      check_attend(s, window, some_tokens(lengths), ActFormat::F32, 8);
      check_attend(s, {window, KeyWindow::Form::Chunked}, some_tokens(lengths), ActFormat::F32, 8);
    }
    check_attend(s, 0, some_tokens(lengths), ActFormat::F32, 9, 0, random_sinks(8));
    check_attend(latent_scene(20, type, lengths, 32), 100, some_tokens(lengths), ActFormat::F32, 9, 30.0f,
                 random_sinks(20));
  }
}

TEST_CASE("wide heads equal their definition: deep") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {8192, 8193, 20000};  // 128 stripes of a tile, one more, several each
  check_attend(latent_scene(4, DType::F16, lengths, 41), 0, some_tokens(lengths), ActFormat::F32, 11);
  check_attend(latent_scene(4, DType::BF16, lengths, 41), 0, some_tokens(lengths), ActFormat::F32, 11);
  check_attend(Scene({4, 2, 512, 512}, DType::F16, DType::F16, lengths, 42), 0, some_tokens(lengths), ActFormat::F32,
               12);
  check_attend(Scene({4, 2, 512, 512}, DType::F8_E4M3, DType::F8_E4M3, lengths, 42), 8500, some_tokens(lengths),
               ActFormat::F32, 12, 0, random_sinks(4));
}

TEST_CASE("wide heads equal their definition: queries of any magnitude, beside each other") {
  if (!has_wide_kernels()) return;
  constexpr int kDim = 512;
  for (const DType type : kExactTypes) {
    const Scene s({6, 1, kDim, kDim}, type, type, {400}, 35);
    const DeviceCache cache(s);
    std::mt19937 bits(12);
    const std::vector<float> normal = random_floats(6 * kDim, bits, 2.0f);
    for (const float magnitude : {0x1p-120f, 0x1p-30f, 1.0f, 0x1p30f, 0x1p100f}) {
      std::vector<float> q = normal;
      for (float& x : q) x *= magnitude;
      for (int i = 0; i < kDim; ++i) q[static_cast<std::size_t>(kDim + i)] = i % 2 == 0 ? 0.0f : -0.0f;
      for (int i = 1; i < kDim; ++i) q[static_cast<std::size_t>(2 * kDim + i)] *= 0x1p-8f;  // one is most of it
      const float scale = 0.044f / magnitude;
      const std::vector<float> y = run_attend(s, cache, {{0, 399}}, q, {6, scale, 0, ActFormat::F32});
      const std::vector<float> e = expected(s, {0, 399}, q.data(), scale, 0, ActFormat::F32);
      INFO(name(type) << " times " << magnitude);
      CHECK(worst(e, y.data(), f32_limit(kDim) * largest(e)) <= 1);
    }
  }
}

TEST_CASE("a token's bits of wide heads depend neither on the step around it nor on how its keys are divided") {
  if (!has_wide_kernels()) return;
  const std::vector<int> lengths = {50, 64, 700, 9000};
  for (const DType type : kExactTypes) {
    for (const int heads : {8, 20}) {
      const bool latent = heads == 20;
      const auto scene = [&](int stride) {
        return latent ? latent_scene(heads, type, lengths, 51, stride)
                      : Scene({heads, 2, 512, 512}, type, type, lengths, 51, stride);
      };
      const Scene s = scene(0), vast = scene(1 << 14);
      INFO(name(type) << ", " << heads << " heads");
      std::vector<Token> tokens;
      for (int i = 0; i < 4; ++i) tokens.push_back({i, lengths[static_cast<std::size_t>(i)] - 1});
      std::mt19937 bits(3);
      const std::size_t q_row = static_cast<std::size_t>(heads * s.shape.dim_k);
      const std::size_t y_row = static_cast<std::size_t>(heads * 512);
      const std::vector<float> q = random_floats(tokens.size() * q_row, bits, 2.0f);
      const Device<float> sinks(random_sinks(heads));
      const cuda::AttentionShape attention{
          .heads = heads, .scale = 0.044f, .window = 0, .query = ActFormat::F32, .sinks = sinks.data()};
      const DeviceCache cache(s), vast_cache(vast);
      const std::vector<float> together = run_attend(s, cache, tokens, q, attention);
      const auto same = [&](std::size_t t, const float* y) {
        return std::memcmp(together.data() + t * y_row, y, y_row * sizeof(float)) == 0;
      };
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        const std::vector<float> own(q.begin() + static_cast<std::ptrdiff_t>(t * q_row),
                                     q.begin() + static_cast<std::ptrdiff_t>((t + 1) * q_row));
        CHECK(same(t, run_attend(s, cache, {tokens[t]}, own, attention).data()));
      }
      std::vector<Token> padded = tokens;  // so many that no token is divided
      padded.resize(200, {-1, 0});
      std::vector<float> padded_q = q;
      padded_q.resize(padded.size() * q_row, 0.0f);
      REQUIRE(cuda::attention_memory(cache.view, attention, 200, std::int64_t{s.stride} * 64).scratch == 0);
      REQUIRE(cuda::attention_memory(cache.view, attention, 4, std::int64_t{s.stride} * 64).scratch > 0);
      const std::vector<float> undivided = run_attend(s, cache, padded, padded_q, attention);
      const std::vector<float> of_many = run_attend(vast, vast_cache, tokens, q, attention);
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        CHECK(same(t, undivided.data() + t * y_row));
        CHECK(same(t, of_many.data() + t * y_row));
      }
      CHECK(std::all_of(undivided.begin() + static_cast<std::ptrdiff_t>(tokens.size() * y_row), undivided.end(),
                        [](float x) { return std::bit_cast<std::uint32_t>(x) == 0xffffffffu; }));
    }
  }
}

TEST_CASE("rows of wide heads that a step appends are seen by its tokens, whatever is copied before they are written") {
  if (!has_wide_kernels()) return;
  constexpr int kDim = 512;
  for (const DType type : kExactTypes) {
    for (const int n : {1, 5}) {
      for (const int length : {5, 64, 65, 300, 9000}) {
        Scene s({4, 2, kDim, kDim}, type, type, {length, 700}, 91);
        std::vector<Token> tokens;
        for (int i = 0; i < n; ++i) tokens.push_back({0, length - n + i});
        const std::size_t row_bytes = TensorType{type, {kDim}}.bytes(), rows = tokens.size();
        for (const Token& t : tokens) {
          for (int h = 0; h < 2; ++h) {
            const std::size_t at = s.row(0, t.position, h) * row_bytes;
            std::fill_n(s.k_bytes.data() + at, row_bytes, std::byte{0xff});
            std::fill_n(s.v_bytes.data() + at, row_bytes, std::byte{0xff});
          }
        }
        std::mt19937 bits(8);
        const std::size_t q_row = 4 * kDim, kv_row = 2 * kDim;
        const Device<float> q(random_floats(rows * q_row, bits)), k(random_floats(rows * kv_row, bits)),
            v(random_floats(rows * kv_row, bits));
        const Device<float> y(poison(rows * q_row)), again(poison(rows * q_row)), other(poison(rows * q_row));
        const DeviceCache cache(s);
        const DeviceStep step(s, tokens), before(s, std::vector<Token>(rows, Token{1, 699}));
        const cuda::AttentionShape attention{4, 0.04f, 0, ActFormat::F32};
        const std::int64_t most = std::int64_t{s.stride} * 64;
        const Device<std::byte> scratch(
            std::vector<std::byte>(cuda::attention_memory(cache.view, attention, n, most).scratch, std::byte{0xff}));
        const cuda::Stream stream;
        const cuda::Launch at{stream.get(), true};
        const auto run = [&](const DeviceStep& of, const Device<float>& to) {
          cuda::attend(q.data(), to.data(), cache.view, attention, of.view(), n, most, scratch.data(), nullptr, at);
        };
        run(before, other);  // what is appended waits for it, what is attended begins meanwhile
        cuda::append_to_cache(k.data(), v.data(), cache.view, step.view(), n, at);
        run(step, y);
        stream.synchronize("attending");
        run(step, again);
        stream.synchronize("attending");
        const std::vector<float> first = y.read(), second = again.read();
        INFO(name(type) << ", " << n << " of " << length);
        CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0);
        CHECK(std::none_of(first.begin(), first.end(), [](float x) { return std::isnan(x); }));
      }
    }
  }
}

TEST_CASE("a key or value of wide heads that is not a number shows in what sees it and nowhere else") {
  if (!has_wide_kernels()) return;
  for (const DType type : kExactTypes) {
    for (const bool values : {false, true}) {
      const int dim = 512;
      const std::size_t heads = 2, width = heads * dim;
      Scene s({2, 1, dim, dim}, type, type, {600}, 61);
      const std::size_t row_bytes = TensorType{type, {dim}}.bytes(), bad = s.row(0, 290, 0);
      std::vector<float> x(dim, 1.0f);
      x[3] = std::numeric_limits<float>::quiet_NaN();
      host::store_cache_row(type, x.data(), (values ? s.v_bytes : s.k_bytes).data() + bad * row_bytes, dim);
      const DeviceCache cache(s);
      std::mt19937 bits(4);
      const std::vector<Token> tokens = {{0, 289}, {0, 290}, {0, 599}};
      const std::vector<float> q = random_floats(3 * width, bits);
      const std::vector<float> y = run_attend(s, cache, tokens, q, {2, 0.2f, 0, ActFormat::F32});
      for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(std::isnan(y[i]) == (i >= width && (!values || i % dim == 3)));
      const std::vector<float> behind = run_attend(s, cache, tokens, q, {2, 0.2f, 309, ActFormat::F32});  // 291 on
      for (std::size_t i = 2 * width; i < behind.size(); ++i) REQUIRE_FALSE(std::isnan(behind[i]));
    }
  }
}

TEST_CASE("prompts of wide heads equal the definition within rounding: heads and types") {
  if (!has_wide_kernels()) return;
  // A whole prompt, one that continues, a single token, one that ends with a block.
  const std::vector<int> lengths = {70, 400, 1, 128};
  const std::vector<cuda::PromptSpan> spans = {{0, 70, 0, 0}, {75, 67, 333, 1}, {70, 1, 0, 2}, {150, 30, 98, 3}};
  for (const HeadShape& shape : {HeadShape{4, 1, 512, 512}, {6, 2, 512, 512}, {5, 1, 576, 512}, {20, 1, 576, 512}}) {
    for (const DType k : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q5_1}) {
      for (const DType v : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
        if ((k == DType::BF16) != (v == DType::BF16)) continue;
        if (k != v && (shape.heads != 4 || k == DType::Q8_0)) continue;
        check_prompt(Scene(shape, k, v, lengths, 71), 0, ActFormat::F32, spans);
      }
    }
  }
  for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0})
    check_prompt(latent_scene(5, type, lengths, 73), 0, ActFormat::F32, spans);
  check_prompt(Scene({4, 1, 512, 512}, DType::Q8_0, DType::Q8_0, lengths, 72), 0, ActFormat::Q8x32, spans);
}

TEST_CASE("prompts of wide heads equal the definition within rounding: caps, windows, sinks, many spans") {
  if (!has_wide_kernels()) return;
  const std::vector<cuda::PromptSpan> two = {{0, 90, 0, 0}, {90, 200, 300, 0}};
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
    const Scene s({4, 2, 512, 512}, type, type, {500}, 81);
    for (const float cap : {1.5f, 50.0f}) check_prompt(s, 0, ActFormat::F32, two, cap);
    for (const int window : {1, 20, 64, 100, 300, 1000}) {
      check_prompt(s, window, ActFormat::F32, two);
      check_prompt(s, {window, KeyWindow::Form::Chunked}, ActFormat::F32, two);
    }
    check_prompt(s, 0, ActFormat::F32, two, 0, random_sinks(4));
    check_prompt(latent_scene(7, type, {500}, 82), 90, ActFormat::F32, two, 20.0f, random_sinks(7));
  }
  std::vector<cuda::PromptSpan> spans;
  for (int i = 0; i < 150; ++i) spans.push_back({3 * i, 3, 3 * i, 0});
  check_prompt(latent_scene(7, DType::F16, {500}, 83), 0, ActFormat::F32, spans);
}

TEST_CASE("values are looked for in keys only where keys begin with them") {
  const auto found = [](bool begin, bool same, DType k, DType v) {
    GraphBuilder b({4, 1, 4});
    const Cache cache = b.cache({0, 1, 96, 64});
    const Act x = b.embed(b.weight("table", {DType::F32, {256, 32}}), b.step_input(StepInput::Tokens), "x");
    const auto part = [&](std::int64_t at, std::int64_t n, const char* name) {
      return b.split_heads(b.slice(x, {at, n}, (std::string(name) + "_flat").c_str()), 1, name);
    };
    const Act value = part(0, 64, "value"), rest = part(64, 32, "rest"), other = part(96, 64, "other");
    const Act key = begin ? b.concat(value, rest, "key") : b.concat(rest, value, "key");
    const Cache stored = b.kv_append(key, same ? value : other, cache, "stored");
    const Act q = b.split_heads(b.slice(x, {0, 192}, "q_flat"), 2, "q");
    const Act seen = b.attention(q, stored, {.scale = 0.1f}, "seen");
    const Graph g = std::move(b).finish(b.scale(b.flatten_heads(seen, "flat"), 1.0f, "y"));
    const auto is_attention = [](const Node& n) { return std::holds_alternative<Attention>(n.op); };
    const auto node = std::find_if(g.nodes().begin(), g.nodes().end(), is_attention);
    REQUIRE(node != g.nodes().end());
    return cuda::values_in_keys(g, *node, {nullptr, nullptr, k, v, 1, 96, 64});
  };
  CHECK(found(true, true, DType::F16, DType::F16));
  CHECK(found(true, true, DType::Q8_0, DType::Q8_0));
  CHECK_FALSE(found(true, true, DType::F16, DType::BF16));
  CHECK_FALSE(found(false, true, DType::F16, DType::F16));
  CHECK_FALSE(found(true, false, DType::F16, DType::F16));
}
