// The graph of each family at a tiny size, as written and after the passes, against text that was read and approved.
// LLM_UPDATE_GOLDEN=1 writes the files anew.
#include <cstdlib>
#include <fstream>
#include <set>

#include "graph/passes/passes.h"
#include "graph/print.h"
#include "open_file.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/text.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Two layers, so that the texts show what repeats; the variants each add what the plain family lacks.
struct Variant {
  std::string name;
  TinyOptions options;
};

std::vector<Variant> variants() {
  return {
      {"llama", {.layers = 2}},
      {"afmoe", {.arch = "afmoe", .layers = 2, .head_dim = 16}},
      {"llama4", {.arch = "llama4", .layers = 2}},
      {"llama-llama3", {.layers = 2, .tied = true, .biases = true, .rope = TinyRope::Llama3}},
      {"llama-experts", {.layers = 2, .experts = 4, .window = 16}},
      {"qwen2", {.arch = "qwen2", .layers = 2, .tied = true}},
      {"qwen3", {.arch = "qwen3", .layers = 2, .head_dim = 16, .rope = TinyRope::Yarn}},
      {"qwen3moe", {.arch = "qwen3moe", .layers = 2, .head_dim = 16}},
      {"olmoe", {.arch = "olmoe", .layers = 2, .kv_heads = 4}},
      {"gemma", {.arch = "gemma", .layers = 2, .head_dim = 16, .tied = true}},
      {"gemma2", {.arch = "gemma2", .layers = 2, .head_dim = 16, .tied = true, .window = 16}},
      {"gemma3", {.arch = "gemma3", .layers = 2, .head_dim = 16, .tied = true, .window = 16}},
      {"gemma3n", {.arch = "gemma3n", .layers = 3, .head_dim = 16, .tied = true}},
      {"gemma4", {.arch = "gemma4", .layers = 3, .head_dim = 16, .tied = true}},
      {"gemma4-experts", {.arch = "gemma4", .layers = 1, .experts = 4}},
      {"deepseek", {.arch = "deepseek", .layers = 2}},
      {"minicpm", {.arch = "minicpm", .layers = 2, .tied = true}},
      {"chatglm", {.arch = "chatglm", .layers = 2}},
      {"gptneox", {.arch = "gptneox", .layers = 2}},
      {"cohere2", {.arch = "cohere2", .layers = 2, .tied = true}},
      {"command-r", {.arch = "command-r", .layers = 2, .tied = true}},
      {"arcee", {.arch = "arcee", .layers = 2, .rope = TinyRope::Yarn}},
      {"nemotron", {.arch = "nemotron", .layers = 2}},
      {"phi2", {.arch = "phi2", .layers = 2}},
      {"stablelm", {.arch = "stablelm", .layers = 2}},
      {"starcoder2", {.arch = "starcoder2", .layers = 2, .tied = true}},
      {"phi3", {.arch = "phi3", .layers = 2}},
      {"gpt-oss", {.arch = "gpt-oss", .layers = 2, .head_dim = 16, .rope = TinyRope::Yarn}},
      {"qwen2vl", {.arch = "qwen2vl", .layers = 2}},
      {"qwen3vl", {.arch = "qwen3vl", .layers = 2, .head_dim = 16}},
      {"qwen3vlmoe", {.arch = "qwen3vlmoe", .layers = 2, .head_dim = 16}},
      {"smollm3", {.arch = "smollm3", .layers = 4, .tied = true}},
      {"olmo2", {.arch = "olmo2", .layers = 2, .kv_heads = 4}},
      {"olmo3", {.arch = "olmo2", .layers = 2, .window = 16, .rope = TinyRope::Yarn}},
      {"granite", {.arch = "granite", .layers = 2, .tied = true}},
      {"granitemoe", {.arch = "granitemoe", .layers = 2}},
      {"seed_oss", {.arch = "seed_oss", .layers = 2, .head_dim = 16}},
      {"ernie4_5", {.arch = "ernie4_5", .layers = 2, .head_dim = 16, .tied = true}},
      {"hunyuan-dense", {.arch = "hunyuan-dense", .layers = 2, .head_dim = 16, .tied = true}},
      {"exaone", {.arch = "exaone", .layers = 2, .rope = TinyRope::Llama3}},
      {"exaone4", {.arch = "exaone4", .layers = 2, .tied = true, .rope = TinyRope::Llama3}},
      {"exaone4-window", {.arch = "exaone4", .layers = 2, .window = 16}},
      {"mistral3", {.arch = "mistral3", .layers = 2, .head_dim = 16, .rope = TinyRope::Yarn}},
      {"lfm2", {.arch = "lfm2", .layers = 2, .tied = true}},
      {"lfm2moe", {.arch = "lfm2moe", .layers = 2, .tied = true}},
      {"granitehybrid", {.arch = "granitehybrid", .layers = 2, .tied = true}},
      {"granitehybrid-experts", {.arch = "granitehybrid", .layers = 2, .experts = 4}},
      {"falcon-h1", {.arch = "falcon-h1", .layers = 2, .head_dim = 16}},
      {"nemotron_h", {.arch = "nemotron_h", .layers = 3}},
      {"nemotron_h_moe", {.arch = "nemotron_h_moe", .layers = 3}},
      {"gpt2", {.arch = "gpt2", .layers = 2, .tied = true}},
      {"starcoder", {.arch = "starcoder", .layers = 2, .kv_heads = 1}},
      {"olmo", {.arch = "olmo", .layers = 2, .tied = true}},
      {"dbrx", {.arch = "dbrx", .layers = 2}},
      {"apertus", {.arch = "apertus", .layers = 2, .rope = TinyRope::Llama3}},
      {"falcon", {.arch = "falcon", .layers = 2, .kv_heads = 1, .tied = true}},
      {"exaone-moe", {.arch = "exaone-moe", .layers = 2}},
      {"bailingmoe", {.arch = "bailingmoe", .layers = 2}},
      {"baichuan", {.arch = "baichuan", .layers = 2, .kv_heads = 4}},
      {"orion", {.arch = "orion", .layers = 2}},
      {"deci", {.arch = "deci", .layers = 4}},
      {"openelm", {.arch = "openelm", .layers = 2, .tied = true}},
      {"bloom", {.arch = "bloom", .layers = 2, .tied = true}},
      {"jais", {.arch = "jais", .layers = 2}},
      {"mpt", {.arch = "mpt", .layers = 2, .tied = true}},
      {"internlm2", {.arch = "internlm2", .layers = 2}},
      {"xverse", {.arch = "xverse", .layers = 2}},
      {"bailingmoe2", {.arch = "bailingmoe2", .layers = 2}},
      {"deepseek2", {.arch = "deepseek2", .layers = 2}},
      {"deepseek2-heads", {.arch = "deepseek2", .layers = 2, .tied = true}},
      {"deepseek32", {.arch = "deepseek32", .layers = 2}},
      {"deepseek4", {.arch = "deepseek4", .layers = 3, .rope = TinyRope::Yarn}},
      {"glm-dsa", {.arch = "glm-dsa", .layers = 2}},
      {"dots1", {.arch = "dots1", .layers = 2}},
      {"ernie4_5-moe", {.arch = "ernie4_5-moe", .layers = 2}},
      {"glm4", {.arch = "glm4", .layers = 2, .head_dim = 16}},
      {"glm4moe", {.arch = "glm4moe", .layers = 2, .head_dim = 16}},
      {"hunyuan-moe", {.arch = "hunyuan-moe", .layers = 2}},
      {"minimax-m2", {.arch = "minimax-m2", .layers = 2, .head_dim = 16}},
      {"qwen2moe", {.arch = "qwen2moe", .layers = 2}},
      {"qwen3next", {.arch = "qwen3next", .layers = 2}},
      {"qwen35", {.arch = "qwen35", .layers = 2, .tied = true}},
      {"qwen35moe", {.arch = "qwen35moe", .layers = 2}},
      {"qwen4exp", {.arch = "qwen4exp", .layers = 2}},
      {"step35", {.arch = "step35", .layers = 2, .head_dim = 16, .rope = TinyRope::Llama3}},
      {"mimo2", {.arch = "mimo2", .layers = 2, .head_dim = 16}},
      {"smallthinker", {.arch = "smallthinker", .layers = 2, .window = 16}},
      {"grok", {.arch = "grok", .layers = 2}},
      {"mamba2", {.arch = "mamba2", .layers = 2, .tied = true}},
      {"rwkv6", {.arch = "rwkv6", .layers = 2}},
      {"rwkv6qwen2", {.arch = "rwkv6qwen2", .layers = 2}},
      {"rwkv7", {.arch = "rwkv7", .layers = 2}},
      {"arwkv7", {.arch = "arwkv7", .layers = 2}},
      {"kimi-linear", {.arch = "kimi-linear", .layers = 2}},
      {"jamba", {.arch = "jamba", .layers = 2, .experts = 4}},
      {"cohere2moe", {.arch = "cohere2moe", .layers = 2, .tied = true}},
      {"minicpm3", {.arch = "minicpm3", .layers = 2}},
      {"phimoe", {.arch = "phimoe", .layers = 2}},
      {"arctic", {.arch = "arctic", .layers = 2}},
      {"bitnet", {.arch = "bitnet", .layers = 2, .tied = true}},
      {"codeshell", {.arch = "codeshell", .layers = 2}},
      {"deepseek2-ocr", {.arch = "deepseek2-ocr", .layers = 2}},
      {"granite_swa", {.arch = "granite_swa", .layers = 2, .tied = true}},
      {"hy_v3", {.arch = "hy_v3", .layers = 2}},
      {"jais2", {.arch = "jais2", .layers = 2}},
      {"laguna", {.arch = "laguna", .layers = 2, .head_dim = 16, .rope = TinyRope::Yarn}},
      {"maincoder", {.arch = "maincoder", .layers = 2, .tied = true}},
      {"bailingmoe3", {.arch = "bailingmoe3", .layers = 2}},
      {"dots3note", {.arch = "dots3note", .layers = 2}},
      {"maple", {.arch = "maple", .layers = 2}},
      {"plamo2", {.arch = "plamo2", .layers = 2, .tied = true}},
      {"minimax-m3", {.arch = "minimax-m3", .layers = 2}},
      {"talkie", {.arch = "talkie", .layers = 2}},
      {"mamba", {.arch = "mamba", .layers = 2, .tied = true}},
      {"mellum", {.arch = "mellum", .layers = 2, .rope = TinyRope::Yarn}},
      {"muse-glimmer", {.arch = "muse-glimmer", .layers = 2, .head_dim = 16}},
      {"nanbeige", {.arch = "nanbeige", .layers = 2}},
      {"plamo", {.arch = "plamo", .layers = 2}},
      {"plamo3", {.arch = "plamo3", .layers = 2}},
      {"plm", {.arch = "plm", .layers = 2, .tied = true}},
      {"refact", {.arch = "refact", .layers = 2}},
      {"spark2_5", {.arch = "spark2_5", .layers = 2, .head_dim = 16}},
      {"chameleon", {.arch = "chameleon", .layers = 2}},
      {"glm5-next", {.arch = "glm5-next", .layers = 2}},
      {"grovemoe", {.arch = "grovemoe", .layers = 2, .head_dim = 16}},
      {"kimi-k3", {.arch = "kimi-k3", .layers = 3}},
  };
}

