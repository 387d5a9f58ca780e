// The reference backend itself, against formulas written out here in double precision on unpaged, undivided data.
#include "backend/reference/reference.h"

#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "backend/host/legalize.h"
#include "base/half.h"
#include "graph/builder.h"
#include "graph/partition.h"
#include "graph/passes/passes.h"
#include "reference_step.h"
#include "support/catch.h"
#include "support/graph_runner.h"
#include "tensor/activation.h"

namespace llm::test {

TEST_CASE("reference: linear with scale and bias, activations as they are and quantised") {
  constexpr std::int64_t kWidth = 512, kOut = 5;
  for (const DType dtype : {DType::F32, DType::BF16, DType::Q4_0, DType::Q8_0, DType::Q3_K, DType::Q6_K, DType::NVFP4,
                            DType::IQ1_M, DType::Q1_0}) {
    INFO(name(dtype));
    MemoryWeights weights;
    GraphBuilder b({kTokens, 1, kTokens});
    const Act x = input(b, weights, "x", kWidth, 1);
    const Weight w = b.weight("w", weights.add_random("w", {dtype, {kWidth, kOut}}, 2));
    const Weight bias = b.weight("bias", weights.add_random("bias", {DType::F32, {kOut}}, 3));
    const Weight scale = b.weight("scale", weights.add_random("scale", {DType::F32, {1}}, 4));
    const Act y = b.linear(x, {w, &bias, "y", &scale});
    const Graph plain = std::move(b).finish(y);

    for (const ActFormat format : {ActFormat::F32, info(dtype).activation}) {
      std::vector<float> seen = weights.decoded("x");
      round_trip_activation(format, weights.decoded("x").data(), seen.data(), std::ssize(seen));
      const std::vector<float> matrix = weights.decoded("w"), offset = weights.decoded("bias");
      std::vector<double> expected;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        for (std::int64_t n = 0; n < kOut; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < kWidth; ++k)
            sum += double{matrix[at(n * kWidth + k)]} * seen[at(t * kWidth + k)];
          expected.push_back(sum * double{weights.decoded("scale")[0]} + offset[at(n)]);
        }
      }
      const Graph graph = format == ActFormat::F32 ? plain : host::quantize_activations(plain);
      check_close(run_once(graph, weights).at("y"), expected);
    }
  }
}

TEST_CASE("reference: rms_norm, glu, add, combine") {
  constexpr std::int64_t kWidth = 19;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = input(b, weights, "x", kWidth, 1);
  const Act z = input(b, weights, "z", kWidth, 2);
  const Act norm = b.rms_norm(x, b.weight("w", weights.add_random("w", {DType::F32, {kWidth}}, 3)), 0.25f, "norm");
  const Act silu = b.glu(Activation::Silu, x, z, "silu");
  const Act gelu = b.glu(Activation::Gelu, x, z, "gelu");
  const Act relu = b.glu(Activation::Relu, x, z, "relu");
  const Act softplus = b.glu(Activation::Softplus, x, z, "softplus");
  const Act limited = b.glu({.activation = Activation::Silu, .limit = 0.25f}, x, z, "limited");
  const float silu_of_limit = 0.25f / (1 + std::exp(-0.25f));  // what silu(min(x, 0.25)) does not exceed
  const Act by_gate =
      b.glu({.activation = Activation::Silu, .limit = 0.25f, .gate_limit = silu_of_limit}, x, z, "gate_limited");
  const Act limits = b.add(limited, by_gate, "limits");
  const Act more = b.add(b.add(relu, softplus, "both"), limits, "more");
  const Act glus = b.add(silu, gelu, "glus");
  const Graph graph = std::move(b).finish(b.add(more, b.add(norm, glus, "y"), "all"));
  const Results r =
      run_once(graph, weights, {"norm", "silu", "gelu", "relu", "softplus", "limited", "gate_limited", "y"});

  const std::vector<float> xs = weights.decoded("x"), zs = weights.decoded("z"), w = weights.decoded("w");
  std::vector<double> norms, silus, gelus, relus, softpluses, limiteds, gates_limited;
  for (std::int64_t i = 0; i < kTokens * kWidth; ++i) {
    const std::int64_t row = i / kWidth * kWidth;
    double squares = 0;
    for (std::int64_t k = 0; k < kWidth; ++k) squares += std::pow(double{xs[at(row + k)]}, 2);
    const double v = xs[at(i)];
    norms.push_back(v / std::sqrt(squares / kWidth + 0.25) * w[at(i - row)]);
    silus.push_back(v / (1 + std::exp(-v)) * zs[at(i)]);
    gelus.push_back(0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v))) *
                    zs[at(i)]);
    relus.push_back(std::max(v, 0.0) * zs[at(i)]);
    softpluses.push_back(std::log(1 + std::exp(v)) * zs[at(i)]);
    const double up = std::clamp(double{zs[at(i)]}, -0.25, 0.25);
    limiteds.push_back(std::min(v / (1 + std::exp(-v)), 0.25) * up);
    gates_limited.push_back(std::min(v / (1 + std::exp(-v)), double{silu_of_limit}) * up);
  }
  check_close(r.at("relu"), relus);
  check_close(r.at("softplus"), softpluses);
  check_close(r.at("limited"), limiteds);
  check_close(r.at("gate_limited"), gates_limited);
  check_close(r.at("norm"), norms);
  check_close(r.at("silu"), silus);
  check_close(r.at("gelu"), gelus);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    CHECK(r.at("y")[i] == r.at("norm")[i] + (r.at("silu")[i] + r.at("gelu")[i]));
  }
}

TEST_CASE("reference: a fused addition and norm are the two ops bit for bit") {
  constexpr std::int64_t kWidth = 33;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act sum = b.add(input(b, weights, "a", kWidth, 1), input(b, weights, "b", kWidth, 2), "sum");
  const Act norm = b.rms_norm(sum, b.weight("w", weights.add_random("w", {DType::F32, {kWidth}}, 3)), 1e-5f, "norm");
  const Graph apart = std::move(b).finish(b.add(sum, norm, "y"));
  const Graph fused = fuse_add_norm(apart);
  REQUIRE(fused.nodes().size() + 1 == apart.nodes().size());
  CHECK(run_once(apart, weights, {"sum", "norm"}) == run_once(fused, weights, {"sum", "norm"}));
}

