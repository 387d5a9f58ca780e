// The graph layer by itself: shape rules, passes, memory plan, partition, hashes. Values are checked against what the
// passes promise (the same names, the same data flow), with a decoder block written out by hand.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/memory_plan.h"
#include "graph/needs.h"
#include "graph/partition.h"
#include "graph/passes/passes.h"
#include "graph/print.h"
#include "graph/verify.h"
#include "support/catch.h"

using namespace llm;

namespace {

constexpr int kEmbd = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kFf = 64, kVocab = 100;

TensorType f32(Shape s) { return {DType::F32, s}; }

Act block(GraphBuilder& b, int layer, Act x, Act table) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  b.set_place(layer, Role::Attention, p);
  auto linear = [&](Act in, const char* name, std::int64_t n) {
    const Weight w = b.weight(p + name + ".weight", f32({b.type(in).shape[0], n}));
    return b.linear(in, {.weight = w, .bias = nullptr, .name = name});
  };
  const Act h = b.rms_norm(x, b.weight(p + "attn_norm.weight", f32({kEmbd})), 1e-5F, "attn_norm");
  Act q = b.split_heads(linear(h, "q", kHeads * kHeadDim), kHeads, "q_heads");
  Act k = b.split_heads(linear(h, "k", kKvHeads * kHeadDim), kKvHeads, "k_heads");
  const Act v = b.split_heads(linear(h, "v", kKvHeads * kHeadDim), kKvHeads, "v_heads");
  q = b.rope(q, table, RopePairing::Halves, "q_rope");
  k = b.rope(k, table, RopePairing::Halves, "k_rope");
  const Cache cache = b.kv_append(k, v, b.cache({layer, kKvHeads, kHeadDim, kHeadDim}), "kv");
  const Act y = b.attention(q, cache, {.scale = 0.35F, .window = 0}, "attn");
  x = b.add(x, linear(b.flatten_heads(y, "attn_flat"), "o", kEmbd), "ffn_in");
  b.set_place(layer, Role::Ffn, p);
  const Act f = b.rms_norm(x, b.weight(p + "ffn_norm.weight", f32({kEmbd})), 1e-5F, "ffn_norm");
  const Act g = b.glu(Activation::Silu, linear(f, "gate", kFf), linear(f, "up", kFf), "glu");
  return b.add(x, linear(g, "down", kEmbd), "out");
}

Graph decoder(int layers, Bucket bucket = {8, 2, 3}) {
  GraphBuilder b(bucket);
  b.set_place(-1, Role::Embed, "");
  Act x = b.embed(b.weight("token_embd.weight", f32({kEmbd, kVocab})), b.step_input(StepInput::Tokens), "embd");
  const RopeTable rope{.n_rot = kHeadDim};
  const Act table = b.rope_table(rope, b.step_input(StepInput::Positions), nullptr, "rope");
  for (int i = 0; i < layers; ++i) x = block(b, i, x, table);
  b.set_place(-1, Role::Head, "");
  x = b.rows(x, b.step_input(StepInput::OutRows), "wanted");
  x = b.rms_norm(x, b.weight("output_norm.weight", f32({kEmbd})), 1e-5F, "norm");
  const Act logits =
      b.linear(x, {.weight = b.weight("output.weight", f32({kEmbd, kVocab})), .bias = nullptr, .name = "logits"});
  return std::move(b).finish(logits);
}

template <class T>
std::size_t count(const Graph& g) {
  return static_cast<std::size_t>(
      std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<T>(n.op); }));
}

const ValueInfo* find(const Graph& g, std::string_view name) {
  for (const ValueInfo& v : g.values()) {
    if (v.name == name) return &v;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("the builder refuses operands that do not fit, naming the op and the operand") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const Weight wrong = b.weight("wrong", f32({31, 5}));
  try {
    b.linear(x, {.weight = wrong, .bias = nullptr, .name = "y"});
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Internal);
    CHECK(std::string(e.what()).find("linear: operand wrong F32 [31, 5]") != std::string::npos);
  }
  CHECK_THROWS_AS(b.rms_norm(x, b.weight("short", f32({31})), 1e-5F, "n"), Error);
  CHECK_THROWS_AS(b.split_heads(x, 5, "h"), Error);
  const Weight gain = b.weight("gain", f32({32})), of_heads = b.weight("of_heads", f32({8, 4}));
  const Weight two = b.weight("two", f32({2}));
  CHECK_THROWS_AS(b.layer_norm(x, of_heads, nullptr, 1e-5F, "n"), Error);
  CHECK_THROWS_AS(b.layer_norm(x, gain, &two, 1e-5F, "n"), Error);
  const Act heads = b.split_heads(x, 4, "heads");
  CHECK_NOTHROW(b.layer_norm(heads, of_heads, nullptr, 1e-5F, "head_norm"));
  CHECK_THROWS_AS(b.layer_norm(heads, gain, nullptr, 1e-5F, "n"), Error);
  CHECK_NOTHROW(b.unit_layer_norm(heads, 1e-5F, "unit_norm"));
  CHECK_NOTHROW(b.rms_norm(heads, of_heads, 1e-5F, "head_rms_norm"));
  CHECK_THROWS_AS(b.rms_norm(x, of_heads, 1e-5F, "n"), Error);
  CHECK_THROWS_AS(b.scale(x, two, "s"), Error);
  CHECK_THROWS_AS(b.activate({.function = Nonlinearity::Clamp}, x, "limit"), Error);
  CHECK_THROWS_AS(b.soft_cap(x, 0, "c"), Error);
  for (const Slice part : {Slice{-1, 4}, Slice{0, 0}, Slice{29, 4}, Slice{0, 33}})
    CHECK_THROWS_AS(b.slice(x, part, "p"), Error);
  CHECK(b.type(b.slice(heads, {.begin = 5, .n = 3}, "part")) == f32({3, 4, 4}));
}

