// What each family's files may hold and what their graphs are made of.
#include <algorithm>
#include <set>

#include "graph_parts.h"
#include "model/stored_weight.h"
#include "open_file.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace llm;
using namespace llm::test;

TEST_CASE("every tensor of each family's files is read") {
  const TempDir folder;
  for (const Architecture& a : architectures()) {
    for (const bool more : {false, true}) {
      INFO(a.name << (more ? ", tied, with experts" : ""));
      TinyOptions o{.arch = std::string(a.name), .layers = 3, .tied = more};
      if (a.name == "llama" && more) {
        o.experts = 4;
        o.rope = TinyRope::Llama3;
      }
      if (a.name == "llama" && !more) o.biases = true;
      if ((a.name == "gemma4" || a.name == "jamba") && more) o.experts = 4;
      const TinyFile tiny = tiny_model(o);
      const Opened model = open_tiny(folder, tiny);
      CHECK(model.unused.empty());
      std::set<std::string> names;
      for (const TinyTensor& t : tiny.tensors()) names.insert(t.name);
      std::set<std::string> read;
      for (const std::string& weight : weights(model.graph)) read.insert(std::string(tensor_of(weight)));
      CHECK(read == names);
    }
  }
}

TEST_CASE("a tensor that nothing reads is reported, one that the family knows is not") {
  const TempDir folder;
  TinyFile tiny = tiny_model();
  tiny.add_tensor({"blk.0.attn_rot_embd.weight", {DType::F32, {4}}});
  tiny.add_tensor({"blk.0.attn_gate.weight", {DType::F32, {32, 32}}});
  tiny.add_tensor({"rope_freqs.bias", {DType::F32, {4}}});
  CHECK(open_tiny(folder, tiny).unused == std::vector<std::string>{"blk.0.attn_gate.weight", "rope_freqs.bias"});

  TinyFile qwen = tiny_model({.arch = "qwen3"});
  qwen.add_tensor({"rope_freqs.weight", {DType::F32, {4}}});  // only llama has factors
  CHECK(open_tiny(folder, qwen).unused == std::vector<std::string>{"rope_freqs.weight"});
}

TEST_CASE("scales beside weights, of one number or one per expert, are read; those of activations are known") {
  const TempDir folder;
  TinyFile tiny = tiny_model({.arch = "qwen3moe"});
  for (const char* name : {"blk.0.attn_q.scale", "blk.0.attn_output.scale", "output.scale"})
    tiny.add_tensor({name, {DType::F32, {1}}, 1});
  for (const char* name : {"blk.0.ffn_up_exps.scale", "blk.0.ffn_down_exps.scale"})
    tiny.add_tensor({name, {DType::F32, {4}}, 1});
  tiny.add_tensor({"blk.0.attn_q.input_scale", {DType::F32, {1}}, 1});
  tiny.add_tensor({"blk.0.ffn_up_exps.input_scale", {DType::F32, {4}}, 1});
  const Opened model = open_tiny(folder, tiny);
  CHECK(model.unused.empty());
  using Names = std::vector<std::string>;
  CHECK(producers(model.graph, "blk.0.attn_q") ==
        Names{"blk.0.attn_norm", "blk.0.attn_q.weight", "blk.0.attn_q.scale"});
  CHECK(producers(model.graph, "blk.0.attn_k") == Names{"blk.0.attn_norm", "blk.0.attn_k.weight"});
  CHECK(producers(model.graph, "output") == Names{"output_norm", "output.weight", "output.scale"});
  CHECK(producers(model.graph, "blk.0.ffn_up_exps") ==
        Names{"blk.0.ffn_norm", "blk.0.ffn_routes", "blk.0.ffn_up_exps.weight", "blk.0.ffn_up_exps.scale"});

  TinyFile fused = tiny_model({.arch = "phi3"});
  for (const char* name : {"blk.0.attn_qkv.scale", "blk.0.attn_qkv.input_scale"})
    fused.add_tensor({name, {DType::F32, {1}}, 1});
  const Opened rows = open_tiny(folder, fused);
  CHECK(rows.unused.empty());
  CHECK(producers(rows.graph, "blk.0.attn_k") ==
        Names{"blk.0.attn_norm", "blk.0.attn_qkv.weight[32+16]", "blk.0.attn_qkv.scale"});
}

TEST_CASE("dimensions are the file's") {
  const TempDir folder;
  const Opened model = open_tiny(folder, tiny_model({.arch = "qwen3moe",
                                                     .layers = 3,
                                                     .n_embd = 64,
                                                     .heads = 8,
                                                     .kv_heads = 2,
                                                     .head_dim = 16,
                                                     .context = 128,
                                                     .experts = 6,
                                                     .experts_used = 3}));
  const ModelDims& d = model.spec.dims;
  CHECK(d.architecture == "qwen3moe");
  CHECK(d.vocab == 267);
  CHECK(d.context == 128);
  CHECK(d.n_embd == 64);
  CHECK(d.n_layers == 3);
  CHECK(d.heads == 8);
  CHECK(d.kv_heads == 2);
  CHECK(d.experts == 6);
  CHECK(d.experts_used == 3);
  const Graph& g = model.graph;
  const std::uint32_t logits = g.outputs()[0];
  CHECK(g.info(logits).type == TensorType{DType::F32, {267, 2}});
  CHECK(g.info(logits).rows == RowSpace::Outputs);
}

TEST_CASE("the vocabulary is counted by its tokens, or by vocab_size where the file has none") {
  const TempDir folder;
  TinyFile tiny = tiny_model();
  tiny.set("llama.vocab_size", std::uint32_t{32000});  // the tokens themselves decide
  CHECK(open_tiny(folder, tiny).spec.dims.vocab == 267);
  tiny.erase("tokenizer.ggml.tokens");
  tiny.set("llama.vocab_size", std::uint32_t{267});
  CHECK(open_tiny(folder, tiny).spec.dims.vocab == 267);
}

TEST_CASE("phi3 has one set of factors: the long one where the context may be longer than the short one's") {
  const TempDir folder;
  TinyFile tiny = tiny_model({.arch = "phi3", .context = 64});
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"})
    tiny.add_tensor({name, {DType::F32, {4}}, 4, 2});
  tiny.set("phi3.rope.scaling.type", "longrope");
  const auto factors = [&](std::uint32_t original) {
    tiny.set("phi3.rope.scaling.original_context_length", original);
    return producers(open_tiny(folder, tiny).graph, "rope_table").at(1);
  };
  CHECK(factors(32) == "rope_factors_long.weight");
  CHECK(factors(64) == "rope_factors_short.weight");
  CHECK(open_tiny(folder, tiny).unused.empty());
}