TEST_CASE("reference: rotation is multiplication by a complex number") {
  constexpr int kHeadDim = 10, kRot = 8, kHeads = 2;
  for (const RopePairing pairing : {RopePairing::Interleaved, RopePairing::Halves}) {
    MemoryWeights weights;
    GraphBuilder b({kTokens, 1, kTokens});
    const Act x = b.split_heads(input(b, weights, "x", kHeads * kHeadDim, 1), kHeads, "heads");
    const Act table = b.rope_table({.n_rot = kRot, .base = 100}, b.step_input(StepInput::Positions), nullptr, "angles");
    const Act turned = b.rope(x, table, pairing, "turned");
    const Graph graph = std::move(b).finish(b.scale(turned, 1, "y"));
    const std::vector<float> y = run_once(graph, weights).at("y");

    const std::vector<float> xs = weights.decoded("x");
    for (int row = 0; row < kTokens * kHeads; ++row) {
      const int position = row / kHeads;
      const float* const from = xs.data() + row * kHeadDim;
      const float* const to = y.data() + row * kHeadDim;
      for (int i = 0; i < kRot / 2; ++i) {
        const int re = pairing == RopePairing::Halves ? i : 2 * i;
        const int im = pairing == RopePairing::Halves ? i + kRot / 2 : 2 * i + 1;
        const auto turn = std::polar(1.0, position * std::pow(100.0, -2.0 * i / kRot));
        const std::complex<double> expected = turn * std::complex<double>(from[re], from[im]);
        CHECK(std::fabs(to[re] - expected.real()) <= 3e-7 * std::abs(expected));  // cos and sin are stored as f32
        CHECK(std::fabs(to[im] - expected.imag()) <= 3e-7 * std::abs(expected));
      }
      for (int i = kRot; i < kHeadDim; ++i) CHECK(to[i] == from[i]);
    }
  }
}

TEST_CASE("reference: attention over a paged half-precision cache is softmax over the stored rows") {
  constexpr int kHeads = 4, kKv = 2, kDimK = 6, kDimV = 5, kLength = 150, kWindow = 60;
  const KeyWindow::Form form = GENERATE(KeyWindow::Form::Sliding, KeyWindow::Form::Chunked);
  const auto sees = [&](int t, int s) {
    return form == KeyWindow::Form::Sliding ? t - s < kWindow : t / kWindow == s / kWindow;
  };
  MemoryWeights weights;
  GraphBuilder b({kLength, 1, kLength});
  const Act q = b.split_heads(input(b, weights, "q", kHeads * kDimK, 1, kLength), kHeads, "qh");
  const Act k = b.split_heads(input(b, weights, "k", kKv * kDimK, 2, kLength), kKv, "kh");
  const Act v = b.split_heads(input(b, weights, "v", kKv * kDimV, 3, kLength), kKv, "vh");
  const Cache cache = b.kv_append(k, v, b.cache({3, kKv, kDimK, kDimV}), "stored");
  const Act seen = b.attention(q, cache, {.scale = 0.7f, .window = {kWindow, form}}, "seen");
  const Graph graph = std::move(b).finish(b.scale(seen, 1, "y"));
  const std::vector<float> y = run_once(graph, weights, {}, {DType::F16, DType::BF16}).at("y");

  const std::vector<float> qs = weights.decoded("q");
  std::vector<double> ks, vs, expected;
  for (const float x : weights.decoded("k")) ks.push_back(to_float(to_half(x)));
  for (const float x : weights.decoded("v")) vs.push_back(to_float(to_bfloat16(x)));
  for (int t = 0; t < kLength; ++t) {
    for (int h = 0; h < kHeads; ++h) {
      std::vector<double> weight(kLength, 0.0);
      double total = 0;
      for (int s = 0; s <= t; ++s) {
        if (!sees(t, s)) continue;
        double score = 0;
        for (int d = 0; d < kDimK; ++d) {
          score += qs[at((t * kHeads + h) * kDimK + d)] * ks[at((s * kKv + h / 2) * kDimK + d)];
        }
        total += weight[at(s)] = std::exp(score * double{0.7f});
      }
      for (int d = 0; d < kDimV; ++d) {
        double sum = 0;
        for (int s = 0; s <= t; ++s) sum += weight[at(s)] * vs[at((s * kKv + h / 2) * kDimV + d)];
        expected.push_back(sum / total);
      }
    }
  }
  REQUIRE(y.size() == expected.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    CHECK(std::fabs(y[i] - expected[i]) <= 1e-7 * std::fabs(expected[i]) + 1e-12);
}

TEST_CASE("reference: a sequence's attention does not depend on its chunks, its neighbours or a rewind") {
  constexpr int kLength = 140, kHeads = 2, kDim = 8;
  MemoryWeights weights;
  GraphBuilder b({kLength, 2, kLength});
  const auto heads = [&](const char* name, std::uint32_t seed) {
    return b.split_heads(input(b, weights, name, kHeads * kDim, seed, kLength), kHeads, std::string(name) + "h");
  };
  const Act q = heads("q", 1), k = heads("k", 2), v = heads("v", 3);
  const Cache cache = b.kv_append(k, v, b.cache({0, kHeads, kDim, kDim}), "stored");
  const Graph graph = std::move(b).finish(b.scale(b.attention(q, cache, {.scale = 0.5f}, "seen"), 1, "y"));
  const auto backend = make_reference_backend();
  const std::vector<std::int32_t> tokens = all_tokens(kLength);
  const std::vector<float> whole = run_once(graph, weights).at("y");

  TestSequences sequences(2, kLength);
  GraphRunner runner(*backend, graph, weights, sequences.n_blocks());
  std::vector<float> chunked;
  const auto append = [&](int begin, int end, std::vector<TestSequences::Part> before) {
    const std::size_t skipped = before.empty() ? 0 : before[0].tokens.size();
    before.push_back({0, {tokens.begin() + begin, tokens.begin() + end}});
    const std::vector<float> y = runner.run(sequences.step(before)).at("y");
    chunked.insert(chunked.end(), y.begin() + static_cast<std::ptrdiff_t>(skipped * kHeads * kDim), y.end());
  };
  append(0, 1, {{1, {5, 9, 2}}});
  append(1, 70, {{1, {7}}});
  append(70, 90, {});
  sequences.rewind(0, 65);
  chunked.resize(65 * kHeads * kDim);
  append(65, 139, {{1, {1, 2}}});
  append(139, 140, {{1, {3}}});
  CHECK(chunked == whole);
}

TEST_CASE("reference: a short convolution is silu of the sum over a token and those before it") {
  constexpr std::int64_t kChannels = 5, kWidth = 3;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const Act x = input(b, weights, "x", kChannels, 41);
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {kWidth, kChannels}}, 42));
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Conv, {kChannels, kWidth - 1}});
  const Graph graph = std::move(b).finish(b.short_conv(x, w, state, "y"));
  const std::vector<float> xs = weights.decoded("x"), ws = weights.decoded("w");
  std::vector<double> expected;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      double sum = 0;
      for (std::int64_t back = 0; back < kWidth && back <= t; ++back)
        sum += double{ws[at(c * kWidth + kWidth - 1 - back)]} * double{xs[at((t - back) * kChannels + c)]};
      expected.push_back(sum / (1 + std::exp(-sum)));
    }
  }
  check_close(run_once(graph, weights)["y"], expected);
}

