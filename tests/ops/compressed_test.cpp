// Keys that stand for several positions: how they are made, chosen and attended to beside a window, by formulas in
// double precision over undivided sequences, on every backend.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/reference/reference.h"
#include "backends.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

namespace llm::test::compressed {
namespace {

constexpr std::int32_t kRows = 43;  // different tokens
constexpr int kSequences = 2, kTokens = 320;
constexpr float kScale = 0.3f;

struct Shape {
  int heads, dim, stride, parts, window;
  int index_heads = 0, index_dim = 0, top_k = 0;  ///< top_k 0: all compressed keys are attended to
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Scene {
  Shape shape;
  MemoryWeights weights;
  Graph graph;
};

Scene scene_of(const Shape& s) {
  Scene scene{s, {}, {}};
  GraphBuilder b({kTokens, kSequences, kTokens});
  std::uint32_t seed = 1;
  const auto rows = [&](const std::string& name, std::int64_t width) {
    const TensorType& type = scene.weights.add_random(name, {DType::F32, {width, kRows}}, seed++);
    return b.embed(b.weight(name, type), b.step_input(StepInput::Tokens), name + "_in");
  };
  const auto keys = [&](const std::string& name, int dim, RecurrentType::Part part) {
    const std::int64_t width = std::int64_t{s.parts} * dim;
    const Act x = rows(name, width), scores = rows(name + "_scores", width);
    const TensorType& places = scene.weights.add_random(name + "_places", {DType::F32, {width, s.stride}}, seed++);
    const Weight of_places = b.weight(name + "_places", places);
    const Index positions = b.step_input(StepInput::Positions);
    const Recurrent state = b.recurrent({0, part, {dim, 3, s.parts}});
    const Act row = b.compress({x, scores, of_places, positions, state}, name + "_row");
    return b.split_heads(row, 1, name + "_head");
  };
  const Act q = b.split_heads(rows("q", std::int64_t{s.heads} * s.dim), s.heads, "q_heads");
  const Act k = b.split_heads(rows("k", s.dim), 1, "k_head");
  const Weight sinks = b.weight("sinks", scene.weights.add_random("sinks", {DType::F32, {s.heads}}, seed++));
  const Cache cache = b.kv_append(k, k, b.cache({.kv_heads = 1, .head_dim_k = s.dim, .head_dim_v = s.dim}), "kv");
  const CacheType kept{.kv_heads = 1,
                       .head_dim_k = s.dim,
                       .part = CacheType::Part::Compressed,
                       .access = CacheType::Access::Selected,
                       .stride = s.stride};
  const Act c = keys("c", s.dim, RecurrentType::Part::Compress);
  const Cache compressed = b.index_append(c, b.cache(kept), "compressed");
  Index chosen;
  if (s.top_k > 0) {
    const Act ik = keys("ik", s.index_dim, RecurrentType::Part::CompressIndex);
    const CacheType type{.kv_heads = 1, .head_dim_k = s.index_dim, .part = CacheType::Part::Index, .stride = s.stride};
    const Cache index = b.index_append(ik, b.cache(type), "index");
    const Act iq = b.split_heads(rows("iq", std::int64_t{s.index_heads} * s.index_dim), s.index_heads, "iq_heads");
    const Act iw = rows("iw", s.index_heads);
    chosen = b.choose_keys(iq, iw, index, s.top_k, "chosen");
  }
  const Act seen = b.compressed_attention({q, cache, compressed, sinks, s.top_k > 0 ? &chosen : nullptr},
                                          {.scale = kScale, .window = s.window}, "seen");
  const Act y = b.scale(b.flatten_heads(seen, "flat"), 1.0f, "y");
  scene.graph = std::move(b).finish(y);
  return scene;
}

/// Rows [n, dim] of a sequence's whole neighbourhoods: means by the softmax of scores of all positions at once.
std::vector<std::vector<double>> compressed_rows(const Scene& scene, const std::string& name, int dim,
                                                 std::span<const std::int32_t> tokens) {
  const Shape& s = scene.shape;
  const auto x = scene.weights.decoded(name), scores = scene.weights.decoded(name + "_scores"),
             places = scene.weights.decoded(name + "_places");
  const std::int64_t width = std::int64_t{s.parts} * dim;
  std::vector<std::vector<double>> rows;
  for (std::int64_t r = 0; (r + 1) * s.stride <= std::ssize(tokens); ++r) {
    std::vector<double> row;
    for (int d = 0; d < dim; ++d) {
      double total = 0, sum = 0;
      for (std::int64_t p = std::max<std::int64_t>(0, (r + 1 - s.parts) * s.stride); p < (r + 1) * s.stride; ++p) {
        const bool before = p < r * s.stride;  // of the neighbours before: the first part
        const std::int64_t from = (s.parts == 2 && !before ? dim : 0) + d;
        const std::int64_t token = tokens[at(p)] * width + from;
        const double weight = std::exp(double{scores[at(token)]} + double{places[at(p % s.stride * width + from)]});
        total += weight;
        sum += weight * double{x[at(token)]};
      }
      row.push_back(sum / total);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

double product(const float* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}

struct Expected {
  std::vector<float> chosen;
  std::vector<double> y;
};

/// Of the last of these tokens.
Expected expected(const Scene& scene, std::span<const std::int32_t> tokens) {
  const Shape& s = scene.shape;
  const std::int64_t own = tokens.back(), n = std::ssize(tokens);
  const auto rows = compressed_rows(scene, "c", s.dim, tokens);
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0u);
  Expected e;
  if (s.top_k > 0) {
    const auto iq = scene.weights.decoded("iq"), iw = scene.weights.decoded("iw");
    const auto keys = compressed_rows(scene, "ik", s.index_dim, tokens);
    std::vector<double> scores;
    for (const std::vector<double>& key : keys) {
      double score = 0;
      for (int h = 0; h < s.index_heads; ++h)
        score += double{iw[at(own * s.index_heads + h)]} *
                 std::max(0.0, product(&iq[at((own * s.index_heads + h) * s.index_dim)], key.data(), s.index_dim));
      scores.push_back(score);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), at(s.top_k)));
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < at(s.top_k); ++i)
      e.chosen.push_back(i < order.size() ? static_cast<float>(order[i]) : -1.0f);
  }
  const auto q = scene.weights.decoded("q"), k = scene.weights.decoded("k"), sinks = scene.weights.decoded("sinks");
  for (int h = 0; h < s.heads; ++h) {
    double total = std::exp(double{sinks[at(h)]});
    std::vector<double> sums(at(s.dim), 0);
    const auto add = [&](const double* key) {
      const double weight = std::exp(double{kScale} * product(&q[at((own * s.heads + h) * s.dim)], key, s.dim));
      total += weight;
      for (int d = 0; d < s.dim; ++d) sums[at(d)] += weight * key[d];
    };
    for (std::int64_t p = std::max<std::int64_t>(0, n - s.window); p < n; ++p) {
      const std::vector<double> key(k.begin() + tokens[at(p)] * s.dim, k.begin() + (tokens[at(p)] + 1) * s.dim);
      add(key.data());
    }
    for (const std::size_t r : order) add(rows[r].data());
    for (const double sum : sums) e.y.push_back(sum / total);
  }
  return e;
}

std::vector<std::int32_t> some(int n, int first) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((first + 5 * i + i * i / 7) % kRows);
  return tokens;
}

/// Prompts that end within neighbours and behind them, then single tokens, alone and together.
std::vector<std::vector<TestSequences::Part>> steps() {
  return {{{0, some(3, 0)}},
          {{1, some(66, 3)}, {0, some(1, 9)}},
          {{1, some(250, 1)}, {0, some(10, 4)}},
          {{0, some(1, 2)}, {1, some(1, 7)}},
          {{1, some(70, 7)}},
          {{1, some(2, 8)}, {0, some(1, 2)}},
          {{0, some(130, 20)}}};
}

void check_scene(const NamedBackend& named, const Scene& scene) {
  const auto backend = named.make();
  for (const Node& node : scene.graph.nodes()) {
    if (backend->supports(scene.graph, node).ok) continue;
    CHECK(named.duty == NamedBackend::Duty::MayRefuse);
    return;
  }
  TestSequences sequences(kSequences, 512);
  std::set<std::string> observed;
  if (scene.shape.top_k > 0) observed.insert("chosen");
  GraphRunner runner(*backend, scene.graph, scene.weights, sequences.n_blocks(), {DType::F32, DType::F32}, observed,
                     sequences.n_slots());
  std::vector<std::vector<std::int32_t>> history(kSequences);
  const auto width = at(scene.shape.heads * scene.shape.dim), top_k = at(scene.shape.top_k);
  for (const auto& parts : steps()) {
    const Results results = runner.run(sequences.step(parts));
    std::size_t row = 0;
    for (const TestSequences::Part& part : parts) {
      for (const std::int32_t token : part.tokens) {
        std::vector<std::int32_t>& tokens = history[at(part.sequence)];
        tokens.push_back(token);
        const Expected e = expected(scene, tokens);
        INFO("position " << tokens.size() - 1 << " of sequence " << part.sequence);
        if (top_k > 0)
          REQUIRE(std::ranges::equal(std::span(results.at("chosen")).subspan(row * top_k, top_k), e.chosen));
        double worst = 0;
        for (std::size_t i = 0; i < width; ++i)
          worst = std::max(worst, std::abs(e.y[i] - double{results.at("y")[row * width + i]}));
        REQUIRE(worst < 2e-5);
        ++row;
      }
    }
  }
}

}  // namespace

TEST_CASE("neighbours become keys that are attended to beside a window, all of them or those that are chosen") {
  std::vector<NamedBackend> backends = available_backends();
  backends.push_back(
      {"reference", Activations::Plain, NamedBackend::Duty::Everything, [] { return make_reference_backend(); }});
  constexpr Shape kShapes[] = {
      {4, 16, 4, 2, 20, 3, 24, 5}, {20, 8, 2, 2, 7, 2, 16, 200}, {3, 40, 64, 1, 100}, {6, 24, 128, 1, 33}};
  for (const Shape& shape : kShapes) {
    const Scene scene = scene_of(shape);
    for (const NamedBackend& named : backends) {
      INFO(named.name << ", stride " << shape.stride);
      check_scene(named, scene);
    }
  }
}

}  // namespace llm::test::compressed