TEST_CASE("rotary pairs: neighbours for llama and its kin, halves for the others") {
  const TempDir folder;
  const std::set<std::string_view> neighbours = {
      "arcee",    "deci",      "cohere2moe",  "bailingmoe", "baichuan",    "olmo",      "chatglm",
      "cohere2",  "command-r", "deepseek",    "minicpm",    "deepseek2",   "ernie4_5",  "ernie4_5-moe",
      "glm4",     "granite",   "granitemoe",  "internlm2",  "llama",       "llama4",    "mistral3",
      "mistral4", "smollm3",   "xverse",      "arctic",     "granite_swa", "maincoder", "muse-glimmer",
      "nanbeige", "plm",       "bailingmoe3", "chameleon"};
  const std::set<std::string_view> without = {
      "bloom",       "jais",  "mpt",    "gpt2",       "starcoder",      "granitehybrid", "jamba",
      "kimi-linear", "mamba", "mamba2", "nemotron_h", "nemotron_h_moe", "refact",        "rwkv6",
      "rwkv6qwen2",  "rwkv7", "arwkv7", "kimi-k3",    "glm5-next"};  // positions
  for (const Architecture& a : architectures()) {
    INFO(a.name);
    if (a.name == "deepseek32" || a.name == "deepseek4" || a.name == "glm-dsa" || a.name == "qwen4exp" ||
        a.name == "minimax-m3" || a.name == "dots3note")
      continue;  // layer_kinds_test.cpp: of an index, too
    if (without.contains(a.name)) {
      CHECK(all<Rope>(open_tiny(folder, tiny_model({.arch = std::string(a.name)})).graph).empty());
      continue;
    }
    const RopePairing pairing = neighbours.contains(a.name) ? RopePairing::Interleaved : RopePairing::Halves;
    const bool mixed = a.name.starts_with("qwen35") || a.name == "qwen3next";  // the first layer does not attend
    const Opened model = open_tiny(folder, tiny_model({.arch = std::string(a.name), .layers = mixed ? 2 : 1}));
    const auto ropes = all<Rope>(model.graph);
    REQUIRE(ropes.size() == 2);
    for (const Rope& r : ropes) CHECK(r == Rope{pairing, mixed ? 4 : 8});
  }
}

TEST_CASE("qwen3 normalises heads, olmoe the whole width before the split") {
  const TempDir folder;
  const Graph qwen = open_tiny(folder, tiny_model({.arch = "qwen3"})).graph;
  CHECK(producers(qwen, "blk.0.attn_q_norm") ==
        std::vector<std::string>{"blk.0.attn_q_heads", "blk.0.attn_q_norm.weight"});
  CHECK(producers(qwen, "blk.0.attn_k_rope")[0] == "blk.0.attn_k_norm");
  const Graph olmoe = open_tiny(folder, tiny_model({.arch = "olmoe"})).graph;
  CHECK(producers(olmoe, "blk.0.attn_q_norm") == std::vector<std::string>{"blk.0.attn_q", "blk.0.attn_q_norm.weight"});
  CHECK(producers(olmoe, "blk.0.attn_k_rope")[0] == "blk.0.attn_k_heads");
}

TEST_CASE("hunyuan-dense normalises heads after they are rotated") {
  const TempDir folder;
  const Graph g = open_tiny(folder, tiny_model({.arch = "hunyuan-dense"})).graph;
  CHECK(producers(g, "blk.0.attn_q_norm")[0] == "blk.0.attn_q_rope");
  CHECK(producers(g, "blk.0.attn_k_rope")[0] == "blk.0.attn_k_heads");
}

TEST_CASE(
    "layers without positions: every fourth of smollm3, those of exaone4 and cohere2 that see all where others do "
    "not") {
  const TempDir folder;
  const auto rotated = [&](const TinyOptions& o) {
    std::vector<int> layers;
    const Graph g = open_tiny(folder, tiny_model(o)).graph;
    for (const Node& n : g.nodes())
      if (std::holds_alternative<Rope>(n.op)) layers.push_back(n.layer);
    return layers;
  };
  using Layers = std::vector<int>;  // queries and keys
  CHECK(rotated({.arch = "smollm3", .layers = 5}) == Layers{0, 0, 1, 1, 2, 2, 4, 4});
  CHECK(rotated({.arch = "exaone4", .layers = 4}) == Layers{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(rotated({.arch = "exaone4", .layers = 4, .window = 16}) == Layers{0, 0, 2, 2});
  CHECK(rotated({.arch = "cohere2", .layers = 4}) == Layers{0, 0, 2, 2});
}

TEST_CASE("queries grow with the position: attention.temperature_scale and its length") {
  const TempDir folder;
  for (const std::string arch : {"mistral3", "deepseek2"}) {
    INFO(arch);
    TinyFile f = tiny_model({.arch = arch, .layers = 2, .rope = TinyRope::Yarn});
    const auto scales = [&] { return all<PositionScale>(open_tiny(folder, f).graph); };
    using Scales = std::vector<PositionScale>;
    f.set(arch + ".attention.temperature_scale", 0.25f);
    f.set(arch + ".attention.temperature_length", std::uint32_t{32});
    CHECK(scales() == Scales{{.slope = 0.25f, .length = 32}});
    f.erase(arch + ".attention.temperature_length");
    f.set(arch + ".rope.scaling.original_context_length", std::uint32_t{24});
    CHECK(scales() == Scales{{.slope = 0.25f, .length = 24}});
    const Graph g = open_tiny(folder, f).graph;
    CHECK(producers(g, "blk.1.attn_q_grown")[0] == "position_scale");
    f.set(arch + ".attention.temperature_scale", 0.0f);
    CHECK(scales().empty());
  }
}

TEST_CASE("yarn's magnitude is divided by that of rope.scaling.yarn_log_multiplier") {
  const TempDir folder;
  for (const std::string arch : {"mistral3", "llama"}) {
    INFO(arch);
    TinyFile f = tiny_model({.arch = arch, .rope = TinyRope::Yarn});
    const auto factor = [&] { return all<RopeTable>(open_tiny(folder, f).graph).at(0).attention_factor; };
    CHECK(factor() == 1);
    for (const float m : {1.0f, 0.5f}) {
      f.set(arch + ".rope.scaling.yarn_log_multiplier", m);
      CHECK(std::fabs(factor() - 1 / (1 + 0.1 * m * std::log(4.0))) < 1e-6);
    }
    f.set(arch + ".rope.scaling.type", "linear");
    CHECK(factor() == 1);
  }
}

TEST_CASE("llama4: chunks with positions and heads of unit length, and between them layers that see all") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "llama4", .layers = 4});
  const auto windows = [&] {
    std::vector<KeyWindow> out;
    for (const Attention& a : all<Attention>(open_tiny(folder, f).graph)) out.push_back(a.window);
    return out;
  };
  const KeyWindow chunk{16, KeyWindow::Form::Chunked}, published{8192, KeyWindow::Form::Chunked};
  CHECK(windows() == std::vector<KeyWindow>{chunk, 0, chunk, 0});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.attn_q_norm") == std::vector<std::string>{"blk.0.attn_q_rope"});
  CHECK(producers(g, "blk.1.attn_q_grown")[0] == "position_scale");
  CHECK(producers(g, "blk.1.attn")[0] == "blk.1.attn_q_scaled");
  CHECK(all<PositionScale>(g) == std::vector<PositionScale>{{.slope = 0.5f, .length = 4, .offset = 1}});
  CHECK(producers(g, "blk.1.ffn_gate_exps")[0] == "blk.1.ffn_gated_input");  // not its result
  for (const char* key : {"sliding_window", "sliding_window_pattern", "temperature_scale", "temperature_length"})
    f.erase(std::string("llama4.attention.") + key);
  CHECK(windows() == std::vector<KeyWindow>{published, published, published, 0});
  CHECK(all<PositionScale>(open_tiny(folder, f).graph).at(0) ==
        PositionScale{.slope = 0.1f, .length = 8192, .offset = 1});
  f.set("llama4.attention.chunk_size", std::uint32_t{4096});
  CHECK(windows().at(0) == KeyWindow{4096, KeyWindow::Form::Chunked});
  CHECK(all<RmsNorm>(open_tiny(folder, f).graph).size() == 3 * 2 + 4 * 2 + 1);
  CHECK(all<RmsNorm>(open_tiny(folder, tiny_model({.arch = "llama4", .layers = 4, .experts = 128})).graph).size() ==
        4 * 2 + 1);  // Maverick
}

