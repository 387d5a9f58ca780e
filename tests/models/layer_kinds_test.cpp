// What graphs of families are made of whose layers are of several kinds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "graph_parts.h"
#include "model/decoder_config.h"
#include "open_file.h"
#include "support/catch.h"
#include "support/tiny_vocabulary.h"

using namespace llm;
using namespace llm::test;

TEST_CASE("layers of step35 and mimo2 that see a window have other heads and bases than those that see all") {
  const TempDir folder;
  TinyFile step = tiny_model({.arch = "step35", .layers = 2, .rope = TinyRope::Llama3});
  const auto heads = [](const Graph& g) {
    std::vector<std::int64_t> out;  // of queries, of keys
    for (const Node& n : g.nodes()) {
      if (!std::holds_alternative<Rope>(n.op)) continue;
      out.push_back(g.info(n.out[0]).type.shape[1]);
    }
    return out;
  };
  const Graph g = open_tiny(folder, step).graph;
  CHECK(heads(g) == std::vector<std::int64_t>{4, 2, 2, 1});
  CHECK(open_tiny(folder, step).spec.dims.heads == 4);  // the most that any layer has
  CHECK(open_tiny(folder, step).spec.dims.kv_heads == 2);
  CHECK(all<RopeTable>(g) == std::vector<RopeTable>{{.n_rot = 4}, {.n_rot = 8, .base = 1000}});
  CHECK(producers(g, "rope_table").back() == "rope_freqs.weight");
  CHECK(producers(g, "rope_table_local").size() == 1);
  CHECK(producers(g, "blk.0.attn_q_rope")[1] == "rope_table_local");
  CHECK(producers(g, "blk.1.attn_q_rope")[1] == "rope_table");
  CHECK(producers(g, "blk.0.attn_gated") == std::vector<std::string>{"blk.0.attn_gate_heads", "blk.0.attn"});
  std::vector<float> limits;
  for (const Glu& glu : all<Glu>(g)) limits.push_back(glu.limit);
  CHECK(limits == std::vector<float>{0, 0.25f, 0, 0.25f, 0.25f});  // gates of heads have none
  step.set_array("step35.swiglu_clamp_exp", std::vector<float>{0, -1});
  CHECK_THROWS_WITH(open_tiny(folder, step), contains("step35.swiglu_clamp_exp"));
  step.erase("step35.swiglu_clamp_exp");
  step.set_array("step35.attention.head_count_kv", std::vector<std::uint32_t>{2, 3});
  CHECK_THROWS_WITH(open_tiny(folder, step), contains("step35.attention.head_count_kv"));
  step.set_array("step35.attention.head_count_kv", std::vector<std::uint32_t>{2, 0});
  CHECK_THROWS_WITH(open_tiny(folder, step), contains("is 0 for layer 1"));

  TinyFile mimo = tiny_model({.arch = "mimo2", .layers = 3});
  const Graph m = open_tiny(folder, mimo).graph;
  CHECK(heads(m) == std::vector<std::int64_t>{4, 2, 4, 1, 4, 2});
  CHECK(producers(m, "blk.0.attn").back() == "blk.0.attn_sinks.weight");
  CHECK(producers(m, "blk.1.attn").size() == 2);
  CHECK(producers(m, "blk.0.attn_residual")[1] == "blk.0.attn_scaled");
  mimo.set("mimo2.attention.value_scale", 1.0f);
  CHECK(producers(open_tiny(folder, mimo).graph, "blk.0.attn_residual")[1] == "blk.0.attn_output");
  mimo.erase("mimo2.attention.sliding_window_pattern");
  CHECK_THROWS_WITH(open_tiny(folder, mimo), contains("mimo2.attention.sliding_window_pattern"));
}

TEST_CASE("smallthinker: experts chosen by what the layer was given; with a window, every fourth layer is not turned") {
  const TempDir folder;
  const Graph g = open_tiny(folder, tiny_model({.arch = "smallthinker", .layers = 5, .window = 16})).graph;
  CHECK(producers(g, "blk.1.ffn_gate_inp")[0] == "blk.0.ffn_residual");
  std::vector<int> turned, windows;
  for (const Node& n : g.nodes()) {
    if (std::holds_alternative<Rope>(n.op)) turned.push_back(n.layer);
    if (const auto* a = std::get_if<Attention>(&n.op)) windows.push_back(a->window.length);
  }
  CHECK(turned == std::vector<int>{1, 1, 2, 2, 3, 3});
  CHECK(windows == std::vector<int>{0, 16, 16, 16, 0});
  CHECK(all<Rope>(open_tiny(folder, tiny_model({.arch = "smallthinker", .layers = 5})).graph).size() == 10);
}