/// Without the first line, whose hash says nothing to a reader.
void compare(const std::string& name, const Graph& graph) {
  std::string text = to_text(graph);
  text.erase(0, text.find('\n') + 1);
  const auto path = source_dir() / "tests/models/golden" / (name + ".txt");
  if (const char* update = std::getenv("LLM_UPDATE_GOLDEN"); update && *update) std::ofstream(path) << text;
  CHECK(read_file(path) == text);
}

}  // namespace

TEST_CASE("graphs of the families are the approved ones") {
  const TempDir folder;
  for (const Variant& v : variants()) {
    INFO(v.name);
    const Opened model = open_tiny(folder, tiny_model(v.options));
    compare(v.name, model.graph);
    compare(v.name + ".optimized", optimize(model.graph));
  }
}

TEST_CASE("graphs of prediction layers are the approved ones") {
  const TempDir folder;
  for (const char* arch : {"qwen35", "glm4moe", "deepseek2", "bailingmoe3"}) {
    INFO(arch);
    const bool latents = std::string_view(arch) == "deepseek2" || std::string_view(arch) == "bailingmoe3";
    const Opened model =
        open_tiny(folder, tiny_model({.arch = arch, .layers = 2, .head_dim = latents ? 8 : 16, .predicting = true}));
    const Graph graph = build_prediction_graph(model.spec, model.file, {.tokens = 4, .outputs = 2});
    compare(std::string(arch) + "-prediction", graph);
    compare(std::string(arch) + "-prediction.optimized", optimize(graph));
  }
}

