// Selecting blocks of keys for each KV head and attending to them: the choice against products that f32 has exactly, so
// that the order among equal scores shows; attention against its definition in double; both alone and in any step.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "attention_scene.h"
#include "backend/cuda/kernels/attend_masked.h"
#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/select_blocks.h"

namespace llm::attention_test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

const std::vector<int> kLengths = {1, 30, 64, 300, 1500};

/// Single tokens of several sequences, one that is none, and a run of the longest as prompts have it.
std::vector<Token> tokens_and_run(const std::vector<int>& lengths, int run) {
  std::vector<Token> tokens = some_tokens(lengths);
  const int longest = static_cast<int>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin());
  for (int i = 0; i < run; ++i) tokens.push_back({longest, lengths[at(longest)] - run + i});
  return tokens;
}

/// An index and what is asked of it. Whole numbers are exact in every type without blocks, and so are their products.
struct BlockScene {
  Scene keys;
  SelectBlocks op;
  int heads;
  std::vector<Token> tokens;
  std::vector<float> q;

  BlockScene(int heads, int dim, DType type, const SelectBlocks& op, const std::vector<int>& lengths,
             std::vector<Token> of, std::uint32_t seed)
      : keys({heads, 1, dim, 32}, type, DType::F16, lengths, seed), op(op), heads(heads), tokens(std::move(of)) {
    std::mt19937 bits(seed + 1);
    const auto whole = [&](int most) { return static_cast<float>(static_cast<int>(bits() % at(2 * most + 1)) - most); };
    if (!info(type).quantized()) {
      const std::size_t row_bytes = TensorType{type, {dim}}.bytes();
      std::vector<float> x(at(dim));
      for (std::size_t r = 0; r * at(dim) < keys.k_rows.size(); ++r) {
        if (std::isnan(keys.k_rows[r * at(dim)])) continue;
        for (float& e : x) e = bits() % 32 == 0 ? whole(4) : 0.0f;
        host::store_cache_row(type, x.data(), keys.k_bytes.data() + r * row_bytes, dim);
        decode(type, keys.k_bytes.data() + r * row_bytes, keys.k_rows.data() + r * at(dim), dim);
      }
    }
    q.resize(tokens.size() * at(heads * dim));
    for (float& e : q) e = whole(4);
  }

  int choices() const { return op.top_k / op.block; }
  std::size_t row() const { return at(op.top_k) * at(heads); }

  /// Of the blocks that a token sees, those that are always chosen infinite.
  std::vector<double> scores(std::size_t token, int head) const {
    const int dim = keys.shape.dim_k, seen = tokens[token].position + 1;
    const float* const query = q.data() + (token * at(heads) + at(head)) * at(dim);
    std::vector<double> all(at((seen + op.block - 1) / op.block), -std::numeric_limits<double>::infinity());
    for (int p = 0; p < seen; ++p) {
      const float* const key = keys.k_rows.data() + keys.row(tokens[token].sequence, p, 0) * at(dim);
      const double dot = std::inner_product(query, query + dim, key, 0.0);
      if (dot > all[at(p / op.block)]) all[at(p / op.block)] = dot;  // which NaN is not
    }
    for (int i = 0; i < std::min<int>(op.local, static_cast<int>(all.size())); ++i)
      all[all.size() - 1 - at(i)] = std::numeric_limits<double>::infinity();
    return all;
  }
  std::vector<std::int32_t> expected(std::size_t token, int head) const {
    const std::vector<double> all = scores(token, head);
    std::vector<std::int32_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return all[at(a)] > all[at(b)]; });
    order.resize(std::min(order.size(), at(choices())));
    std::sort(order.begin(), order.end());
    std::vector<std::int32_t> positions;
    for (const std::int32_t block : order)
      for (int p = block * op.block; p < std::min((block + 1) * op.block, tokens[token].position + 1); ++p)
        positions.push_back(p);
    positions.resize(at(op.top_k), -1);
    return positions;
  }

  std::vector<std::int32_t> run(cuda::Scores kind, std::size_t first, std::size_t n) const {
    const std::vector<Token> some(tokens.begin() + std::ptrdiff_t(first), tokens.begin() + std::ptrdiff_t(first + n));
    const DeviceCache cache(keys);
    cuda::CacheView index = cache.view;
    index.v = nullptr;
    index.head_dim_v = 0;
    const DeviceStep step(keys, some);
    const Device<float> queries(
        std::vector<float>(q.begin() + std::ptrdiff_t(first * at(heads * keys.shape.dim_k)), q.end()));
    const Device<std::int32_t> positions(std::vector<std::int32_t>(n * row(), -7));
    const std::int64_t most = std::int64_t{keys.stride} * 64;
    const Device<std::byte> scratch(std::vector<std::byte>(
        cuda::block_selection_scratch(index, op, heads, static_cast<int>(n), most), std::byte{0xff}));
    cuda::select_blocks(queries.data(), index, op, heads, step.view(), static_cast<int>(n), most, kind,
                        positions.data(), scratch.data(), {});
    return positions.read();
  }
};