namespace {

struct DeltaSizes {
  std::int64_t heads, key_heads, dk, dv;
  HeadSharing sharing;
  std::int64_t decays = 1;  ///< of a head; or dk
  float floor = 0;
};
constexpr float kDeltaEps = 0.25f;

Graph delta_graph(const DeltaSizes& d, MemoryWeights& weights, int tokens, int sequences = 1) {
  GraphBuilder b({tokens, sequences, tokens});
  const Act qkv = input(b, weights, "qkv", 2 * d.key_heads * d.dk + d.heads * d.dv, 51, tokens);
  const Act alpha = input(b, weights, "alpha", d.heads * d.decays, 52, tokens),
            beta = input(b, weights, "beta", d.heads, 53, tokens);
  const Weight a = b.weight("a", weights.add_random("a", {DType::F32, {d.heads}}, 54));
  const Weight bias = b.weight("bias", weights.add_random("bias", {DType::F32, {d.heads * d.decays}}, 55));
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Delta, {d.dv, d.dk, d.heads}});
  const Act y = b.gated_delta(
      {qkv, alpha, beta, a, bias, state},
      {.key_heads = static_cast<int>(d.key_heads), .sharing = d.sharing, .eps = kDeltaEps, .floor = d.floor}, "y");
  return std::move(b).finish(b.scale(b.flatten_heads(y, "flat"), 1, "all"));
}

/// S_t = S_(t-1) decay (1 - beta k k^T) + beta v k^T and o = S q, the form of arXiv:2412.06464, by whole matrices;
/// decay is a number or, as arXiv:2510.26692 has it, a diagonal matrix.
std::vector<double> delta_by_matrices(const DeltaSizes& d, const MemoryWeights& weights, std::int64_t tokens) {
  const std::vector<float> qkv = weights.decoded("qkv"), alpha = weights.decoded("alpha"),
                           beta = weights.decoded("beta"), a = weights.decoded("a"), bias = weights.decoded("bias");
  const std::int64_t width = 2 * d.key_heads * d.dk + d.heads * d.dv;
  std::vector<double> y(at(tokens * d.heads * d.dv));
  for (std::int64_t h = 0; h < d.heads; ++h) {
    const std::int64_t shared = d.heads / d.key_heads;
    const std::int64_t key_head = d.sharing == HeadSharing::Grouped ? h / shared : h % d.key_heads;
    std::vector<double> state(at(d.dv * d.dk));  // [dv][dk]
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto unit = [&](std::int64_t first) {
        std::vector<double> x(qkv.begin() + t * width + first, qkv.begin() + t * width + first + d.dk);
        const double length = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), double{kDeltaEps}));
        for (double& e : x) e /= length;
        return x;
      };
      const std::vector<double> q = unit(key_head * d.dk), k = unit((d.key_heads + key_head) * d.dk);
      const auto decay = [&](std::int64_t l) {
        const std::int64_t own = h * d.decays + l % d.decays;
        const double gate = double{alpha[at(t * d.heads * d.decays + own)]} + double{bias[at(own)]};
        if (d.floor < 0) return std::exp(d.floor / (1 + std::exp(-std::fabs(double{a[at(h)]}) * gate)));
        return std::exp(double{a[at(h)]} * std::log(1 + std::exp(gate)));
      };
      const double rate = 1 / (1 + std::exp(-double{beta[at(t * d.heads + h)]}));
      for (std::int64_t j = 0; j < d.dv; ++j) {
        const double v = qkv[at(t * width + 2 * d.key_heads * d.dk + h * d.dv + j)];
        std::vector<double> row(at(d.dk));
        for (std::int64_t i = 0; i < d.dk; ++i) {
          for (std::int64_t l = 0; l < d.dk; ++l)
            row[at(i)] += state[at(j * d.dk + l)] * decay(l) * ((l == i ? 1 : 0) - rate * k[at(l)] * k[at(i)]);
          row[at(i)] += rate * v * k[at(i)];
        }
        std::copy(row.begin(), row.end(), state.begin() + j * d.dk);
        for (std::int64_t i = 0; i < d.dk; ++i)
          y[at((t * d.heads + h) * d.dv + j)] += row[at(i)] * q[at(i)] / std::sqrt(static_cast<double>(d.dk));
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("reference: the gated delta rule is that of the paper, token by token") {
  constexpr DeltaSizes kSizes[] = {{6, 2, 5, 3, HeadSharing::Grouped},
                                   {6, 2, 5, 3, HeadSharing::Tiled},
                                   {6, 2, 5, 3, HeadSharing::Grouped, /*decays=*/1, /*floor=*/-1.5f},
                                   {3, 3, 5, 3, HeadSharing::Grouped, /*decays=*/5},
                                   {3, 3, 5, 3, HeadSharing::Grouped, /*decays=*/5, /*floor=*/-5}};
  for (const DeltaSizes& sizes : kSizes) {
    MemoryWeights weights;
    const Graph graph = delta_graph(sizes, weights, kTokens);
    const std::vector<float> actual = run_once(graph, weights)["all"];
    const std::vector<double> expected = delta_by_matrices(sizes, weights, kTokens);
    REQUIRE(actual.size() == expected.size());
    double largest = 0;
    for (const double y : expected) largest = std::max(largest, std::fabs(y));
    // The state is rounded after every token.
    for (std::size_t i = 0; i < actual.size(); ++i) CHECK(std::fabs(actual[i] - expected[i]) < 1e-6 * largest);
  }
}

TEST_CASE("reference: what goes on along a sequence does not depend on its chunks or its neighbours") {
  constexpr int kAll = 20;
  const DeltaSizes sizes{4, 2, 8, 6, HeadSharing::Grouped};
  MemoryWeights weights;
  const Graph graph = delta_graph(sizes, weights, kAll, 2);
  const auto backend = make_reference_backend();
  const std::vector<std::int32_t> tokens = all_tokens(kAll);
  TestSequences alone(2, kAll);
  GraphRunner whole(*backend, graph, weights, alone.n_blocks(), {}, {}, alone.n_slots());
  const std::vector<TestSequences::Part> at_once{{0, tokens}};
  const std::vector<float> expected = whole.run(alone.step(at_once))["all"];
  for (const std::size_t chunk : {1u, 3u, 7u}) {
    TestSequences together(2, kAll);
    GraphRunner parts(*backend, graph, weights, together.n_blocks(), {}, {}, together.n_slots());
    std::vector<float> got;
    for (std::size_t i = 0; i < tokens.size(); i += chunk) {
      const std::size_t n = std::min(chunk, tokens.size() - i);
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i);
      const std::vector<TestSequences::Part> step{{1, {5, 2}}, {0, {first, first + static_cast<std::ptrdiff_t>(n)}}};
      const std::vector<float> y = parts.run(together.step(step))["all"];
      got.insert(got.end(), y.begin() + 2 * sizes.heads * sizes.dv, y.end());
    }
    CHECK(got == expected);
  }
}

