// What the files of gemma's families may hold and what their graphs are made of; and those with layer norms.
#include <cmath>

#include "graph_parts.h"
#include "open_file.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

TEST_CASE("caps of gemma2: the file's, those of its family where it says none, 0 for none; gemma3's of logits") {
  const TempDir folder;
  const auto caps = [&](const TinyFile& f) {
    const Graph g = open_tiny(folder, f).graph;
    std::vector<float> out{all<Attention>(g).at(0).soft_cap};
    for (const SoftCap& c : all<SoftCap>(g)) out.push_back(c.cap);
    return out;
  };
  using Caps = std::vector<float>;
  TinyFile f = tiny_model({.arch = "gemma2"});
  CHECK(caps(f) == Caps{5, 10});
  f.set("gemma2.attn_logit_softcapping", 0.0f);
  f.set("gemma2.final_logit_softcapping", 0.0f);
  CHECK(caps(f) == Caps{0});
  f.erase("gemma2.attn_logit_softcapping");
  f.erase("gemma2.final_logit_softcapping");
  CHECK(caps(f) == Caps{50, 30});
  TinyFile gemma3 = tiny_model({.arch = "gemma3"});
  CHECK(caps(gemma3) == Caps{0});
  gemma3.set("gemma3.final_logit_softcapping", 20.0f);
  CHECK(caps(gemma3) == Caps{0, 20});
}

TEST_CASE("gemma2: every other layer sees a window, of 4096 where the file says none; the scale of its largest model") {
  const TempDir folder;
  const auto attentions = [&](const TinyFile& f) { return all<Attention>(open_tiny(folder, f).graph); };
  const auto plain = attentions(tiny_model({.arch = "gemma2", .layers = 3, .window = 16}));
  CHECK(plain.at(0).window == 16);
  CHECK(plain.at(1).window == 0);
  CHECK(plain.at(2).window == 16);
  CHECK(plain.at(0).scale == 1 / std::sqrt(8.0f));
  const auto largest = attentions(tiny_model({.arch = "gemma2", .layers = 46, .n_embd = 64, .head_dim = 8}));
  CHECK(largest.at(0).window == 4096);
  CHECK(largest.at(0).scale == 0.25f);  // 64 over 4 heads
}

TEST_CASE("gemma3n: gates that stand out in the first layers, streams that predict one another") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "gemma3n", .layers = 5});
  const Opened model = open_tiny(folder, f);
  const Graph& g = model.graph;
  CHECK(model.unused.empty());
  std::vector<int> layers, windows;
  for (const Node& n : g.nodes()) {
    const Attention* a = std::get_if<Attention>(&n.op);
    if (a == nullptr) continue;
    CHECK(a->scale == 1);
    layers.push_back(g.info(n.in[1]).cache.layer);
    windows.push_back(a->window.length);
  }
  CHECK(layers == std::vector<int>{0, 1, 2, 1, 2});
  CHECK(windows == std::vector<int>{16, 0, 16, 0, 16});
  using Names = std::vector<std::string>;
  CHECK(producers(g, "blk.0.ffn_glu") == Names{"blk.0.ffn_gate_top", "blk.0.ffn_up"});
  CHECK(producers(g, "blk.1.ffn_glu") == Names{"blk.1.ffn_gate", "blk.1.ffn_up"});
  CHECK(producers(g, "blk.0.altup_predicted") == Names{"blk.0.altup_mixed", "altup_streams"});
  CHECK(producers(g, "blk.1.altup_predicted") == Names{"blk.1.altup_mixed", "blk.0.layer_output"});
  CHECK(all<StreamAdd>(g).at(0) == StreamAdd{.first = 0});
  CHECK(all<StreamAdd>(g).at(1) == StreamAdd{.first = 1});
  CHECK(all<SoftCap>(g).back().cap == 30);  // of files without a key
  f.erase("gemma3n.activation_sparsity_scale");
  const auto tops = all<GaussianTop>(open_tiny(folder, f).graph);
  CHECK(tops.size() == 5);
  CHECK(std::fabs(std::erfc(-tops.at(0).deviations / std::sqrt(2.0)) / 2 - 0.95) < 1e-7);
}