TEST_CASE("grok: caps and scales, a dense network beside the experts; positions end where scores would grow") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "grok"});
  const Opened model = open_tiny(folder, f);
  CHECK(producers(model.graph, "blk.0.ffn_routes")[0] == "blk.0.ffn_gate_capped");
  CHECK(producers(model.graph, "blk.0.ffn_sum") == std::vector<std::string>{"blk.0.ffn_down", "blk.0.ffn_moe"});
  CHECK(all<Attention>(model.graph)[0] == Attention{.scale = 0.125f, .soft_cap = 5});
  CHECK(all<SoftCap>(model.graph) == std::vector<SoftCap>{{2}, {10}});
  CHECK(model.spec.dims.context == 64);
  f.set("grok.attention.temperature_length", std::uint32_t{48});
  CHECK(open_tiny(folder, f).spec.dims.context == 48);
  for (const char* key : {"attn_logit_softcapping", "router_logit_softcapping", "final_logit_softcapping",
                          "attention.output_scale", "embedding_scale", "logit_scale"})
    f.erase(std::string("grok.") + key);  // Grok-1
  const Graph first = open_tiny(folder, f).graph;
  CHECK(all<SoftCap>(first) == std::vector<SoftCap>{{30}});
  CHECK(all<Attention>(first)[0].soft_cap == 30);
  f.set("grok.router_logit_softcapping", 0.0f);
  CHECK(all<SoftCap>(open_tiny(folder, f).graph).empty());
}

TEST_CASE("kimi-linear: decays of elements, convolutions of their own, latents that are not turned") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "kimi-linear", .layers = 2});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(all<ShortConv>(g).size() == 3);
  CHECK(all<Rope>(g).empty());
  CHECK(producers(g, "blk.0.delta")[1] == "blk.0.ssm_f_b");
  CHECK(producers(g, "blk.0.delta_gated") == std::vector<std::string>{"blk.0.ssm_g_b", "blk.0.delta_flat"});
  f.set("kimi-linear.kda.safe_gate", true);
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("kimi-linear.kda.safe_gate"));
}

TEST_CASE("cohere2moe: the first, dense layers turn heads whatever they see; norms of either kind") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "cohere2moe", .layers = 4});
  const auto rotated = [&] {
    std::vector<int> layers;
    const Graph g = open_tiny(folder, f).graph;
    for (const Node& n : g.nodes())
      if (std::holds_alternative<Rope>(n.op)) layers.push_back(n.layer);
    return layers;
  };
  CHECK(rotated() == std::vector<int>{0, 0, 2, 2});
  f.set_array("cohere2moe.attention.sliding_window_pattern", std::vector<std::uint32_t>{0, 0, 1, 1});
  CHECK(rotated() == std::vector<int>{0, 0, 2, 2, 3, 3});
  CHECK(producers(open_tiny(folder, f).graph, "blk.1.ffn_residual")[1] == "blk.1.ffn_mean");
  CHECK(all<RmsNorm>(open_tiny(folder, f).graph).empty());
  f.set("cohere2moe.attention.layer_norm_rms_epsilon", 1e-5f);
  CHECK(all<LayerNorm>(open_tiny(folder, f).graph).empty());
}

TEST_CASE("deepseek32: each layer selects the keys that its tokens attend to, by halves that turn of an index") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "deepseek32", .layers = 2});
  const Opened model = open_tiny(folder, f);
  const Graph& g = model.graph;
  CHECK(model.unused.empty());
  CHECK(all<SelectKeys>(g) == std::vector<SelectKeys>(2, {.top_k = 8}));
  CHECK(producers(g, "blk.1.selected") ==
        std::vector<std::string>{"blk.1.indexer.q_rope", "blk.1.indexer.proj", "blk.1.index"});
  CHECK(producers(g, "blk.1.indexer.attn_q_b")[0] == "blk.1.attn_q_a_norm");
  CHECK(producers(g, "blk.1.indexer.attn_k")[0] == "blk.1.attn_norm");
  CHECK(producers(g, "blk.1.indexer.k_norm").back() == "blk.1.indexer.k_norm.bias");
  CHECK(producers(g, "blk.1.attn") == std::vector<std::string>{"blk.1.attn_query", "blk.1.kv", "blk.1.selected"});
  CHECK(all<LayerNorm>(g) == std::vector<LayerNorm>(2, {1e-6f}));
  using enum RopePairing;  // of the index's queries and keys, then of the latents'
  const std::vector<Rope> turned{{Halves, 8}, {Halves, 8}, {Interleaved, 8}, {Interleaved, 8}};
  const std::vector<Rope> ropes = all<Rope>(g);
  REQUIRE(ropes.size() == 8);
  CHECK(std::vector<Rope>(ropes.begin(), ropes.begin() + 4) == turned);
  f.set("deepseek32.nextn_predict_layers", std::uint32_t{1});
  const Opened shorter = open_tiny(folder, f);
  CHECK(shorter.spec.dims.n_layers == 1);
  CHECK(shorter.unused.empty());
}