void check_choice(const BlockScene& s, cuda::Scores kind) {
  const std::vector<std::int32_t> chosen = s.run(kind, 0, s.tokens.size());
  for (std::size_t t = 0; t < s.tokens.size(); ++t) {
    for (int h = 0; h < s.heads; ++h) {
      if (h % (s.heads / 4 + 1) != 0 && h + 1 != s.heads) continue;  // the definition takes its time
      const auto begin = chosen.begin() + std::ptrdiff_t(t * s.row() + at(h) * at(s.op.top_k));
      const std::vector<std::int32_t> own(begin, begin + s.op.top_k);
      INFO(s.heads << " heads of " << s.keys.shape.dim_k << " " << name(s.keys.k_type) << ", " << s.choices()
                   << " blocks of " << s.op.block << ", token " << t << " at " << s.tokens[t].position << ", head "
                   << h);
      if (s.tokens[t].sequence < 0)
        CHECK(std::ranges::count(own, -7) == s.op.top_k);
      else
        REQUIRE(own == s.expected(t, h));
    }
  }
}

SelectBlocks blocks_of(int choices, int block, int local = 1) {
  return {.top_k = choices * block, .block = block, .local = local};
}

/// Attention of which each KV head has a selection of blocks.
struct HeadsScene {
  Scene s;
  std::vector<Token> tokens;
  int top_k, block;
  std::vector<float> q;
  std::vector<std::int32_t> selected;  ///< [tokens][kv_heads][top_k]
  float scale, soft_cap;