TEST_CASE("gemma4: wide heads see all, later layers attend to what earlier ones keep") {
  const TempDir folder;
  const Graph g = open_tiny(folder, tiny_model({.arch = "gemma4", .layers = 5})).graph;
  std::vector<int> layers, widths, windows;
  for (const Node& n : g.nodes()) {
    const Attention* a = std::get_if<Attention>(&n.op);
    if (a == nullptr) continue;
    CHECK(a->scale == 1);
    layers.push_back(g.info(n.in[1]).cache.layer);
    widths.push_back(static_cast<int>(g.info(n.in[0]).type.shape[0]));
    windows.push_back(a->window.length);
  }
  using Numbers = std::vector<int>;
  CHECK(layers == Numbers{0, 1, 2, 1, 2});
  CHECK(widths == Numbers{8, 16, 8, 16, 8});
  CHECK(windows == Numbers{16, 0, 16, 0, 16});
  using Names = std::vector<std::string>;
  CHECK(producers(g, "blk.0.attn_v_norm") == Names{"blk.0.attn_v_heads"});
  CHECK(producers(g, "blk.1.attn_v_norm") == Names{"blk.1.attn_k_heads"});  // without values of its own
  CHECK(producers(g, "blk.0.attn_q_rope")[1] == "rope_table_local");
  CHECK(producers(g, "blk.1.attn_q_rope")[1] == "rope_table");
  CHECK(producers(g, "rope_table")[1] == "rope_freqs.weight");
  CHECK(producers(g, "blk.4.layer_output") == Names{"blk.4.per_layer_residual", "blk.4.layer_output_scale.weight"});
  std::vector<std::int64_t> begins;
  for (const Slice& s : all<Slice>(g)) begins.push_back(s.begin);
  CHECK(begins == std::vector<std::int64_t>{0, 32, 64, 96, 128});
  CHECK(all<RopeTable>(g) == std::vector<RopeTable>{{.n_rot = 16}, {.n_rot = 8, .base = 1000}});
}

TEST_CASE("gemma4: without second embeddings, shared caches or scales; widths and heads of each layer's own") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "gemma4", .layers = 2});
  f.set("gemma4.embedding_length_per_layer_input", std::uint32_t{0});
  f.erase("gemma4.attention.shared_kv_layers");
  f.erase("gemma4.final_logit_softcapping");
  f.set_array("gemma4.feed_forward_length", std::vector<std::uint32_t>{64, 96});
  f.set_array("gemma4.attention.head_count_kv", std::vector<std::uint32_t>{2, 1});
  for (const char* name : {"per_layer_token_embd", "per_layer_model_proj", "per_layer_proj_norm"})
    f.erase_tensor(std::string(name) + ".weight");
  for (const std::string blk : {"blk.0.", "blk.1."})
    for (const char* name : {"inp_gate", "proj", "post_norm", "layer_output_scale"})
      f.erase_tensor(blk + name + ".weight");
  f.resize("blk.1.ffn_gate.weight", {32, 96});
  f.resize("blk.1.ffn_up.weight", {32, 96});
  f.resize("blk.1.ffn_down.weight", {96, 32});
  f.resize("blk.1.attn_k.weight", {32, 16});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(all<Slice>(model.graph).empty());
  CHECK(all<SoftCap>(model.graph).empty());
  CHECK(all<Scale>(model.graph).size() == 1);  // the embedding's
  // Keys of a layer that reads those of another may lie in the file.
  TinyFile more = tiny_model({.arch = "gemma4", .layers = 3});
  more.add_tensor({"blk.2.attn_k.weight", {DType::F32, {32, 16}}});
  CHECK(open_tiny(folder, more).unused.empty());
}