TEST_CASE("qwen4exp: blocks are selected where the file says how long they are; hashed embeddings, where it has them") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "qwen4exp", .layers = 4});
  const auto selections = [&] {
    const Opened model = open_tiny(folder, f);
    CHECK(model.unused.empty());
    std::vector<int> top_k;
    for (const SelectKeys& s : all<SelectKeys>(model.graph)) top_k.push_back(s.top_k);
    return top_k;
  };
  const Graph g = open_tiny(folder, f).graph;
  CHECK(selections() == std::vector<int>{11, 11});
  CHECK(producers(g, "blk.1.selected") == std::vector<std::string>{"blk.1.indexer.q_rope", "blk.1.index"});
  CHECK(producers(g, "blk.1.indexer.k_rope") ==
        std::vector<std::string>{"blk.1.indexer.k_head", "rope_table_blocks_4"});
  CHECK(all<RopeTable>(g).back().offset == -3);
  CHECK(producers(g, "blk.1.attn_residual") ==
        std::vector<std::string>{"blk.0.ffn_residual", "blk.1.attn_output", "blk.1.hc_attn_shares"});
  CHECK(producers(g, "output")[0] == "output_hc_mean");
  for (const Glu& glu : all<Glu>(g)) CHECK(glu.activation != Activation::Gelu);
  f.set_array("qwen4exp.attention.compress_ratios", std::vector<std::uint32_t>{0, 8, 0, 1});
  CHECK(selections() == std::vector<int>{15, 8});
  f.set_array("qwen4exp.attention.compress_ratios", std::vector<std::uint32_t>{0, 0, 0, 2});
  CHECK(selections() == std::vector<int>{9});
  f.erase("qwen4exp.attention.compress_ratios");
  CHECK(selections().empty());
  CHECK(all<HashIds>(g).size() == 1);
  CHECK(all<HashIds>(g)[0].multipliers.size() == 3);
  f.erase("qwen4exp.ple.layers");
  CHECK(all<HashIds>(open_tiny(folder, f).graph).empty());
  f.set("qwen4exp.nextn_predict_layers", std::uint32_t{1});
  CHECK(open_tiny(folder, f).spec.dims.n_layers == 3);
}

TEST_CASE(
    "deepseek4: what layers attend to beside their window is as the file says; the first experts are by a table") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "deepseek4", .layers = 3, .rope = TinyRope::Yarn});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  REQUIRE(all<CompressedAttention>(g).size() == 2);
  REQUIRE(all<Attention>(g).size() == 1);
  CHECK(all<Attention>(g)[0].window == KeyWindow(16));
  CHECK(all<CompressedAttention>(g)[1].window == KeyWindow(16));
  CHECK(all<SelectKeys>(g) == std::vector<SelectKeys>{{.top_k = 3, .choice = SelectKeys::Choice::Keys}});
  CHECK(producers(g, "blk.0.attn") == std::vector<std::string>{"blk.0.attn_q", "blk.0.kv", "blk.0.compressed",
                                                               "blk.0.attn_sinks.weight", "blk.0.selected"});
  CHECK(producers(g, "blk.1.attn") ==
        std::vector<std::string>{"blk.1.attn_q", "blk.1.kv", "blk.1.compressed", "blk.1.attn_sinks.weight"});
  CHECK(producers(g, "blk.1.attn_compressor_key_rope")[1] == "rope_table_blocks_128");
  CHECK(producers(g, "blk.2.attn_q_rope")[1] == "rope_table");
  CHECK(producers(g, "blk.1.attn_back_rope")[1] == "rope_table_compressed_back");
  CHECK(producers(g, "blk.2.attn_back_rope")[1] == "rope_table_back");
  for (const Rope& rope : all<Rope>(g)) CHECK(rope == Rope{RopePairing::Interleaved, 8});
  // Layers without compressed keys are not stretched; the others are, and stay as long as they were.
  CHECK(all<RopeTable>(g)[0].scaling == RopeScaling::None);
  CHECK(all<RopeTable>(g)[2].scaling == RopeScaling::Yarn);
  CHECK(std::fabs(double{all<RopeTable>(g)[2].attention_factor} - 1 / (1 + 0.1 * std::log(4.0))) < 1e-6);
  CHECK(producers(g, "blk.0.ffn_routes") ==
        std::vector<std::string>{"blk.0.ffn_gate_inp", "blk.0.ffn_gate_tid2eid.weight", "tokens"});
  CHECK(producers(g, "blk.1.ffn_routes") == std::vector<std::string>{"blk.1.ffn_gate_inp", "blk.1.exp_probs_b.bias"});
  for (const Route& r : all<Route>(g)) CHECK(r.gating == Gating::RootSoftplus);
  for (const Glu& glu : all<Glu>(g)) {
    CHECK(glu.limit == 0.25f);
    CHECK(std::fabs(double{glu.gate_limit} - 0.25 / (1 + std::exp(-0.25))) < 1e-6);
  }
  f.set("deepseek4.nextn_predict_layers", std::uint32_t{1});  // of which the file has none
  CHECK(all<Route>(open_tiny(folder, f).graph).size() == 3);
  TinyFile predicting = f;
  predicting.add_tensor({"blk.2.nextn.eh_proj.weight", {DType::F32, {64, 32}}, 0, 1});
  CHECK(all<Route>(open_tiny(folder, predicting).graph).size() == 2);
  f.set_array("deepseek4.swiglu_clamp_shexp", std::vector<float>(3, 0.0f));
  CHECK(std::ranges::count(all<Glu>(open_tiny(folder, f).graph), 0.0f, &Glu::limit) == 3);
}