TEST_CASE("reference: a convolution may have a bias and no activation") {
  constexpr std::int64_t kChannels = 3, kWidth = 2;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const Act x = input(b, weights, "x", kChannels, 61);
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {kWidth, kChannels}}, 62));
  const Weight bias = b.weight("bias", weights.add_random("bias", {DType::F32, {kChannels}}, 63));
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Conv, {kChannels, kWidth - 1}});
  const Act y = b.short_conv(x, w, state, "y", {.activation = Activation::Identity}, &bias);
  const Graph graph = std::move(b).finish(y);
  const std::vector<float> xs = weights.decoded("x"), ws = weights.decoded("w"), offsets = weights.decoded("bias");
  std::vector<double> expected;
  for (std::int64_t i = 0; i < kTokens * kChannels; ++i) {
    const std::int64_t c = i % kChannels;
    const double before = i < kChannels ? 0 : double{xs[at(i - kChannels)]};
    expected.push_back(double{ws[at(c * kWidth)]} * before + double{ws[at(c * kWidth + 1)]} * double{xs[at(i)]} +
                       double{offsets[at(c)]});
  }
  check_close(run_once(graph, weights)["y"], expected);
}

TEST_CASE("reference: a selective state space is a sum over the tokens before, weighted by what decayed since") {
  constexpr std::int64_t kHeads = 4, kGroups = 2, kN = 5, kP = 3;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const std::int64_t width = kHeads * kP + 2 * kGroups * kN;
  const Act xbc = input(b, weights, "xbc", width, 71), dt = input(b, weights, "dt", kHeads, 72);
  const auto of_heads = [&](const char* name, Shape shape, std::uint32_t seed) {
    return b.weight(name, weights.add_random(name, {DType::F32, shape}, seed));
  };
  const Weight a = of_heads("a", {1, kHeads}, 73), d = of_heads("d", {1, kHeads}, 74),
               bias = of_heads("bias", {kHeads}, 75);
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Scan, {kP, kN, kHeads}});
  const Act y = b.selective_scan({xbc, dt, a, d, bias, state}, {.groups = kGroups}, "y");
  const Graph graph = std::move(b).finish(b.scale(b.flatten_heads(y, "flat"), 1, "all"));
  const auto all = weights.decoded("xbc"), steps = weights.decoded("dt"), as = weights.decoded("a"),
             ds = weights.decoded("d"), biases = weights.decoded("bias");
  // y_t = sum over s <= t of (C_t B_s) exp(a (step_(s+1) + ... + step_t)) step_s x_s + d x_t: the dual form of
  // arXiv:2405.21060, section 3.
  std::vector<double> expected(at(kTokens * kHeads * kP));
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::int64_t group = h / (kHeads / kGroups);
    const auto step = [&](std::int64_t t) {
      return std::log(1 + std::exp(double{steps[at(t * kHeads + h)]} + double{biases[at(h)]}));
    };
    const auto b_of = [&](std::int64_t t, std::int64_t i) {
      return double{all[at(t * width + kHeads * kP + group * kN + i)]};
    };
    const auto c_of = [&](std::int64_t t, std::int64_t i) {
      return double{all[at(t * width + kHeads * kP + (kGroups + group) * kN + i)]};
    };
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t s = 0; s <= t; ++s) {
        double product = 0, since = 0;
        for (std::int64_t i = 0; i < kN; ++i) product += c_of(t, i) * b_of(s, i);
        for (std::int64_t u = s + 1; u <= t; ++u) since += step(u);
        for (std::int64_t j = 0; j < kP; ++j)
          expected[at((t * kHeads + h) * kP + j)] +=
              product * std::exp(double{as[at(h)]} * since) * step(s) * double{all[at(s * width + h * kP + j)]};
      }
      for (std::int64_t j = 0; j < kP; ++j)
        expected[at((t * kHeads + h) * kP + j)] += double{ds[at(h)]} * double{all[at(t * width + h * kP + j)]};
    }
  }
  const std::vector<float> actual = run_once(graph, weights)["all"];
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  for (const double e : expected) largest = std::max(largest, std::fabs(e));
  for (std::size_t i = 0; i < actual.size(); ++i) CHECK(std::fabs(actual[i] - expected[i]) < 1e-6 * largest);
}

TEST_CASE("reference: a mean of the last rows, and a convolution of rows that are apart") {
  constexpr std::int64_t kChannels = 5, kWidth = 3, kApart = 2;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const Act x = input(b, weights, "x", kChannels, 41);
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {kWidth, kChannels}}, 42));
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Conv, {kChannels, (kWidth - 1) * kApart}});
  const Recurrent rows = b.recurrent({0, RecurrentType::Part::Mean, {kChannels, kWidth - 1}});
  const Act mean = b.window_mean(x, rows, kWidth, "mean");
  const ShortConv apart{.activation = Activation::Identity, .dilation = kApart};
  const Graph graph = std::move(b).finish(b.add(mean, b.short_conv(x, w, state, "apart", apart), "y"));
  const Results results = run_once(graph, weights, {"mean", "apart"});
  const std::vector<float> xs = weights.decoded("x"), ws = weights.decoded("w");
  std::vector<double> means, convolved;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      double sum = 0, product = 0;
      for (std::int64_t back = 0; back < kWidth; ++back) {
        if (back <= t) sum += double{xs[at((t - back) * kChannels + c)]};
        if (back * kApart <= t)
          product +=
              double{ws[at(c * kWidth + kWidth - 1 - back)]} * double{xs[at((t - back * kApart) * kChannels + c)]};
      }
      means.push_back(sum / kWidth);
      convolved.push_back(product);
    }
  }
  check_close(results.at("mean"), means);
  check_close(results.at("apart"), convolved);
}