  HeadsScene(Scene of, std::vector<Token> all, int choices, int block, std::uint32_t seed, float soft_cap = 0)
      : s(std::move(of)), tokens(std::move(all)), top_k(choices * block), block(block), soft_cap(soft_cap) {
    std::mt19937 bits(seed);
    q = random_floats(tokens.size() * at(s.shape.heads * s.shape.dim_k), bits, 2.0f);
    for (const Token& t : tokens)
      for (int h = 0; h < s.shape.kv_heads; ++h) select(t.position + 1, choices, bits);
    scale = 1 / std::sqrt(static_cast<float>(s.shape.dim_k));
  }
  /// The last block and random ones.
  void select(int seen, int choices, std::mt19937& bits) {
    const int blocks = (seen + block - 1) / block;
    std::vector<int> order(at(blocks - 1));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[bits() % i]);
    order.resize(std::min(order.size(), at(choices - 1)));
    order.push_back(blocks - 1);
    std::sort(order.begin(), order.end());
    std::vector<std::int32_t> own;
    for (const int b : order)
      for (int p = b * block; p < std::min(seen, (b + 1) * block); ++p) own.push_back(p);
    own.resize(at(top_k), -1);
    selected.insert(selected.end(), own.begin(), own.end());
  }

  /// `told`: what the kernel is told of how positions lie.
  std::vector<float> run(std::size_t first, std::size_t n, int told) const {
    const HeadShape& shape = s.shape;
    const std::vector<Token> some(tokens.begin() + std::ptrdiff_t(first), tokens.begin() + std::ptrdiff_t(first + n));
    const DeviceCache cache(s);
    const DeviceStep step(s, some);
    const auto part = [&](const auto& all, std::int64_t row) {
      return std::vector(all.begin() + std::ptrdiff_t(first * at(row)),
                         all.begin() + std::ptrdiff_t((first + n) * at(row)));
    };
    const Device<float> queries(part(q, shape.heads * shape.dim_k)), y(poison(n * at(shape.heads * shape.dim_v)));
    const Device<std::int32_t> positions(part(selected, shape.kv_heads * top_k));
    const cuda::Selected keys{positions.data(), top_k, shape.kv_heads, told};
    const cuda::AttentionShape attention{.heads = shape.heads, .scale = scale, .soft_cap = soft_cap};
    const cuda::AttentionMemory need =
        cuda::selected_attention_memory(cache.view, attention, keys, static_cast<int>(n));
    const Device<std::byte> scratch(std::vector<std::byte>(need.scratch, std::byte{0xff}));
    const Device<std::byte> arrivals(std::vector<std::byte>(need.arrivals, std::byte{0}));
    const cuda::Stream stream;
    cuda::attend_selected(queries.data(), y.data(), cache.view, attention, keys, step.view(), static_cast<int>(n),
                          scratch.data(), arrivals.data(), {stream.get(), true});
    stream.synchronize("attending");
    const std::vector<std::byte> left = arrivals.read();
    CHECK(std::all_of(left.begin(), left.end(), [](std::byte b) { return b == std::byte{0}; }));
    return y.read();
  }

  /// Prompts by way of a mask, with room for so many tokens at once. All KV heads get the selections of `only`, if one is
  /// named.
  std::vector<float> run_masked(int at_once, std::optional<int> only = {}) const {
    const DeviceCache cache(s);
    const DeviceStep step(s, {});  // a prompt's spans say where its tokens are
    const int lists = only ? 1 : s.shape.kv_heads;
    std::vector<std::int32_t> lists_of;
    for (std::size_t l = 0; l * at(top_k) < selected.size(); ++l) {
      if (only && l % at(s.shape.kv_heads) != at(*only)) continue;
      const auto begin = selected.begin() + std::ptrdiff_t(l * at(top_k));
      lists_of.insert(lists_of.end(), begin, begin + top_k);
    }
    const Device<float> queries(q), y(poison(tokens.size() * at(s.shape.heads * s.shape.dim_v)));
    const Device<std::int32_t> positions(lists_of);
    const int words = (*std::max_element(s.lengths.begin(), s.lengths.end()) + 63) / 64;
    const std::size_t mask_bytes = at(words) * 8 * at(lists) * at(at_once);
    const Device<std::byte> masks(std::vector<std::byte>(mask_bytes, std::byte{0xff}));
    const std::vector<cuda::PromptSpan> spans = spans_of(tokens);
    const cuda::Stream stream;
    cuda::attend_prompt_masked(queries.data(), y.data(), cache.view,
                               {.heads = s.shape.heads, .scale = scale, .soft_cap = soft_cap},
                               {positions.data(), top_k, lists, block}, step.view(), spans, masks.data(), mask_bytes,
                               {stream.get(), true});
    stream.synchronize("attending");
    return y.read();
  }

  std::vector<float> expected(std::size_t token) const {
    const HeadShape& shape = s.shape;
    std::vector<float> y(at(shape.heads * shape.dim_v));
    std::vector<double> sums(at(shape.dim_v));
    for (int h = 0; h < shape.heads; ++h) {
      host::AttentionHead a;
      a.q = q.data() + (token * at(shape.heads) + at(h)) * at(shape.dim_k);
      a.y = y.data() + h * shape.dim_v;
      a.k = {reinterpret_cast<const std::byte*>(s.k_rows.data()), DType::F32, shape.kv_heads, shape.dim_k};
      a.v = {reinterpret_cast<const std::byte*>(s.v_rows.data()), DType::F32, shape.kv_heads, shape.dim_v};
      a.kv_head = h / (shape.heads / shape.kv_heads);
      a.scale = scale;
      a.soft_cap = soft_cap;
      a.end_key = tokens[token].position + 1;
      a.blocks = s.table.data() + tokens[token].sequence * s.stride;
      a.selected = std::span(selected).subspan((token * at(shape.kv_heads) + at(a.kv_head)) * at(top_k), at(top_k));
      host::attention_head<double, host::PlainRow<float>, host::PlainRow<float>>(a, sums.data(), nullptr);
    }
    return y;
  }
};