TEST_CASE("glm-dsa: layers without an indexer go by what the last one selected, as the file or its tensors say") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "glm-dsa", .layers = 4});
  const auto selections = [&] {
    const Opened model = open_tiny(folder, f);
    CHECK(model.unused.empty());
    std::vector<std::string> used;
    for (int i = 0; i < model.spec.dims.n_layers; ++i)
      used.push_back(producers(model.graph, "blk." + std::to_string(i) + ".attn").back());
    return used;
  };
  using Names = std::vector<std::string>;
  const Names shared{"blk.0.selected", "blk.0.selected", "blk.2.selected", "blk.2.selected"};
  CHECK(selections() == shared);
  for (const Rope& r : all<Rope>(open_tiny(folder, f).graph)) CHECK(r == Rope{RopePairing::Interleaved, 8});
  f.erase("glm-dsa.attention.indexer.types");
  CHECK(selections() == shared);
  f.set("glm-dsa.nextn_predict_layers", std::uint32_t{1});
  f.set_array("glm-dsa.attention.indexer.types", std::vector<std::uint32_t>{1, 0, 1});
  CHECK(selections() == Names{"blk.0.selected", "blk.0.selected", "blk.2.selected"});
}

TEST_CASE("bitnet: what outputs read is normalised; gates are squares where the file says so") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "bitnet"});
  const Graph plain = open_tiny(folder, f).graph;
  CHECK(all<Glu>(plain) == std::vector<Glu>{{.activation = Activation::Silu}});
  CHECK(producers(plain, "blk.0.attn_output")[0] == "blk.0.attn_sub_norm");
  CHECK(producers(plain, "blk.0.ffn_down")[0] == "blk.0.ffn_sub_norm");
  f.set("bitnet.hidden_activation", "relu2");
  const Graph squares = open_tiny(folder, f).graph;
  CHECK(all<Activate>(squares) == std::vector<Activate>{{.function = Nonlinearity::SquaredRelu}});
  CHECK(all<Glu>(squares) == std::vector<Glu>{{.activation = Activation::Identity}});
  CHECK(producers(squares, "blk.0.ffn_glu") == std::vector<std::string>{"blk.0.ffn_squares", "blk.0.ffn_up"});
}

TEST_CASE("granite_swa turns the heads of those layers that the file says, of all where it does not") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "granite_swa", .layers = 2});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(all<Rope>(g).size() == 2);
  CHECK(producers(g, "blk.1.kv")[0] == "blk.1.attn_k_heads");
  CHECK(all<Attention>(g)[0].window == KeyWindow(16));
  CHECK(all<Attention>(g)[1].window == KeyWindow());
  f.erase("granite_swa.attention.rope_pattern");
  CHECK(all<Rope>(open_tiny(folder, f).graph).size() == 4);
}

TEST_CASE("laguna: gates by softplus, of heads or of elements; without flags the first of four layers sees all") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "laguna", .layers = 5, .rope = TinyRope::Yarn});
  const Graph heads = open_tiny(folder, f).graph;
  CHECK(producers(heads, "blk.0.attn_gated") == std::vector<std::string>{"blk.0.attn_gate_heads", "blk.0.attn"});
  CHECK(all<Glu>(heads)[0].activation == Activation::Softplus);
  CHECK(all<RopeTable>(heads)[0].scaling == RopeScaling::Yarn);
  CHECK(all<RopeTable>(heads)[1] == RopeTable{.n_rot = 8, .base = 1000});
  f.erase("laguna.attention.sliding_window_pattern");
  f.resize("blk.0.attn_gate.weight", {32, 32});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.attn_gated") == std::vector<std::string>{"blk.0.attn_gate", "blk.0.attn_all"});
  std::vector<bool> local;
  for (const Attention& a : all<Attention>(g)) local.push_back(a.window == KeyWindow(16));
  CHECK(local == std::vector<bool>{false, true, true, true, false});
}

TEST_CASE("mamba: what steps are made of is normalised where the file says so") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "mamba"});
  CHECK(all<RmsNorm>(open_tiny(folder, f).graph).size() == 2);  // of the layer, of the output
  f.set("mamba.ssm.dt_b_c_rms", true);
  const Graph g = open_tiny(folder, f).graph;
  CHECK(all<RmsNorm>(g).size() == 5);
  CHECK(producers(g, "blk.0.ssm_dt_norm") == std::vector<std::string>{"blk.0.ssm_dt_low"});
}