TEST_CASE("layers of RWKV are refused what does not fit their state") {
  GraphBuilder b({4, 1, 2});
  const Act x = b.embed(b.weight("table", f32({12, 10})), b.step_input(StepInput::Tokens), "x");
  const Act two = b.slice(x, {.begin = 3, .n = 2}, "two"), six = b.slice(x, {.begin = 0, .n = 6}, "six");
  const Act wanted = b.rows(x, b.step_input(StepInput::OutRows), "wanted");
  const auto shift = [&](Act in, Shape state, RecurrentType::Part part) {
    return b.token_shift(in, b.recurrent({0, part, state}), "shift");
  };
  CHECK(b.type(shift(x, {12, 1}, RecurrentType::Part::ShiftFfn)) == f32({12, 4}));
  CHECK_THROWS_WITH(shift(x, {11, 1}, RecurrentType::Part::Shift), contains("is not a state"));
  CHECK_THROWS_WITH(shift(x, {12, 1}, RecurrentType::Part::Conv), contains("is not a state"));
  CHECK_THROWS_WITH(shift(wanted, {12, 1}, RecurrentType::Part::Shift), contains("no row for every token"));

  const std::vector<std::string> pair{"p0", "p1"}, one{"p"};
  const Weight w = b.weight("w", f32({12, 2}));
  CHECK(b.lerp(x, x, w, nullptr, pair).size() == 2);
  CHECK(b.type(b.lerp(wanted, wanted, b.weight("v", f32({12})), nullptr, one)[0]) == f32({12, 2}));
  CHECK_THROWS_WITH(b.lerp(x, two, w, nullptr, pair), contains("differs in shape"));
  CHECK_THROWS_WITH(b.lerp(two, two, w, nullptr, pair), contains("lerp: operand w"));
  CHECK_THROWS_WITH(b.lerp(x, x, w, &x, pair), contains("is not [n, m, rows]"));
  CHECK_THROWS_WITH(b.lerp(x, x, b.weight("many", f32({12, 9})), nullptr, pair), contains("of a possible m"));

  // Four heads of 3.
  const auto wkv6 = [&](Act r, Act k, Act v, Shape state, const Weight* first = nullptr) {
    return b.type(b.wkv6({r, k, v, r, b.recurrent({0, RecurrentType::Part::Wkv, state}), first}, "y")).shape;
  };
  CHECK(wkv6(x, x, x, {3, 3, 4}) == Shape{3, 4, 4});
  CHECK(wkv6(x, six, six, {3, 3, 4}) == Shape{3, 4, 4});
  CHECK_THROWS_WITH(wkv6(x, six, x, {3, 3, 4}), contains("is not [6, 4]"));
  CHECK_THROWS_WITH(wkv6(x, two, two, {3, 3, 4}), contains("heads that the state's are no multiple of"));
  CHECK_THROWS_WITH(wkv6(x, x, x, {3, 2, 4}), contains("is not a state [3, 3, 4]"));
  CHECK_THROWS_WITH(wkv6(six, six, six, {3, 3, 4}), contains("is not [12, 4]"));
  CHECK_THROWS_WITH(wkv6(wanted, wanted, wanted, {3, 3, 4}), contains("no row for every token"));
  CHECK_THROWS_WITH(wkv6(x, x, x, {3, 3, 4}, &w), contains("wkv6: operand w"));
  const Weight all = b.weight("all", f32({12})), few = b.weight("few", f32({11}));
  const auto wkv7 = [&](Act v, Weight k_k, const GraphBuilder::FirstValues* first) {
    const Recurrent state = b.recurrent({0, RecurrentType::Part::Wkv, {3, 3, 4}});
    return b.type(b.wkv7({x, x, v, x, x, k_k, all, all, state, first}, "y").own).shape;
  };
  const GraphBuilder::FirstValues fitting{x, x}, short_values{six, x};
  CHECK(wkv7(x, all, nullptr) == Shape{3, 4, 4});
  CHECK(wkv7(x, all, &fitting) == Shape{3, 4, 4});
  CHECK_THROWS_WITH(wkv7(six, all, nullptr), contains("is not [12, 4]"));
  CHECK_THROWS_WITH(wkv7(x, few, nullptr), contains("wkv7: operand few"));
  CHECK_THROWS_WITH(wkv7(x, all, &short_values), contains("is not [12, 4]"));
}

TEST_CASE("recurrent layers are refused what does not fit their state") {
  GraphBuilder b({4, 1, 2});
  const Act x = b.embed(b.weight("table", f32({12, 10})), b.step_input(StepInput::Tokens), "x");
  const auto conv = [&](Act in, Weight w, Shape state) {
    return b.short_conv(in, w, b.recurrent({0, RecurrentType::Part::Conv, state}), "conv");
  };
  const Weight w = b.weight("w", f32({4, 12}));
  CHECK_THROWS_WITH(conv(x, w, {12, 4}), contains("is not a state [12, 3]"));
  CHECK_THROWS_WITH(conv(x, b.weight("other", f32({4, 11})), {12, 3}), contains("short_conv: operand other"));
  CHECK_THROWS_WITH(conv(x, b.weight("thin", f32({1, 12})), {12, 0}), contains("no convolution"));
  const Act wanted = b.rows(x, b.step_input(StepInput::OutRows), "wanted");
  CHECK_THROWS_WITH(conv(wanted, w, {12, 3}), contains("no row for every token"));
  const Recurrent last_rows = b.recurrent({0, RecurrentType::Part::Conv, {12, 3}});
  const Weight short_bias = b.weight("short_bias", f32({11}));
  CHECK_THROWS_WITH(b.short_conv(x, w, last_rows, "biased", {}, &short_bias), contains("operand short_bias"));
  CHECK_THROWS_WITH(b.short_conv(x, w, last_rows, "gelu", {.activation = Activation::Gelu}),
                    contains("by silu or not"));

  // Two value heads of 4 and one key head of 2: 2 * 2 + 2 * 4.
  const Act two = b.slice(x, {.begin = 3, .n = 2}, "two");
  const Weight v = b.weight("v", f32({2}));
  const auto delta = [&](Act qkv, Act alpha, Weight a, int key_heads, Shape state) {
    const GraphBuilder::DeltaOperands o{qkv, alpha, two, a, v, b.recurrent({0, RecurrentType::Part::Delta, state})};
    return b.type(b.gated_delta(o, {.key_heads = key_heads, .eps = 1e-6F}, "y")).shape;
  };
  CHECK(delta(x, two, v, 1, {4, 2, 2}) == Shape{4, 2, 4});
  CHECK_THROWS_WITH(delta(x, two, v, 1, {4, 3, 2}), contains("is not q, k and v of the state"));
  CHECK_THROWS_WITH(delta(x, x, v, 1, {4, 2, 2}), contains("is not [value_heads, tokens]"));
  CHECK_THROWS_WITH(delta(x, two, w, 1, {4, 2, 2}), contains("gated_delta: operand w"));
  CHECK_THROWS_WITH(delta(x, two, v, 3, {4, 2, 2}), contains("not a multiple of the key heads"));

  // Two heads of 3 and one group of states of 3: 2 * 3 + 2 * 3.
  const Weight ones = b.weight("ones", f32({1, 2}));
  const auto scan = [&](Act xbc, Act dt, Weight a, int groups, Shape state) {
    const GraphBuilder::ScanOperands o{xbc, dt, a, ones, v, b.recurrent({0, RecurrentType::Part::Scan, state})};
    return b.type(b.selective_scan(o, {.groups = groups}, "scan")).shape;
  };
  CHECK(scan(x, two, ones, 1, {3, 3, 2}) == Shape{3, 2, 4});
  CHECK_THROWS_WITH(scan(x, two, ones, 1, {3, 4, 2}), contains("is not x, B and C of the state"));
  CHECK_THROWS_WITH(scan(x, x, ones, 1, {3, 3, 2}), contains("is not [heads, tokens]"));
  CHECK_THROWS_WITH(scan(x, two, v, 1, {3, 3, 2}), contains("selective_scan: operand v"));
  CHECK_THROWS_WITH(scan(x, two, ones, 3, {3, 3, 2}), contains("not a multiple of the groups"));
  CHECK_THROWS_WITH(scan(wanted, two, ones, 1, {3, 3, 2}), contains("no row for every token"));
  CHECK_THROWS_WITH(b.slice(x, {.begin = 10, .n = 3}, "s"), contains("no such elements"));
  CHECK_THROWS_WITH(b.slice(x, {.begin = -1, .n = 3}, "s"), contains("no such elements"));
  CHECK(b.type(b.glu(Activation::Sigmoid, b.slice(x, {.begin = 0, .n = 1}, "one"), x, "g")).shape == Shape{12, 4});
  CHECK_THROWS_AS(b.glu(Activation::Sigmoid, two, x, "g2"), Error);
  const Glu limited{.activation = Activation::Silu, .limit = 1};
  CHECK(b.type(b.glu(limited, x, x, "g3")).shape == Shape{12, 4});
  CHECK_THROWS_WITH(b.glu(limited, b.slice(x, {.begin = 0, .n = 1}, "one"), x, "g4"), contains("limited"));
  CHECK_THROWS_WITH(b.glu({.activation = Activation::Relu, .limit = 1}, x, x, "g5"), contains("limited"));
}