TEST_CASE("reference: a gated mean of streams, and how well they go with others") {
  constexpr std::int64_t kWidth = 5, kStreams = 3;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = b.split_heads(input(b, weights, "x", kWidth * kStreams, 1), kStreams, "streams");
  const Act g = b.split_heads(input(b, weights, "g", kWidth * kStreams, 2), kStreams, "gates");
  const Act match = b.match_gate(x, g, "match");
  const Act spread = b.stream_mix(b.split_heads(b.stream_mean(x, g, "mean"), 1, "one"),
                                  b.split_heads(match, kStreams, "matches"), "spread");
  const Graph graph = std::move(b).finish(b.scale(spread, 1, "y"));
  const Results results = run_once(graph, weights, {"mean", "match"});
  const auto xs = weights.decoded("x"), gs = weights.decoded("g");
  std::vector<double> means, matches;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t e = 0; e < kWidth; ++e) {
      double sum = 0;
      for (std::int64_t i = 0; i < kStreams; ++i) {
        const std::size_t j = at((t * kStreams + i) * kWidth + e);
        sum += double{xs[j]} / (1 + std::exp(-double{gs[j]}));
      }
      means.push_back(sum / kStreams);
    }
    for (std::int64_t i = 0; i < kStreams; ++i) {
      double product = 0;
      for (std::int64_t e = 0; e < kWidth; ++e) {
        const std::size_t j = at((t * kStreams + i) * kWidth + e);
        product += double{xs[j]} * double{gs[j]};
      }
      const double s = product / std::sqrt(static_cast<double>(kWidth));
      matches.push_back(1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(s), 1e-6)), s))));
    }
  }
  check_close(results.at("mean"), means);
  check_close(results.at("match"), matches);
}

/// The sums by an arithmetic of their own: of 128 bits, of which the lower half counts.
TEST_CASE("reference: ids are hashes of the last tokens up to one that stops, however a text is cut") {
  const HashIds op{
      {0xfd17'0cd8'6f2b'1133, 0xaf3a'11c5'9e47'7791, 0xcb07'7721'5de3'0021}, {13, 7, 1, 29}, {0, 13, 20, 21}, 4};
  const std::vector<std::int32_t> text{3, 4, 1, 0, 4, 4, 2, 3, 1, 2};
  std::vector<float> expected;
  for (std::size_t t = 0; t < text.size(); ++t) {
    for (std::size_t h = 0; h < 4; ++h) {
      std::uint64_t mixed = 0;
      for (std::size_t back = 0; back < (h < 2 ? 2u : 3u); ++back) {
        bool stopped = back > t;
        for (std::size_t i = 1; i <= std::min(back, t); ++i) stopped = stopped || text[t - i] == op.stop;
        const std::int32_t token = stopped ? op.stop : text[t - back];
        const unsigned __int128 product =
            static_cast<unsigned __int128>(op.multipliers[back]) * static_cast<unsigned>(token);
        mixed ^= static_cast<std::uint64_t>(product & ~std::uint64_t{0});
      }
      expected.push_back(static_cast<float>(op.offsets[h]) +
                         static_cast<float>(mixed % static_cast<std::uint64_t>(op.sizes[h])));
    }
  }
  MemoryWeights weights;
  GraphBuilder b({16, 1, 16});
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Hash, {2}});
  const Index ids = b.hash_ids(b.step_input(StepInput::Tokens), state, op, "ids");
  const Weight table = b.weight("table", weights.add_random("table", {DType::F32, {3, 50}}, 5));
  const Graph graph = std::move(b).finish(b.scale(b.embed(table, ids, "rows"), 1, "y"));
  const auto backend = make_reference_backend();
  const std::vector<float> rows = weights.decoded("table");
  for (const std::vector<int>& cuts : {std::vector<int>{10}, {1, 1, 1, 7}, {2, 3, 5}}) {
    TestSequences sequences(1, 64);
    GraphRunner runner(*backend, graph, weights, sequences.n_blocks(), {DType::F32, DType::F32}, {"ids"},
                       sequences.n_slots());
    std::vector<float> found, values;
    std::size_t begin = 0;
    for (const int n : cuts) {
      const TestSequences::Part part{
          0,
          {text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(begin) + n}};
      begin += static_cast<std::size_t>(n);
      const Results results = runner.run(sequences.step({&part, 1}));
      found.insert(found.end(), results.at("ids").begin(), results.at("ids").end());
      values.insert(values.end(), results.at("y").begin(), results.at("y").end());
    }
    CHECK(found == expected);
    for (std::size_t i = 0; i < found.size(); ++i)
      for (std::size_t e = 0; e < 3; ++e)
        CHECK(values[i * 3 + e] == rows[static_cast<std::size_t>(expected[i]) * 3 + e]);
  }
}

TEST_CASE("reference: streams are added to from one on, and mixed by weights of each row") {
  constexpr std::int64_t kWidth = 5, kStreams = 3, kMixed = 2;
  constexpr int kFirst = 1;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = b.split_heads(input(b, weights, "x", kWidth * kStreams, 1), kStreams, "streams");
  const Act w = b.split_heads(input(b, weights, "w", kStreams * kMixed, 2), kMixed, "of_mixed");
  const Act added = input(b, weights, "added", kWidth, 3), gains = input(b, weights, "gains", kStreams, 4);
  const Act plain = b.stream_add(x, added, nullptr, {.first = kFirst}, "plain");
  const Act gained = b.stream_add(plain, added, &gains, {.first = kFirst}, "gained");
  const Graph graph = std::move(b).finish(b.scale(b.stream_mix(gained, w, "mixed"), 1, "y"));
  const Results results = run_once(graph, weights, {"plain", "gained"});
  const auto xs = weights.decoded("x"), ws = weights.decoded("w"), as = weights.decoded("added"),
             gs = weights.decoded("gains");
  std::vector<double> sums, gained_sums, mixes;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t i = 0; i < kStreams; ++i) {
      for (std::int64_t e = 0; e < kWidth; ++e) {
        const double more = i >= kFirst ? double{as[at(t * kWidth + e)]} : 0;
        sums.push_back(double{xs[at((t * kStreams + i) * kWidth + e)]} + more);
        gained_sums.push_back(static_cast<float>(sums.back()) + (1 + double{gs[at(t * kStreams + i)]}) * more);
      }
    }
    for (std::int64_t j = 0; j < kMixed; ++j) {
      for (std::int64_t e = 0; e < kWidth; ++e) {
        double sum = 0;
        for (std::int64_t i = 0; i < kStreams; ++i)
          sum += double{ws[at((t * kMixed + j) * kStreams + i)]} *
                 static_cast<float>(gained_sums[at((t * kStreams + i) * kWidth + e)]);
        mixes.push_back(sum);
      }
    }
  }
  check_close(results.at("plain"), sums);
  check_close(results.at("gained"), gained_sums);
  check_close(results.at("y"), mixes);
}