TEST_CASE("layers of one model share one plan, before and after the passes") {
  const TempDir folder;
  for (const Variant& v : variants()) {
    INFO(v.name);
    const std::string& arch = v.options.arch;
    // Layers differ: some have a window, or no positions, or no experts, or read the embedding twice.
    const std::set<std::string_view> mixed = {
        "openelm",  "deci",        "bailingmoe", "exaone-moe",   "apertus",      "afmoe",         "bailingmoe2",
        "cohere2",  "deepseek",    "deepseek2",  "dots1",        "ernie4_5-moe", "gemma3n",       "llama4",
        "mistral4", "gemma4",      "glm4moe",    "gpt-oss",      "lfm2moe",      "smollm3",       "mimo2",
        "step35",   "kimi-linear", "cohere2moe", "deepseek32",   "glm-dsa",      "deepseek2-ocr", "granite_swa",
        "hy_v3",    "laguna",      "mellum",     "muse-glimmer", "nanbeige",     "plamo3",        "spark2_5",
        "qwen4exp", "bailingmoe3", "maple",      "dots3note",    "talkie",       "minimax-m3",    "deepseek4",
        "rwkv7",    "arwkv7",      "kimi-k3",    "glm5-next"};
    if ((v.options.window > 0 && arch != "llama") || mixed.contains(arch)) continue;
    TinyOptions options = v.options;
    options.layers = 4;
    const Graph graph = open_tiny(folder, tiny_model(options)).graph;
    std::vector<LayerRange> layers;
    for (const LayerRange& r : layer_ranges(graph))
      if (r.layer >= 0) layers.push_back(r);
    REQUIRE(layers.size() == 4);
    const bool two_kinds = arch.starts_with("qwen35") || arch == "qwen3next" || arch == "lfm2" ||
                           arch == "granitehybrid" || arch == "jamba" || arch == "plamo2";
    const std::size_t kinds = arch.starts_with("nemotron_h") ? 3 : two_kinds ? 2 : 1;  // in turns
    for (std::size_t i = 0; i < layers.size(); ++i)
      CHECK(structural_hash(graph, layers[i]) == structural_hash(graph, layers[i % kinds]));
  }
}