TEST_CASE("rwkv6: shares in one tensor or in five, halves behind some layers, keys shared by heads") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "rwkv6", .layers = 4});
  f.set("rwkv6.rescale_every_n_layers", std::uint32_t{2});
  const Graph halved = open_tiny(folder, f).graph;
  CHECK(all<Scale>(halved) == std::vector<Scale>{{0.5f}, {0.5f}});
  CHECK(producers(halved, "blk.1.halved") == std::vector<std::string>{"blk.1.channel_residual"});
  CHECK(all<LayerNorm>(halved)[2].eps == 64e-5f);  // of the embedding, of the layer, of the heads
  CHECK(producers(halved, "blk.0.wkv").back() == "blk.0.time_mix_first.weight");
  CHECK(producers(halved, "blk.0.time_mix_gated") ==
        std::vector<std::string>{"blk.0.time_mix_gate", "blk.0.wkv_normal"});
  f.erase_tensor("blk.0.time_mix_lerp_fused.weight");
  for (const std::string x : {"w", "k", "v", "r", "g"})
    f.add_tensor({"blk.0.time_mix_lerp_" + x + ".weight", {DType::F32, {32}}, 0.5f, 0.5f});
  const Opened apart = open_tiny(folder, f);
  CHECK(apart.unused.empty());
  CHECK(producers(apart.graph, "blk.0.time_mix_xr")[2] == "blk.0.time_mix_lerp_r.weight");
  CHECK(producers(apart.graph, "blk.0.time_mix_xr")[3] == "blk.0.time_mix_shares_r");
  CHECK(all<Slice>(apart.graph)[3] == Slice{.begin = 3 * 32, .n = 32});
  f.set("rwkv6.token_shift_count", std::uint32_t{1});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("rwkv6.token_shift_count"));
  f.set("rwkv6.token_shift_count", std::uint32_t{2});
  f.set("rwkv6.wkv.head_size", std::uint32_t{12});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("rwkv6.wkv.head_size"));

  TinyFile q = tiny_model({.arch = "rwkv6qwen2"});
  const Graph qwen = open_tiny(folder, q).graph;
  CHECK(producers(qwen, "blk.0.wkv") == std::vector<std::string>{"blk.0.time_mix_receptance", "blk.0.time_mix_key",
                                                                 "blk.0.time_mix_value", "blk.0.time_mix_decay_w2",
                                                                 "wkv_state.0"});
  CHECK(all<Glu>(qwen)[0].activation == Activation::Sigmoid);
  q.set("rwkv6qwen2.attention.head_count_kv", std::uint32_t{3});
  CHECK_THROWS_WITH(open_tiny(folder, q), contains("rwkv6qwen2.attention.head_count_kv"));
}

TEST_CASE("rwkv7: values are mixed with the first layer's; of arwkv7 gates and norms of heads may be missing") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "rwkv7", .layers = 3});
  // Converters write what would mix the first layer's values.
  f.add_tensor({"blk.0.time_mix_v0.weight", {DType::F32, {32}}});
  for (const std::string name : {"v1", "v2"})
    f.add_tensor({"blk.0.time_mix_" + name + ".weight", {DType::F32, {4, 4}}});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(producers(model.graph, "blk.0.wkv").size() == 9);
  for (const std::string blk : {"blk.1.", "blk.2."}) {
    const std::vector<std::string> operands = producers(model.graph, blk + "wkv");
    REQUIRE(operands.size() == 11);
    CHECK(operands[9] == "blk.0.time_mix_value");
    CHECK(operands[10] == blk + "time_mix_v2");
  }
  f.erase("rwkv7.attention.gate_lora_rank");
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("rwkv7.attention.gate_lora_rank"));

  TinyFile a = tiny_model({.arch = "arwkv7"});
  CHECK(producers(open_tiny(folder, a).graph, "blk.0.time_mix_output")[0] == "blk.0.time_mix_gated");
  a.set("arwkv7.attention.gate_lora_rank", std::uint32_t{0});
  a.resize("blk.0.time_mix_lerp_fused.weight", {32, 1, 1, 5});
  for (const std::string name : {"g1.weight", "g2.weight", "ln.weight", "ln.bias"})
    a.erase_tensor("blk.0.time_mix_" + name);
  const Opened bare = open_tiny(folder, a);
  CHECK(bare.unused.empty());
  CHECK(producers(bare.graph, "blk.0.time_mix_output")[0] == "blk.0.time_mix_all");
  CHECK(producers(bare.graph, "blk.0.time_mix_all") ==
        std::vector<std::string>{"blk.0.wkv_flat", "blk.0.wkv_own_flat"});
  a.erase("arwkv7.token_shift_count");
  CHECK_THROWS_WITH(open_tiny(folder, a), contains("arwkv7.token_shift_count"));
}

TEST_CASE("hy_v3: dense layers are those without a router; the bias of the choice may lack the end of its name") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "hy_v3", .layers = 2});
  f.erase("hy_v3.leading_dense_block_count");
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.ffn_residual")[1] == "blk.0.ffn_down");
  CHECK(producers(g, "blk.1.ffn_routes")[1] == "blk.1.exp_probs_b.bias");
  f.erase_tensor("blk.1.exp_probs_b.bias");
  f.add_tensor({"blk.1.exp_probs_b", {DType::F32, {4}}, 0, 0.3f});
  const Opened bare = open_tiny(folder, f);
  CHECK(bare.unused.empty());
  CHECK(producers(bare.graph, "blk.1.ffn_routes")[1] == "blk.1.exp_probs_b");
}

TEST_CASE("codeshell's embedding is the output's matrix where the file has none") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "codeshell"});
  CHECK(producers(open_tiny(folder, f).graph, "token_embd")[0] == "token_embd.weight");
  f.erase_tensor("token_embd.weight");
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "token_embd")[0] == "output.weight");
  CHECK(producers(g, "output").back() == "output.weight");
}