TEST_CASE("a recurrent state goes on once in a step, and all tokens of it are needed") {
  GraphBuilder b({4, 1, 2});
  const Act x = b.embed(b.weight("table", f32({12, 10})), b.step_input(StepInput::Tokens), "x");
  const Weight w = b.weight("w", f32({4, 12}));
  const Recurrent state = b.recurrent({0, RecurrentType::Part::Conv, {12, 3}});
  const Act y = b.short_conv(x, w, state, "y");
  SECTION("rows are selected behind it") {
    const Act scaled = b.scale(y, 2, "scaled");
    const Graph g = rows_early(std::move(b).finish(b.rows(scaled, b.step_input(StepInput::OutRows), "wanted")));
    CHECK(find(g, "y")->rows == RowSpace::Tokens);
    CHECK(find(g, "scaled")->rows == RowSpace::Outputs);
  }
  SECTION("twice") {
    const Act z = b.short_conv(y, w, state, "z");
    CHECK_THROWS_WITH(std::move(b).finish(z), contains("conv_state.0 goes on twice"));
  }
}

TEST_CASE("verify finds every kind of broken graph") {
  const Graph good = decoder(1);
  REQUIRE_NOTHROW(verify(good));
  SECTION("a node before its operand") {
    Graph g = good;
    std::swap(g.mutable_nodes()[2], g.mutable_nodes()[3]);
    CHECK_THROWS_WITH(verify(g), contains("before it is computed"));
  }
  SECTION("a result computed twice") {
    Graph g = good;
    g.add_node(g.nodes()[2]);
    CHECK_THROWS_WITH(verify(g), contains("computed twice"));
  }
  SECTION("a type that the op does not give") {
    Graph g = good;
    for (ValueInfo& v : g.mutable_values()) {
      if (v.name == "blk.0.glu") v.type.shape = {kFf + 1, 8};
    }
    CHECK_THROWS_AS(verify(g), Error);
  }
  SECTION("two values of one name") {
    Graph g = good;
    for (ValueInfo& v : g.mutable_values()) {
      if (v.name == "blk.0.glu") v.name = "norm";
    }
    CHECK_THROWS_WITH(verify(g), contains("two values are named norm"));
  }
  SECTION("a second append to one cache") {
    Graph g = good;
    const auto it = std::find_if(g.nodes().begin(), g.nodes().end(),
                                 [](const Node& n) { return std::holds_alternative<KvAppend>(n.op); });
    Node again = *it;
    ValueInfo stored = g.info(again.out[0]);
    stored.name = "again";
    again.out = {g.add_value(stored)};
    g.add_node(again);
    CHECK_THROWS_WITH(verify(g), contains("second append"));
  }
  SECTION("attention over the cache as it was before the step") {
    Graph g = good;
    std::uint32_t before = 0;
    for (Node& n : g.mutable_nodes()) {
      if (std::holds_alternative<KvAppend>(n.op)) before = n.in[2];
      if (std::holds_alternative<Attention>(n.op)) n.in[1] = before;
    }
    CHECK_THROWS_WITH(verify(g), contains("that this step's rows are not in"));
  }
  SECTION("an output that nothing computes") {
    Graph g = good;
    g.set_outputs({static_cast<std::uint32_t>(g.add_value({.kind = ValueKind::Result, .name = "orphan"}))});
    CHECK_THROWS_WITH(verify(g), contains("never computed"));
  }
}

TEST_CASE("merge_linears gives one node for q, k, v and one for gate, up, with operands in the order x, weights") {
  const Graph g = merge_linears(decoder(2));
  verify(g);
  CHECK(count<Linear>(g) == 2 * 4 + 1);  // qkv, o, gate+up, down per layer; head
  const auto qkv = std::find_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) {
    return std::holds_alternative<Linear>(n.op) && std::get<Linear>(n.op).products.size() == 3;
  });
  REQUIRE(qkv != g.nodes().end());
  CHECK(g.info(qkv->in[0]).name == "blk.0.attn_norm");
  CHECK(g.info(qkv->in[1]).name == "blk.0.q.weight");
  CHECK(g.info(qkv->in[2]).name == "blk.0.k.weight");
  CHECK(g.info(qkv->in[3]).name == "blk.0.v.weight");
  CHECK(g.info(qkv->out[2]).name == "blk.0.v");
}