void check_attention(const HeadsScene& a) {
  const std::vector<float> y = a.run(0, a.tokens.size(), a.block);
  const std::size_t row = at(a.s.shape.heads * a.s.shape.dim_v);
  for (std::size_t t = 0; t < a.tokens.size(); ++t) {
    INFO(words(a.s.shape, a.s.k_type, a.s.v_type)
         << ", " << a.top_k << " keys in blocks of " << a.block << ", token " << t << " at " << a.tokens[t].position);
    const float* const own = y.data() + t * row;
    if (a.tokens[t].sequence < 0) {
      CHECK(std::all_of(own, own + row, [](float x) { return std::bit_cast<std::uint32_t>(x) == 0xffffffffu; }));
      continue;
    }
    const std::vector<float> e = a.expected(t);
    CHECK(worst(e, own, f32_limit(a.s.shape.dim_k) * largest(e)) <= 1);
  }
}

}  // namespace

TEST_CASE("each head selects the blocks with the greatest keys, of equal ones the first, and the last ones always",
          "[blocks]") {
  if (no_device()) return;
  struct Shape {
    int heads, dim;
    SelectBlocks op;
  };
  for (const Shape& x : {Shape{4, 128, blocks_of(4, 128)},
                         {4, 128, blocks_of(3, 32, 2)},
                         {2, 128, blocks_of(8, 64)},
                         {8, 128, blocks_of(2, 96)},
                         {16, 128, blocks_of(5, 32, 5)},
                         {3, 128, blocks_of(4, 30)},
                         {140, 128, blocks_of(4, 32)},
                         {4, 128, blocks_of(3, 20)},
                         {2, 40, blocks_of(10, 8, 3)},
                         {2, 300, blocks_of(4, 16)},
                         {1, 64, blocks_of(100, 1)},
                         {1, 40, blocks_of(200, 1, 7)}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::F32}) {
      for (const int run : {5, 150}) {
        const BlockScene s(x.heads, x.dim, type, x.op, kLengths, tokens_and_run(kLengths, run), 7);
        check_choice(s, cuda::Scores::Exact);
        check_choice(s, cuda::Scores::Rounded);
      }
    }
  }
}

TEST_CASE("blocks of long contexts, as many as a warp keeps and more, and queries that are not finite", "[blocks]") {
  if (no_device()) return;
  const std::vector<int> lengths = {40000, 2049};
  const std::vector<Token> tokens = {{0, 39999}, {1, 2048}, {-1, 0}, {1, 2047}, {0, 5000}, {0, 39935}};
  for (const SelectBlocks& op :
       {blocks_of(16, 128), blocks_of(64, 32, 3), blocks_of(64, 8), blocks_of(300, 4), blocks_of(2048, 1, 70)}) {
    BlockScene s(4, 128, DType::F16, op, lengths, tokens, 3);
    check_choice(s, cuda::Scores::Exact);
    s.q[5] = std::numeric_limits<float>::quiet_NaN();
    s.q[4 * 128 + 300] = std::numeric_limits<float>::quiet_NaN();
    std::fill(s.q.begin() + 128, s.q.begin() + 256, 0.0f);  // all keys are equal
    check_choice(s, cuda::Scores::Exact);
    check_choice(s, cuda::Scores::Rounded);
  }
}