TEST_CASE("gemma4's experts: their gate and up as one matrix or two, a router with a norm of its own") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "gemma4", .experts = 4});
  const Graph fused = open_tiny(folder, f).graph;
  using Names = std::vector<std::string>;
  CHECK(producers(fused, "blk.0.ffn_gate_norm") == Names{"blk.0.attn_residual", "blk.0.ffn_gate_inp.scale"});
  CHECK(producers(fused, "blk.0.ffn_glu_exps") == Names{"blk.0.ffn_gate_exps", "blk.0.ffn_up_exps"});
  CHECK(producers(fused, "blk.0.ffn_up_exps") == Names{"blk.0.ffn_gate_up_exps"});
  CHECK(producers(fused, "blk.0.ffn_down_exps").back() == "blk.0.ffn_down_exps.scale");
  CHECK(all<Route>(fused).at(0).weights == RouteWeights::Renormalized);
  f.erase_tensor("blk.0.ffn_gate_up_exps.weight");
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"})
    f.add_tensor({name, {DType::F32, {32, 64, 4}}, 0, 0.3f});
  const Graph apart = open_tiny(folder, f).graph;
  CHECK(producers(apart, "blk.0.ffn_up_exps") ==
        Names{"blk.0.pre_ffw_norm_2", "blk.0.ffn_routes", "blk.0.ffn_up_exps.weight"});
}

TEST_CASE("cohere2 and command-r: both blocks read one norm, logits are multiplied") {
  const TempDir folder;
  for (const std::string arch : {"cohere2", "command-r"}) {
    INFO(arch);
    const Graph g = open_tiny(folder, tiny_model({.arch = arch})).graph;
    CHECK(producers(g, "blk.0.attn_q")[0] == "blk.0.attn_norm");
    CHECK(producers(g, "blk.0.ffn_up")[0] == "blk.0.attn_norm");
    CHECK(producers(g, "blk.0.ffn_residual") == std::vector<std::string>{"token_embd", "blk.0.ffn_down"});
    CHECK(producers(g, "blk.0.attn_residual") == std::vector<std::string>{"blk.0.ffn_residual", "blk.0.attn_output"});
    CHECK(all<LayerNorm>(g) == std::vector<LayerNorm>{{1e-5f}, {1e-5f}});
    CHECK(all<Scale>(g) == std::vector<Scale>{{0.25f}});
  }
  TinyFile plus = tiny_model({.arch = "command-r"});
  plus.add_tensor({"blk.0.attn_q_norm.weight", {DType::F32, {8, 4}}, 1, 0.2f});
  plus.add_tensor({"blk.0.attn_k_norm.weight", {DType::F32, {8, 2}}, 1, 0.2f});
  const Opened normed = open_tiny(folder, plus);
  CHECK(normed.unused.empty());
  CHECK(producers(normed.graph, "blk.0.attn_q_rope")[0] == "blk.0.attn_q_norm");
  CHECK(producers(normed.graph, "blk.0.attn_k_rope")[0] == "blk.0.attn_k_norm");
}

TEST_CASE("stablelm: with norms of heads, and feed-forward networks that read attention's norm where they have none") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "stablelm"});
  f.set("stablelm.use_parallel_residual", true);  // of all files
  const Graph plain = open_tiny(folder, f).graph;
  CHECK(producers(plain, "blk.0.ffn_gate")[0] == "blk.0.ffn_norm");
  CHECK(producers(plain, "blk.0.ffn_norm")[0] == "blk.0.attn_residual");
  f.erase_tensor("blk.0.ffn_norm.weight");
  f.erase_tensor("blk.0.ffn_norm.bias");
  f.add_tensor({"blk.0.attn_q_norm.weight", {DType::F32, {8, 4}}, 1, 0.2f});
  f.add_tensor({"blk.0.attn_k_norm.weight", {DType::F32, {8, 2}}, 1, 0.2f});
  const Opened largest = open_tiny(folder, f);
  CHECK(largest.unused.empty());
  CHECK(producers(largest.graph, "blk.0.ffn_gate")[0] == "blk.0.attn_norm");
  CHECK(producers(largest.graph, "blk.0.attn_k_rope")[0] == "blk.0.attn_k_norm");
}

TEST_CASE("phi2 with queries, keys and values in one matrix") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "phi2"});
  for (const std::string name : {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"}) {
    f.erase_tensor(name + ".weight");
    f.erase_tensor(name + ".bias");
  }
  f.add_tensor({"blk.0.attn_qkv.weight", {DType::F32, {32, 64}}, 0, 0.3f});
  f.add_tensor({"blk.0.attn_qkv.bias", {DType::F32, {64}}, 0, 0.2f});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(producers(model.graph, "blk.0.attn_k").size() == 3);  // with a bias
  CHECK(producers(model.graph, "blk.0.ffn_up")[0] == "blk.0.attn_norm");
}