TEST_CASE("routers, parts of heads and what is put behind them refuse what does not fit") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const Act logits = b.linear(x, {.weight = b.weight("router", f32({32, 12})), .bias = nullptr, .name = "logits"});
  const Weight bias = b.weight("bias", f32({12})), short_bias = b.weight("short", f32({11}));
  const Route grouped{.top_k = 4, .groups = 4, .groups_used = 2};
  b.route(logits, grouped, "fine", &bias);
  CHECK_THROWS_WITH(b.route(logits, grouped, "r", &short_bias), contains("operand short"));
  const auto refused = [&](int top_k, int groups, int used, int best, const char* why) {
    const Route op{.top_k = top_k, .groups = groups, .groups_used = used, .group_best = best};
    CHECK_THROWS_WITH(b.route(logits, op, "r"), contains(why));
  };
  refused(4, 5, 2, 2, "share out");
  refused(4, 4, 5, 2, "hold top_k");
  refused(7, 4, 2, 2, "hold top_k");
  refused(4, 4, 2, 4, "group_best");

  const Act heads = b.split_heads(x, 4, "heads"), other = b.split_heads(x, 2, "other");
  CHECK(b.type(b.slice(heads, {2, 6}, "part")).shape == Shape({6, 4, 4}));
  CHECK(b.type(b.slice(x, {2, 6}, "columns")).shape == Shape({6, 4}));
  CHECK_THROWS_WITH(b.slice(heads, {3, 6}, "s"), contains("no such elements"));
  CHECK_THROWS_WITH(b.slice(heads, {0, 0}, "s"), contains("no such elements"));
  CHECK(b.type(b.concat(heads, b.split_heads(x, 1, "one"), "joined")).shape == Shape({40, 4, 4}));
  CHECK_THROWS_WITH(b.concat(heads, other, "c"), contains("has other heads"));
  CHECK_THROWS_WITH(b.concat(x, other, "c"), contains("needs [n, heads, rows]"));
  const Act weights = b.split_heads(b.slice(x, {0, 12}, "twelve"), 3, "weights");  // [4, 3, 4]
  CHECK(b.type(b.stream_mix(heads, weights, "mixed")).shape == Shape({8, 3, 4}));
  CHECK_THROWS_WITH(b.stream_mix(weights, heads, "m"), contains("is not [m, k, rows]"));
  CHECK_THROWS_WITH(b.stream_mix(heads, x, "m"), contains("needs [n, heads, rows]"));
  const Act row = b.slice(x, {0, 8}, "row"), each = b.slice(x, {0, 4}, "each");
  CHECK(b.type(b.stream_add(heads, row, &each, {.first = 3}, "spread")).shape == Shape({8, 4, 4}));
  CHECK_THROWS_WITH(b.stream_add(heads, each, nullptr, {}, "s"), contains("is not [n, rows]"));
  CHECK_THROWS_WITH(b.stream_add(heads, row, &row, {}, "s"), contains("is not [m, rows]"));
  CHECK_THROWS_WITH(b.stream_add(heads, row, nullptr, {.first = 4}, "s"), contains("from the first on"));
  CHECK_THROWS_WITH(b.gaussian_top(b.slice(x, {0, 1}, "one"), 1, "g"), contains("at least 2"));
  const Index positions = b.step_input(StepInput::Positions);
  CHECK(b.type(b.position_scale({.slope = 1, .length = 2}, positions, "scales")).shape == Shape({1, 4}));
  CHECK_THROWS_WITH(b.position_scale({.slope = 1, .length = 0}, positions, "p"), contains("at least 1"));
  CHECK(b.graph().info(b.head_ids(heads, "ids")).type == TensorType{DType::I32, {4, 4}});
  CHECK_THROWS_WITH(b.head_ids(x, "ids"), contains("needs [n, heads, rows]"));
  const Weight w8 = b.weight("w8", f32({8})), w4 = b.weight("w4", f32({4}));
  CHECK(b.type(b.stream_blend(heads, row, w8, {}, "blend")).shape == Shape({8, 4}));
  CHECK_THROWS_WITH(b.stream_blend(heads, each, w8, {}, "b"), contains("is not [n, rows]"));
  CHECK_THROWS_WITH(b.stream_blend(heads, row, w4, {}, "b"), contains("is not a weight"));
  CHECK(b.type(b.silence(row, {.begin = 3, .n = 5}, "silent")).shape == Shape({8, 4}));
  CHECK_THROWS_WITH(b.silence(row, {.begin = 4, .n = 5}, "s"), contains("no such elements"));
  const llm::Index ids = b.head_ids(heads, "heads_of");
  CHECK(b.type(b.group_ids(ids, 2, "groups")) == TensorType{DType::I32, {4, 4}});
  CHECK_THROWS_WITH(b.group_ids(ids, 0, "g"), contains("experts in groups"));
}

TEST_CASE("merge_linears keeps each bias with its weight") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const Weight b0 = b.weight("b0", f32({8})), b2 = b.weight("b2", f32({24}));
  const Act y0 = b.linear(x, {.weight = b.weight("w0", f32({32, 8})), .bias = &b0, .name = "y0"});
  const Act y1 = b.linear(x, {.weight = b.weight("w1", f32({32, 8})), .bias = nullptr, .name = "y1"});
  const Act y2 = b.linear(x, {.weight = b.weight("w2", f32({32, 24})), .bias = &b2, .name = "y2"});
  b.glu(Activation::Silu, y0, y1, "g");
  const Graph g = merge_linears(std::move(b).finish(y2));
  verify(g);
  const Node& n = g.nodes()[1];
  REQUIRE(n.in.size() == 6);
  CHECK(g.info(n.in[4]).name == "b0");
  CHECK(g.info(n.in[5]).name == "b2");
  CHECK(std::get<Linear>(n.op).products[0].bias);
  CHECK_FALSE(std::get<Linear>(n.op).products[1].bias);
  CHECK(std::get<Linear>(n.op).products[2].bias);
}

TEST_CASE("merge_linears joins weights, biases and scales, each in the order of the products") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const Weight b1 = b.weight("b1", f32({8})), s0 = b.weight("s0", f32({1})), s1 = b.weight("s1", f32({1}));
  const Act y0 = b.linear(x, {.weight = b.weight("w0", f32({32, 8})), .bias = nullptr, .name = "y0", .scale = &s0});
  const Act y1 = b.linear(x, {.weight = b.weight("w1", f32({32, 8})), .bias = &b1, .name = "y1", .scale = &s1});
  const Graph g = merge_linears(std::move(b).finish(b.add(y0, y1, "y")));
  verify(g);
  const Node& n = g.nodes()[1];
  std::vector<std::string> names;
  for (const std::uint32_t id : n.in) names.push_back(g.info(id).name);
  CHECK(names == std::vector<std::string>{"x", "w0", "w1", "b1", "s0", "s1"});
  CHECK(attributes(n.op) == "F32*scale F32*scale+bias");
  const auto operands = product_operands(n.op);
  REQUIRE(operands.size() == 2);
  CHECK((operands[0].weight == 1 && operands[0].bias == 0 && operands[0].scale == 4));
  CHECK((operands[1].weight == 2 && operands[1].bias == 3 && operands[1].scale == 5));
}

TEST_CASE("merge_linears joins the experts' weights, biases and scales") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const Act logits = b.linear(x, {.weight = b.weight("router", f32({32, 6})), .bias = nullptr, .name = "logits"});
  const Routes routes = b.route(logits, {.top_k = 2}, "routes");
  const Weight b0 = b.weight("b0", f32({8, 6})), s1 = b.weight("s1", f32({6}));
  const Act y0 = b.expert_linear(x, routes.expert, {b.weight("w0", f32({32, 8, 6})), &b0, "y0"});
  const Act y1 = b.expert_linear(x, routes.expert, {b.weight("w1", f32({32, 8, 6})), nullptr, "y1", &s1});
  const Graph g = merge_linears(std::move(b).finish(b.combine(b.add(y0, y1, "both"), routes.weight, "y")));
  verify(g);
  const Node& n = g.nodes()[3];
  std::vector<std::string> names;
  for (const std::uint32_t id : n.in) names.push_back(g.info(id).name);
  CHECK(names == std::vector<std::string>{"x", "routes", "w0", "w1", "b0", "s1"});
  CHECK(attributes(n.op) == "F32+bias F32*scale");

  GraphBuilder wrong({4, 1, 1});
  const Act z = wrong.embed(wrong.weight("table", f32({32, 10})), wrong.step_input(StepInput::Tokens), "z");
  const Weight two = wrong.weight("two", f32({2}));
  CHECK_THROWS_AS(wrong.linear(z, {wrong.weight("w", f32({32, 8})), nullptr, "y", &two}), Error);
}

TEST_CASE("fuse_add_norm joins every residual addition with the norm that follows") {
  const Graph g = fuse_add_norm(decoder(3));
  verify(g);
  CHECK(count<AddRmsNorm>(g) ==
        5);  // per layer: before the ffn, and into the next layer; the last sum is selected first
  CHECK(count<Add>(g) == 1);
  CHECK(count<RmsNorm>(g) == 2);  // the first layer's and, behind the selection, the last
}