TEST_CASE("the blocks that are chosen of a quantised index are what its rows and rounded queries say", "[blocks]") {
  if (no_device()) return;
  for (const DType type : {DType::Q8_0, DType::Q4_0, DType::Q5_1}) {
    for (const cuda::Scores kind : {cuda::Scores::Exact, cuda::Scores::Rounded}) {
      SelectBlocks op = blocks_of(4, 32, 2);
      op.query = ActFormat::Q8x32;
      BlockScene s(4, 128, type, op, {300, 1500}, tokens_and_run({300, 1500}, 70), 19);
      std::mt19937 bits(5);
      s.q = random_floats(s.q.size(), bits);
      const std::vector<std::int32_t> chosen = s.run(kind, 0, s.tokens.size());
      std::vector<float> seen(s.q.size());
      round_trip_activation(ActFormat::Q8x32, s.q.data(), seen.data(), std::ssize(seen));
      s.q = seen;
      // Products are rounded to F16 in places: what is left out may be better than what is chosen by so much.
      for (std::size_t t = 0; t < s.tokens.size(); ++t) {
        if (s.tokens[t].sequence < 0) continue;
        for (int h = 0; h < s.heads; ++h) {
          const std::vector<double> scores = s.scores(t, h);
          std::vector<bool> in(scores.size());
          for (int i = 0; i < op.top_k; ++i) {
            const std::int32_t p = chosen[t * s.row() + at(h * op.top_k + i)];
            if (p >= 0) in[at(p / op.block)] = true;
          }
          double size = 0, least = std::numeric_limits<double>::infinity(), most = -least;
          for (std::size_t b = 0; b < scores.size(); ++b) {
            if (std::isfinite(scores[b])) size = std::max(size, std::fabs(scores[b]));
            (in[b] ? least : most) = in[b] ? std::min(least, scores[b]) : std::max(most, scores[b]);
          }
          INFO(name(type) << ", token " << t << " at " << s.tokens[t].position << ", head " << h);
          CHECK(std::count(in.begin(), in.end(), true) == std::min<std::int64_t>(4, std::ssize(scores)));
          if (most > -std::numeric_limits<double>::infinity())
            CHECK(most - least <= (kind == cuda::Scores::Exact ? 1e-5 : 2e-3) * size);
        }
      }
    }
  }
}

TEST_CASE("a token's blocks depend neither on the step around it nor on how long it may get", "[blocks]") {
  if (no_device()) return;
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
    for (const int block : {32, 20}) {
      BlockScene s(4, 128, type, blocks_of(5, block), {900, 1500}, tokens_and_run({900, 1500}, 200), 23);
      std::mt19937 bits(6);
      s.q = random_floats(s.q.size(), bits);
      const std::vector<std::int32_t> all = s.run(cuda::Scores::Exact, 0, s.tokens.size());
      for (const std::size_t t : {std::size_t{0}, std::size_t{4}, s.tokens.size() - 60}) {
        const std::vector<std::int32_t> own = s.run(cuda::Scores::Exact, t, 1);
        CHECK(std::equal(own.begin(), own.end(), all.begin() + std::ptrdiff_t(t * s.row())));
      }
    }
  }
}

