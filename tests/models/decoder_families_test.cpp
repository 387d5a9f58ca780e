// Families with embeddings of positions, norms without weights, limits of queries, trained activations, and layers that
// differ in their sizes.
#include <cmath>

#include "graph_parts.h"
#include "open_file.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

using NodeNames = std::vector<std::string>;

void check_refused(const TempDir& folder, const TinyFile& f, const std::string& subject, const std::string& word) {
  INFO(subject << ": " << word);
  const std::optional<Error> error = failure(folder, f);
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->kind() == ErrorKind::Model);
  CHECK(error->parts().subject.find("\"" + subject + "\"") != std::string::npos);
  CHECK(std::string(error->what()).find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("gpt2 and starcoder: embeddings of positions, as many as the context has, and no rotation") {
  const TempDir folder;
  for (const std::string arch : {"gpt2", "starcoder"}) {
    INFO(arch);
    TinyFile f = tiny_model({.arch = arch, .kv_heads = 1});
    const Opened model = open_tiny(folder, f);
    CHECK(producers(model.graph, "position_embd") == NodeNames{"position_embd.weight", "positions"});
    CHECK(producers(model.graph, "embedded") == NodeNames{"token_embd", "position_embd"});
    CHECK(producers(model.graph, "blk.0.attn_norm")[0] == "embedded");
    CHECK(all<RopeTable>(model.graph).empty());
    CHECK(model.spec.dims.positions == 64);
    CHECK(open_tiny(folder, tiny_model()).spec.dims.positions == 0);
    f.set(arch + ".context_length", std::uint32_t{65});
    check_refused(folder, f, "position_embd.weight", "[32, 64], needs [32, 65]");
  }
}

TEST_CASE("falcon: attention reads a norm of its own where the file has it, and both blocks are added to one stream") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "falcon", .kv_heads = 1});
  const Graph large = open_tiny(folder, f).graph;
  CHECK(producers(large, "blk.0.attn_q")[0] == "blk.0.attn_norm_2");
  CHECK(producers(large, "blk.0.ffn_up")[0] == "blk.0.attn_norm");
  CHECK(producers(large, "blk.0.attn_norm")[0] == "token_embd");
  CHECK(producers(large, "blk.0.attn_norm_2")[0] == "token_embd");
  CHECK(producers(large, "blk.0.attn_residual") == NodeNames{"blk.0.ffn_residual", "blk.0.attn_output"});
  for (const char* kind : {".weight", ".bias"}) f.erase_tensor(std::string("blk.0.attn_norm_2") + kind);
  const Graph small = open_tiny(folder, f).graph;
  CHECK(producers(small, "blk.0.attn_q")[0] == "blk.0.attn_norm");
  CHECK(producers(small, "blk.0.ffn_up")[0] == "blk.0.attn_norm");
}

TEST_CASE("olmo and dbrx: a limit of queries, keys and values, which olmo's files need not have") {
  const TempDir folder;
  for (const std::string arch : {"olmo", "dbrx"}) {
    INFO(arch);
    TinyFile f = tiny_model({.arch = arch});
    const Graph limited = open_tiny(folder, f).graph;
    const Activate clamp{.function = Nonlinearity::Clamp, .limit = 1.5f};
    CHECK(all<Activate>(limited) == std::vector<Activate>(3, clamp));
    CHECK(producers(limited, "blk.0.attn_q_rope")[0] == "blk.0.attn_q_clamped");
    CHECK(producers(limited, "blk.0.kv") == NodeNames{"blk.0.attn_k_rope", "blk.0.attn_v_clamped", "cache.0"});
    f.erase(arch + ".attention.clamp_kqv");
    CHECK(all<Activate>(open_tiny(folder, f).graph).empty());
    f.set(arch + ".attention.clamp_kqv", -1.0f);
    check_refused(folder, f, arch + ".attention.clamp_kqv", "-1");
  }
  const Graph olmo = open_tiny(folder, tiny_model({.arch = "olmo"})).graph;
  CHECK(producers(olmo, "blk.0.attn_norm") == NodeNames{"token_embd"});
  CHECK(producers(olmo, "output_norm") == NodeNames{"output_rows"});
}