TEST_CASE("plamo3: norms behind the blocks under either name; layers with a window have a base of their own") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "plamo3", .layers = 2});
  const Opened bare = open_tiny(folder, f);
  CHECK(bare.unused.empty());
  CHECK(producers(bare.graph, "blk.0.attn_residual")[1] == "blk.0.post_attention_normed");
  CHECK(producers(bare.graph, "blk.0.post_attention_normed").back() == "blk.0.post_attention_norm");
  CHECK(all<RopeTable>(bare.graph) == std::vector<RopeTable>{{.n_rot = 8}, {.n_rot = 8, .base = 1000}});
  f.erase_tensor("blk.0.post_attention_norm");
  f.add_tensor({"blk.0.post_attention_norm.weight", {DType::F32, {32}}, 1, 0.2f});
  const Graph named = open_tiny(folder, f).graph;
  CHECK(producers(named, "blk.0.post_attention_normed").back() == "blk.0.post_attention_norm.weight");
}

TEST_CASE("nanbeige goes through its layers as often as the file says, with keys and values for each time") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "nanbeige", .layers = 2});
  const Opened twice = open_tiny(folder, f);
  const Graph& g = twice.graph;
  CHECK(twice.unused.empty());
  CHECK(twice.spec.dims.n_layers == 4);
  CHECK(all<Attention>(g).size() == 4);
  CHECK(producers(g, "blk.3.kv").back() == "cache.3");
  CHECK(producers(g, "blk.3.ffn_up") == std::vector<std::string>{"blk.3.ffn_norm", "blk.1.ffn_up.weight"});
  CHECK(producers(g, "blk.2.loop_norm") == std::vector<std::string>{"blk.1.ffn_residual", "output_norm.weight"});
  CHECK(producers(g, "blk.2.attn_norm")[0] == "blk.2.loop_norm");
  f.set("nanbeige.skip_loop_final_norm", true);
  CHECK(producers(open_tiny(folder, f).graph, "blk.2.attn_norm")[0] == "blk.1.ffn_residual");
  f.set("nanbeige.num_loops", std::uint32_t{513});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("nanbeige.num_loops"));
  f.erase("nanbeige.num_loops");
  CHECK(open_tiny(folder, f).spec.dims.n_layers == 2);
}

TEST_CASE("maple: layers that see all are not turned, experts' gates are limited before they are activated") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "maple", .layers = 2});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.kv")[0] == "blk.0.attn_k_rope");
  CHECK(producers(g, "blk.1.kv")[0] == "blk.1.attn_k_norm");
  CHECK(all<Attention>(g)[0].window == KeyWindow(16));
  CHECK(all<Attention>(g)[1].window == KeyWindow());
  CHECK(all<RopeTable>(g) == std::vector<RopeTable>{{.n_rot = 8, .base = 1000}});
  const Glu limited{.activation = Activation::Silu, .limit = 0.25f, .gate_limit = 0.25f / (1 + std::exp(-0.25f))};
  CHECK(all<Glu>(g) == std::vector<Glu>(2, limited));
  f.erase("maple.swiglu_clamp_exp");
  CHECK(all<Glu>(open_tiny(folder, f).graph)[0].limit == 7);
  f.set("maple.swiglu_clamp_exp", 0.0f);
  CHECK(all<Glu>(open_tiny(folder, f).graph)[0].limit == 0);
}

TEST_CASE("bailingmoe3: states decay to a floor, what is attended to passes gates of heads") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "bailingmoe3", .layers = 2});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(all<GatedDelta>(model.graph)[0].floor == -5);
  CHECK(producers(model.graph, "blk.0.delta")[1] == "blk.0.ssm_f_a");
  CHECK(producers(model.graph, "blk.1.attn_gated") ==
        std::vector<std::string>{"blk.1.attn_gate_heads", "blk.1.attn_v_b"});
  std::vector<float> limits;
  for (const Glu& glu : all<Glu>(model.graph))
    if (glu.activation == Activation::Silu) limits.push_back(glu.limit);
  CHECK(limits == std::vector<float>(3, 0.25f));
  f.set("bailingmoe3.kda.gate_lower_bound", 0.5f);
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("bailingmoe3.kda.gate_lower_bound"));
  f.set("bailingmoe3.kda.gate_lower_bound", -5.0f);
  f.set("bailingmoe3.kda.safe_gate", false);
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("bailingmoe3.kda.safe_gate"));
}

TEST_CASE("grovemoe: beside the experts, small ones of their groups, by the same routes") {
  const TempDir folder;
  using Names = std::vector<std::string>;
  TinyFile f = tiny_model({.arch = "grovemoe"});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(all<GroupIds>(g) == std::vector<GroupIds>{{.size = 2}});
  CHECK(producers(g, "blk.0.ffn_groups") == Names{"blk.0.ffn_routes"});
  CHECK(producers(g, "blk.0.ffn_gate_chexps") ==
        Names{"blk.0.ffn_norm", "blk.0.ffn_groups", "blk.0.ffn_gate_chexps.weight"});
  CHECK(producers(g, "blk.0.ffn_chexps") == Names{"blk.0.ffn_down_chexps", "blk.0.ffn_routes_weights"});
  CHECK(producers(g, "blk.0.ffn_sum") == Names{"blk.0.ffn_moe", "blk.0.ffn_chexps_scaled"});
  CHECK(all<Scale>(g) == std::vector<Scale>{{.factor = 0.5f}});
  f.set("grovemoe.experts_per_group", std::uint32_t{3});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("grovemoe.experts_per_group"));
}