TEST_CASE("rows_early moves the selection before the last layer's feed-forward") {
  const Graph g = rows_early(decoder(2));
  verify(g);
  CHECK(find(g, "blk.1.attn")->rows == RowSpace::Tokens);
  for (const char* name :
       {"blk.1.o", "blk.1.ffn_in", "blk.1.ffn_norm", "blk.1.gate", "blk.1.down", "blk.1.out", "norm", "logits"}) {
    INFO(name);
    CHECK(find(g, name)->rows == RowSpace::Outputs);
    CHECK(find(g, name)->type.shape[1] == 3);
  }
  CHECK(find(g, "blk.0.out")->rows == RowSpace::Tokens);
  CHECK(count<Rows>(g) == 2);  // of the attention's result and of the residual stream
}

TEST_CASE("remove_dead drops what reaches no output, and keeps caches") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  b.scale(x, 2, "unused");
  const Act k = b.split_heads(x, 4, "k");
  b.kv_append(k, k, b.cache({0, 4, 8, 8}), "kv");
  const Graph g = remove_dead(std::move(b).finish(x));
  verify(g);
  CHECK(find(g, "unused") == nullptr);
  CHECK(count<Scale>(g) == 0);
  CHECK(count<KvAppend>(g) == 1);
}

TEST_CASE("optimize is legal, computes the same names, and equal layers hash equally") {
  const Graph g = optimize(decoder(5));
  verify(g);
  for (const char* name : {"embd", "blk.0.q", "blk.3.glu", "blk.4.out", "logits"}) CHECK(find(g, name) != nullptr);
  const auto ranges = layer_ranges(g);
  REQUIRE(ranges.size() == 7);
  const auto hash = [&](std::size_t i) { return structural_hash(g, ranges[i]); };
  CHECK(hash(2) == hash(3));
  CHECK(hash(3) == hash(4));
  CHECK(hash(1) != hash(2));  // the first layer begins with a norm of its own
  CHECK(hash(5) != hash(4));  // the last works on wanted rows
}

TEST_CASE("passes applied again change nothing") {
  const Graph once = optimize(decoder(3));
  const Graph twice = optimize(once);
  verify(twice);
  CHECK(to_text(twice) == to_text(once));
}

TEST_CASE("a storage type or an attribute changes the structural hash, a layer number does not") {
  auto graph = [](int layer, DType type, float eps) {
    GraphBuilder b({4, 1, 1});
    const Act x = b.embed(b.weight("t", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
    b.set_place(layer, Role::Ffn, "l.");
    const Act n = b.rms_norm(x, b.weight("n" + std::to_string(layer), f32({32})), eps, "n");
    return std::move(b).finish(b.linear(n, {.weight = b.weight("w", {type, {32, 8}}), .bias = nullptr, .name = "y"}));
  };
  const auto hash = [&](const Graph& g) { return structural_hash(g, layer_ranges(g)[1]); };
  const auto base = hash(graph(3, DType::Q8_0, 1e-5F));
  CHECK(hash(graph(7, DType::Q8_0, 1e-5F)) == base);
  CHECK(hash(graph(3, DType::Q4_0, 1e-5F)) != base);
  CHECK(hash(graph(3, DType::Q8_0, 1e-6F)) != base);
}

TEST_CASE("two maps of one name with functions of their own hash differently") {
  using Function = const std::function<float(float)>;
  GraphBuilder b({4, 1, 1});
  Act x = b.embed(b.weight("t", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const auto function = std::make_shared<Function>([](float v) { return v; });
  const auto other = std::make_shared<Function>([](float v) { return -v; });
  for (int layer = 0; layer < 3; ++layer) {
    b.set_place(layer, Role::Ffn, "l" + std::to_string(layer) + ".");
    x = b.map(x, {.name = "f", .function = layer < 2 ? function : other}, "y");
  }
  const Graph g = std::move(b).finish(x);
  const auto hash = [&](std::size_t i) { return structural_hash(g, layer_ranges(g)[i]); };
  CHECK(hash(1) == hash(2));
  CHECK(hash(2) != hash(3));
}

TEST_CASE("the memory plan never lets two living values overlap, and reuses bytes") {
  const Graph g = optimize(decoder(4));
  std::vector<std::uint64_t> scratch(g.nodes().size(), 0);
  for (std::size_t i = 0; i < scratch.size(); i += 3) scratch[i] = 100 + 64 * i;
  const MemoryPlan plan = plan_memory(g, scratch);

  // Lives, found independently of the planner: from the producer to the last reader, through reshapes.
  struct Life {
    std::size_t from, to;
    std::uint64_t begin, end;
  };
  std::vector<std::uint32_t> root(g.values().size());
  for (std::uint32_t v = 0; v < root.size(); ++v) root[v] = v;
  for (const Node& n : g.nodes()) {
    if (std::holds_alternative<Reshape>(n.op)) root[n.out[0]] = root[n.in[0]];
  }
  std::map<std::uint32_t, Life> lives;
  std::vector<Life> all;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.nodes()[i];
    for (std::uint32_t v : n.out) {
      if (g.info(v).kind != ValueKind::Result || plan.offset[v] == MemoryPlan::kNone || root[v] != v) continue;
      lives[v] = {i, i, plan.offset[v], plan.offset[v] + g.info(v).type.bytes()};
      sum += g.info(v).type.bytes();
    }
    for (const auto* list : {&n.in, &n.out}) {
      for (std::uint32_t v : *list) {
        if (lives.count(root[v])) lives[root[v]].to = i;
      }
    }
    if (scratch[i]) all.push_back({i, i, plan.scratch_offset[i], plan.scratch_offset[i] + scratch[i]});
  }
  for (const auto& [v, life] : lives) all.push_back(life);
  for (std::size_t a = 0; a < all.size(); ++a) {
    CHECK(all[a].end <= plan.bytes);
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      const bool together = all[a].from <= all[b].to && all[b].from <= all[a].to;
      const bool overlap = all[a].begin < all[b].end && all[b].begin < all[a].end;
      CHECK_FALSE((together && overlap));
    }
  }
  CHECK(plan.bytes < sum / 2);
  CHECK(plan.offset[g.outputs()[0]] == MemoryPlan::kNone);
}

TEST_CASE("one rule or none gives one segment: the whole graph") {
  const Graph g = optimize(decoder(2));
  const auto whole = partition(g, {});
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].graph.nodes().size() == g.nodes().size());
  verify(whole[0].graph);
  const PlacementRule all{.first_layer = {}, .last_layer = {}, .role = {}, .tensor_override = {}, .backend = 3};
  const auto moved = partition(g, std::span(&all, 1));
  REQUIRE(moved.size() == 1);
  CHECK(moved[0].backend == 3);
}