TEST_CASE("attention of each KV head to blocks of its own equals its definition", "[blocks]") {
  if (no_device()) return;
  const std::vector<Token> tokens = tokens_and_run(kLengths, 20);
  for (const HeadShape& shape : {HeadShape{8, 2, 128, 128},
                                 {32, 2, 64, 64},
                                 {6, 3, 40, 24},
                                 {4, 4, 64, 64},
                                 {4, 1, 128, 128},
                                 {2, 2, 512, 512}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q4_1, DType::F32}) {
      if (!fits(type, shape.dim_k) || !fits(type, shape.dim_v)) continue;
      for (const auto& [choices, block] : {std::pair{1, 1}, {9, 8}, {2, 64}, {3, 128}, {2, 100}})
        check_attention({Scene(shape, type, type, kLengths, 41), tokens, choices, block, 3});
    }
  }
  check_attention({Scene({4, 2, 64, 64}, DType::Q8_0, DType::F16, kLengths, 42), tokens, 3, 64, 3});
  check_attention({Scene({4, 2, 64, 64}, DType::F16, DType::F16, kLengths, 43), tokens, 3, 64, 3, 2.0f});
}

TEST_CASE("attention to blocks where they lie has the bits of rows that are packed, in any step", "[blocks]") {
  if (no_device()) return;
  const std::vector<int> lengths = {65, 300, 3000};
  for (const DType type : {DType::F16, DType::Q8_0, DType::F32}) {
    const HeadsScene a(Scene({32, 4, 128, 128}, type, type, lengths, 61), tokens_and_run(lengths, 80), 8, 128, 11);
    const std::vector<float> y = a.run(0, a.tokens.size(), 128), packed = a.run(0, a.tokens.size(), 1);
    CHECK(std::memcmp(y.data(), packed.data(), y.size() * sizeof(float)) == 0);
    const std::size_t row = at(32 * 128);
    for (const std::size_t t : {std::size_t{0}, a.tokens.size() - 1}) {
      const std::vector<float> own = a.run(t, 1, 128);
      CHECK(std::memcmp(own.data(), y.data() + t * row, own.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a prompt's mask of each KV head has the bits of its selection for all heads, however much room there is",
          "[blocks]") {
  if (no_device()) return;
  const std::vector<int> lengths = {65, 300, 1500};
  for (const HeadShape& shape : {HeadShape{32, 4, 128, 128}, {6, 3, 64, 64}, {16, 2, 256, 256}}) {
    for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
      for (const auto& [choices, block] : {std::pair{3, 128}, {5, 20}}) {
        const HeadsScene a(Scene(shape, type, type, lengths, 81), tokens_and_run(lengths, 150), choices, block, 17);
        if (!cuda::prompt_attention_masks(DeviceCache(a.s).view)) continue;  // GPUs with 99 KB of shared memory
        const std::vector<float> y = a.run_masked(static_cast<int>(a.tokens.size()));
        CHECK(std::memcmp(a.run_masked(33).data(), y.data(), y.size() * sizeof(float)) == 0);
        const std::size_t part = at(shape.heads / shape.kv_heads * shape.dim_v);
        for (int h = 0; h < shape.kv_heads; ++h) {
          const std::vector<float> alone = a.run_masked(static_cast<int>(a.tokens.size()), h);
          for (std::size_t t = 0; t < a.tokens.size(); ++t) {
            const std::size_t from = (t * at(shape.kv_heads) + at(h)) * part;
            INFO(words(shape, type, type) << ", token " << t << ", KV head " << h);
            REQUIRE(std::memcmp(&alone[from], &y[from], part * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("where no more keys are seen than each KV head selects, attention has the bits of attention to all",
          "[blocks]") {
  if (no_device()) return;
  const std::vector<int> lengths = {65, 300, 2048};
  for (const DType type : {DType::F16, DType::F8_E4M3, DType::Q5_1}) {
    const HeadsScene a(Scene({16, 4, 128, 128}, type, type, lengths, 71), tokens_and_run(lengths, 3), 16, 128, 13);
    const std::vector<float> y = a.run(0, a.tokens.size(), 128);
    const std::vector<float> whole = run_attend(a.s, DeviceCache(a.s), a.tokens, a.q, {.heads = 16, .scale = a.scale});
    CHECK(std::memcmp(y.data(), whole.data(), y.size() * sizeof(float)) == 0);
  }
}

}  // namespace llm::attention_test