TEST_CASE("reference: what stands out of a row is what lies above its mean by so many deviations") {
  // Of 1, 2, 3, 4, 10: the mean is 4, the variance 50 / 4; 2 and 4 are 3 and a variance of 2.
  const auto top = [](const std::vector<float>& row, float deviations) {
    const auto n = static_cast<std::int64_t>(row.size());
    MemoryWeights weights;
    weights.add("x", {DType::F32, {n, 1}}, row);
    GraphBuilder b({1, 1, 1});
    const Act x = b.embed(b.weight("x", {DType::F32, {n, 1}}), b.step_input(StepInput::Tokens), "in");
    const Graph graph = std::move(b).finish(b.gaussian_top(x, deviations, "y"));
    return run_once(graph, weights).at("y");
  };
  check_close(top({1, 2, 3, 4, 10}, 0.5f), {0, 0, 0, 0, 6 - 0.5 * std::sqrt(12.5)});
  check_close(top({1, 10, 3, 4, 2}, 0), {0, 6, 0, 0, 0});
  check_close(top({2, 4}, 0.5f), {0, 1 - 0.5 * std::numbers::sqrt2});
  check_close(top({2, 4}, -2), {-1 + 2 * std::numbers::sqrt2, 1 + 2 * std::numbers::sqrt2});
  for (const float y : top({1, std::numeric_limits<float>::quiet_NaN(), 3}, 1)) CHECK(std::isnan(y));
}

TEST_CASE("reference: the scale of a position grows with the logarithm of its lengths of context") {
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = input(b, weights, "x", 3, 1);
  const Index positions = b.step_input(StepInput::Positions);
  const Act late = b.position_scale({.slope = 0.3f, .length = 3}, positions, "late");
  const Act early = b.position_scale({.slope = 2, .length = 3, .offset = 1}, positions, "early");
  const Act scaled = b.glu(Activation::Identity, late, x, "scaled");
  const Graph graph = std::move(b).finish(b.glu(Activation::Identity, early, scaled, "y"));
  const Results results = run_once(graph, weights, {"late", "early", "scaled"});
  const double one = std::numbers::ln2, two = std::log(3.0), slope = double{0.3f};
  check_close(results.at("late"), {1, 1, 1, 1 + slope * one, 1 + slope * one, 1 + slope * one, 1 + slope * two});
  check_close(results.at("early"), {1, 1, 1 + 2 * one, 1 + 2 * one, 1 + 2 * one, 1 + 2 * two, 1 + 2 * two});
  std::vector<double> products;
  for (std::size_t i = 0; i < at(kTokens * 3); ++i)
    products.push_back(double{weights.decoded("x")[i]} * results.at("late")[i / 3]);
  check_close(results.at("scaled"), products);
}

TEST_CASE("reference: a selective state space whose elements have steps of their own") {
  constexpr std::int64_t kN = 5, kP = 6;
  GraphBuilder b({kTokens, 1, kTokens});
  MemoryWeights weights;
  const std::int64_t width = kP + 2 * kN;
  const Act xbc = input(b, weights, "xbc", width, 76), dt = input(b, weights, "dt", kP, 77);
  const auto made = [&](const char* name, Shape shape, std::uint32_t seed) {
    return b.weight(name, weights.add_random(name, {DType::F32, shape}, seed));
  };
  const Weight a = made("a", {kN, kP}, 78), d = made("d", {kP}, 79), bias = made("bias", {kP}, 80);
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Scan, {kP, kN, 1}});
  const Act y = b.selective_scan({xbc, dt, a, d, bias, state}, {.groups = 1}, "y");
  const Graph graph = std::move(b).finish(b.scale(b.flatten_heads(y, "flat"), 1, "all"));
  const auto all = weights.decoded("xbc"), steps = weights.decoded("dt"), as = weights.decoded("a"),
             ds = weights.decoded("d"), biases = weights.decoded("bias");
  // h_t = exp(step_t a) h_(t-1) + step_t B_t x_t and y_t = C_t h_t + d x_t: arXiv:2312.00752, section 2, unrolled.
  std::vector<double> expected(at(kTokens * kP));
  for (std::int64_t j = 0; j < kP; ++j) {
    const auto step = [&](std::int64_t t) {
      return std::log(1 + std::exp(double{steps[at(t * kP + j)]} + double{biases[at(j)]}));
    };
    for (std::int64_t t = 0; t < kTokens; ++t) {
      double& sum = expected[at(t * kP + j)];
      sum = double{ds[at(j)]} * double{all[at(t * width + j)]};
      for (std::int64_t s = 0; s <= t; ++s) {
        double since = 0;
        for (std::int64_t u = s + 1; u <= t; ++u) since += step(u);
        for (std::int64_t i = 0; i < kN; ++i)
          sum += double{all[at(t * width + kP + kN + i)]} * std::exp(double{as[at(j * kN + i)]} * since) * step(s) *
                 double{all[at(s * width + kP + i)]} * double{all[at(s * width + j)]};
      }
    }
  }
  const std::vector<float> actual = run_once(graph, weights)["all"];
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  for (const double e : expected) largest = std::max(largest, std::fabs(e));
  for (std::size_t i = 0; i < actual.size(); ++i) CHECK(std::fabs(actual[i] - expected[i]) < 1e-6 * largest);
}