TEST_CASE("chameleon: norms in front of blocks or behind them, logits of pictures are silent") {
  const TempDir folder;
  using Names = std::vector<std::string>;
  TinyFile f = tiny_model({.arch = "chameleon"});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(producers(model.graph, "blk.0.attn_q_norm") ==
        Names{"blk.0.attn_q_heads", "blk.0.attn_q_norm.weight", "blk.0.attn_q_norm.bias"});
  CHECK(all<LayerNorm>(model.graph) == std::vector<LayerNorm>(2, {.eps = 1e-5f}));
  CHECK(producers(model.graph, "blk.0.attn_residual") == Names{"token_embd", "blk.0.attn_output"});
  CHECK(all<Silence>(model.graph).empty());
  f.set("chameleon.swin_norm", true);
  std::vector<std::string> tokens(static_cast<std::size_t>(tiny_vocabulary(TinyTokenizer::Spm)));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = (i < 4 || i > 9 ? "t" : "IMGIMG") + std::to_string(i);
  f.set_array("tokenizer.ggml.tokens", tokens);
  const Graph behind = open_tiny(folder, f).graph;
  CHECK(producers(behind, "blk.0.attn_q")[0] == "token_embd");
  CHECK(producers(behind, "blk.0.attn_residual") == Names{"token_embd", "blk.0.attn_norm"});
  CHECK(producers(behind, "blk.0.ffn_residual") == Names{"blk.0.attn_residual", "blk.0.ffn_norm"});
  CHECK(all<Silence>(behind) == std::vector<Silence>{{.begin = 4, .n = 6}});
  tokens[6] = "text";
  f.set_array("tokenizer.ggml.tokens", tokens);
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("in several places"));
}

TEST_CASE("kimi-k3: parts of layers read means of what was saved, experts work on rows of their own") {
  const TempDir folder;
  using Names = std::vector<std::string>;
  TinyFile f = tiny_model({.arch = "kimi-k3", .layers = 3});          // of which the second does not attend
  f.add_tensor({"blk.0.attn_res_score.weight", {DType::F32, {32}}});  // by which nothing is read
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(all<GatedDelta>(g)[0].floor == -5);
  CHECK(producers(g, "blk.1.delta_gated")[0] == "blk.1.ssm_g");
  CHECK(producers(g, "blk.0.attn_norm")[0] == "token_embd");
  CHECK(producers(g, "blk.0.ffn_res_blend") ==
        Names{"blk.0.ffn_res_saved", "blk.0.attn_output", "blk.0.ffn_res_score.weight"});
  CHECK(producers(g, "blk.1.attn_residual") == Names{"blk.0.ffn_residual", "blk.1.attn_output"});
  CHECK(producers(g, "blk.2.residuals") == Names{"blk.0.residual", "blk.2.residual"});
  CHECK(producers(g, "blk.2.residual")[0] == "blk.1.ffn_residual");
  CHECK(producers(g, "output_rows")[0] == "output_res_blend");
  CHECK(producers(g, "blk.0.attn_gated") == Names{"blk.0.attn_gate", "blk.0.attn_flat"});
  CHECK(producers(g, "blk.1.ffn_gate_exps")[0] == "blk.1.ffn_routed_down");
  CHECK(producers(g, "blk.1.ffn_gate_inp")[0] == "blk.1.ffn_norm");
  CHECK(producers(g, "blk.1.ffn_routed_up")[0] == "blk.1.ffn_routed_norm");
  CHECK(producers(g, "blk.1.ffn_glu") == Names{"blk.1.ffn_gate_exps", "blk.1.ffn_glu_bent"});
  f.set("kimi-k3.activation.situ_linear_beta", 0.0f);
  CHECK(producers(open_tiny(folder, f).graph, "blk.1.ffn_glu_bent") ==
        Names{"blk.1.ffn_glu_gate", "blk.1.ffn_up_exps"});
  f.set("kimi-k3.attn_res.block_size", std::uint32_t{0});
  CHECK(all<StreamBlend>(open_tiny(folder, f).graph).empty());
  f.set("kimi-k3.kda.gate_lower_bound", 0.5f);
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("kimi-k3.kda.gate_lower_bound"));
}