TEST_CASE("afmoe: a gate behind attention; layers that see all are not rotated") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "afmoe", .layers = 2});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.attn_gated") == std::vector<std::string>{"blk.0.attn_gate", "blk.0.attn_flat"});
  CHECK(producers(g, "blk.0.attn_output")[0] == "blk.0.attn_gated");
  std::vector<int> rotated;
  for (const Node& n : g.nodes())
    if (std::holds_alternative<Rope>(n.op)) rotated.push_back(n.layer);
  CHECK(rotated == std::vector<int>{0, 0});
  f.erase("afmoe.attention.sliding_window");  // no window: rotated as before
  CHECK(all<Rope>(open_tiny(folder, f).graph).size() == 2);
}

TEST_CASE("windows of olmo2 and exaone4: in three of four layers, or as the file says") {
  const TempDir folder;
  for (const std::string arch : {"olmo2", "exaone4"}) {
    INFO(arch);
    const auto windows = [&](const TinyFile& f) {
      std::vector<int> out;
      for (const Attention& a : all<Attention>(open_tiny(folder, f).graph)) out.push_back(a.window.length);
      return out;
    };
    using Windows = std::vector<int>;
    TinyFile f = tiny_model({.arch = arch, .layers = 5, .window = 16});
    CHECK(windows(f) == Windows{16, 0, 16, 0, 16});
    f.erase(arch + ".attention.sliding_window_pattern");
    CHECK(windows(f) == Windows{16, 16, 16, 0, 16});
    f.set_array(arch + ".attention.sliding_window_pattern", std::vector<std::uint32_t>{0, 1, 1, 0, 0});
    CHECK(windows(f) == Windows{0, 16, 16, 0, 0});
    f.set(arch + ".attention.sliding_window", std::uint32_t{0});
    CHECK(windows(f) == Windows(5, 0));
  }
}

TEST_CASE("layers of olmo2 with a window turn without the scaling of the others") {
  const TempDir folder;
  const Graph g =
      open_tiny(folder, tiny_model({.arch = "olmo2", .layers = 2, .window = 16, .rope = TinyRope::Yarn})).graph;
  CHECK(all<RopeTable>(g).at(0).scaling == RopeScaling::Yarn);
  CHECK(all<RopeTable>(g).at(1) == RopeTable{.n_rot = 8});
  CHECK(producers(g, "blk.0.attn_q_rope")[1] == "rope_table_local");
  CHECK(producers(g, "blk.1.attn_k_rope")[1] == "rope_table");
}

TEST_CASE("scales of granite: embedding, results of blocks, attention, logits, which are divided") {
  const TempDir folder;
  for (const std::string arch : {"granite", "granitemoe"}) {
    INFO(arch);
    const auto scales = [&](const TinyFile& f) {
      std::vector<float> out;
      for (const Scale& s : all<Scale>(open_tiny(folder, f).graph)) out.push_back(s.factor);
      return out;
    };
    TinyFile f = tiny_model({.arch = arch});
    CHECK(scales(f) == std::vector<float>{12, 0.25f, 0.25f, 0.125f});
    CHECK(all<Attention>(open_tiny(folder, f).graph).at(0).scale == 0.125f);
    for (const char* key : {"embedding_scale", "residual_scale", "logit_scale"}) f.set(arch + "." + key, 0.0f);
    CHECK(scales(f) == std::vector<float>(4, 1));  // not set
  }
}

TEST_CASE("granitemoe: with a shared expert, or without; granite may have its width, too") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "granitemoe"});
  CHECK(producers(open_tiny(folder, f).graph, "blk.0.ffn_scaled")[0] == "blk.0.ffn_sum");
  f.erase("granitemoe.expert_shared_feed_forward_length");
  for (const char* part : {"gate", "up", "down"}) f.erase_tensor(std::string("blk.0.ffn_") + part + "_shexp.weight");
  CHECK(producers(open_tiny(folder, f).graph, "blk.0.ffn_scaled")[0] == "blk.0.ffn_moe");
  TinyFile dense = tiny_model({.arch = "granite"});
  dense.set("granite.expert_shared_feed_forward_length", std::uint32_t{64});
  CHECK(open_tiny(folder, dense).graph.hash() == open_tiny(folder, tiny_model({.arch = "granite"})).graph.hash());
}

