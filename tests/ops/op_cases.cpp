#include "op_cases.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "graph/passes/passes.h"
#include "op_stage.h"

namespace llm::test {
namespace {

/// Row lengths that a type allows: one block, an odd number of blocks; for types without blocks odd lengths.
std::vector<std::int64_t> row_lengths(const DTypeInfo& type) {
  if (!type.quantized()) return {1, 37, 160, 257};
  const std::int64_t block = type.block_elems;
  return {block, 3 * block, 5 * block};
}

void add_embed(std::vector<OpCase>& cases) {
  for (const DTypeInfo& type : dtypes()) {
    if (type.use != DTypeUse::Weight) continue;
    for (const std::int64_t width : row_lengths(type)) {
      cases.push_back({label("embed", {{"width", width}}, type.name), [=, dtype = type.dtype] {
                         Stage s(13);
                         const Weight table = s.weight("table", dtype, {width, kInputRows}, 3);
                         const Act y = s.builder.embed(table, s.builder.step_input(StepInput::Tokens), "y");
                         return std::move(s).finish(y, one_step(13), 0);
                       }});
    }
  }
  cases.push_back({"embed of positions", [] {
                     Stage s(9);
                     const Weight table = s.weight("table", DType::F32, {37, 14}, 4);
                     const Act y = s.builder.embed(table, s.builder.step_input(StepInput::Positions), "y");
                     return std::move(s).finish(y, full_and_partial(9), 0);
                   }});
}

OpScene linear_scene(DType dtype, std::int64_t k, std::int64_t n, int rows) {
  Stage s(rows);
  const Act x = s.input("x", k, 11);
  const Act y = s.builder.linear(x, {s.weight("w", dtype, {k, n}, 12), nullptr, "y"});
  OpScene scene = std::move(s).finish(y, full_and_partial(rows), k);
  scene.magnitude = std::sqrt(static_cast<double>(k));
  return scene;
}

void add_linear(std::vector<OpCase>& cases) {
  struct Size {
    std::int64_t n;
    int rows;
  };
  // Around the heights and widths of tiles, and past one panel of decoded rows.
  constexpr Size kSizes[] = {{1, 1}, {7, 1}, {33, 1}, {300, 1}, {7, 2}, {33, 3}, {64, 9}, {33, 17}, {300, 33}};
  for (const DTypeInfo& type : dtypes()) {
    if (type.use != DTypeUse::Weight) continue;
    for (const std::int64_t k : row_lengths(type)) {
      // All sizes at one length of rows: the tests of kernels go through sizes and lengths of every type together.
      const bool middle = k == row_lengths(type)[1];
      for (const Size size : kSizes) {
        if (!middle && size.rows != 1 && size.n != 300) continue;
        cases.push_back({label("linear", {{"k", k}, {"n", size.n}, {"rows", size.rows}}, type.name),
                         [=, dtype = type.dtype] { return linear_scene(dtype, k, size.n, size.rows); }});
      }
    }
  }
}

/// Three products of one input, of different types, with biases and a scale, as one node: the sum makes one output of
/// them.
OpScene merged_scene(DType a, DType b, DType c, int rows) {
  constexpr std::int64_t kWidth = 512, kOut = 70;
  Stage s(rows);
  const Act x = s.input("x", kWidth, 21);
  const Weight bias = s.weight("bias", DType::F32, {kOut}, 22, 10.0f);
  const Act p = s.builder.linear(x, {s.weight("wa", a, {kWidth, kOut}, 23), nullptr, "p"});
  const Act q = s.builder.linear(x, {s.weight("wb", b, {kWidth, kOut}, 24), &bias, "q"});
  const Weight scale = s.gains("scale", 1, 26);
  const Act r = s.builder.linear(x, {s.weight("wc", c, {kWidth, kOut}, 25), &bias, "r", &scale});
  const Act y = s.builder.add(s.builder.add(p, q, "pq"), r, "y");
  OpScene scene = std::move(s).finish(y, full_and_partial(rows), kWidth);
  scene.magnitude = std::sqrt(static_cast<double>(kWidth));
  scene.graph = merge_linears(scene.graph);
  scene.observed = {"p", "q", "r"};
  return scene;
}

void add_merged_linear(std::vector<OpCase>& cases) {
  for (const int rows : {1, 6, 19}) {
    cases.push_back({label("merged linear Q4_K Q6_K F16 with biases and a scale", {{"rows", rows}}),
                     [=] { return merged_scene(DType::Q4_K, DType::Q6_K, DType::F16, rows); }});
    cases.push_back({label("merged linear Q8_0 Q4_0 Q5_K with biases and a scale", {{"rows", rows}}),
                     [=] { return merged_scene(DType::Q8_0, DType::Q4_0, DType::Q5_K, rows); }});
    cases.push_back({label("merged linear F32 BF16 Q8_0 with biases and a scale", {{"rows", rows}}),
                     [=] { return merged_scene(DType::F32, DType::BF16, DType::Q8_0, rows); }});
  }
}

/// Route; a product per chosen expert from one row per token, another from one row per slot; the weighted sum of the
/// latter.
OpScene experts_scene(DType dtype, std::int64_t k, int n_experts, int top_k, int rows) {
  constexpr std::int64_t kOut = 19;
  Stage s(rows);
  const Act x = s.input("x", k, 31);
  const Act slots = s.builder.split_heads(s.input("z", k * top_k, 30), top_k, "slots");
  const Routes routes = s.builder.route(s.input("logits", n_experts, 32), {.top_k = top_k}, "routes");
  const Act up =
      s.builder.expert_linear(x, routes.expert, {s.weight("up", dtype, {k, 2 * kOut, n_experts}, 33), nullptr, "up_y"});
  const Act down = s.builder.expert_linear(slots, routes.expert,
                                           {s.weight("down", dtype, {k, kOut, n_experts}, 34), nullptr, "down_y"});
  const Act y = s.builder.combine(down, routes.weight, "y");
  (void)up;  // observed, read by nobody
  OpScene scene = std::move(s).finish(y, full_and_partial(rows), k);
  scene.observed = {"routes", "routes_weights", "up_y", "down_y"};
  scene.magnitude = std::sqrt(static_cast<double>(k));
  return scene;
}

/// The experts' weights with a scale each, and with biases.
OpScene scaled_experts_scene(DType gate, DType up, int rows) {
  constexpr std::int64_t kWidth = 256, kOut = 33;
  constexpr int kExperts = 6;
  Stage s(rows);
  const Act x = s.input("x", kWidth, 35);
  const Routes routes = s.builder.route(s.input("logits", kExperts, 36), {.top_k = 3}, "routes");
  const Weight scales = s.gains("scales", kExperts, 37), biases = s.weight("biases", DType::F32, {kOut, kExperts}, 38);
  const Act a = s.builder.expert_linear(x, routes.expert,
                                        {s.weight("wg", gate, {kWidth, kOut, kExperts}, 39), &biases, "gate", &scales});
  const Act b = s.builder.expert_linear(x, routes.expert,
                                        {s.weight("wu", up, {kWidth, kOut, kExperts}, 40), nullptr, "up", &scales});
  const Act y = s.builder.combine(s.builder.add(a, b, "both"), routes.weight, "y");
  OpScene scene = std::move(s).finish(y, full_and_partial(rows), kWidth);
  scene.magnitude = std::sqrt(static_cast<double>(kWidth));
  scene.graph = merge_linears(scene.graph);
  scene.observed = {"gate", "up"};
  return scene;
}

OpScene gate_up_scene(DType gate, DType up, int rows) {
  constexpr std::int64_t kWidth = 256, kOut = 33;
  constexpr int kExperts = 6;
  Stage s(rows);
  const Act x = s.input("x", kWidth, 35);
  const Routes routes = s.builder.route(s.input("logits", kExperts, 36), {.top_k = 3}, "routes");
  const Act a =
      s.builder.expert_linear(x, routes.expert, {s.weight("wg", gate, {kWidth, kOut, kExperts}, 37), nullptr, "gate"});
  const Act b =
      s.builder.expert_linear(x, routes.expert, {s.weight("wu", up, {kWidth, kOut, kExperts}, 38), nullptr, "up"});
  const Act y = s.builder.combine(s.builder.add(a, b, "both"), routes.weight, "y");
  OpScene scene = std::move(s).finish(y, one_step(rows), kWidth);
  scene.magnitude = std::sqrt(static_cast<double>(kWidth));
  scene.graph = merge_linears(scene.graph);
  scene.observed = {"gate", "up"};
  return scene;
}

/// A product per head, of slices of them, beside which what all heads share is put.
OpScene heads_scene(DType dtype, std::int64_t k, int heads, int rows) {
  constexpr std::int64_t kOut = 35, kRest = 6;
  Stage s(rows);
  const Act x = s.builder.split_heads(s.input("x", (k + kRest) * heads, 41), heads, "x_heads");
  const Act first = s.builder.slice(x, {0, k}, "first");
  const Act rest = s.builder.slice(x, {k, kRest}, "rest");
  const Act one = s.builder.split_heads(s.input("z", 5, 42), 1, "one");
  const Index ids = s.builder.head_ids(first, "ids");
  const Act y = s.builder.expert_linear(first, ids, {s.weight("w", dtype, {k, kOut, heads}, 43), nullptr, "product"});
  const Act both = s.builder.concat(y, rest, "both");
  const Act all = s.builder.concat(both, one, "all");
  OpScene scene = std::move(s).finish(s.builder.scale(all, 1.0f, "y"), full_and_partial(rows), k);
  scene.observed = {"first", "rest", "ids", "product", "both", "all"};
  scene.magnitude = std::sqrt(static_cast<double>(k));
  return scene;
}

void add_heads(std::vector<OpCase>& cases) {
  for (const DType type : {DType::F32, DType::BF16, DType::Q8_0, DType::Q4_K}) {
    const std::int64_t k = info(type).quantized() ? info(type).block_elems : 37;
    for (const int heads : {1, 7}) {
      for (const int rows : {1, 9, 40}) {
        cases.push_back({label("heads", {{"k", k}, {"heads", heads}, {"rows", rows}}, name(type)),
                         [=] { return heads_scene(type, k, heads, rows); }});
      }
    }
  }
}

/// Groups of three experts, of which a token may have chosen several.
OpScene groups_scene(int rows) {
  constexpr std::int64_t kWidth = 64, kOut = 35;
  Stage s(rows);
  const Act x = s.input("x", kWidth, 35);
  const Routes routes = s.builder.route(s.input("logits", 12, 36), {.top_k = 5}, "routes");
  const Index groups = s.builder.group_ids(routes.expert, 3, "groups");
  const Act y =
      s.builder.expert_linear(x, groups, {s.weight("w", DType::Q8_0, {kWidth, kOut, 4}, 37), nullptr, "small"});
  OpScene scene = std::move(s).finish(s.builder.combine(y, routes.weight, "y"), one_step(rows), kWidth);
  scene.magnitude = std::sqrt(static_cast<double>(kWidth));
  scene.observed = {"groups", "small"};
  return scene;
}

void add_experts(std::vector<OpCase>& cases) {
  for (const DTypeInfo& type : dtypes()) {
    if (type.use != DTypeUse::Weight) continue;
    for (const int rows : {1, 9, 40}) {
      const std::int64_t k = row_lengths(type)[1];
      cases.push_back({label("expert linear", {{"k", k}, {"rows", rows}}, type.name),
                       [=, dtype = type.dtype] { return experts_scene(dtype, k, 5, 2, rows); }});
    }
  }
  for (const int rows : {1, 9, 70})
    cases.push_back({label("small experts of groups Q8_0", {{"rows", rows}}), [=] { return groups_scene(rows); }});
  for (const int rows : {1, 5})
    cases.push_back({label("silence", {{"rows", rows}}), [=] {
                       Stage s(rows);
                       const Act x = s.builder.silence(s.input("x", 300, 44), {.begin = 7, .n = 130}, "silent");
                       return std::move(s).finish(s.builder.soft_cap(x, 2.0f, "y"), full_and_partial(rows), 1);
                     }});
  cases.push_back({"expert linear, every expert", [] { return experts_scene(DType::F32, 16, 4, 4, 7); }});
  cases.push_back({"expert linear, one expert", [] { return experts_scene(DType::F32, 16, 1, 1, 7); }});
  for (const int rows : {1, 11}) {
    cases.push_back({label("merged expert linear Q4_K F16", {{"rows", rows}}),
                     [=] { return gate_up_scene(DType::Q4_K, DType::F16, rows); }});
    cases.push_back({label("merged expert linear Q5_0 Q6_K", {{"rows", rows}}),
                     [=] { return gate_up_scene(DType::Q5_0, DType::Q6_K, rows); }});
    cases.push_back({label("experts with scales and biases Q4_K F32", {{"rows", rows}}),
                     [=] { return scaled_experts_scene(DType::Q4_K, DType::F32, rows); }});
  }
}

void add_norms(std::vector<OpCase>& cases) {
  for (const std::int64_t n : {1, 5, 16, 64, 129, 1000}) {
    cases.push_back({label("rms_norm", {{"n", n}}), [=] {
                       Stage s(6);
                       const Act y = s.builder.rms_norm(s.input("x", n, 41, 3.0f), s.gains("w", n, 42), 1e-5f, "y");
                       return std::move(s).finish(y, one_step(6), n);
                     }});
    cases.push_back({label("add_rms_norm", {{"n", n}}), [=] {
                       Stage s(6);
                       const Act sum = s.builder.add(s.input("a", n, 43), s.input("b", n, 44), "sum");
                       const Act norm = s.builder.rms_norm(sum, s.gains("w", n, 45), 1e-6f, "norm");
                       const Act y = s.builder.add(sum, norm, "y");
                       OpScene scene = std::move(s).finish(y, one_step(6), n);
                       scene.graph = fuse_add_norm(scene.graph);
                       scene.observed = {"sum", "norm"};
                       return scene;
                     }});
  }
  for (const std::int64_t n : {1, 16, 129, 1000}) {
    cases.push_back({label("rms_norm without a weight", {{"n", n}}), [=] {
                       Stage s(6);
                       const Act sum = s.builder.add(s.input("a", n, 141), s.input("b", n, 142), "sum");
                       OpScene scene = std::move(s).finish(s.builder.unit_rms_norm(sum, 1e-6f, "y"), one_step(6), n);
                       scene.graph = fuse_add_norm(scene.graph);  // which leaves them apart
                       return scene;
                     }});
    for (const bool biased : {false, true}) {
      cases.push_back({label(biased ? "layer_norm with a bias" : "layer_norm", {{"n", n}}), [=] {
                         Stage s(6);
                         std::optional<Weight> bias;
                         if (biased) bias = s.weight("bias", DType::F32, {n}, 143);
                         const Act y = s.builder.layer_norm(s.input("x", n, 144, 3.0f), s.gains("w", n, 145),
                                                            biased ? &*bias : nullptr, 1e-5f, "y");
                         return std::move(s).finish(y, one_step(6), n);
                       }});
    }
  }
  for (const std::int64_t n : {37, 512}) {
    cases.push_back({label("layer_norm without a weight", {{"n", n}}), [=] {
                       Stage s(6);
                       const Act y = s.builder.unit_layer_norm(s.input("x", n, 157, 3.0f), 1e-5f, "y");
                       return std::move(s).finish(y, one_step(6), n);
                     }});
  }
  cases.push_back({"layer_norm of heads with weights of their own", [] {
                     Stage s(5);
                     const Act heads = s.builder.split_heads(s.input("x", 3 * 40, 146), 3, "heads");
                     const Weight w = s.weight("w", DType::F32, {40, 3}, 147);
                     const Act norm = s.builder.layer_norm(heads, w, nullptr, 1e-6f, "norm");
                     return std::move(s).finish(s.builder.scale(norm, 1.0f, "y"), one_step(5), 40);
                   }});
  cases.push_back({"rms_norm of each head", [] {
                     Stage s(5);
                     const Act heads = s.builder.split_heads(s.input("x", 3 * 40, 46), 3, "heads");
                     const Act norm = s.builder.rms_norm(heads, s.gains("w", 40, 47), 1e-6f, "norm");
                     return std::move(s).finish(s.builder.scale(norm, 1.0f, "y"), one_step(5), 40);
                   }});
  cases.push_back({"rms_norm of heads with weights of their own", [] {
                     Stage s(5);
                     const Act heads = s.builder.split_heads(s.input("x", 3 * 40, 148), 3, "heads");
                     const Act norm = s.builder.rms_norm(heads, s.weight("w", DType::F32, {40, 3}, 149), 1e-6f, "norm");
                     return std::move(s).finish(s.builder.scale(norm, 1.0f, "y"), full_and_partial(5), 40);
                   }});
  cases.push_back({"rms_norm of zeros", [] {
                     Stage s(2);
                     const std::vector<float> zeros(kInputRows * 24, 0.0f);
                     const Act y = s.builder.rms_norm(s.input_rows("x", 24, zeros), s.gains("w", 24, 48), 1e-6f, "y");
                     return std::move(s).finish(y, one_step(2), 24);
                   }});
}

std::vector<Activate> activations() {
  const XieluCurve curve{.positive = 0.7f, .negative = 1.1f, .slope = 0.5f, .below = -1e-6f};
  return {{.function = Nonlinearity::Gelu},
          {.function = Nonlinearity::SquaredRelu},
          {.function = Nonlinearity::Clamp, .limit = 2.5f},
          {.function = Nonlinearity::Xielu, .xielu = curve},
          {.function = Nonlinearity::Sigmoid}};
}

void add_elementwise(std::vector<OpCase>& cases) {
  for (const std::int64_t n : {1, 31, 64, 333}) {
    for (const Activation a : {Activation::Silu, Activation::Gelu, Activation::ClampedSilu, Activation::Relu,
                               Activation::Sigmoid, Activation::Softplus, Activation::Identity}) {
      cases.push_back({label("glu " + std::string(name(a)), {{"n", n}}), [=] {
                         Stage s(4);
                         const float spread = a == Activation::ClampedSilu ? 6.0f : 1.0f;  // some are clamped
                         const Act y =
                             s.builder.glu(a, s.input("gate", n, 51, 4.0f), s.input("up", n, 52, spread), "y");
                         return std::move(s).finish(y, one_step(4), 1);
                       }});
    }
    cases.push_back({label("glu silu, limited", {{"n", n}}), [=] {
                       Stage s(4);
                       const Act gate = s.input("gate", n, 51, 6.0f), up = s.input("up", n, 52, 6.0f);
                       const Glu limited{.activation = Activation::Silu, .limit = 2.5f};
                       const Glu narrow{.activation = Activation::Silu, .limit = 2.5f, .gate_limit = 0.25f};
                       const Act one = s.builder.glu(limited, gate, up, "one");
                       return std::move(s).finish(s.builder.glu(narrow, one, up, "y"), one_step(4), 2);
                     }});
    for (const Activation a : {Activation::Sigmoid, Activation::Softplus, Activation::Identity}) {
      cases.push_back({label("glu by one gate, " + std::string(name(a)), {{"n", n}}), [=] {
                         Stage s(4);
                         const Act gate = s.input("gate", 1, 59, 4.0f), up = s.input("up", n, 60);
                         return std::move(s).finish(s.builder.glu(a, gate, up, "y"), one_step(4), 1);
                       }});
      cases.push_back({label("glu by one gate of each head, " + std::string(name(a)), {{"n", n}}), [=] {
                         Stage s(4);
                         const Act gate = s.builder.split_heads(s.input("gate", 3, 59, 4.0f), 3, "gates");
                         const Act up = s.builder.split_heads(s.input("up", 3 * n, 60), 3, "heads");
                         const Act y = s.builder.glu(a, gate, up, "gated");
                         return std::move(s).finish(s.builder.scale(s.builder.flatten_heads(y, "flat"), 1.0f, "y"),
                                                    one_step(4), 1);
                       }});
    }
    cases.push_back({label("add", {{"n", n}}), [=] {
                       Stage s(4);
                       const Act y = s.builder.add(s.input("a", n, 53), s.input("b", n, 54), "y");
                       return std::move(s).finish(y, one_step(4), 0);
                     }});
    cases.push_back({label("scale", {{"n", n}}), [=] {
                       Stage s(4);
                       return std::move(s).finish(s.builder.scale(s.input("x", n, 55), 0.37f, "y"), one_step(4), 0);
                     }});
    cases.push_back({label("scale by a weight", {{"n", n}}), [=] {
                       Stage s(4);
                       const Weight w = s.gains("w", 1, 151);
                       return std::move(s).finish(s.builder.scale(s.input("x", n, 152), w, "y"), one_step(4), 0);
                     }});
    for (const float cap : {0.7f, 30.0f}) {
      cases.push_back({label("soft_cap", {{"n", n}, {"cap", static_cast<int>(cap)}}), [=] {
                         Stage s(4);
                         const Act y = s.builder.soft_cap(s.input("x", n, 153, 8.0f), cap, "y");
                         return std::move(s).finish(y, one_step(4), 1);
                       }});
    }
    for (const Activate& op : activations()) {
      cases.push_back({label("activate " + std::string(name(op.function)), {{"n", n}}), [=] {
                         Stage s(4);
                         const Act y = s.builder.activate(op, s.input("x", n, 154, 4.0f), "y");
                         return std::move(s).finish(y, one_step(4), 1);
                       }});
    }
    cases.push_back({label("slice", {{"n", n}}), [=] {
                       Stage s(4);
                       const Act x = s.input("x", n + 40, 155);
                       return std::move(s).finish(s.builder.slice(x, {.begin = 37, .n = n}, "y"), one_step(4), 0);
                     }});
    cases.push_back({label("map", {{"n", n}}), [=] {
                       Stage s(4);
                       const auto f =
                           std::make_shared<const std::function<float(float)>>([](float x) { return x * x - 1; });
                       const Act y = s.builder.map(s.input("x", n, 56), {.name = "x^2-1", .function = f}, "y");
                       return std::move(s).finish(y, one_step(4), 0);
                     }});
  }
  cases.push_back({"slice of each head", [] {
                     Stage s(5);
                     const Act heads = s.builder.split_heads(s.input("x", 3 * 48, 156), 3, "heads");
                     const Act part = s.builder.slice(heads, {.begin = 16, .n = 20}, "part");
                     return std::move(s).finish(s.builder.scale(part, 1.0f, "y"), one_step(5), 0);
                   }});
  cases.push_back({"glu of extremes", [] {
                     Stage s(4);
                     std::vector<float> gates(kInputRows * 8);
                     const float extremes[] = {0.0f, -0.0f, 100.0f, -100.0f, 1e-30f, -1e-30f, -20.0f, 88.8f};
                     for (std::size_t i = 0; i < gates.size(); ++i) gates[i] = extremes[i % 8];
                     const Act y =
                         s.builder.glu(Activation::Silu, s.input_rows("gate", 8, gates), s.input("up", 8, 57), "y");
                     return std::move(s).finish(y, one_step(4), 1);
                   }});
  cases.push_back({"rows", [] {
                     Stage s(9, 3);
                     const Act x = s.input("x", 21, 58);
                     const Act y = s.builder.rows(x, s.builder.step_input(StepInput::OutRows), "y");
                     OpScene scene = std::move(s).finish(y, full_and_partial(9), 0);
                     scene.steps.push_back({{0, some_tokens(2)}, {1, some_tokens(4, 3)}, {2, some_tokens(1)}});
                     scene.n_sequences = 3;
                     scene.outputs = TestSequences::Outputs::LastOfEach;
                     return scene;
                   }});
}

OpScene rope_scene(RopePairing pairing, const RopeTable& table, int head_dim, bool with_factors) {
  constexpr int kHeads = 3, kTokens = 11;
  Stage s(kTokens);
  std::optional<Weight> factors;
  const int spare = pairing == RopePairing::Halves ? 3 : 0;  // factors that are of no pair
  if (with_factors) factors = s.gains("factors", table.n_rot / 2 + spare, 61);
  const Act angles =
      s.builder.rope_table(table, s.builder.step_input(StepInput::Positions), factors ? &*factors : nullptr, "angles");
  const Act x = s.builder.split_heads(s.input("x", kHeads * head_dim, 62), kHeads, "heads");
  const Act turned = s.builder.rope(x, angles, pairing, "turned");
  OpScene scene = std::move(s).finish(s.builder.scale(turned, 1.0f, "y"), {}, 2);
  for (int step = 0; step < 9; ++step) scene.steps.push_back({{0, some_tokens(kTokens, step)}});
  scene.observed = {"angles"};
  return scene;
}

OpScene position_scale_scene(const PositionScale& op) {
  constexpr int kTokens = 11;
  Stage s(kTokens);
  const Act y = s.builder.position_scale(op, s.builder.step_input(StepInput::Positions), "scale");
  const Act x = s.input("x", 5, 63);
  OpScene scene = std::move(s).finish(s.builder.glu(Activation::Identity, y, x, "y"), {}, 2);
  for (int step = 0; step < 9; ++step) scene.steps.push_back({{0, some_tokens(kTokens, step)}});
  scene.observed = {"scale"};
  return scene;
}

OpScene mix_scene(std::int64_t n, int m, int k) {
  Stage s(5);
  const Act x = s.builder.split_heads(s.input("x", n * m, 64), m, "vectors");
  const Act w = s.builder.split_heads(s.input("w", std::int64_t{m} * k, 65), k, "weights");
  const Act y = s.builder.flatten_heads(s.builder.stream_mix(x, w, "mixed"), "flat");
  return std::move(s).finish(s.builder.scale(y, 1.0f, "y"), one_step(5), m);
}

enum class Weights { None, Some };

OpScene spread_scene(std::int64_t n, int m, int first, Weights weights) {
  Stage s(5);
  const Act x = s.builder.split_heads(s.input("x", n * m, 66), m, "vectors");
  const Act added = s.input("added", n, 67), w = s.input("w", m, 68);
  const Act y = s.builder.stream_add(x, added, weights == Weights::Some ? &w : nullptr, {.first = first}, "spread");
  return std::move(s).finish(s.builder.scale(s.builder.flatten_heads(y, "flat"), 1.0f, "y"), one_step(5), 3);
}

enum class OfTwo { Mean, Gate };
/// Of streams and as many others: their gated mean, or how well they go together.
OpScene streams_scene(std::int64_t n, int m, OfTwo op) {
  Stage s(5);
  const Act x = s.builder.split_heads(s.input("x", n * m, 69, 2.0f), m, "vectors");
  const Act other = s.builder.split_heads(s.input("other", n * m, 70, 2.0f), m, "others");
  const Act y = op == OfTwo::Mean ? s.builder.stream_mean(x, other, "of") : s.builder.match_gate(x, other, "of");
  return std::move(s).finish(s.builder.scale(y, 1.0f, "y"), one_step(5), op == OfTwo::Mean ? m : n);
}

OpScene blend_scene(std::int64_t n, int m) {
  Stage s(5);
  const Act x = s.builder.split_heads(s.input("x", n * m, 66, 2.0f), m, "vectors");
  const Act last = s.input("last", n, 67, 2.0f);
  const Act y = s.builder.stream_blend(x, last, s.weight("w", DType::F32, {n}, 68), {.eps = 1e-3f}, "blend");
  return std::move(s).finish(s.builder.scale(y, 1.0f, "y"), one_step(5), n + m);
}

enum class Balanced { Whole, Read };
/// Weights of streams, by which they are read, mixed and added to.
OpScene balanced_scene(std::int64_t n, int m, Balanced form) {
  Stage s(5);
  const Act x = s.builder.split_heads(s.input("x", n * m, 66), m, "vectors");
  const StreamWeights op{.eps = 1e-3f, .iterations = m + 1};
  if (form == Balanced::Read) {
    const Act w = s.input("w", m, 67, 2.0f);
    const Weight scale = s.weight("scale", DType::F32, {1}, 68), base = s.weight("base", DType::F32, {m}, 69);
    const Act one = s.builder.stream_mix(x, s.builder.stream_read(w, scale, base, op, "read"), "one");
    const Act flat = s.builder.flatten_heads(one, "flat");
    return std::move(s).finish(s.builder.scale(flat, 1.0f, "y"), one_step(5), 4 * m);
  }
  const std::int64_t width = (std::int64_t{2} + m) * m;
  const Act of_weights = s.input("weights", width, 67, 2.0f);
  const Weight scales = s.weight("scale", DType::F32, {3}, 68), base = s.weight("base", DType::F32, {width}, 69);
  const StreamShares w = s.builder.stream_weights(of_weights, scales, base, op, "w");
  const Act one = s.builder.flatten_heads(s.builder.stream_mix(x, w.read, "one"), "flat_one");
  const Act mixed = s.builder.stream_mix(x, w.mix, "mixed");
  const Act y = s.builder.stream_add(mixed, one, &w.write, {.first = 0}, "added");
  OpScene scene =
      std::move(s).finish(s.builder.scale(s.builder.flatten_heads(y, "flat"), 1.0f, "y"), one_step(5), 16 * m);
  scene.observed = {"w_read", "w_write", "w_mix"};
  return scene;
}

/// What gemma3n has, qwen4exp and deepseek4.
void add_streams(std::vector<OpCase>& cases) {
  for (const int m : {1, 3, 4, 16}) {
    cases.push_back({label("stream_weights", {{"m", m}}), [=] { return balanced_scene(37, m, Balanced::Whole); }});
    cases.push_back(
        {label("stream_weights to read", {{"m", m}}), [=] { return balanced_scene(37, m, Balanced::Read); }});
  }
  for (const std::int64_t n : {1, 5, 16, 67, 300}) {
    for (const int m : {1, 4, 7}) {
      for (const int k : {1, 4})
        cases.push_back({label("stream_mix", {{"n", n}, {"m", m}, {"k", k}}), [=] { return mix_scene(n, m, k); }});
      for (const OfTwo op : {OfTwo::Mean, OfTwo::Gate})
        cases.push_back({label(op == OfTwo::Mean ? "stream_mean" : "match_gate", {{"n", n}, {"m", m}}),
                         [=] { return streams_scene(n, m, op); }});
      for (const Weights w : {Weights::None, Weights::Some})
        cases.push_back({label(w == Weights::Some ? "stream_add by weights" : "stream_add", {{"n", n}, {"m", m}}),
                         [=] { return spread_scene(n, m, m / 3, w); }});
    }
  }
  for (const std::int64_t n : {1, 5, 67, 300, 2500})
    for (const int m : {1, 3, 20, 64})
      cases.push_back({label("stream_blend", {{"n", n}, {"m", m}}), [=] { return blend_scene(n, m); }});
  cases.push_back({"stream_mix as a product", [] { return mix_scene(1, 300, 1); }});
  for (const std::int64_t n : {2, 31, 300, 5000}) {
    for (const float deviations : {0.3f, 1.6448533f})
      cases.push_back({label("gaussian top", {{"n", n}, {"hundredths", static_cast<int>(100 * deviations)}}), [=] {
                         Stage s(4);
                         return std::move(s).finish(s.builder.gaussian_top(s.input("x", n, 69, 2.0f), deviations, "y"),
                                                    one_step(4), n);
                       }});
    cases.push_back({label("scale elements", {{"n", n}}), [=] {
                       Stage s(4);
                       const Weight w = s.gains("w", n, 70);
                       return std::move(s).finish(s.builder.scale(s.input("x", n, 75), w, "y"), one_step(4), 1);
                     }});
    cases.push_back({label("scale vectors", {{"n", n}}), [=] {
                       Stage s(4);
                       const Weight w = s.weight("w", DType::F32, {1, 3}, 70);
                       const Act x = s.builder.split_heads(s.input("x", 3 * n, 75), 3, "heads");
                       const Act y = s.builder.flatten_heads(s.builder.scale(x, w, "scaled"), "flat");
                       return std::move(s).finish(s.builder.scale(y, 1.0f, "y"), full_and_partial(4), 1);
                     }});
  }
}

void add_rope(std::vector<OpCase>& cases) {
  const RopeTable plain{.n_rot = 16, .base = 10000};
  const RopeTable linear{.n_rot = 16, .base = 10000, .scaling = RopeScaling::Linear, .factor = 4};
  const RopeTable yarn{.n_rot = 64,
                       .base = 500000,
                       .scaling = RopeScaling::Yarn,
                       .factor = 8,
                       .original_context = 32,
                       .attention_factor = 0.9f};
  RopeTable half = yarn, loud = linear;
  half.extrapolation = 0.5f;
  loud.attention_factor = 1.5f;
  for (const RopePairing p : {RopePairing::Interleaved, RopePairing::Halves}) {
    const std::string pairing = p == RopePairing::Interleaved ? " interleaved" : " halves";
    cases.push_back({"rope" + pairing, [=] { return rope_scene(p, plain, 16, false); }});
    cases.push_back({"rope of part of a head" + pairing, [=] { return rope_scene(p, plain, 21, false); }});
    cases.push_back({"rope linear" + pairing, [=] { return rope_scene(p, linear, 16, false); }});
    cases.push_back({"rope yarn" + pairing, [=] { return rope_scene(p, yarn, 64, false); }});
    cases.push_back({"rope yarn, half mixed" + pairing, [=] { return rope_scene(p, half, 64, false); }});
    cases.push_back({"rope linear with a magnitude" + pairing, [=] { return rope_scene(p, loud, 16, false); }});
    cases.push_back({"rope with factors" + pairing, [=] { return rope_scene(p, plain, 24, true); }});
  }
  for (const PositionScale& op : {PositionScale{.slope = 0.1f, .length = 16},
                                  PositionScale{.slope = 0.7f, .length = 7, .offset = 1}, PositionScale{.slope = 1}})
    cases.push_back({"position scale " + attributes(Op(op)), [=] { return position_scale_scene(op); }});
}

struct AttentionShape {
  int heads, kv_heads, dim_k, dim_v;
  KeyWindow window = {};
  float sinks = 0;     ///< their spread; 0: none
  float soft_cap = 0;  ///< 0: none
  float max_bias = 0;  ///< 0: none
};

/// Sequences of different lengths in one step, prompts in uneven chunks, then single tokens, over more than one key
/// chunk.
std::vector<Parts> attention_steps(bool longer) {
  std::vector<Parts> steps;
  steps.push_back({{0, some_tokens(5)}, {2, some_tokens(1, 3)}});
  steps.push_back({{1, some_tokens(66, 5)}, {0, some_tokens(1, 9)}});
  steps.push_back({{2, some_tokens(17, 2)}, {1, some_tokens(1, 8)}, {0, some_tokens(2, 4)}});
  if (longer) {
    for (int i = 0; i < 5; ++i) steps.push_back({{1, some_tokens(50, i)}, {0, some_tokens(3, i)}});
  }
  steps.push_back({{0, some_tokens(1, 1)}, {1, some_tokens(1, 2)}, {2, some_tokens(1, 3)}});
  return steps;
}
constexpr int kAttentionTokens = 67, kAttentionSequences = 3;

OpScene attention_scene(const AttentionShape& a, CacheFormat format, bool longer) {
  Stage s(kAttentionTokens, kAttentionSequences);
  const Cache cache = s.builder.cache({0, a.kv_heads, a.dim_k, a.dim_v});
  const Act q = s.builder.split_heads(s.input("q", a.heads * a.dim_k, 71, 2.0f), a.heads, "qh");
  const Act k = s.builder.split_heads(s.input("k", a.kv_heads * a.dim_k, 72), a.kv_heads, "kh");
  const Act v = s.builder.split_heads(s.input("v", a.kv_heads * a.dim_v, 73), a.kv_heads, "vh");
  const Cache stored = s.builder.kv_append(k, v, cache, "stored");
  const float scale = 1 / std::sqrt(static_cast<float>(a.dim_k));
  std::optional<Weight> sinks;
  if (a.sinks > 0) sinks = s.weight("sinks", DType::F32, {a.heads}, 74, a.sinks);
  const Attention attributes{.scale = scale, .soft_cap = a.soft_cap, .max_bias = a.max_bias, .window = a.window};
  const Act seen = s.builder.attention(q, stored, attributes, "seen", sinks ? &*sinks : nullptr);
  const Act y = s.builder.scale(s.builder.flatten_heads(seen, "flat"), 1.0f, "y");
  // A score's error of eps * |q||k| becomes a relative error of its weight. The cpu backend takes weights of quantised
  // values with 16 bits: an error of 2^-16, as of so many roundings.
  const int terms = info(format.v).quantized() ? 1 << 16 : 16 * a.dim_k;
  OpScene scene = std::move(s).finish(y, attention_steps(longer), terms);
  scene.n_sequences = kAttentionSequences;
  scene.format = format;
  return scene;
}

/// With the types that a cache can have.
void add_attention(const AttentionShape& a, std::vector<OpCase>& cases) {
  const auto fits = [](DType t, int dim) { return dim % static_cast<int>(info(t).block_elems) == 0; };
  for (const DType k : kCacheTypes) {
    for (const DType v : kCacheTypes) {
      if (!fits(k, a.dim_k) || !fits(v, a.dim_v)) continue;
      if (k != v && a.dim_k != 40 && a.dim_k != 96) continue;              // mixed formats with two shapes
      if (a.dim_k > 128 && k != DType::F16 && k != DType::Q8_0) continue;  // wide heads with a type of each kind
      cases.push_back({label("attention",
                             {{"heads", a.heads},
                              {"kv", a.kv_heads},
                              {"k", a.dim_k},
                              {"v", a.dim_v},
                              {a.window.form == KeyWindow::Form::Chunked ? "chunk" : "window", a.window.length},
                              {"sinks", static_cast<int>(a.sinks)},
                              {"cap", static_cast<int>(a.soft_cap)},
                              {"alibi", static_cast<int>(a.max_bias)}},
                             std::string(name(k)) + "/" + std::string(name(v))),
                       [=] {
                         return attention_scene(a, {k, v}, a.dim_k == 16 || a.dim_k == 32);
                       }});
    }
  }
}

void add_attention(std::vector<OpCase>& cases) {
  constexpr KeyWindow kChunks{20, KeyWindow::Form::Chunked}, kLongChunks{64, KeyWindow::Form::Chunked};
  constexpr AttentionShape kShapes[] = {
      {1, 1, 8, 8, 0},         {4, 4, 16, 16, 0},         {6, 2, 40, 40, 0},           {8, 1, 64, 64, 0},
      {4, 2, 24, 16, 0},       {3, 3, 5, 7, 0},           {4, 2, 128, 128, 0},         {4, 2, 32, 32, 20},
      {4, 2, 32, 32, 1},       {4, 2, 16, 16, 100},       {6, 2, 96, 64, 0},           {8, 2, 64, 64, 0, 4},
      {4, 4, 16, 16, 20, 4},   {16, 2, 64, 64, 128, 90},  {8, 2, 64, 64, 0, 0, 1.5f},  {4, 2, 128, 128, 20, 0, 50},
      {4, 4, 16, 16, 0, 4, 2}, {2, 1, 256, 256, 0, 0, 3}, {4, 2, 40, 40, 0, 0, 1},     {2, 2, 192, 128, 0},
      {80, 1, 576, 512, 0},    {4, 2, 32, 32, kChunks},   {6, 2, 40, 40, kLongChunks}, {8, 2, 512, 512, 20, 4, 3}};
  constexpr AttentionShape kAlibi[] = {
      {8, 8, 64, 64, 0, 0, 0, 8}, {6, 1, 40, 40, 20, 0, 0, 8}, {12, 2, 16, 16, 0, 0, 2, 4}};
  for (const AttentionShape& a : kShapes) add_attention(a, cases);
  for (const AttentionShape& a : kAlibi) add_attention(a, cases);
}

struct SelectionShape {
  int heads, dim, top_k;  ///< of the index
  AttentionShape attention;
  int stride = 1;            ///< of the index
  SelectBlocks blocks = {};  ///< where its top_k is not 0: these are selected, by as many heads as the cache has
};

Index selection_of(Stage& s, const SelectionShape& x, Act q, Cache index) {
  if (x.blocks.top_k > 0) return s.builder.select_blocks(q, index, x.blocks, "selected");
  return s.builder.select_keys(q, s.input("iw", x.heads, 77), index, x.top_k, "selected");
}

OpScene selection_scene(const SelectionShape& x, CacheFormat format) {
  const AttentionShape& a = x.attention;
  Stage s(kAttentionTokens, kAttentionSequences);
  const Act iq = s.builder.split_heads(s.input("iq", x.heads * x.dim, 75), x.heads, "iqh");
  const Act ik = s.builder.split_heads(s.input("ik", x.dim, 76), 1, "ikh");
  const Cache index =
      s.builder.cache({.kv_heads = 1, .head_dim_k = x.dim, .part = CacheType::Part::Index, .stride = x.stride});
  const Cache indexed = s.builder.index_append(ik, index, "indexed");
  const Index selected = selection_of(s, x, iq, indexed);
  const Act q = s.builder.split_heads(s.input("q", a.heads * a.dim_k, 71, 2.0f), a.heads, "qh");
  const Act k = s.builder.split_heads(s.input("k", a.kv_heads * a.dim_k, 72), a.kv_heads, "kh");
  const Act v = s.builder.split_heads(s.input("v", a.kv_heads * a.dim_v, 73), a.kv_heads, "vh");
  CacheType type{0, a.kv_heads, a.dim_k, a.dim_v};
  type.access = CacheType::Access::Selected;
  const Cache stored = s.builder.kv_append(k, v, s.builder.cache(type), "stored");
  const Attention attributes{.scale = 1 / std::sqrt(static_cast<float>(a.dim_k)), .soft_cap = a.soft_cap};
  const Act seen = s.builder.selected_attention(q, stored, selected, attributes, "seen");
  const Act y = s.builder.scale(s.builder.flatten_heads(seen, "flat"), 1.0f, "y");
  // As in attention_scene(); of quantised values more than 256 are added up, in chunks of other keys, of blocks each KV
  // head's own.
  const int rounded = x.blocks.top_k > 0 ? 1 << 19 : 1 << 17;
  const int terms = info(format.v).quantized() ? rounded : 16 * a.dim_k;
  OpScene scene = std::move(s).finish(y, attention_steps(true), terms);
  scene.observed = {"selected"};
  scene.n_sequences = kAttentionSequences;
  scene.format = format;
  return scene;
}

/// Selections that end within a chunk of keys, at its end and behind it.
void add_selection(std::vector<OpCase>& cases) {
  constexpr SelectionShape kShapes[] = {{4, 32, 20, {8, 1, 96, 64}},
                                        {6, 64, 256, {4, 2, 32, 32}},
                                        {2, 32, 270, {3, 1, 64, 32, 0, 0, 2}},
                                        {4, 32, 23, {8, 2, 96, 64}, 4},
                                        {6, 64, 271, {4, 2, 32, 32}, 16},
                                        {2, 32, 24, {8, 2, 96, 64}, 1, {.top_k = 24, .block = 8}},
                                        {3, 64, 300, {6, 3, 32, 32}, 1, {.top_k = 300, .block = 100, .local = 2}},
                                        {1, 32, 21, {4, 1, 64, 64}, 1, {.top_k = 21, .block = 3, .local = 3}},
                                        {2, 128, 96, {8, 2, 64, 64}, 1, {.top_k = 96, .block = 32, .local = 2}},
                                        {4, 128, 128, {8, 4, 32, 32}, 1, {.top_k = 128, .block = 64}}};
  for (const SelectionShape& x : kShapes) {
    for (const DType k : kCacheTypes) {
      const DType v = k == DType::Q5_0 ? DType::F16 : k;
      cases.push_back({label(x.blocks.top_k > 0 ? "selection of blocks" : "selection",
                             {{"heads", x.heads}, {"dim", x.dim}, {"top_k", x.top_k}, {"stride", x.stride}},
                             std::string(name(k)) + "/" + std::string(name(v))),
                       [=] {
                         return selection_scene(x, {k, v});
                       }});
    }
  }
}

struct CompressedShape {
  int heads, dim, stride;
  KeyWindow window;
  int index_heads = 0, index_dim = 0, top_k = 0;  ///< top_k 0: nothing is selected
};

OpScene compressed_scene(const CompressedShape& x, CacheFormat format) {
  Stage s(kAttentionTokens, kAttentionSequences);
  const auto heads = [&](const std::string& name, int n, int dim, std::uint32_t seed, float deviation = 1.0f) {
    const Act all = s.input(name, std::int64_t{n} * dim, seed, deviation);
    return s.builder.split_heads(all, n, name + "h");
  };
  const Act q = heads("q", x.heads, x.dim, 71, 2.0f), k = heads("k", 1, x.dim, 72), c = heads("c", 1, x.dim, 74);
  const Weight sinks = s.weight("sinks", DType::F32, {x.heads}, 78);
  const Cache stored = s.builder.kv_append(k, k, s.builder.cache({0, 1, x.dim, x.dim}), "stored");
  CacheType type{.kv_heads = 1, .head_dim_k = x.dim, .part = CacheType::Part::Compressed, .stride = x.stride};
  type.access = CacheType::Access::Selected;
  const Cache compressed = s.builder.index_append(c, s.builder.cache(type), "compressed");
  std::optional<Index> chosen;
  if (x.top_k > 0) {
    const Act iq = heads("iq", x.index_heads, x.index_dim, 75), ik = heads("ik", 1, x.index_dim, 76);
    const Cache index = s.builder.index_append(
        ik,
        s.builder.cache({.kv_heads = 1, .head_dim_k = x.index_dim, .part = CacheType::Part::Index, .stride = x.stride}),
        "indexed");
    chosen = s.builder.choose_keys(iq, s.input("iw", x.index_heads, 77), index, x.top_k, "chosen");
  }
  const CompressedAttention attributes{.scale = 1 / std::sqrt(static_cast<float>(x.dim)), .window = x.window};
  const Act seen =
      s.builder.compressed_attention({q, stored, compressed, sinks, chosen ? &*chosen : nullptr}, attributes, "seen");
  const Act y = s.builder.scale(s.builder.flatten_heads(seen, "flat"), 1.0f, "y");
  // As in attention_scene(), of three chunks and of windows in which each of 100 keys has such an error; compressed
  // keys are values.
  const int terms = info(format.k).quantized() || info(format.v).quantized() ? 1 << 19 : 16 * x.dim;
  OpScene scene = std::move(s).finish(y, attention_steps(true), terms);
  if (chosen) scene.observed = {"chosen"};
  scene.n_sequences = kAttentionSequences;
  scene.format = format;
  return scene;
}

/// Keys that stand for less than a block of the cache, for one and for two; more than are selected and fewer.
void add_compressed(std::vector<OpCase>& cases) {
  constexpr CompressedShape kShapes[] = {
      {8, 64, 4, 20},           {24, 32, 128, 100},          {4, 96, 64, 1},
      {8, 64, 4, 20, 4, 32, 7}, {32, 32, 2, 64, 6, 64, 300}, {4, 512, 4, 128, 6, 64, 20}};
  for (const CompressedShape& x : kShapes) {
    for (const DType k : kCacheTypes) {
      const DType v = k == DType::Q5_0 ? DType::F16 : k;
      cases.push_back(
          {label("compressed attention", {{"heads", x.heads}, {"dim", x.dim}, {"stride", x.stride}, {"top_k", x.top_k}},
                 std::string(name(k)) + "/" + std::string(name(v))),
           [=] {
             return compressed_scene(x, {k, v});
           }});
    }
  }
}

enum class Biases { None, Some };

/// Experts by a table of tokens.
OpScene table_scene(const Route& op, int experts) {
  Stage s(12);
  std::vector<float> ids;
  for (int t = 0; t < kInputRows; ++t)
    for (int i = 0; i < op.top_k; ++i) ids.push_back(static_cast<float>((3 * t + i) % experts));
  const TensorType type{DType::I32, {op.top_k, kInputRows}};
  s.scene.weights.add("table", type, ids);
  const Act logits = s.input("x", experts, 81, 2.0f);
  const Weight table = s.builder.weight("table", type);
  const Routes r = s.builder.route_by_table(logits, table, s.builder.step_input(StepInput::Tokens), op, "routes");
  OpScene scene = std::move(s).finish(r.weight, one_step(12), experts);
  scene.observed = {"routes"};
  return scene;
}

OpScene route_scene(const Route& op, int experts, Biases biases) {
  Stage s(12);
  std::optional<Weight> bias;
  if (biases == Biases::Some) bias = s.weight("bias", DType::F32, {experts}, 82, 0.4f);
  const Routes r = s.builder.route(s.input("x", experts, 81, 2.0f), op, "routes", bias ? &*bias : nullptr);
  OpScene scene = std::move(s).finish(r.weight, one_step(12), experts);
  scene.observed = {"routes"};
  return scene;
}

void add_route(std::vector<OpCase>& cases) {
  struct Shape {
    int experts, top_k;
  };
  const auto add = [&](const Route& op, int experts, Biases biases) {
    cases.push_back(
        {"route " + attributes(Op(op)) + (biases == Biases::Some ? " bias of " : " of ") + std::to_string(experts),
         [=] { return route_scene(op, experts, biases); }});
  };
  constexpr Shape kShapes[] = {{1, 1}, {8, 2}, {17, 5}, {128, 8}, {6, 6}};
  for (const Shape shape : kShapes) {
    for (const RouteWeights w : {RouteWeights::AsGated, RouteWeights::Renormalized}) {
      cases.push_back({label(w == RouteWeights::AsGated ? "route" : "route renormalized",
                             {{"experts", shape.experts}, {"top_k", shape.top_k}}),
                       [=] {
                         Stage s(12);
                         const Routes r =
                             s.builder.route(s.input("x", shape.experts, 81, 2.0f),
                                             {.top_k = shape.top_k, .weights = w, .scale = 1.5f}, "routes");
                         OpScene scene = std::move(s).finish(r.weight, one_step(12), shape.experts);
                         scene.observed = {"routes"};
                         return scene;
                       }});
    }
  }
  for (const int top_k : {1, 2, 5})
    add({.top_k = top_k, .weights = RouteWeights::NearBest, .scale = 1.5f}, 60, Biases::None);
  for (const Gating gating : {Gating::Softmax, Gating::Sigmoid, Gating::RootSoftplus}) {
    for (const int experts : {7, 160}) {
      const Route op{.top_k = 6, .gating = gating, .weights = RouteWeights::Renormalized, .scale = 1.5f};
      cases.push_back(
          {label("route by a table", {{"experts", experts}}, name(gating)), [=] { return table_scene(op, experts); }});
    }
    for (const RouteWeights w : {RouteWeights::AsGated, RouteWeights::Renormalized}) {
      const Route plain{.top_k = 6, .gating = gating, .weights = w, .scale = 2.5f};
      const auto grouped = [&](int groups, int used, int best) {
        Route op = plain;
        op.groups = groups, op.groups_used = used, op.group_best = best;
        return op;
      };
      for (const Biases biases : {Biases::None, Biases::Some}) {
        add(plain, 20, biases);
        add(plain, 160, biases);
        add(grouped(8, 3, 1), 160, biases);
        add(grouped(8, 4, 2), 256, biases);
        add(grouped(5, 3, 2), 15, biases);
        add(grouped(6, 6, 2), 12, biases);
      }
    }
  }
  cases.push_back({"route with ties", [] {
                     Stage s(3);
                     std::vector<float> logits(kInputRows * 9);
                     for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 9 % 3);
                     const Routes r = s.builder.route(s.input_rows("x", 9, logits), {.top_k = 5}, "routes");
                     OpScene scene = std::move(s).finish(r.weight, one_step(3), 9);
                     scene.observed = {"routes"};
                     return scene;
                   }});
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  add_embed(cases);
  add_linear(cases);
  add_merged_linear(cases);
  add_heads(cases);
  add_experts(cases);
  add_norms(cases);
  add_elementwise(cases);
  add_rope(cases);
  add_streams(cases);
  add_attention(cases);
  add_selection(cases);
  add_compressed(cases);
  add_route(cases);
  add_recurrent(cases);
  return cases;
}

}  // namespace llm::test