TEST_CASE("rules cut the graph into segments that hand values over by name") {
  Graph written = decoder(4);
  mark_overrides(written, {{"blk.3.down.weight", 7}, {"blk.3.absent.weight", 8}});
  const Graph g = optimize(written);
  const PlacementRule rules[] = {
      {.first_layer = 1, .last_layer = 2, .role = {}, .tensor_override = {}, .backend = 1},
      {.first_layer = {}, .last_layer = {}, .role = {}, .tensor_override = 7, .backend = 2},
  };
  const auto segments = partition(g, rules);
  std::vector<int> backends;
  std::set<std::string> known;
  std::size_t nodes = 0;
  const auto count = [](const Graph& part, const auto& is_wanted) {
    return static_cast<std::size_t>(std::count_if(part.nodes().begin(), part.nodes().end(), is_wanted));
  };
  const auto makes_angles = [](const Node& n) { return std::holds_alternative<RopeTable>(n.op); };
  const auto turns = [](const Node& n) { return std::holds_alternative<Rope>(n.op); };
  REQUIRE(count(g, makes_angles) == 1);
  for (const Segment& s : segments) {
    backends.push_back(s.backend);
    // Angles are made where heads are turned.
    CHECK(count(s.graph, makes_angles) == (count(s.graph, turns) > 0 ? 1 : 0));
    nodes += s.graph.nodes().size() - count(s.graph, makes_angles);
    verify(s.graph);
    for (const ValueInfo& v : s.graph.values()) {
      if (v.kind == ValueKind::Input && v.input == StepInput::None) CHECK(known.count(v.name) == 1);
    }
    for (std::uint32_t v : s.graph.outputs()) known.insert(s.graph.info(v).name);
  }
  CHECK(backends == std::vector<int>{0, 1, 0, 2, 0});
  CHECK(nodes == g.nodes().size() - 1);
  CHECK(known.count("logits") == 1);
  for (const Node& n : g.nodes()) {
    if (makes_angles(n)) CHECK(known.count(g.info(n.out[0]).name) == 0);
  }
}

TEST_CASE("a cache is read where it was appended to") {
  GraphBuilder b({4, 1, 4});
  const Act x = b.embed(b.weight("table", f32({32, 10})), b.step_input(StepInput::Tokens), "x");
  const Act q = b.split_heads(x, 4, "heads");
  b.set_place(1, Role::Attention, "blk.1.");
  const Cache kept = b.kv_append(q, q, b.cache({1, 4, 8, 8}), "kv");
  Act y = b.attention(q, kept, {.scale = 1}, "own");
  b.set_place(2, Role::Attention, "blk.2.");
  y = b.add(y, b.attention(q, kept, {.scale = 1}, "shared"), "sum");
  const Graph g = std::move(b).finish(y);
  const auto rule = [](int first, int last, int backend) {
    return PlacementRule{
        .first_layer = first, .last_layer = last, .role = {}, .tensor_override = {}, .backend = backend};
  };
  std::vector<int> earlier, elsewhere;
  for (const Node& n : g.nodes()) {
    const PlacementRule together[] = {rule(1, 2, 1)}, apart[] = {rule(2, 2, 1)};
    if (earlier_cache(g, n)) earlier.push_back(n.layer);
    if (cache_elsewhere(g, n, apart)) elsewhere.push_back(*cache_elsewhere(g, n, apart));
    CHECK(!cache_elsewhere(g, n, together));
  }
  CHECK(earlier == std::vector<int>{2});
  CHECK(elsewhere == std::vector<int>{1});
}

TEST_CASE("text and Graphviz name every node") {
  const Graph g = optimize(decoder(1));
  const std::string text = to_text(g);
  CHECK(text.find("blk.0.q : F32 [32, tokens], blk.0.k : F32 [16, tokens], blk.0.v : F32 [16, tokens] = "
                  "linear(blk.0.attn_norm, "
                  "blk.0.q.weight F32, blk.0.k.weight F32, blk.0.v.weight F32) F32 F32 F32\n") != std::string::npos);
  CHECK(text.find("output logits\n") != std::string::npos);
  CHECK(to_text(decoder(1, {16, 2, 3})) != to_text(decoder(1)));
  const std::string dot = to_dot(g);
  CHECK(static_cast<std::size_t>(std::count(dot.begin(), dot.end(), '\n')) > g.nodes().size());
  CHECK(dot.find("digraph model {") == 0);
}

TEST_CASE("the caches of some layers can be fleeting") {
  const Graph g = optimize(decoder(3));
  const Graph fleeting = with_fleeting_caches(g, 2);
  verify(fleeting);
  CHECK(fleeting.nodes().size() == g.nodes().size());
  int attentions = 0;
  for (const Node& n : fleeting.nodes()) {
    if (!std::holds_alternative<Attention>(n.op)) continue;
    ++attentions;
    CHECK(fleeting.info(n.in[1]).cache.fleeting() == (n.layer < 2));
  }
  CHECK(attentions == 3);
}

TEST_CASE("layers with fleeting caches take places in turns, also beside layers without caches") {
  Graph g = optimize(decoder(5));
  const auto layers = [](int i) { return std::array{0, 1, 3, 5, 8}.at(static_cast<std::size_t>(i)); };
  for (ValueInfo& v : g.mutable_values())
    if (v.kind == ValueKind::Cache) v.cache.layer = layers(v.cache.layer);
  const Graph fleeting = with_fleeting_caches(g, 8);
  std::map<int, int> places;
  for (const ValueInfo& v : fleeting.values())
    if (v.kind == ValueKind::Cache) places[v.cache.layer] = v.cache.place;
  CHECK(places == std::map<int, int>{{0, 0}, {1, 1}, {3, 0}, {5, 1}, {8, CacheType::kStays}});
}

TEST_CASE("ids by hashes, means of rows and gates of streams refuse what does not fit") {
  GraphBuilder b({4, 1, 1});
  const llm::Index tokens = b.step_input(StepInput::Tokens);
  const auto hash = [&](HashIds op, std::int64_t kept) {
    return b.hash_ids(tokens, b.recurrent({0, RecurrentType::Part::Hash, {kept}}), std::move(op), "ids");
  };
  CHECK_THROWS_WITH(hash({{1}, {3}, {0}}, 1), contains("multipliers"));
  CHECK_THROWS_WITH(hash({{1, 2, 3}, {3}, {0}}, 2), contains("as many heads"));
  CHECK_THROWS_WITH(hash({{1, 2}, {3, 4}, {0}}, 1), contains("its offset"));
  CHECK_THROWS_WITH(hash({{1, 2}, {0}, {0}}, 1), contains("without ids"));
  CHECK_THROWS_WITH(hash({{1, 2}, {3}, {0}}, 2), contains("is not a state"));
  const llm::Index ids = hash({{1, 2}, {3, 4}, {0, 3}}, 1);
  CHECK(b.type(ids) == TensorType{DType::I32, {2, 4}});
  const Act x = b.embed(b.weight("table", f32({6, 7})), ids, "x");
  CHECK(b.type(x) == TensorType{DType::F32, {6, 2, 4}});
  const Act flat = b.flatten_heads(x, "flat"), other = b.split_heads(flat, 3, "other");
  CHECK(b.type(b.stream_mean(x, x, "mean")).shape == Shape({6, 4}));
  CHECK(b.type(b.match_gate(x, x, "match")).shape == Shape({2, 4}));
  CHECK_THROWS_WITH(b.stream_mean(x, other, "m"), contains("differs in shape"));
  CHECK_THROWS_WITH(b.match_gate(x, other, "m"), contains("differs in shape"));
  CHECK_THROWS_WITH(b.stream_mean(flat, flat, "m"), contains("needs [n, heads, rows]"));
  const Recurrent rows = b.recurrent({0, RecurrentType::Part::Mean, {12, 3}});
  CHECK(b.type(b.window_mean(flat, rows, 4, "mean_of")).shape == Shape({12, 4}));
  CHECK_THROWS_WITH(b.window_mean(flat, rows, 3, "m"), contains("is not a state"));
  CHECK_THROWS_WITH(b.window_mean(x, rows, 4, "m"), contains("[channels, tokens]"));
  const Weight w = b.weight("w", f32({3, 12}));
  const Recurrent apart = b.recurrent({0, RecurrentType::Part::ConvHash, {12, 4}});
  CHECK(b.type(b.short_conv(flat, w, apart, "conv", {.dilation = 2})).shape == Shape({12, 4}));
  CHECK_THROWS_WITH(b.short_conv(flat, w, apart, "c"), contains("is not a state"));
  CHECK_THROWS_WITH(b.short_conv(flat, w, apart, "c", {.dilation = 0}), contains("dilation"));
}