TEST_CASE("layers of qwen35 and qwen3next: those that attend, and the gated delta rule in the others") {
  const TempDir folder;
  const auto attending = [&](const TinyFile& file) {
    std::vector<int> layers;
    const Graph g = open_tiny(folder, file).graph;
    for (const Node& n : g.nodes()) {
      if (std::holds_alternative<Attention>(n.op)) layers.push_back(n.layer);
      if (const auto* delta = std::get_if<GatedDelta>(&n.op)) CHECK(delta->key_heads == 2);
    }
    return layers;
  };
  TinyFile file = tiny_model({.arch = "qwen35", .layers = 4});
  CHECK(attending(file) == std::vector<int>{1, 3});
  file.set_array("qwen35.attention.recurrent_layers", std::vector<std::uint32_t>{1, 0, 1, 0});
  file.erase("qwen35.full_attention_interval");
  CHECK(attending(file) == std::vector<int>{1, 3});

  const auto sharing = [&](const char* arch) {
    const Opened model = open_tiny(folder, tiny_model({.arch = arch}));
    return all<GatedDelta>(model.graph).front().sharing;
  };
  CHECK(sharing("qwen3next") == HeadSharing::Grouped);
  CHECK(sharing("qwen35") == HeadSharing::Tiled);
  CHECK(sharing("qwen35moe") == HeadSharing::Tiled);
}

TEST_CASE("layers of qwen35 that predict tokens ahead are not read, and are no layers of the model") {
  const TempDir folder;
  TinyFile file = tiny_model({.arch = "qwen35", .layers = 2});
  file.set("qwen35.block_count", std::uint32_t{3});
  file.set("qwen35.nextn_predict_layers", std::uint32_t{1});
  file.add_tensor({"blk.2.nextn.eh_proj.weight", {DType::F32, {64, 32}}});
  file.add_tensor({"blk.2.attn_q.weight", {DType::F32, {32, 64}}});
  const Opened model = open_tiny(folder, file);
  CHECK(model.unused.empty());
  CHECK(model.spec.dims.n_layers == 2);
}

TEST_CASE("files of qwen35 that make no sense, or another one than is known, are refused by the key") {
  const TempDir folder;
  const auto opened_with = [&](const std::function<void(TinyFile&)>& change) {
    TinyFile file = tiny_model({.arch = "qwen35", .layers = 2});
    change(file);
    open_tiny(folder, file);
  };
  const auto with_key = [&](const char* key, std::uint32_t value) {
    opened_with([&](TinyFile& f) { f.set(std::string("qwen35.") + key, value); });
  };
  CHECK_NOTHROW(with_key("ssm.conv_kernel", 4));
  CHECK_THROWS_WITH(with_key("ssm.conv_kernel", 1), contains("ssm.conv_kernel"));
  CHECK_THROWS_WITH(with_key("ssm.inner_size", 56), contains("ssm.inner_size"));
  CHECK_THROWS_WITH(with_key("ssm.group_count", 4), contains("ssm.group_count"));
  CHECK_THROWS_WITH(with_key("attention.value_length", 16), contains("attention.value_length"));
  CHECK_THROWS_WITH(with_key("nextn_predict_layers", 2), contains("nextn_predict_layers"));
  CHECK_THROWS_WITH(opened_with([](TinyFile& f) { f.erase("qwen35.ssm.state_size"); }), contains("ssm.state_size"));
  CHECK_THROWS_WITH(opened_with([](TinyFile& f) {
                      f.set_array("qwen35.rope.dimension_sections", std::vector<std::uint32_t>{0, 2, 0, 0});
                    }),
                    contains("rope.dimension_sections"));
  CHECK_THROWS_WITH(opened_with([](TinyFile& f) { f.rename("blk.0.attn_qkv.weight", "blk.0.ssm_in.weight"); }),
                    contains("convert"));
}

TEST_CASE("layers of hybrids are told apart by their heads of keys, and by the widths of feed-forward networks") {
  const TempDir folder;
  const auto kinds = [&](const TinyFile& file) {
    std::string text;
    const Graph g = open_tiny(folder, file).graph;
    int layer = -1;
    for (const Node& n : g.nodes()) {
      const char kind = std::holds_alternative<Attention>(n.op)       ? 'a'
                        : std::holds_alternative<SelectiveScan>(n.op) ? 's'
                        : std::holds_alternative<ShortConv>(n.op)     ? 'c'
                        : n.role == Role::Ffn                         ? 'f'
                                                                      : ' ';
      if (kind == ' ' || (n.layer == layer && text.back() == kind)) continue;
      if (n.layer != layer && layer >= 0) text += ' ';
      layer = n.layer;
      text += kind;
    }
    return text;
  };
  TinyFile lfm = tiny_model({.arch = "lfm2", .layers = 4});
  CHECK(kinds(lfm) == "cf af cf af");
  lfm.set_array("lfm2.attention.head_count_kv", std::vector<std::uint32_t>{0, 2, 0, 4});
  CHECK_THROWS_WITH(kinds(lfm), contains("lfm2.attention.head_count_kv"));
  lfm.set_array("lfm2.attention.head_count_kv", std::vector<std::uint32_t>{0, 0, 0, 0});
  CHECK_THROWS_WITH(kinds(lfm), contains("none attends"));
  lfm.set_array("lfm2.attention.head_count_kv", std::vector<std::uint32_t>{0, 3, 0, 3});
  CHECK_THROWS_WITH(kinds(lfm), contains("does not divide head_count"));
  CHECK(kinds(tiny_model({.arch = "granitehybrid", .layers = 3})) == "af csf af");
  CHECK(kinds(tiny_model({.arch = "falcon-h1", .layers = 2})) == "csaf csaf");
  CHECK(kinds(tiny_model({.arch = "nemotron_h", .layers = 4})) == "a f cs a");
  TinyFile rotated = tiny_model({.arch = "granitehybrid"});
  rotated.erase("granitehybrid.rope.scaling.finetuned");
  CHECK(all<Rope>(open_tiny(folder, rotated).graph).at(0).pairing == RopePairing::Interleaved);
}

TEST_CASE("files of hybrids that make no sense, or another one than is known, are refused by the key") {
  const TempDir folder;
  const auto with_key = [&](const char* arch, const char* key, std::uint32_t value) {
    TinyFile file = tiny_model({.arch = arch, .layers = 2});
    file.set(std::string(arch) + "." + key, value);
    return open_tiny(folder, file).unused;
  };
  CHECK(with_key("lfm2", "shortconv.l_cache", 3).empty());
  CHECK_THROWS_WITH(with_key("lfm2", "shortconv.l_cache", 1), contains("shortconv.l_cache"));
  CHECK_THROWS_WITH(with_key("lfm2", "attention.sliding_window", 32), contains("attention.sliding_window"));
  CHECK_THROWS_WITH(with_key("lfm2", "expert_count", 4), contains("expert_count"));
  CHECK_THROWS_WITH(with_key("falcon-h1", "ssm.group_count", 3), contains("ssm.group_count"));
  CHECK_THROWS_WITH(with_key("falcon-h1", "ssm.time_step_rank", 3), contains("ssm.time_step_rank"));
  CHECK_THROWS_WITH(with_key("falcon-h1", "ssm.has_mup", 1), contains("ssm.has_mup"));
  CHECK_THROWS_WITH(with_key("falcon-h1", "ssm.inner_size", 128), contains("blk.0.ssm_in.weight"));
  CHECK_THROWS_WITH(with_key("nemotron_h_moe", "expert_group_count", 4), contains("expert_group_count"));
  CHECK_THROWS_WITH(with_key("nemotron_h_moe", "nextn_predict_layers", 2), contains("nextn_predict_layers"));
}