TEST_CASE("reference: routes, expert products and their weighted sum") {
  constexpr std::int64_t kWidth = 12, kOut = 3;
  constexpr int kExperts = 5, kTop = 2;
  for (const RouteWeights mode : {RouteWeights::AsGated, RouteWeights::Renormalized}) {
    MemoryWeights weights;
    GraphBuilder b({kTokens, 1, kTokens});
    const Act x = input(b, weights, "x", kWidth, 1);
    const Act logits = input(b, weights, "logits", kExperts, 2);
    const Routes r = b.route(logits, {.top_k = kTop, .weights = mode, .scale = 2}, "routes");
    const Weight w = b.weight("w", weights.add_random("w", {DType::F16, {kWidth, kOut, kExperts}}, 3));
    const Weight bias = b.weight("bias", weights.add_random("bias", {DType::F32, {kOut, kExperts}}, 4));
    const Weight scale = b.weight("scale", weights.add_random("scale", {DType::F32, {kExperts}}, 5));
    const Graph graph =
        std::move(b).finish(b.combine(b.expert_linear(x, r.expert, {w, &bias, "each", &scale}), r.weight, "y"));
    const Results results = run_once(graph, weights, {"routes", "routes_weights", "each"});

    const std::vector<float> xs = weights.decoded("x"), ls = weights.decoded("logits"), ws = weights.decoded("w");
    std::vector<float> ids;
    std::vector<double> gates, each, sums(kTokens * kOut, 0.0);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      std::vector<std::int64_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      const auto logit = [&](std::int64_t e) { return double{ls[at(t * kExperts + e)]}; };
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto c) { return logit(a) > logit(c); });
      double total = 0;
      for (int i = 0; i < (mode == RouteWeights::AsGated ? kExperts : kTop); ++i)
        total += std::exp(logit(order[at(i)]));
      for (int slot = 0; slot < kTop; ++slot) {
        const std::int64_t e = order[at(slot)];
        ids.push_back(static_cast<float>(e));
        gates.push_back(2 * std::exp(logit(e)) / total);
        for (std::int64_t n = 0; n < kOut; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < kWidth; ++k)
            sum += double{ws[at((e * kOut + n) * kWidth + k)]} * xs[at(t * kWidth + k)];
          sum = sum * double{weights.decoded("scale")[at(e)]} + double{weights.decoded("bias")[at(e * kOut + n)]};
          each.push_back(sum);
          sums[at(t * kOut + n)] += static_cast<float>(gates.back()) * double{static_cast<float>(sum)};
        }
      }
    }
    CHECK(results.at("routes") == ids);
    check_close(results.at("routes_weights"), gates);
    check_close(results.at("each"), each);
    for (std::size_t i = 0; i < sums.size(); ++i) CHECK(results.at("y")[i] == Approx(sums[i]).epsilon(2e-7));
  }
}

TEST_CASE("reference: weights of the logits near the best") {
  // Of each choice: a softmax from which the experts chosen before, and those too far from the best one, are left out.
  struct Case {
    std::vector<float> logits;
    double first, second;
  };
  const auto of = [](double others) { return 1 / (1 + others); };
  const double sixteenth = std::exp(-0.0625), half_of_it = std::exp(-0.03125);
  const std::vector<Case> cases = {
      {{5, 1, 4, 2}, 1, 1},
      {{5, 4.9375f, 4, 2}, of(sixteenth), 1},
      {{4, 4.0625f, 4.03125f, 4}, of(half_of_it + 2 * sixteenth), of(2 * half_of_it)},
      {{-2, -2.03125f, -9, -3}, of(half_of_it), 1},
      {{0, 0, 0, 0}, of(3), of(2)},
  };
  std::vector<float> rows;
  std::vector<double> expected;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const Case& c = cases[at(t) % cases.size()];
    rows.insert(rows.end(), c.logits.begin(), c.logits.end());
    for (const double weight : {c.first, c.second}) expected.push_back(weight);
  }
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  weights.add("rows", {DType::F32, {4, kTokens}}, rows);
  const Weight table = b.weight("rows", {DType::F32, {4, kTokens}});
  const Act logits = b.embed(table, b.step_input(StepInput::Tokens), "logits");
  const Routes r = b.route(logits, {.top_k = 2, .weights = RouteWeights::NearBest}, "routes");
  const Graph graph = std::move(b).finish(b.scale(r.weight, 1, "y"));
  check_close(run_once(graph, weights)["y"], expected);
}

TEST_CASE("reference: products of each head, parts of heads and what is put behind them") {
  constexpr std::int64_t kHeads = 3, kWidth = 5, kOut = 2;
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = b.split_heads(input(b, weights, "x", kHeads * kWidth, 1), kHeads, "heads");
  const Act one = b.split_heads(input(b, weights, "one", 2, 2), 1, "one_head");
  const Act part = b.slice(x, {1, 3}, "part");
  const Index ids = b.head_ids(part, "ids");
  const Weight w = b.weight("w", weights.add_random("w", {DType::F32, {3, kOut, kHeads}}, 3));
  const Act y = b.expert_linear(part, ids, {w, nullptr, "y"});
  const Act own = b.concat(part, y, "own");
  const Graph graph = std::move(b).finish(b.scale(b.concat(own, one, "all"), 1, "out"));
  const Results results = run_once(graph, weights, {"ids", "part", "all"});
  const std::vector<float> xs = weights.decoded("x"), ones = weights.decoded("one"), ws = weights.decoded("w");
  std::vector<float> expected_ids, parts;
  std::vector<double> all;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      expected_ids.push_back(static_cast<float>(h));
      for (std::int64_t i = 0; i < 3; ++i) parts.push_back(xs[at((t * kHeads + h) * kWidth + 1 + i)]);
      const float* const of_head = parts.data() + parts.size() - 3;
      all.insert(all.end(), of_head, of_head + 3);
      for (std::int64_t n = 0; n < kOut; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < 3; ++k) sum += double{of_head[k]} * ws[at((h * kOut + n) * 3 + k)];
        all.push_back(sum);
      }
      for (std::int64_t i = 0; i < 2; ++i) all.push_back(ones[at(t * 2 + i)]);
    }
  }
  CHECK(results.at("ids") == expected_ids);
  CHECK(results.at("part") == parts);
  check_close(results.at("all"), all);
}