TEST_CASE("apertus: each layer's xIELU is made of softplus of what the file has") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "apertus", .layers = 2});
  const auto curves = all<Activate>(open_tiny(folder, f).graph);
  REQUIRE(curves.size() == 2);
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  for (int i = 0; i < 2; ++i) {
    const XieluCurve& c = curves[static_cast<std::size_t>(i)].xielu;
    CHECK(std::abs(c.positive - softplus(0.2 * (i + 1))) < 1e-6);
    CHECK(std::abs(c.negative - (0.5 + softplus(0.5 - 0.3 * i))) < 1e-6);
    CHECK(c.slope == 0.5f);
    CHECK(c.below == -1e-6f);
  }
  f.set_array("xielu.alpha_n", std::vector<float>{1});
  check_refused(folder, f, "xielu.alpha_n", "array of 1 values");
  f.set("xielu.alpha_n", std::nanf(""));
  check_refused(folder, f, "xielu.alpha_n", "nan");
  f.erase("xielu.alpha_n");
  check_refused(folder, f, "xielu.alpha_n", "missing");
}

TEST_CASE("exaone-moe: layers with a window are rotated, those that predict ahead are not read and have no flags") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "exaone-moe", .layers = 5});
  f.erase("exaone-moe.attention.sliding_window_pattern");
  f.set("exaone-moe.nextn_predict_layers", std::uint32_t{1});
  const Opened model = open_tiny(folder, f);
  CHECK(model.spec.dims.n_layers == 4);
  CHECK(model.unused.empty());
  const auto windows = all<Attention>(model.graph);
  REQUIRE(windows.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(windows[static_cast<std::size_t>(i)].window.length == (i == 3 ? 0 : 16));
  CHECK(producers(model.graph, "blk.2.attn_q_rope")[0] == "blk.2.attn_q_norm");
  CHECK(producers(model.graph, "blk.3.attn")[0] == "blk.3.attn_q_norm");
  f.set_array("exaone-moe.attention.sliding_window_pattern", std::vector<std::uint32_t>{1, 0, 0, 1});
  CHECK(all<Rope>(open_tiny(folder, f).graph).size() == 4);
  f.erase("exaone-moe.attention.sliding_window");
  check_refused(folder, f, "exaone-moe.attention.sliding_window", "missing");
}

TEST_CASE("bailingmoe: weights of the chosen experts sum to 1 where the file says so") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "bailingmoe"});
  CHECK(all<Route>(open_tiny(folder, f).graph)[0].weights == RouteWeights::AsGated);
  f.set("bailingmoe.expert_weights_norm", true);
  CHECK(all<Route>(open_tiny(folder, f).graph)[0].weights == RouteWeights::Renormalized);
}

TEST_CASE(
    "ALiBi: bloom's by its family, baichuan's by its layers, jais' and mpt's by a key, without which mpt embeds") {
  const TempDir folder;
  const auto biases = [&](const TinyFile& f) {
    const Graph g = open_tiny(folder, f).graph;
    CHECK(all<Rope>(g).empty());
    return all<Attention>(g).at(0).max_bias;
  };
  CHECK(biases(tiny_model({.arch = "bloom"})) == 8);
  CHECK(biases(tiny_model({.arch = "baichuan", .layers = 40})) == 8);
  CHECK(all<Rope>(open_tiny(folder, tiny_model({.arch = "baichuan", .layers = 39})).graph).size() == 2 * 39);
  TinyFile jais = tiny_model({.arch = "jais"}), mpt = tiny_model({.arch = "mpt"});
  CHECK(biases(jais) == 8);
  CHECK(all<Attention>(open_tiny(folder, jais).graph)[0].scale == 0.125f);  // of heads of 8
  CHECK(biases(mpt) == 8);
  CHECK(open_tiny(folder, mpt).spec.dims.positions == 0);
  mpt.set("mpt.attention.max_alibi_bias", 0.0f);
  check_refused(folder, mpt, "position_embd.weight", "missing");
  mpt.add_tensor({"position_embd.weight", {DType::F32, {32, 64}}, 0, 1});
  CHECK(biases(mpt) == 0);
  CHECK(open_tiny(folder, mpt).spec.dims.positions == 64);
  jais.erase("jais.attention.max_alibi_bias");
  check_refused(folder, jais, "jais.attention.max_alibi_bias", "missing");
  TinyFile llama = tiny_model();
  llama.set("llama.attention.max_alibi_bias", 8.0f);
  check_refused(folder, llama, "llama.attention.max_alibi_bias", "not supported for llama");
}