TEST_CASE("experts of nemotron_h_moe may be narrower inside, and layers that predict tokens ahead are not read") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "nemotron_h_moe", .layers = 3});
  using Names = std::vector<std::string>;
  CHECK(producers(open_tiny(folder, f).graph, "blk.0.ffn_up_exps")[0] == "blk.0.attn_norm");
  f.set("nemotron_h_moe.moe_latent_size", std::uint32_t{16});
  f.add_tensor({"blk.0.ffn_latent_down.weight", {DType::F32, {32, 16}}, 0, 0.3f});
  f.add_tensor({"blk.0.ffn_latent_up.weight", {DType::F32, {16, 32}}, 0, 0.3f});
  f.resize("blk.0.ffn_up_exps.weight", {16, 64, 4});
  f.resize("blk.0.ffn_down_exps.weight", {64, 16, 4});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.ffn_up_exps")[0] == "blk.0.ffn_latent_down");
  CHECK(producers(g, "blk.0.ffn_latent_up")[0] == "blk.0.ffn_moe");
  CHECK(producers(g, "blk.0.ffn_sum") == Names{"blk.0.ffn_latent_up", "blk.0.ffn_down_shexp"});

  f.set("nemotron_h_moe.block_count", std::uint32_t{4});
  f.set("nemotron_h_moe.nextn_predict_layers", std::uint32_t{1});
  f.set_array("nemotron_h_moe.attention.head_count_kv", std::vector<std::uint32_t>{0, 0, 2, 2});
  f.set_array("nemotron_h_moe.feed_forward_length", std::vector<std::uint32_t>{64, 0, 0, 64});
  f.add_tensor({"blk.3.nextn.eh_proj.weight", {DType::F32, {64, 32}}});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(model.spec.dims.n_layers == 3);
}

TEST_CASE("weights of the chosen experts: renormalised, or as olmoe leaves them") {
  const TempDir folder;
  const auto route = [&](TinyFile f) { return all<Route>(open_tiny(folder, f).graph).at(0); };
  const TinyFile mixtral = tiny_model({.experts = 4});
  const TinyFile qwen = tiny_model({.arch = "qwen3moe", .experts_used = 3});
  const TinyFile olmoe = tiny_model({.arch = "olmoe"});
  CHECK(route(mixtral) == Route{2, Gating::Softmax, RouteWeights::Renormalized, 1});
  CHECK(route(qwen) == Route{3, Gating::Softmax, RouteWeights::Renormalized, 1});
  CHECK(route(olmoe) == Route{2, Gating::Softmax, RouteWeights::AsGated, 1});

  TinyFile scaled = mixtral;
  scaled.set("llama.expert_weights_scale", 2.5f);
  CHECK(route(scaled).scale == 2.5f);
  scaled.set("llama.expert_weights_scale", 0.0f);  // not set
  CHECK(route(scaled).scale == 1.0f);
  TinyFile normed = olmoe;
  normed.set("olmoe.expert_weights_norm", true);
  CHECK(route(normed).weights == RouteWeights::Renormalized);
  TinyFile listed = qwen;  // written by programs that list every key with its default
  listed.set("qwen3moe.expert_weights_norm", false);
  CHECK(route(listed).weights == RouteWeights::Renormalized);
  listed.set("qwen3moe.expert_gating_func", std::uint32_t{1});
  CHECK(route(listed).gating == Gating::Softmax);
}

TEST_CASE("gates by sigmoids, biases for the choice, groups") {
  const TempDir folder;
  const auto route = [&](const TinyFile& f) { return all<Route>(open_tiny(folder, f).graph).at(0); };
  const Route by_sigmoid{2, Gating::Sigmoid, RouteWeights::Renormalized, 2.5f};
  TinyFile glm = tiny_model({.arch = "glm4moe"});
  CHECK(route(glm) == by_sigmoid);
  CHECK(producers(open_tiny(folder, glm).graph, "blk.0.ffn_routes") ==
        std::vector<std::string>{"blk.0.ffn_gate_inp", "blk.0.exp_probs_b.bias"});
  glm.erase("glm4moe.expert_gating_func");
  CHECK(route(glm) == by_sigmoid);
  glm.set("glm4moe.expert_gating_func", std::uint32_t{1});
  glm.erase("glm4moe.expert_weights_norm");
  CHECK(route(glm) == Route{2, Gating::Softmax, RouteWeights::AsGated, 2.5f});
  Route grouped = by_sigmoid;
  grouped.groups = 2;
  CHECK(route(tiny_model({.arch = "bailingmoe2"})) == grouped);
  CHECK(route(tiny_model({.arch = "minimax-m2"})) == Route{2, Gating::Sigmoid, RouteWeights::Renormalized, 1});
  CHECK(route(tiny_model({.arch = "ernie4_5-moe"})) == Route{2, Gating::Softmax, RouteWeights::Renormalized, 1});
  const Graph qwen = open_tiny(folder, tiny_model({.arch = "qwen2moe"})).graph;
  CHECK(all<Route>(qwen).at(0) == Route{2, Gating::Softmax, RouteWeights::AsGated, 1});
  // The shared expert has a gate of its own.
  CHECK(producers(qwen, "blk.0.ffn_shexp_gated") ==
        std::vector<std::string>{"blk.0.ffn_gate_inp_shexp", "blk.0.ffn_down_shexp"});
  CHECK(all<Glu>(qwen).back().activation == Activation::Sigmoid);
}

TEST_CASE("layers without experts, and those that nobody reads") {
  const TempDir folder;
  const auto with_experts = [&](const TinyFile& f) {
    std::vector<int> layers;
    const Graph g = open_tiny(folder, f).graph;
    for (const Node& n : g.nodes())
      if (std::holds_alternative<Combine>(n.op)) layers.push_back(n.layer);
    return layers;
  };
  using Layers = std::vector<int>;
  TinyFile glm = tiny_model({.arch = "glm4moe", .layers = 4});
  CHECK(with_experts(glm) == Layers{1, 2, 3});
  glm.set("glm4moe.nextn_predict_layers", std::uint32_t{1});
  CHECK(with_experts(glm) == Layers{1, 2});
  CHECK(open_tiny(folder, glm).unused.empty());
  CHECK(open_tiny(folder, glm).spec.dims.n_layers == 3);
  TinyFile ernie = tiny_model({.arch = "ernie4_5-moe", .layers = 4});
  for (const char* part : {"gate", "up", "down"}) {
    const bool down = std::string_view(part) == "down";
    ernie.add_tensor(
        {std::string("blk.2.ffn_") + part + ".weight", {DType::F32, down ? Shape{64, 32} : Shape{32, 64}}});
  }
  ernie.set("ernie4_5-moe.interleave_moe_layer_step", std::uint32_t{2});
  CHECK(with_experts(ernie) == Layers{1, 3});
}