TEST_CASE("selections of keys and what attends to them refuse what does not fit") {
  using enum CacheType::Part;
  using enum CacheType::Access;
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({48, 10})), b.step_input(StepInput::Tokens), "x");
  const Act heads = b.split_heads(x, 3, "heads"), one = b.split_heads(x, 1, "one");
  const Act w = b.linear(x, {.weight = b.weight("w", f32({48, 3})), .bias = nullptr, .name = "weights"});
  const Cache index = b.cache({.kv_heads = 1, .head_dim_k = 16, .part = Index});
  const Cache whole = b.cache({.layer = 1, .kv_heads = 3, .head_dim_k = 16, .head_dim_v = 16});
  const Cache apart = b.cache({.layer = 2, .kv_heads = 3, .head_dim_k = 16, .head_dim_v = 16, .access = Selected});
  CHECK_THROWS_WITH(b.index_append(one, index, "i"), contains("operand one"));
  CHECK_THROWS_WITH(b.index_append(heads, whole, "i"), contains("if it is not of keys alone"));
  CHECK_THROWS_WITH(b.kv_append(heads, heads, index, "i"), contains("if it is not of keys alone"));
  CHECK_THROWS_WITH(b.select_keys(one, w, index, 2, "s"), contains("operand one"));
  CHECK_THROWS_WITH(b.select_keys(heads, x, index, 2, "s"), contains("operand x"));
  CHECK_THROWS_WITH(b.select_keys(heads, w, whole, 2, "s"), contains("not an index"));
  CHECK_THROWS_WITH(b.select_keys(heads, w, index, 0, "s"), contains("top_k"));
  const auto strided = [&](int stride) {
    const CacheType type{.layer = 2 + stride, .kv_heads = 1, .head_dim_k = 16, .part = Index, .stride = stride};
    return b.cache(type);
  };
  CHECK_THROWS_WITH(b.select_keys(heads, w, strided(4), 8, "s"), contains("multiple of the index's stride"));
  CHECK_THROWS_WITH(b.select_keys(heads, strided(4), 3, "s"), contains("top_k must be"));
  CHECK(b.type(b.select_keys(heads, strided(4), 11, "s4")) == TensorType{DType::I32, {11, 4}});
  const Act row = b.linear(x, {.weight = b.weight("r", f32({48, 16})), .bias = nullptr, .name = "row"});
  CHECK_THROWS_WITH(b.index_append(b.split_heads(row, 1, "key"), strided(5), "i"), contains("stride that divides"));
  const llm::Index selected = b.select_keys(heads, w, index, 2, "selected");
  CHECK(b.type(selected) == TensorType{DType::I32, {2, 4}});
  b.selected_attention(heads, apart, selected, {.scale = 1}, "fine");
  CHECK_THROWS_WITH(b.attention(heads, apart, {.scale = 1}, "a"), contains("number of operands"));
  CHECK_THROWS_WITH(b.attention(heads, index, {.scale = 1}, "a"), contains("no values"));
  CHECK_THROWS_WITH(b.selected_attention(heads, whole, selected, {.scale = 1}, "a"), contains("operand selected"));
  CHECK_THROWS_WITH(b.selected_attention(heads, apart, selected, {.scale = 1, .window = 3}, "a"), contains("window"));
  CHECK_THROWS_WITH(b.selected_attention(heads, apart, b.step_input(StepInput::Tokens), {.scale = 1}, "a"),
                    contains("operand tokens"));
  CHECK_THROWS_WITH(b.select_blocks(heads, index, {.top_k = 6, .block = 4}, "s"), contains("multiple of the block"));
  CHECK_THROWS_WITH(b.select_blocks(heads, index, {.top_k = 8, .block = 4, .local = 3}, "s"), contains("last blocks"));
  CHECK_THROWS_WITH(b.select_blocks(heads, strided(8), {.top_k = 8, .block = 4}, "s"), contains("not an index"));
  CHECK_THROWS_WITH(b.select_blocks(x, index, {.top_k = 8, .block = 4}, "s"), contains("operand x"));
  const llm::Index own = b.select_blocks(heads, index, {.top_k = 8, .block = 4}, "of_heads");
  CHECK(b.type(own) == TensorType{DType::I32, {8, 3, 4}});
  b.selected_attention(heads, apart, own, {.scale = 1}, "fine, too");
  const Cache one_head = b.cache({.layer = 3, .kv_heads = 1, .head_dim_k = 16, .head_dim_v = 16, .access = Selected});
  CHECK_THROWS_WITH(b.selected_attention(heads, one_head, own, {.scale = 1}, "a"), contains("operand of_heads"));
}

