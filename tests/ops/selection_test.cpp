// Keys that are selected and what attends to them: every backend against formulas in double precision over the stored
// rows of undivided sequences. Many tokens are equal, so that what is selected ends among keys of equal worth.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "backend/reference/reference.h"
#include "backends.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

namespace llm::test::selection {
namespace {

constexpr std::int32_t kRows = 43;  // different tokens
constexpr int kSequences = 2, kTokens = 260;
constexpr int kNanToken = 11;  // whose weights are

struct Shape {
  int heads, dim;  ///< of the index
  int top_k;
  int query_heads, kv_heads, dim_k, dim_v;
  int stride = 1;  ///< of the index
  enum class Weights { None, Some } weights = Weights::Some;
  int block = 0, local = 1;  ///< blocks that each head selects for itself; 0: keys by all heads together
  float scale = 0.3f;        ///< of attention

  int selections() const { return block > 0 ? heads : 1; }
  int choices() const { return stride == 1 ? top_k : (top_k + 1) / stride - 1; }
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A table of rows by token, as a cache of the type keeps it.
std::vector<float> stored(const MemoryWeights& weights, const std::string& name, DType type, int width) {
  const std::vector<float> rows = weights.decoded(name);
  std::vector<float> kept(rows.size());
  std::vector<std::byte> bytes(TensorType{type, {width}}.bytes());
  for (std::size_t r = 0; r * at(width) < rows.size(); ++r) {
    encode(type, rows.data() + r * at(width), bytes.data(), width);
    decode(type, bytes.data(), kept.data() + r * at(width), width);
  }
  return kept;
}

struct Scene {
  Shape shape;
  MemoryWeights weights;
  Graph graph;
};

Scene scene_of(const Shape& s) {
  Scene scene{s, {}, {}};
  GraphBuilder b({kTokens, kSequences, kTokens});
  std::uint32_t seed = 1;
  const auto rows = [&](const char* name, std::int64_t width) {
    const TensorType& type = scene.weights.add_random(name, {DType::F32, {width, kRows}}, seed++);
    return b.embed(b.weight(name, type), b.step_input(StepInput::Tokens), std::string(name) + "_in");
  };
  const auto heads = [&](const char* name, int n, int dim) {
    const Act all = rows(name, std::int64_t{n} * dim);
    return b.split_heads(all, n, std::string(name) + "_heads");
  };
  const Act q = heads("iq", s.heads, s.dim), k = heads("ik", 1, s.dim), w = rows("iw", s.heads);
  const CacheType kept{.kv_heads = 1, .head_dim_k = s.dim, .part = CacheType::Part::Index, .stride = s.stride};
  const Cache index = b.index_append(k, b.cache(kept), "index");
  const SelectBlocks blocks{.top_k = s.top_k, .block = s.block, .local = s.local};
  const Index selected = s.block > 0                         ? b.select_blocks(q, index, blocks, "selected")
                         : s.weights == Shape::Weights::Some ? b.select_keys(q, w, index, s.top_k, "selected")
                                                             : b.select_keys(q, index, s.top_k, "selected");
  const Act aq = heads("q", s.query_heads, s.dim_k), ak = heads("k", s.kv_heads, s.dim_k),
            av = heads("v", s.kv_heads, s.dim_v);
  const Cache kv = b.kv_append(ak, av,
                               b.cache({.kv_heads = s.kv_heads,
                                        .head_dim_k = s.dim_k,
                                        .head_dim_v = s.dim_v,
                                        .access = CacheType::Access::Selected}),
                               "kv");
  const Act seen = b.selected_attention(aq, kv, selected, {.scale = s.scale}, "seen");
  const Act y = b.scale(b.flatten_heads(seen, "flat"), 1.0f, "y");
  scene.graph = std::move(b).finish(y);
  std::vector<float> weights = scene.weights.decoded("iw");
  weights[at(kNanToken * s.heads)] = std::numeric_limits<float>::quiet_NaN();
  scene.weights.add("iw", {DType::F32, {s.heads, kRows}}, weights);
  return scene;
}

/// What one token of a sequence selects and gets; tokens up to its own.
struct Expected {
  std::vector<float> selected;
  std::vector<double> y;
};

double product(const float* a, const float* b, int length) {
  double sum = 0;
  for (int i = 0; i < length; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// The first `most` of the scores in descending order, in ascending order of their places.
std::vector<std::size_t> best_of(const std::vector<double>& scores, int most) {
  std::vector<std::size_t> chosen(scores.size());
  std::iota(chosen.begin(), chosen.end(), 0u);
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  chosen.resize(std::min(chosen.size(), at(most)));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

using Positions = std::vector<std::size_t>;

/// Of keys that all heads select together.
Positions selected_keys(const Scene& scene, const std::vector<float>& ik, std::span<const std::int32_t> tokens) {
  const Shape& s = scene.shape;
  const auto iq = scene.weights.decoded("iq"), iw = scene.weights.decoded("iw");
  const auto own = at(tokens.back()), n = tokens.size();
  std::vector<double> scores(n / at(s.stride), 0);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::int32_t last = tokens[(i + 1) * at(s.stride) - 1];
    for (int h = 0; h < s.heads; ++h) {
      const double score = product(&iq[(own * at(s.heads) + at(h)) * at(s.dim)], &ik[at(last) * at(s.dim)], s.dim);
      const bool weighted = s.weights == Shape::Weights::Some;
      scores[i] += (weighted ? double{iw[own * at(s.heads) + at(h)]} : 1.0) * std::max(score, 0.0);
    }
    if (std::isnan(scores[i])) scores[i] = -std::numeric_limits<double>::infinity();
  }
  Positions order;
  for (const std::size_t i : best_of(scores, s.choices()))
    for (int j = 0; j < s.stride; ++j) order.push_back(i * at(s.stride) + at(j));
  for (std::size_t p = scores.size() * at(s.stride); p < n; ++p) order.push_back(p);
  return order;
}

/// Of blocks that one head selects.
Positions selected_blocks(const Scene& scene, const std::vector<float>& ik, std::span<const std::int32_t> tokens,
                          int head) {
  const Shape& s = scene.shape;
  const auto iq = scene.weights.decoded("iq");
  const float* const q = &iq[(at(tokens.back()) * at(s.heads) + at(head)) * at(s.dim)];
  const std::size_t block = at(s.block), n = tokens.size();
  std::vector<double> scores((n + block - 1) / block, -std::numeric_limits<double>::infinity());
  for (std::size_t p = 0; p < n; ++p)
    scores[p / block] = std::max(scores[p / block], product(q, &ik[at(tokens[p]) * at(s.dim)], s.dim));
  for (std::size_t i = 0; i < std::min(scores.size(), at(s.local)); ++i)
    scores[scores.size() - 1 - i] = std::numeric_limits<double>::infinity();
  Positions order;
  for (const std::size_t i : best_of(scores, s.top_k / s.block))
    for (std::size_t p = i * block; p < std::min(n, (i + 1) * block); ++p) order.push_back(p);
  return order;
}

Expected expected(const Scene& scene, DType type, std::span<const std::int32_t> tokens) {
  const Shape& s = scene.shape;
  const auto ik = stored(scene.weights, "ik", type, s.dim), k = stored(scene.weights, "k", type, s.kv_heads * s.dim_k),
             v = stored(scene.weights, "v", type, s.kv_heads * s.dim_v);
  const auto q = scene.weights.decoded("q");
  const auto own = at(tokens.back());
  std::vector<Positions> orders;
  for (int i = 0; i < s.selections(); ++i)
    orders.push_back(s.block > 0 ? selected_blocks(scene, ik, tokens, i) : selected_keys(scene, ik, tokens));
  Expected e;
  for (const Positions& order : orders)
    for (std::size_t i = 0; i < at(s.top_k); ++i)
      e.selected.push_back(i < order.size() ? static_cast<float>(order[i]) : -1.0f);
  for (int h = 0; h < s.query_heads; ++h) {
    const auto kv_head = at(h / (s.query_heads / s.kv_heads));
    std::vector<double> sums(at(s.dim_v), 0);
    double total = 0;
    for (const std::size_t p : orders[s.block > 0 ? kv_head : 0]) {
      const auto row = at(tokens[p]) * at(s.kv_heads) + kv_head;
      const double weight = std::exp(
          s.scale * product(&q[(own * at(s.query_heads) + at(h)) * at(s.dim_k)], &k[row * at(s.dim_k)], s.dim_k));
      total += weight;
      for (std::size_t d = 0; d < at(s.dim_v); ++d) sums[d] += weight * double{v[row * at(s.dim_v) + d]};
    }
    for (const double sum : sums) e.y.push_back(sum / total);
  }
  return e;
}

std::vector<std::int32_t> some(int n, int first) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((first + 5 * i + i * i / 7) % kRows);
  return tokens;
}

/// Prompts that end before and behind top_k and a chunk of keys, then single tokens, alone and together.
std::vector<std::vector<TestSequences::Part>> steps() {
  return {{{0, some(5, 0)}},
          {{1, some(66, 3)}, {0, some(1, 9)}},
          {{1, some(250, 1)}, {0, some(10, 4)}},
          {{0, some(1, kNanToken)}, {1, some(1, kNanToken)}},
          {{1, some(1, 7)}},
          {{1, some(2, 8)}, {0, some(1, 2)}},
          {{1, some(7, 20)}}};
}

/// Prompts may be off by `rounding`.
void check_scene(const NamedBackend& named, const Scene& scene, DType type, double rounding = 0) {
  const auto backend = named.make();
  for (const Node& node : scene.graph.nodes()) {
    if (backend->supports(scene.graph, node).ok) continue;
    CHECK(named.duty == NamedBackend::Duty::MayRefuse);
    return;
  }
  TestSequences sequences(kSequences, 512);
  GraphRunner runner(*backend, scene.graph, scene.weights, sequences.n_blocks(), {type, type}, {"selected"});
  std::vector<std::vector<std::int32_t>> history(kSequences);
  const auto width = at(scene.shape.query_heads * scene.shape.dim_v),
             chosen = at(scene.shape.top_k * scene.shape.selections());
  for (const auto& parts : steps()) {
    const Results results = runner.run(sequences.step(parts));
    std::size_t row = 0;
    for (const TestSequences::Part& part : parts) {
      for (const std::int32_t token : part.tokens) {
        std::vector<std::int32_t>& tokens = history[at(part.sequence)];
        tokens.push_back(token);
        const Expected e = expected(scene, type, tokens);
        const auto selected = std::span(results.at("selected")).subspan(row * chosen, chosen);
        INFO("position " << tokens.size() - 1 << " of sequence " << part.sequence);
        REQUIRE(std::ranges::equal(selected, e.selected));
        double worst = 0;
        for (std::size_t i = 0; i < width; ++i)
          worst = std::max(worst, std::abs(e.y[i] - double{results.at("y")[row * width + i]}));
        CHECK(worst < (std::ssize(results.at("y")) / std::ssize(e.y) > named.most_tokens ? rounding : 0) + 2e-5);
        ++row;
      }
    }
  }
}

/// Of a prompt whose queries and weights are rounded to F16, or BF16 where the cache is. A score is off by at most e =
/// scale u |q| |k|, so that a weight's share is by a factor of exp(2 e) and by its own rounding.
double rounding_of(const Scene& scene, DType type) {
  const Shape& s = scene.shape;
  const double u = type == DType::BF16 ? 0x1p-8 : 0x1p-11;
  const auto longest = [&](const char* name, DType as, int dim, int heads) {
    const std::vector<float> rows = stored(scene.weights, name, as, dim * heads);
    double most = 0;
    for (std::size_t r = 0; r < rows.size(); r += at(dim)) most = std::max(most, product(&rows[r], &rows[r], dim));
    return std::sqrt(most);
  };
  const std::vector<float> values = stored(scene.weights, "v", type, s.kv_heads * s.dim_v);
  double most = 0;
  for (const float v : values) most = std::max(most, std::abs(double{v}));
  const double e =
      double{s.scale} * u * longest("q", DType::F32, s.dim_k, s.query_heads) * longest("k", type, s.dim_k, s.kv_heads);
  return (std::exp(2 * e) - 1 + 2 * u) * most;
}

/// What attention of a prompt and of what follows it gives.
std::vector<float> attended(Backend& backend, const Shape& s, DType type, CacheType::Access access) {
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  std::uint32_t seed = 1;
  const auto heads = [&](const char* name, int n, int dim) {
    const TensorType& table = weights.add_random(name, {DType::F32, {std::int64_t{n} * dim, kRows}}, seed++);
    const Act all = b.embed(b.weight(name, table), b.step_input(StepInput::Tokens), std::string(name) + "_in");
    return b.split_heads(all, n, std::string(name) + "_heads");
  };
  const Act q = heads("q", s.query_heads, s.dim_k), k = heads("k", s.kv_heads, s.dim_k),
            v = heads("v", s.kv_heads, s.dim_v), ik = heads("ik", 1, s.dim);
  const CacheType kept{.kv_heads = s.kv_heads, .head_dim_k = s.dim_k, .head_dim_v = s.dim_v, .access = access};
  const Cache kv = b.kv_append(k, v, b.cache(kept), "kv");
  const Cache index =
      b.index_append(ik, b.cache({.kv_heads = 1, .head_dim_k = s.dim, .part = CacheType::Part::Index}), "index");
  const Act w = b.embed(b.weight("iw", weights.add_random("iw", {DType::F32, {1, kRows}}, 9)),
                        b.step_input(StepInput::Tokens), "iw_in");
  const Index all = b.select_keys(ik, w, index, s.top_k, "selected");
  const Attention attributes{.scale = 0.2f, .soft_cap = 3};
  const Act seen = access == CacheType::Access::Selected ? b.selected_attention(q, kv, all, attributes, "seen")
                                                         : b.attention(q, kv, attributes, "seen");
  const Act y = b.scale(b.flatten_heads(seen, "flat"), 1.0f, "y");
  const Graph graph = std::move(b).finish(y);
  TestSequences sequences(1, 320);
  GraphRunner runner(backend, graph, weights, sequences.n_blocks(), {type, type});
  std::vector<float> rows;
  constexpr int kPrompt = 200;
  for (const int n : {kPrompt, 1, 1, 60, 1, 3}) {
    const TestSequences::Part part{0, some(n, n)};
    const Results results = runner.run(sequences.step({&part, 1}));
    rows.insert(rows.end(), results.at("y").begin(), results.at("y").end());
  }
  return rows;
}

}  // namespace

TEST_CASE("keys of the greatest scores are selected, of equal ones the first, and attended to alone") {
  std::vector<NamedBackend> backends = available_backends();
  backends.push_back(
      {"reference", Activations::Plain, NamedBackend::Duty::Everything, [] { return make_reference_backend(); }});
  constexpr Shape kShapes[] = {{4, 32, 8, 4, 1, 40, 32},
                               {3, 16, 1, 2, 2, 8, 8},
                               {70, 24, 100, 6, 2, 24, 20},
                               {8, 64, 300, 4, 1, 16, 16},
                               {2, 8, 64, 80, 1, 72, 64},
                               {1, 5, 257, 3, 1, 7, 5},
                               {4, 32, 11, 4, 2, 40, 32, 4, Shape::Weights::None},
                               {70, 24, 95, 6, 2, 24, 20, 32},
                               {3, 16, 259, 4, 2, 8, 8, 2, Shape::Weights::None},
                               {2, 8, 127, 2, 1, 8, 8, 64},
                               {2, 16, 5, 2, 1, 8, 8, 1, Shape::Weights::None},
                               {2, 16, 32, 4, 2, 24, 16, 1, Shape::Weights::None, 8},
                               {3, 40, 90, 3, 3, 8, 8, 1, Shape::Weights::None, 30, 2},
                               {1, 8, 128, 4, 1, 8, 8, 1, Shape::Weights::None, 64},
                               {2, 8, 5, 4, 2, 8, 8, 1, Shape::Weights::None, 1, 3}};
  for (const Shape& shape : kShapes) {
    const Scene scene = scene_of(shape);
    for (const NamedBackend& named : backends) {
      for (const DType type : {DType::F32, DType::F16}) {
        INFO(named.name << ", " << name(type) << ", top_k " << shape.top_k);
        check_scene(named, scene, type);
      }
    }
  }
}

TEST_CASE("prompts attend to the selected keys alone whichever way a backend takes") {
  constexpr auto kNone = Shape::Weights::None;
  constexpr Shape kShapes[] = {{8, 32, 67, 16, 2, 64, 64, 4, kNone, 0, 1, 0.05f},
                               {4, 32, 64, 16, 2, 256, 256, 1, Shape::Weights::Some, 0, 1, 0.02f},
                               {4, 16, 48, 16, 1, 128, 128, 1, kNone, 0, 1, 0.03f}};
  for (const Shape& shape : kShapes) {
    const Scene scene = scene_of(shape);
    for (const NamedBackend& named : available_backends()) {
      for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3}) {
        INFO(named.name << ", " << name(type) << ", " << shape.query_heads << " heads of " << shape.dim_k);
        check_scene(named, scene, type, rounding_of(scene, type));
      }
    }
  }
}

TEST_CASE("keys of an index that are wider than the kernels' rows are refused") {
  const auto backend = make_cpu_backend({.threads = 1, .isa = {}});
  for (const int dim : {1024, 1040}) {
    GraphBuilder b({4, 1, 4});
    const Act x = b.embed(b.weight("table", {DType::F32, {dim, 32}}), b.step_input(StepInput::Tokens), "x");
    const Act heads = b.split_heads(x, 1, "heads");
    const CacheType kept{.kv_heads = 1, .head_dim_k = dim, .part = CacheType::Part::Index};
    const Cache index = b.index_append(heads, b.cache(kept), "index");
    const Index selected = b.select_keys(heads, index, 2, "selected");
    const Cache kv = b.kv_append(
        heads, heads,
        b.cache({.kv_heads = 1, .head_dim_k = dim, .head_dim_v = dim, .access = CacheType::Access::Selected}), "kv");
    const Act seen = b.selected_attention(heads, kv, selected, {.scale = 1}, "seen");
    const Graph g = std::move(b).finish(b.flatten_heads(seen, "flat"));
    int refused = 0;
    for (const Node& n : g.nodes()) refused += backend->supports(g, n).ok ? 0 : 1;
    CHECK(refused == (dim > 1024 ? 4 : 0));  // both that write a cache and both that read one
  }
}

TEST_CASE("where no more keys are seen than are selected, attention has the bits of attention to all") {
  // Heads of the first shape are not those that tensor cores take on a GPU.
  constexpr Shape kShapes[] = {{4, 32, 300, 6, 2, 64, 32}, {4, 32, 300, 6, 2, 64, 64}};
  for (const NamedBackend& named : available_backends()) {
    const auto backend = named.make();
    for (const Shape& shape : kShapes) {
      for (const DType type : {DType::F32, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q5_1}) {
        INFO(named.name << ", " << name(type) << ", values of " << shape.dim_v);
        CHECK(attended(*backend, shape, type, CacheType::Access::Selected) ==
              attended(*backend, shape, type, CacheType::Access::Whole));
      }
    }
  }
}

}  // namespace llm::test::selection