TEST_CASE("deepseek2 keeps what keys and values are made from, or those of every head where files are older") {
  const TempDir folder;
  const auto cache = [&](const TinyFile& f) {
    const Graph g = open_tiny(folder, f).graph;
    for (const ValueInfo& v : g.values())
      if (v.kind == ValueKind::Cache) return v.cache;
    return CacheType{};
  };
  const TinyFile newer = tiny_model({.arch = "deepseek2"}), older = tiny_model({.arch = "deepseek2", .tied = true});
  CHECK(cache(newer) == CacheType{.layer = 0, .kv_heads = 1, .head_dim_k = 40, .head_dim_v = 32});
  CHECK(cache(older) == CacheType{.layer = 0, .kv_heads = 4, .head_dim_k = 40, .head_dim_v = 16});
  TinyFile plain = newer;
  plain.erase("deepseek2.attention.q_lora_rank");
  plain.erase_tensor("blk.0.attn_q_a.weight");
  plain.erase_tensor("blk.0.attn_q_a_norm.weight");
  plain.rename("blk.0.attn_q_b.weight", "blk.0.attn_q.weight");
  CHECK(producers(open_tiny(folder, plain).graph, "blk.0.attn_q")[0] == "blk.0.attn_norm");
}

TEST_CASE(
    "scores of deepseek2 are scaled by the length of whole heads, and by yarn's logarithm instead of the angles") {
  const TempDir folder;
  for (const bool older : {false, true}) {
    TinyFile f = tiny_model({.arch = "deepseek2", .tied = older, .rope = TinyRope::Yarn});
    const auto attributes = [&] {
      const Graph g = open_tiny(folder, f).graph;
      return std::pair(all<Attention>(g).at(0).scale, all<RopeTable>(g).at(0).attention_factor);
    };
    const double whole = 1 / std::sqrt(40.0), log_factor = std::log(4.0);
    CHECK(attributes().first == Approx(whole));
    CHECK(attributes().second == 1);
    f.set("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
    const double length = 1 + 0.0707 * log_factor;
    CHECK(attributes().first == Approx(whole * length * length));
    CHECK(attributes().second == Approx(1 / (1 + 0.1 * log_factor)));
  }
}

TEST_CASE("groups of deepseek2 are as good as their best expert by softmax, as their best two by sigmoids") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "deepseek2"});
  f.set("deepseek2.expert_group_count", std::uint32_t{2});
  f.set("deepseek2.expert_group_used_count", std::uint32_t{1});
  const auto route = [&] { return all<Route>(open_tiny(folder, f).graph).at(0); };
  CHECK(route().group_best == 2);
  f.set("deepseek2.expert_gating_func", std::uint32_t{1});
  CHECK(route().group_best == 1);
  CHECK(route().gating == Gating::Softmax);
}

TEST_CASE("files of deepseek2 that do not say how experts are gated: by sigmoids where the choice has a bias") {
  const TempDir folder;
  for (const int layers : {1, 3}) {
    TinyFile f = tiny_model({.arch = "deepseek2", .layers = layers});
    f.set("deepseek2.expert_group_count", std::uint32_t{2});
    f.set("deepseek2.expert_group_used_count", std::uint32_t{1});
    f.erase("deepseek2.expert_gating_func");
    const auto route = [&] { return all<Route>(open_tiny(folder, f).graph).at(0); };
    CHECK(route().gating == Gating::Sigmoid);  // GLM-4.7-Flash
    CHECK(route().group_best == 2);
    f.set("deepseek2.expert_gating_func", std::uint32_t{0});  // not set
    CHECK(route().gating == Gating::Sigmoid);
    for (int i = layers > 1 ? 1 : 0; i < layers; ++i) f.erase_tensor("blk." + std::to_string(i) + ".exp_probs_b.bias");
    CHECK(route().gating == Gating::Softmax);  // DeepSeek V2
    CHECK(route().group_best == 1);
  }
}

TEST_CASE("deepseek2 without experts") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "deepseek2", .layers = 2});
  for (const char* key : {"expert_count", "expert_used_count", "expert_gating_func", "expert_weights_scale"})
    f.erase(std::string("deepseek2.") + key);
  f.set("deepseek2.expert_shared_count", std::uint32_t{0});
  f.set("deepseek2.leading_dense_block_count", std::uint32_t{2});
  const std::vector<TinyTensor> tensors = f.tensors();
  for (const TinyTensor& t : tensors)
    if (t.name.starts_with("blk.1.ffn_") && t.name != "blk.1.ffn_norm.weight") f.erase_tensor(t.name);
  f.erase_tensor("blk.1.exp_probs_b.bias");
  for (const char* part : {"gate", "up"})
    f.add_tensor({std::string("blk.1.ffn_") + part + ".weight", {DType::F32, {32, 64}}});
  f.add_tensor({"blk.1.ffn_down.weight", {DType::F32, {64, 32}}});
  const Opened model = open_tiny(folder, f);
  CHECK(model.unused.empty());
  CHECK(model.spec.dims.experts == 0);
  CHECK(all<Route>(model.graph).empty());
}

TEST_CASE("experts whose gate and up are one matrix, gate first") {
  const TempDir folder;
  using Names = std::vector<std::string>;
  TinyFile f = tiny_model({.arch = "gpt-oss"});  // with biases
  for (const char* kind : {"weight", "bias"}) {
    f.erase_tensor(std::string("blk.0.ffn_up_exps.") + kind);
    f.rename(std::string("blk.0.ffn_gate_exps.") + kind, std::string("blk.0.ffn_gate_up_exps.") + kind);
  }
  f.resize("blk.0.ffn_gate_up_exps.weight", {32, 128, 4});
  f.resize("blk.0.ffn_gate_up_exps.bias", {128, 4});
  TinyFile plain = tiny_model({.arch = "qwen3moe"});
  plain.erase_tensor("blk.0.ffn_up_exps.weight");
  plain.rename("blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_up_exps.weight");
  plain.resize("blk.0.ffn_gate_up_exps.weight", {32, 128, 4});
  for (const TinyFile& file : {f, plain}) {
    const Opened model = open_tiny(folder, file);
    CHECK(model.unused.empty());
    CHECK(producers(model.graph, "blk.0.ffn_glu") == Names{"blk.0.ffn_gate_exps", "blk.0.ffn_up_exps"});
    CHECK(producers(model.graph, "blk.0.ffn_gate_exps") == Names{"blk.0.ffn_gate_up_exps"});
    CHECK(all<Slice>(model.graph) == std::vector<Slice>{{.begin = 0, .n = 64}, {.begin = 64, .n = 64}});
  }
  CHECK(producers(open_tiny(folder, f).graph, "blk.0.ffn_gate_up_exps").back() == "blk.0.ffn_gate_up_exps.bias");
}