TEST_CASE("layers of deci attend, have a product in place of that, or none, and need not have a feed-forward network") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "deci", .layers = 4});
  const Opened model = open_tiny(folder, f);
  const Graph& g = model.graph;
  CHECK(model.spec.dims.heads == 4);
  CHECK(model.spec.dims.kv_heads == 2);
  CHECK(all<Attention>(g).size() == 1);
  CHECK(producers(g, "blk.1.ffn_norm")[0] == "token_embd");  // the first layer has nothing at all
  CHECK(producers(g, "blk.2.attn_output") == NodeNames{"blk.2.attn_norm", "blk.2.attn_output.weight"});
  CHECK(producers(g, "blk.2.attn_residual") == NodeNames{"blk.1.ffn_residual", "blk.2.attn_output"});
  CHECK(producers(g, "blk.3.attn_q")[0] == "blk.3.attn_norm");

  using Sizes = std::vector<std::uint32_t>;
  f.set_array("deci.feed_forward_length", Sizes{0, 64, 64, 0});
  for (const char* name : {"norm", "gate", "up", "down"}) f.erase_tensor(std::string("blk.3.ffn_") + name + ".weight");
  CHECK(producers(open_tiny(folder, f).graph, "output_rows")[0] == "blk.3.attn_residual");

  f.set_array("deci.attention.head_count_kv", Sizes{0, 0, 0, 3});
  check_refused(folder, f, "deci.attention.head_count_kv", "3 does not divide head_count 4 of layer 3");
  f.set_array("deci.attention.head_count_kv", Sizes{0, 2, 0, 2});
  check_refused(folder, f, "deci.attention.head_count_kv", "2 does not divide head_count 0 of layer 1");
  f.set_array("deci.attention.head_count_kv", Sizes{0, 0, 0, 0});
  check_refused(folder, f, "deci.attention.head_count_kv", "none attends");
  f.set_array("deci.attention.head_count", Sizes{0, 0, 0, 0});
  check_refused(folder, f, "deci.attention.head_count", "none attends");
}

TEST_CASE("layers of openelm have heads and widths of their own, and none has none") {
  const TempDir folder;
  TinyFile f = tiny_model({.arch = "openelm", .layers = 2});
  const Graph g = open_tiny(folder, f).graph;
  CHECK(producers(g, "blk.0.attn_k")[1] == "blk.0.attn_qkv.weight[64+32]");
  CHECK(producers(g, "blk.1.attn_k")[1] == "blk.1.attn_qkv.weight[32+16]");
  using Sizes = std::vector<std::uint32_t>;
  f.set_array("openelm.attention.head_count_kv", Sizes{4, 0});
  check_refused(folder, f, "openelm.attention.head_count_kv", "all layers attend");
  f.set_array("openelm.attention.head_count_kv", Sizes{4, 2});
  f.set_array("openelm.feed_forward_length", Sizes{0, 64});
  check_refused(folder, f, "openelm.feed_forward_length", "feed-forward network");
}