TEST_CASE("reference: gates by a sigmoid, a bias for the choice alone, groups of experts") {
  constexpr int kExperts = 12, kTop = 4;
  for (const bool biased : {false, true}) {
    for (const int best : {1, 2}) {
      for (const int used : {2, 3, 4}) {
        INFO((biased ? "biased, " : "") << used << " groups of 4 by their best " << best);
        MemoryWeights weights;
        GraphBuilder b({kTokens, 1, kTokens});
        const Act logits = input(b, weights, "logits", kExperts, 3);
        const Weight bias = b.weight("bias", weights.add_random("bias", {DType::F32, {kExperts}}, 4));
        const Route op{.top_k = kTop,
                       .gating = Gating::Sigmoid,
                       .weights = RouteWeights::Renormalized,
                       .scale = 2.5f,
                       .groups = 4,
                       .groups_used = used,
                       .group_best = best};
        const Routes r = b.route(logits, op, "routes", biased ? &bias : nullptr);
        const Graph graph = std::move(b).finish(r.weight);
        const Results results = run_once(graph, weights, {"routes", "routes_weights"});
        const std::vector<float> ls = weights.decoded("logits"), bs = weights.decoded("bias");
        std::vector<float> ids;
        std::vector<double> gates;
        for (std::int64_t t = 0; t < kTokens; ++t) {
          const auto gate = [&](int e) { return 1 / (1 + std::exp(-double{ls[at(t * kExperts + e)]})); };
          const auto score = [&](int e) { return gate(e) + (biased ? double{bs[at(e)]} : 0); };
          std::vector<std::pair<double, int>> groups, experts;
          for (int g = 0; g < 4; ++g) {
            std::vector<double> of_group = {score(3 * g), score(3 * g + 1), score(3 * g + 2)};
            std::ranges::sort(of_group, std::greater<>());
            groups.emplace_back(of_group[0] + (best == 2 ? of_group[1] : 0), g);
          }
          std::ranges::sort(groups, std::greater<>());
          for (int i = 0; i < used; ++i)
            for (int e = 3 * groups[at(i)].second; e < 3 * groups[at(i)].second + 3; ++e)
              experts.emplace_back(score(e), e);
          std::ranges::sort(experts, std::greater<>());
          double total = 0;
          for (int slot = 0; slot < kTop; ++slot) total += gate(experts[at(slot)].second);
          for (int slot = 0; slot < kTop; ++slot) {
            ids.push_back(static_cast<float>(experts[at(slot)].second));
            gates.push_back(2.5 * gate(experts[at(slot)].second) / total);
          }
        }
        CHECK(results.at("routes") == ids);
        check_close(results.at("routes_weights"), gates);
      }
    }
  }
}

TEST_CASE("reference: equal logits go to the lowest expert") {
  MemoryWeights weights;
  GraphBuilder b({1, 1, 1});
  const std::vector<float> logits{1, 3, 2, 3, 3, 0};
  const TensorType& type = weights.add("x", {DType::F32, {6, 1}}, logits);
  const Routes r = b.route(b.embed(b.weight("x", type), b.step_input(StepInput::Tokens), "in"), {.top_k = 4}, "routes");
  const Graph graph = std::move(b).finish(r.weight);
  CHECK(run_once(graph, weights, {"routes"}).at("routes") == std::vector<float>{1, 3, 4, 2});
}

TEST_CASE("weights that must be read give the results of mapped ones") {
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  const Act x = input(b, weights, "x", 64, 1);
  const Weight w = b.weight("w", weights.add_random("w", {DType::Q5_1, {64, 9}}, 2));
  const Graph graph = std::move(b).finish(b.linear(x, {w, nullptr, "y"}));
  const Results mapped = run_once(graph, weights);
  weights.only_by_reading();
  CHECK(run_once(graph, weights) == mapped);
}

TEST_CASE("what a matrix cannot be is refused with a reason") {
  const auto backend = make_reference_backend();
  MemoryWeights weights;
  GraphBuilder b({1, 1, 1});
  const Act x = input(b, weights, "x", 256, 1, 1);
  const Weight w = b.weight("w", weights.add_random("w", {DType::Q8_K, {256, 2}}, 2));
  const Graph graph = std::move(b).finish(b.linear(x, {w, nullptr, "y"}));
  const Support support = backend->supports(graph, graph.nodes().back());
  CHECK_FALSE(support.ok);
  CHECK(support.reason.find("Q8_K") != std::string::npos);
  CHECK(support.reason.find("\"w\"") != std::string::npos);
  CHECK_THROWS_AS(GraphRunner(*backend, graph, weights), Error);
}

namespace {
class Timings final : public Observer {
 public:
  bool wants_timings() override { return true; }
  void timing(const StepTiming& t) override { all.push_back(t); }
  std::vector<StepTiming> all;
};
}  // namespace

TEST_CASE("watching changes no bit, and timings count what a node moves and computes") {
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  b.set_place(4, Role::Ffn, "blk.4.");
  const Act x = input(b, weights, "x", 64, 1);
  const Weight w = b.weight("w", weights.add_random("w", {DType::Q8_0, {64, 9}}, 2));
  const Graph graph = std::move(b).finish(b.linear(x, {w, nullptr, "y"}));
  const auto backend = make_reference_backend();
  TestSequences sequences(1, kTokens);
  GraphRunner runner(*backend, graph, weights);
  const std::vector<TestSequences::Part> parts{{0, {3, 1, 2}}};
  runner.program().observe(nullptr);
  const Results alone = runner.run(sequences.step(parts));
  sequences.rewind(0, 0);
  Timings timings;
  runner.program().observe(&timings);
  CHECK(runner.run(sequences.step(parts)) == alone);
  REQUIRE(timings.all.size() == 2);
  CHECK(timings.all[1].op == name(graph.nodes()[1].op));
  CHECK(timings.all[1].value == "blk.4.y");
  CHECK(timings.all[1].layer == 4);
  CHECK(timings.all[1].operations == 2 * 64 * 9 * 3);
  CHECK(timings.all[1].bytes == 9 * 2 * 34 + 3 * 64 * 4 + 3 * 9 * 4);
}

TEST_CASE("segments hand their values over by name") {
  MemoryWeights weights;
  GraphBuilder b({kTokens, 1, kTokens});
  b.set_place(0, Role::Ffn, "a.");
  const Act x = input(b, weights, "x", 16, 1);
  const Act y = b.glu(Activation::Silu, x, b.scale(x, 2, "twice"), "y");
  b.set_place(1, Role::Ffn, "b.");
  const Act z = b.linear(y, {b.weight("w", weights.add_random("w", {DType::F32, {16, 5}}, 2)), nullptr, "z"});
  const Graph whole = std::move(b).finish(b.add(z, z, "sum"));
  PlacementRule second;
  second.first_layer = second.last_layer = 1;
  second.backend = 1;
  const std::vector<Segment> segments = partition(whole, std::vector<PlacementRule>{{}, second});
  REQUIRE(segments.size() == 2);

  const auto backend = make_reference_backend();
  TestSequences sequences(1, kTokens);
  const std::vector<TestSequences::Part> parts{{0, {6, 2, 4}}};
  const TestStep step = sequences.step(parts);
  const Results first = GraphRunner(*backend, segments[0].graph, weights).run(step);
  const Results last = GraphRunner(*backend, segments[1].graph, weights).run(step, first);
  CHECK(last.at("b.sum") == GraphRunner(*backend, whole, weights).run(step).at("b.sum"));
}

}  // namespace llm::test