TEST_CASE("glm5-next: positions are selected in groups by a key of each, nothing is turned, the output reads a mean") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "glm5-next", .layers = 4});  // of which the second and the fourth attend
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(all<SelectKeys>(g) == std::vector<SelectKeys>(2, {.top_k = 11}));
  CHECK(producers(g, "blk.1.indexer_pooled")[0] == "blk.1.indexer.k_norm");
  CHECK(producers(g, "blk.1.indexer_pooled")[2] == "blk.1.indexer_compressor_ape.weight");
  CHECK(all<RopeTable>(g).empty());
  CHECK(all<GatedDelta>(g)[0].eps == 1e-6f);
  CHECK(producers(g, "output_norm")[0] == "streams_mean");
  const GluLimits limits = limits_of_gates(0.25f);
  for (const Glu& glu : all<Glu>(g))
    if (glu.activation == Activation::Silu) CHECK(glu == Glu{.limit = limits.all, .gate_limit = limits.gate});
  f.set_array("glm5-next.attention.indexer.types", std::vector<std::uint32_t>{0, 1, 0, 0});
  const Graph shared = open_tiny(folder, f).graph;
  CHECK(all<SelectKeys>(shared).size() == 1);
  CHECK(producers(shared, "blk.3.attn").back() == producers(shared, "blk.1.attn").back());
  f.set_array("glm5-next.attention.indexer.types", std::vector<std::uint32_t>{1, 0, 1, 1});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("gives layer 1 no indexer"));
}

TEST_CASE("plamo2: scans of heads by steps that are made of what was convolved") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "plamo2", .layers = 2});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(producers(g, "blk.0.ssm_dt_low")[0] == "blk.0.ssm_conv1d");
  CHECK(producers(g, "blk.0.scan_gated") == std::vector<std::string>{"blk.0.ssm_z", "blk.0.scan_flat"});
  CHECK(producers(g, "blk.0.attn_residual")[1] == "blk.0.post_attention_normed");
  CHECK(producers(g, "blk.1.attn_q_rope")[0] == "blk.1.attn_q_norm");
  f.set("plamo2.ssm.time_step_rank", std::uint32_t{3});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("plamo2.ssm.time_step_rank"));
  f.set("plamo2.ssm.time_step_rank", std::uint32_t{4});
  f.set("plamo2.ssm.group_count", std::uint32_t{2});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("plamo2.ssm.group_count"));
}

TEST_CASE("talkie: the embedding comes back behind every layer, queries are scaled by heads") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "talkie", .layers = 2});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(producers(g, "blk.1.embed_scaled") ==
        std::vector<std::string>{"embed_norm", "blk.1.layer_output_scale.weight"});
  CHECK(producers(g, "blk.0.attn_q_scaled") ==
        std::vector<std::string>{"blk.0.attn_q_unit", "blk.0.attn_q_norm.weight"});
  CHECK(producers(g, "blk.0.attn_q_unit")[0] == "blk.0.attn_q_rope");
  CHECK(producers(g, "logits_scaled")[0] == "output");
  f.set("talkie.expert_count", std::uint32_t{4});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("talkie.expert_count"));
}

TEST_CASE(
    "minimax-m3: behind the dense layers, heads of each KV head attend to blocks that an index of theirs selects") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "minimax-m3", .layers = 2});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(all<SelectBlocks>(g) == std::vector<SelectBlocks>{{.top_k = 8, .block = 4, .local = 1}});
  CHECK(all<Rope>(g) == std::vector<Rope>(6, {RopePairing::Halves, 8}));
  CHECK(producers(g, "blk.0.attn").size() == 2);
  CHECK(producers(g, "blk.1.attn").back() == "blk.1.selected");
  CHECK(producers(g, "blk.1.indexer.k_rope")[0] == "blk.1.indexer.k_norm");
  for (const Glu& glu : all<Glu>(g)) CHECK(glu.activation == Activation::ClampedSilu);
  f.set("minimax-m3.attention.indexer.head_count", std::uint32_t{4});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("minimax-m3.attention.indexer.head_count"));
  f.set("minimax-m3.attention.indexer.head_count", std::uint32_t{2});
  f.set("minimax-m3.attention.indexer.local_blocks", std::uint32_t{3});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("minimax-m3.attention.indexer.local_blocks"));
}

TEST_CASE("dots3note: layers with a window have latents of their own sizes and select nothing; heads have gates") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "dots3note", .layers = 4});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  const Graph& g = model.graph;
  CHECK(all<SelectKeys>(g).size() == 2);
  const std::vector<Attention> attention = all<Attention>(g);
  CHECK(attention[0].window == KeyWindow(16));
  CHECK(attention[1].window == KeyWindow());
  CHECK(producers(g, "blk.1.attn").back() == "blk.1.selected");
  CHECK(producers(g, "blk.0.attn_k_rope") == std::vector<std::string>{"blk.0.attn_k_norm", "rope_table_local"});
  CHECK(producers(g, "blk.1.attn_k_rope") == std::vector<std::string>{"blk.1.attn_k_norm", "rope_table"});
  CHECK(producers(g, "blk.1.indexer.k_rope")[1] == "rope_table");
  CHECK(producers(g, "blk.0.attn_gated") == std::vector<std::string>{"blk.0.attn_gate_heads", "blk.0.attn_v_b"});
  CHECK(all<RopeTable>(g)[1].base == 1000);
  f.set("dots3note.attention.kv_lora_rank_swa", std::uint32_t{64});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("blk.0.attn_kv_a_mqa.weight"));
  f.set("dots3note.attention.kv_lora_rank_swa", std::uint32_t{32});
  f.set_array("dots3note.attention.indexer.types", std::vector<std::uint32_t>{0, 0, 0, 1});
  CHECK_THROWS_WITH(open_tiny(folder, f), contains("gives layer 1 no indexer"));
}
