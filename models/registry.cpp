#include "models/registry.h"

#include <string>
#include <string_view>

#include "base/error.h"

/// THE list: each line X(name, "architecture") is one value of general.architecture, opened by open_<name>() of
/// models/<name>.cpp.
#define LLM_ARCHITECTURES(X)        \
  X(afmoe, "afmoe")                 \
  X(apertus, "apertus")             \
  X(arcee, "arcee")                 \
  X(arctic, "arctic")               \
  X(rwkv7, "arwkv7")                \
  X(baichuan, "baichuan")           \
  X(deepseek, "bailingmoe")         \
  X(bailingmoe2, "bailingmoe2")     \
  X(kimi_linear, "bailingmoe3")     \
  X(bitnet, "bitnet")               \
  X(bloom, "bloom")                 \
  X(chameleon, "chameleon")         \
  X(chatglm, "chatglm")             \
  X(nemotron, "codeshell")          \
  X(qwen2, "cogvlm")                \
  X(cohere2, "cohere2")             \
  X(cohere2moe, "cohere2moe")       \
  X(command_r, "command-r")         \
  X(dbrx, "dbrx")                   \
  X(deci, "deci")                   \
  X(deepseek, "deepseek")           \
  X(deepseek2, "deepseek2")         \
  X(deepseek, "deepseek2-ocr")      \
  X(deepseek32, "deepseek32")       \
  X(deepseek4, "deepseek4")         \
  X(bailingmoe2, "dots1")           \
  X(deepseek32, "dots3note")        \
  X(internlm2, "ernie4_5")          \
  X(ernie4_5_moe, "ernie4_5-moe")   \
  X(exaone, "exaone")               \
  X(exaone_moe, "exaone-moe")       \
  X(exaone4, "exaone4")             \
  X(falcon, "falcon")               \
  X(falcon_h1, "falcon-h1")         \
  X(gemma, "gemma")                 \
  X(gemma2, "gemma2")               \
  X(gemma3, "gemma3")               \
  X(gemma3n, "gemma3n")             \
  X(gemma4, "gemma4")               \
  X(deepseek32, "glm-dsa")          \
  X(glm4, "glm4")                   \
  X(glm4moe, "glm4moe")             \
  X(glm5_next, "glm5-next")         \
  X(gpt_oss, "gpt-oss")             \
  X(gpt2, "gpt2")                   \
  X(gptneox, "gptneox")             \
  X(granite, "granite")             \
  X(granite, "granite_swa")         \
  X(granitehybrid, "granitehybrid") \
  X(granite, "granitemoe")          \
  X(grok, "grok")                   \
  X(grovemoe, "grovemoe")           \
  X(hunyuan_dense, "hunyuan-dense") \
  X(hunyuan_moe, "hunyuan-moe")     \
  X(hunyuan_dense, "hunyuan_vl")    \
  X(bailingmoe2, "hy_v3")           \
  X(internlm2, "internlm2")         \
  X(jais, "jais")                   \
  X(nemotron, "jais2")              \
  X(jamba, "jamba")                 \
  X(kimi_k3, "kimi-k3")             \
  X(kimi_linear, "kimi-linear")     \
  X(step35, "laguna")               \
  X(lfm2, "lfm2")                   \
  X(lfm2, "lfm2moe")                \
  X(llama, "llama")                 \
  X(llama4, "llama4")               \
  X(hunyuan_dense, "maincoder")     \
  X(mamba, "mamba")                 \
  X(mamba2, "mamba2")               \
  X(maple, "maple")                 \
  X(mellum, "mellum")               \
  X(mimo2, "mimo2")                 \
  X(minicpm, "minicpm")             \
  X(minicpm3, "minicpm3")           \
  X(olmoe, "minimax-m2")            \
  X(minimax_m3, "minimax-m3")       \
  X(mistral3, "mistral3")           \
  X(deepseek2, "mistral4")          \
  X(mpt, "mpt")                     \
  X(muse_glimmer, "muse-glimmer")   \
  X(nanbeige, "nanbeige")           \
  X(nemotron, "nemotron")           \
  X(nemotron_h, "nemotron_h")       \
  X(nemotron_h, "nemotron_h_moe")   \
  X(olmo, "olmo")                   \
  X(olmo2, "olmo2")                 \
  X(olmoe, "olmoe")                 \
  X(openelm, "openelm")             \
  X(orion, "orion")                 \
  X(qwen2, "paddleocr")             \
  X(qwen2, "pangu-embedded")        \
  X(falcon, "phi2")                 \
  X(phi3, "phi3")                   \
  X(phimoe, "phimoe")               \
  X(command_r, "plamo")             \
  X(plamo2, "plamo2")               \
  X(plamo3, "plamo3")               \
  X(plm, "plm")                     \
  X(qwen2, "qwen")                  \
  X(qwen2, "qwen2")                 \
  X(qwen2moe, "qwen2moe")           \
  X(qwen2, "qwen2vl")               \
  X(qwen3, "qwen3")                 \
  X(qwen35, "qwen35")               \
  X(qwen35, "qwen35moe")            \
  X(qwen3, "qwen3moe")              \
  X(qwen3next, "qwen3next")         \
  X(qwen3, "qwen3vl")               \
  X(qwen3, "qwen3vlmoe")            \
  X(qwen4exp, "qwen4exp")           \
  X(baichuan, "refact")             \
  X(rwkv6, "rwkv6")                 \
  X(rwkv6, "rwkv6qwen2")            \
  X(rwkv7, "rwkv7")                 \
  X(seed_oss, "seed_oss")           \
  X(smallthinker, "smallthinker")   \
  X(smollm3, "smollm3")             \
  X(step35, "spark2_5")             \
  X(stablelm, "stablelm")           \
  X(gpt2, "starcoder")              \
  X(nemotron, "starcoder2")         \
  X(step35, "step35")               \
  X(talkie, "talkie")               \
  X(internlm2, "xverse")

namespace llm {

#define LLM_DECLARE(name, architecture) ModelSpec open_##name(const Metadata&);
LLM_ARCHITECTURES(LLM_DECLARE)
#undef LLM_DECLARE

namespace {

constexpr std::string_view kKey = "general.architecture";
constexpr Architecture kArchitectures[] = {
#define LLM_ROW(name, architecture) {architecture, open_##name},
    LLM_ARCHITECTURES(LLM_ROW)
#undef LLM_ROW
};

/// What GGUF files hold beside models.
void refuse_other_files(const Metadata& md) {
  constexpr std::string_view kType = "general.type";
  const auto type = md.get_or<std::string_view>(kType, "model");
  if (type == "adapter")
    md.fail(kType,
            "the file is an adapter, which changes a model and is none; -m takes the model, --lora its adapters");
  if (type == "imatrix") md.fail(kType, "the file is an importance matrix, no model; llm-quantize --imatrix reads it");
  if (type == "mmproj") md.fail(kType, "the file is a projector of images, no model; models read text only here");
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

ModelSpec open_model(const Metadata& md) {
  refuse_other_files(md);
  const auto wanted = md.get<std::string_view>(kKey);
  std::string known;
  for (const Architecture& a : kArchitectures) {
    if (a.name == wanted) return a.open(md);
    known += (known.empty() ? "" : ", ") + std::string(a.name);
  }
  md.fail(kKey, "\"" + escaped(wanted) + "\" is not supported; known are " + known);
}

}  // namespace llm