TEST_CASE("compressed keys, what makes them and attends to them, and weights of streams refuse what does not fit") {
  using enum CacheType::Part;
  using enum CacheType::Access;
  GraphBuilder b({4, 1, 1});
  const llm::Index tokens = b.step_input(StepInput::Tokens), positions = b.step_input(StepInput::Positions);
  const auto rows = [&](const std::string& name, std::int64_t n) {
    return b.embed(b.weight(name + ".weight", f32({n, 10})), tokens, name);
  };
  const Act x = rows("x", 32), narrow = rows("narrow", 16), weights = rows("weights", 15);
  const auto compress = [&](Act scores, std::int64_t places, const Shape& state) {
    const Weight w = b.weight("places" + std::to_string(places), f32({places, 4}));
    const Recurrent memory = b.recurrent({0, RecurrentType::Part::Compress, state});
    return b.compress({x, scores, w, positions, memory}, "row");
  };
  const Act row = compress(x, 32, {16, 3, 2});
  CHECK(b.type(row).shape == Shape({16, 4}));
  CHECK(b.type(compress(x, 32, {32, 3, 1})).shape == Shape({32, 4}));
  CHECK_THROWS_WITH(compress(narrow, 32, {16, 3, 2}), contains("as the scores are"));
  CHECK_THROWS_WITH(compress(x, 16, {16, 3, 2}), contains("as long as the input's"));
  CHECK_THROWS_WITH(compress(x, 32, {16, 2, 2}), contains("is not a state"));
  CHECK_THROWS_WITH(compress(x, 32, {8, 3, 4}), contains("one or two parts"));
  const Act key = b.split_heads(row, 1, "key"), q = b.split_heads(x, 2, "q");
  const auto compressed = [&](int stride, CacheType::Access access = Selected) {
    return b.cache({.kv_heads = 1, .head_dim_k = 16, .part = Compressed, .access = access, .stride = stride});
  };
  CHECK_THROWS_WITH(b.index_append(key, compressed(96), "c"), contains("is made of blocks"));
  b.index_append(key, compressed(128), "of_two_blocks");
  const Cache keys = b.index_append(key, compressed(4), "keys");
  const Cache kv = b.cache({.kv_heads = 1, .head_dim_k = 16, .head_dim_v = 16});
  const Cache index = b.cache({.kv_heads = 1, .head_dim_k = 16, .part = CacheType::Part::Index, .stride = 4});
  const Weight sinks = b.weight("sinks", f32({2}));
  const auto attend = [&](Act query, Cache of_window, Cache of_many, Weight sink, const llm::Index* chosen) {
    return b.compressed_attention({query, of_window, of_many, sink, chosen}, {.scale = 1, .window = 3}, "seen");
  };
  CHECK(b.type(attend(q, kv, keys, sinks, nullptr)).shape == Shape({16, 2, 4}));
  CHECK_THROWS_WITH(attend(key, kv, keys, sinks, nullptr), contains("operand sinks"));
  CHECK_THROWS_WITH(attend(q, keys, keys, sinks, nullptr), contains("keys and values"));
  CHECK_THROWS_WITH(attend(q, kv, index, sinks, nullptr), contains("compressed keys"));
  CHECK_THROWS_WITH(attend(q, kv, compressed(4, Whole), sinks, nullptr), contains("compressed keys"));
  CHECK_THROWS_WITH(attend(q, kv, keys, sinks, &tokens), contains("operand tokens"));
  const Act of_heads = rows("of_heads", 2);
  const llm::Index chosen = b.choose_keys(q, of_heads, index, 5, "chosen");
  CHECK(b.type(chosen) == TensorType{DType::I32, {5, 4}});
  CHECK(b.type(attend(q, kv, keys, sinks, &chosen)).shape == Shape({16, 2, 4}));
  CHECK_THROWS_WITH(b.choose_keys(q, of_heads, index, 0, "c"), contains("top_k"));
  const Weight three = b.weight("three", f32({3})), one = b.weight("one", f32({1})), all = b.weight("all", f32({15}));
  const StreamShares shares = b.stream_weights(weights, three, all, {}, "shares");
  CHECK(b.type(shares.read).shape == Shape({3, 1, 4}));
  CHECK(b.type(shares.write).shape == Shape({3, 4}));
  CHECK(b.type(shares.mix).shape == Shape({3, 3, 4}));
  CHECK(b.type(b.stream_read(weights, one, all, {}, "read")).shape == Shape({15, 1, 4}));
  CHECK_THROWS_WITH(b.stream_weights(narrow, three, b.weight("b16", f32({16})), {}, "s"), contains("(2 + m) * m"));
  CHECK_THROWS_WITH(b.stream_weights(weights, three, sinks, {}, "s"), contains("operand sinks"));
  CHECK_THROWS_WITH(b.stream_weights(weights, three, all, {.iterations = 0}, "s"), contains("at least once"));
  const auto route = [&](TensorType table, const Route& op) {
    return b.route_by_table(narrow, b.weight("table" + std::to_string(op.top_k), table), tokens, op, "routes");
  };
  CHECK(b.type(route({DType::I32, {2, 10}}, {.top_k = 2}).weight).shape == Shape({2, 4}));
  CHECK_THROWS_WITH(route({DType::I32, {2, 10}}, {.top_k = 3}), contains("[top_k, vocab]"));
  CHECK_THROWS_WITH(route({DType::F32, {4, 10}}, {.top_k = 4}), contains("of ids"));
  CHECK_THROWS_WITH(route({DType::I32, {5, 10}}, {.top_k = 5, .groups = 2, .groups_used = 2}), contains("groups"));
}

TEST_CASE("a layer may have an index beside its cache, and selects by what the step has stored") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({16, 10})), b.step_input(StepInput::Tokens), "x");
  const Act head = b.split_heads(x, 1, "head");
  const Act w = b.linear(x, {.weight = b.weight("w", f32({16, 1})), .bias = nullptr, .name = "weights"});
  const Cache index = b.cache({.kv_heads = 1, .head_dim_k = 16, .part = CacheType::Part::Index});
  const Cache cache =
      b.cache({.kv_heads = 1, .head_dim_k = 16, .head_dim_v = 16, .access = CacheType::Access::Selected});
  const Cache indexed = b.index_append(head, index, "indexed");
  const llm::Index selected = b.select_keys(head, w, indexed, 2, "selected");
  const Cache stored = b.kv_append(head, head, cache, "stored");
  const Act seen = b.selected_attention(head, stored, selected, {.scale = 1}, "seen");
  const Act y = b.flatten_heads(seen, "y");
  Graph g = std::move(b).finish(y);
  verify(g);
  CHECK(to_text(g).find("indexed : index k [16, 1, positions]") != std::string::npos);
  CHECK(to_text(g).find("v [16, 1, positions] selected") != std::string::npos);
  for (Node& n : g.mutable_nodes())
    if (std::holds_alternative<SelectKeys>(n.op)) n.in[2] = index.id;
  CHECK_THROWS_WITH(verify(g), contains("that this step's rows are not in"));
}

TEST_CASE("what leads to a choice of keys alone is needed by tokens that see more of them, and stays apart") {
  GraphBuilder b({4, 1, 1});
  const Act x = b.embed(b.weight("table", f32({16, 10})), b.step_input(StepInput::Tokens), "x");
  const auto linear = [&](const char* name, std::int64_t n) {
    return b.linear(x,
                    {.weight = b.weight(std::string(name) + ".weight", f32({16, n})), .bias = nullptr, .name = name});
  };
  const Act q = b.split_heads(linear("q", 16), 1, "q_head"), k = b.split_heads(linear("k", 16), 1, "k_head");
  const Act w = linear("w", 1);
  const Cache index =
      b.index_append(k, b.cache({.kv_heads = 1, .head_dim_k = 16, .part = CacheType::Part::Index}), "index");
  const llm::Index selected = b.select_keys(q, w, index, 3, "selected");
  const Act own = b.split_heads(linear("own", 16), 1, "own_head");
  const Cache stored = b.kv_append(
      own, own, b.cache({.kv_heads = 1, .head_dim_k = 16, .head_dim_v = 16, .access = CacheType::Access::Selected}),
      "stored");
  const Act y = b.flatten_heads(b.selected_attention(own, stored, selected, {.scale = 1}, "seen"), "y");
  const Graph merged = merge_linears(std::move(b).finish(y));
  verify(merged);
  std::map<std::string, std::int32_t> from;
  const std::vector<std::int32_t> needed = needed_from(merged);
  for (std::size_t i = 0; i < needed.size(); ++i) from[merged.info(merged.nodes()[i].out[0]).name] = needed[i];
  const std::map<std::string, std::int32_t> expected{{"x", 0},      {"q", 3},     {"q_head", 3},   {"k", 0},
                                                     {"k_head", 0}, {"index", 0}, {"selected", 0}, {"own_head", 0},
                                                     {"stored", 0}, {"seen", 0},  {"y", 0}};
  CHECK(from == expected);  // q and w are one node, k and own another
  CHECK(count<Linear>(merged) == 2);
}