TEST_CASE("queries, keys and values may be rows of one matrix") {
  const TempDir folder;
  for (const Architecture& a : architectures()) {
    INFO(a.name);
    TinyFile f = tiny_model({.arch = std::string(a.name)});
    const auto& tensors = f.tensors();
    const auto has = [&](std::string_view name) {
      return std::ranges::find(tensors, name, &TinyTensor::name) != tensors.end();
    };
    const bool whole = a.name == "olmoe" || a.name == "olmo2" || a.name == "minimax-m2";  // norms of the width
    if (!has("blk.0.attn_k.weight") || whole || a.name == "gemma3n" || a.name == "gemma4") continue;
    for (const std::string kind : {".weight", ".bias"}) {
      if (!has("blk.0.attn_q" + kind)) continue;
      for (const char* name : {"blk.0.attn_k", "blk.0.attn_v"}) f.erase_tensor(name + kind);
      f.rename("blk.0.attn_q" + kind, "blk.0.attn_qkv" + kind);
      f.resize("blk.0.attn_qkv" + kind, kind == ".bias" ? Shape{64} : Shape{32, 64});
    }
    const Opened model = open_tiny(folder, f);
    CHECK(producers(model.graph, "blk.0.attn_k")[1] == "blk.0.attn_qkv.weight[32+16]");
    CHECK(model.unused.empty());
  }
}

TEST_CASE("each architecture is registered once, in the order of the alphabet") {
  std::vector<std::string_view> names;
  for (const Architecture& a : architectures()) names.push_back(a.name);
  CHECK(std::ranges::is_sorted(names, std::less_equal<>()));
}

TEST_CASE("files of glm4: sections of the rotation") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "glm4"});
  f.set_array("glm4.rope.dimension_sections", std::vector<std::uint32_t>{0, 0, 0, 0});
  CHECK(all<Rope>(open_tiny(folder, f).graph).at(0).pairing == RopePairing::Interleaved);
  f.set_array("glm4.rope.dimension_sections", std::vector<std::uint32_t>{2, 1, 1, 0});
  CHECK(all<Rope>(open_tiny(folder, f).graph).at(0).pairing == RopePairing::Halves);
}

TEST_CASE("heads of glm4moe are normalised where the file has the weights") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "glm4moe"});
  CHECK(producers(open_tiny(folder, f).graph, "blk.0.attn_q_rope")[0] == "blk.0.attn_q_norm");
  for (const char* x : {"q", "k"}) f.erase_tensor(std::string("blk.0.attn_") + x + "_norm.weight");
  CHECK(producers(open_tiny(folder, f).graph, "blk.0.attn_q_rope")[0] == "blk.0.attn_q_heads");
}

TEST_CASE("roles tell the experts and the router from the rest") {
  const TempDir folder;
  const Graph g = open_tiny(folder, tiny_model({.experts = 4})).graph;
  for (const Node& n : g.nodes()) {
    const std::string& name = g.info(n.out[0]).name;
    INFO(name);
    if (std::holds_alternative<ExpertLinear>(n.op) || std::holds_alternative<Combine>(n.op))
      CHECK(n.role == Role::Experts);
    if (std::holds_alternative<Route>(n.op) || name == "blk.0.ffn_gate_inp") CHECK(n.role == Role::Router);
    if (name == "blk.0.ffn_norm" || name == "blk.0.ffn_residual") CHECK(n.role == Role::Ffn);
    if (name.starts_with("blk.0.attn")) CHECK(n.role == Role::Attention);
    if (name == "token_embd") CHECK(n.role == Role::Embed);
    if (name.starts_with("output")) CHECK(n.role == Role::Head);
    CHECK(n.layer == (name.starts_with("blk.0.") ? 0 : -1));
  }
}

TEST_CASE("scaling of rotary positions") {
  const TempDir folder;
  const auto table = [&](const TinyFile& f) { return all<RopeTable>(open_tiny(folder, f).graph).at(0); };
  const auto with = [&](const std::function<void(TinyFile&)>& change) {
    TinyFile f = tiny_model({.arch = "qwen3"});
    change(f);
    return table(f);
  };
  const RopeTable plain{.n_rot = 8};
  CHECK(table(tiny_model({.arch = "qwen3"})) == plain);
  const RopeTable linear{.n_rot = 8, .scaling = RopeScaling::Linear, .factor = 4};
  CHECK(table(tiny_model({.arch = "qwen3", .rope = TinyRope::Linear})) == linear);
  const RopeTable yarn{.n_rot = 8, .scaling = RopeScaling::Yarn, .factor = 4, .original_context = 16};
  CHECK(table(tiny_model({.arch = "qwen3", .rope = TinyRope::Yarn})) == yarn);

  // The key from before scaling had types; 0 and 1 are no scaling, "none" switches a factor off.
  CHECK(with([](TinyFile& f) { f.set("qwen3.rope.scale_linear", 4.0f); }) == linear);
  CHECK(with([](TinyFile& f) { f.set("qwen3.rope.scaling.factor", 4.0f); }) == linear);
  CHECK(with([](TinyFile& f) { f.set("qwen3.rope.scaling.factor", 0.0f); }) == plain);
  CHECK(with([](TinyFile& f) { f.set("qwen3.rope.scaling.factor", 1.0f); }) == plain);
  CHECK(with([](TinyFile& f) {
          f.set("qwen3.rope.scaling.type", "none");
          f.set("qwen3.rope.scaling.factor", 4.0f);
        }) == plain);
  // YaRN without its context takes the file's; its other numbers are read.
  const RopeTable full = with([](TinyFile& f) {
    f.set("qwen3.rope.scaling.type", "yarn");
    f.set("qwen3.rope.scaling.factor", 2.0f);
    f.set("qwen3.rope.scaling.attn_factor", 0.5f);
    f.set("qwen3.rope.scaling.yarn_beta_fast", 16.0f);
    f.set("qwen3.rope.scaling.yarn_beta_slow", 2.0f);
  });
  CHECK(full == RopeTable{.n_rot = 8,
                          .scaling = RopeScaling::Yarn,
                          .factor = 2,
                          .original_context = 64,
                          .beta_fast = 16,
                          .beta_slow = 2,
                          .attention_factor = 0.5f});
  // Of Kimi K2.
  CHECK(with([](TinyFile& f) {
          f.set("qwen3.rope.scaling.type", "yarn");
          f.set("qwen3.rope.scaling.factor", 32.0f);
          f.set("qwen3.rope.scaling.yarn_beta_fast", 1.0f);
          f.set("qwen3.rope.scaling.yarn_beta_slow", 1.0f);
        }).beta_fast == 1);
  // How far angles are mixed decides, whatever the type is called; without a mix another factor is the magnitude's,
  // too.
  const auto scaled = [&](const char* type, const std::function<void(TinyFile&)>& more) {
    return with([&](TinyFile& f) {
      f.set("qwen3.rope.scaling.type", type);
      f.set("qwen3.rope.scaling.factor", 4.0f);
      more(f);
    });
  };
  const auto mix = [](float share) {
    return [share](TinyFile& f) { f.set("qwen3.rope.scaling.yarn_ext_factor", share); };
  };
  RopeTable mixed{.n_rot = 8, .scaling = RopeScaling::Yarn, .factor = 4, .original_context = 64};
  CHECK(scaled("linear", mix(1)) == mixed);
  CHECK(scaled("yarn", mix(-1)) == mixed);
  CHECK(scaled("linear", mix(-1)) == linear);
  CHECK(scaled("yarn", mix(0)) == linear);
  CHECK(scaled("none", mix(1)) == plain);
  mixed.extrapolation = 0.5f;
  CHECK(scaled("yarn", mix(0.5f)) == mixed);
  RopeTable louder = linear;
  louder.attention_factor = 3;
  CHECK(scaled("linear", [](TinyFile& f) {
          f.set("qwen3.rope.scaling.attn_factor", 2.0f);
          f.set("qwen3.rope.scaling.yarn_attn_factor", 1.5f);
        }) == louder);
  // Part of each head, and another base.
  const RopeTable part = with([](TinyFile& f) {
    f.set("qwen3.rope.dimension_count", std::uint32_t{4});
    f.set("qwen3.rope.freq_base", 5e5f);
  });
  CHECK(part == RopeTable{.n_rot = 4, .base = 5e5f});
  CHECK(with([](TinyFile& f) { f.erase("qwen3.rope.dimension_count"); }).n_rot == 8);
}

TEST_CASE("attention: scale and window") {
  const TempDir folder;
  const auto attention = [&](const TinyFile& f) { return all<Attention>(open_tiny(folder, f).graph).at(0); };
  CHECK(attention(tiny_model({.head_dim = 16})) == Attention{.scale = 0.25f, .window = 0});
  CHECK(attention(tiny_model({.head_dim = 16, .window = 24})) == Attention{.scale = 0.25f, .window = 24});
  TinyFile scaled = tiny_model();
  scaled.set("llama.attention.scale", 0.125f);
  CHECK(attention(scaled).scale == 0.125f);
  // A window that no position of the context reaches is none.
  CHECK(attention(tiny_model({.arch = "qwen2", .window = 64})).window == 0);
}

TEST_CASE("values may be as long as the file says") {
  const TempDir folder;
  TinyFile f = tiny_model();
  f.set("llama.attention.value_length", std::uint32_t{12});
  f.resize("blk.0.attn_v.weight", {32, 24});
  f.resize("blk.0.attn_output.weight", {48, 32});
  const Graph g = open_tiny(folder, f).graph;
  const auto state = std::ranges::find(g.values(), ValueKind::Cache, &ValueInfo::kind);
  REQUIRE(state != g.values().end());
  CHECK(state->cache == CacheType{.layer = 0, .kv_heads = 2, .head_dim_k = 8, .head_dim_v = 12});
}

TEST_CASE("tied: the head reads the embedding table") {
  const TempDir folder;
  const Graph g = open_tiny(folder, tiny_model({.tied = true})).graph;
  CHECK(producers(g, "output")[1] == "token_embd.weight");
  CHECK(producers(open_tiny(folder, tiny_model()).graph, "output")[1] == "output.weight");
}

TEST_CASE("tensors keep their storage types") {
  const TempDir folder;
  TinyOptions o{.n_embd = 256, .d_ff = 256, .types = {{"*attn_q.weight", DType::Q4_K}, {"*ffn_*", DType::Q6_K}}};
  o.type = DType::BF16;
  o.head_dim = 64;
  const Graph g = open_tiny(folder, tiny_model(o)).graph;
  for (const ValueInfo& v : g.values()) {
    if (v.kind != ValueKind::Weight) continue;
    INFO(v.name);
    const DType wanted = v.name.find("norm") != std::string::npos   ? DType::F32
                         : v.name == "blk.0.attn_q.weight"          ? DType::Q4_K
                         : v.name.find("ffn_") != std::string::npos ? DType::Q6_K
                                                                    : DType::BF16;
    CHECK(v.type.dtype == wanted);
  }
}

TEST_CASE("version 1 and big-endian files give the same graph") {
  const TempDir folder;
  const TinyFile tiny = tiny_model({.arch = "qwen3moe"});
  const std::uint64_t hash = open_tiny(folder, tiny).graph.hash();
  for (const GgufWriterOptions& o : {GgufWriterOptions{.version = 1}, GgufWriterOptions{.big_endian = true}}) {
    tiny.write(folder / "other.gguf", o);
    Warnings warnings;
    const GgufFile file = GgufFile::open(folder / "other.gguf", warnings);
    CHECK(build_graph(open_model(file.metadata()), file, {.tokens = 4, .outputs = 2}).hash() == hash);
  }
}

TEST_CASE("trained models of the shared data have nothing unread") {
  for (const char* name :
       {"stories260K-f32.gguf", "stories260K-f32-be.gguf", "stories260K-f32-v1.gguf", "aidreams260K-f32.gguf",
        "babyllama-tok105-f32.gguf", "random-llama.gguf", "tinyllamas-stories-260k-f32.crabml.gguf"}) {
    const auto path = shared_file(std::string("data/models/") + name);
    if (!path) continue;
    INFO(name);
    Warnings warnings;
    const GgufFile file = GgufFile::open(*path, warnings);
    std::vector<std::string> unused;
    const ModelSpec spec = open_model(file.metadata());
    build_graph(spec, file, {}, &unused);
    CHECK(unused.empty());
    CHECK(spec.dims.vocab == file.tensors().find("token_embd.weight")->type.shape[1]);
  }
}
