// Files whose hyper-parameters or tensors do not fit: each ends in an error of the model file that names the key or the
// tensor, with the offset of the field.
#include <cmath>
#include <functional>
#include <limits>

#include "open_file.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

struct Case {
  std::string id;
  std::string subject;  ///< key or tensor, without its quotes
  std::string word;     ///< in the whole message
  std::function<void(TinyFile&)> change;
};

template <class T>
std::function<void(TinyFile&)> set(std::string key, T value) {
  return [key, value](TinyFile& f) { f.set(key, value); };
}
std::function<void(TinyFile&)> u32(std::string key, std::uint32_t value) { return set("llama." + key, value); }
std::function<void(TinyFile&)> f32(std::string key, float value) { return set("llama." + key, value); }
std::function<void(TinyFile&)> erase(std::string key) {
  return [key](TinyFile& f) { f.erase(key); };
}
std::function<void(TinyFile&)> array(std::string key, std::vector<std::uint32_t> values) {
  return [key, values](TinyFile& f) { f.set_array("llama." + key, values); };
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kMax = 0xffffffffu;

/// Where the field that the error is about starts: the key's value, or the tensor's record.
std::optional<std::uint64_t> field_offset(const std::filesystem::path& path, const std::string& subject) {
  Warnings warnings;
  const GgufFile file = GgufFile::open(path, warnings);
  if (const auto* entry = file.metadata().find(subject)) return entry->offset;
  if (const auto* tensor = file.tensors().find(subject)) return tensor->info_offset;
  return std::nullopt;
}

void run(const std::vector<Case>& cases, const TinyOptions& base) {
  const TempDir folder;
  for (const Case& c : cases) {
    INFO(c.id);
    TinyFile tiny = tiny_model(base);
    c.change(tiny);
    const std::optional<Error> error = failure(folder, tiny);
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->kind() == ErrorKind::Model);
    CHECK(error->parts().file == (folder / "tiny.gguf").string());
    CHECK(error->parts().subject.find("\"" + c.subject + "\"") != std::string::npos);
    CHECK(std::string(error->what()).find(c.word) != std::string::npos);
    REQUIRE(error->parts().offset);
    if (const auto at = field_offset(folder / "tiny.gguf", c.subject)) CHECK(*error->parts().offset == *at);
  }
}

}  // namespace

TEST_CASE("hyper-parameters out of range") {
  run(
      {
          {"D01", "llama.block_count", "block_count", u32("block_count", 0)},
          {"D02", "blk.1.attn_norm.weight", "block_count", u32("block_count", 513)},
          {"block_count 1025", "llama.block_count", "1024", u32("block_count", 1025)},
          {"D03", "llama.block_count", "block_count", u32("block_count", kMax)},
          {"D04", "blk.1.attn_norm.weight", "blk.1", u32("block_count", 2)},
          {"D05", "llama.block_count", "block_count", set("llama.block_count", "1")},
          {"D07", "llama.block_count", "missing", erase("llama.block_count")},
          {"D08", "llama.embedding_length", "embedding_length", u32("embedding_length", 0)},
          {"D09", "token_embd.weight", "[32, 267], needs [64, 267]", u32("embedding_length", 64)},
          {"D10", "llama.attention.head_count", "head_count", u32("attention.head_count", 0)},
          {"D11", "llama.attention.head_count", "head_count", u32("attention.head_count", 5)},
          {"D12", "llama.attention.head_count", "head_count", u32("attention.head_count", 64)},
          {"D13", "llama.attention.head_count_kv", "head_count_kv", u32("attention.head_count_kv", 0)},
          {"D14", "llama.attention.head_count_kv", "head_count_kv", u32("attention.head_count_kv", 3)},
          {"D15", "llama.attention.head_count_kv", "head_count_kv", u32("attention.head_count_kv", 8)},
          {"D16", "llama.attention.head_count_kv", "head_count_kv", array("attention.head_count_kv", {2, 2, 2})},
          {"D17", "llama.attention.head_count_kv", "head_count_kv", array("attention.head_count_kv", {0})},
          {"D18", "llama.attention.key_length", "key_length", u32("attention.key_length", 0)},
          {"D19", "llama.attention.key_length", "key_length", u32("attention.key_length", 1u << 31)},
          {"value_length 0", "llama.attention.value_length", "0", u32("attention.value_length", 0)},
          {"D20", "llama.rope.dimension_count", "odd", u32("rope.dimension_count", 7)},
          {"D21", "llama.rope.dimension_count", "dimension_count", u32("rope.dimension_count", 4096)},
          {"D22", "llama.attention.layer_norm_rms_epsilon", "nan", f32("attention.layer_norm_rms_epsilon", kNan)},
          {"D23", "llama.attention.layer_norm_rms_epsilon", "-1", f32("attention.layer_norm_rms_epsilon", -1)},
          {"epsilon 0", "llama.attention.layer_norm_rms_epsilon", "above 0",
           f32("attention.layer_norm_rms_epsilon", 0)},
          {"D24", "llama.attention.layer_norm_rms_epsilon", "missing", erase("llama.attention.layer_norm_rms_epsilon")},
          {"D25", "llama.rope.freq_base", "freq_base", f32("rope.freq_base", 0)},
          {"D26", "llama.rope.freq_base", "freq_base", f32("rope.freq_base", kNan)},
          {"D27", "llama.rope.freq_base", "freq_base", f32("rope.freq_base", -1)},
          {"base inf", "llama.rope.freq_base", "inf", f32("rope.freq_base", kInf)},
          {"D28", "llama.rope.scaling.type", "zzz", set("llama.rope.scaling.type", "zzz")},
          {"longrope", "llama.rope.scaling.type", "not supported", set("llama.rope.scaling.type", "longrope")},
          {"D30", "llama.context_length", "context_length", u32("context_length", 0)},
          {"no context", "llama.context_length", "missing", erase("llama.context_length")},
          {"D32", "blk.0.ffn_gate.weight", "needs [32, 128]", u32("feed_forward_length", 128)},
          {"feed_forward_length 0", "llama.feed_forward_length", "0", u32("feed_forward_length", 0)},
          {"no feed_forward_length", "llama.feed_forward_length", "missing", erase("llama.feed_forward_length")},
          {"D44", "llama.attention.head_count", "missing", erase("llama.attention.head_count")},
      },
      {});
}

TEST_CASE("scaling of rotary positions that makes no sense") {
  const auto yarn = [](const std::function<void(TinyFile&)>& more) {
    return [more](TinyFile& f) {
      f.set("llama.rope.scaling.type", "yarn");
      f.set("llama.rope.scaling.factor", 4.0f);
      more(f);
    };
  };
  run(
      {
          {"D29", "llama.rope.scaling.factor", "rope.scaling", yarn(f32("rope.scaling.factor", kNan))},
          {"negative", "llama.rope.scaling.factor", "-2", yarn(f32("rope.scaling.factor", -2))},
          {"shrinking", "llama.rope.scaling.factor", "below 1", yarn(f32("rope.scaling.factor", 0.5f))},
          {"linear", "llama.rope.scaling.factor", "inf", f32("rope.scaling.factor", kInf)},
          {"old key", "llama.rope.scale_linear", "-1", f32("rope.scale_linear", -1)},
          {"betas", "llama.rope.scaling.yarn_beta_fast", "is below", yarn(f32("rope.scaling.yarn_beta_fast", 0.5f))},
          {"extrapolation", "llama.rope.scaling.yarn_ext_factor", "nan",
           yarn(f32("rope.scaling.yarn_ext_factor", kNan))},
          {"unmixed factor", "llama.rope.scaling.yarn_attn_factor", "2", yarn(f32("rope.scaling.yarn_attn_factor", 2))},
          {"attention factor", "llama.rope.scaling.attn_factor", "-2", f32("rope.scaling.attn_factor", -2)},
      },
      {});
}

TEST_CASE("layers that differ are refused, equal ones in an array are read") {
  run(
      {
          {"heads", "llama.attention.head_count_kv", "layer 1", array("attention.head_count_kv", {2, 1})},
          {"width", "llama.feed_forward_length", "layer 1", array("feed_forward_length", {64, 32})},
      },
      {.layers = 2});
  const TempDir folder;
  TinyFile f = tiny_model({.layers = 2});
  array("attention.head_count", {4, 4})(f);
  array("attention.head_count_kv", {2, 2})(f);
  array("feed_forward_length", {64, 64})(f);
  CHECK(open_tiny(folder, f).spec.dims.kv_heads == 2);
}

TEST_CASE("block_count of 64 bits") {  // D06: the format's specification says u64, most writers put u32
  const TempDir folder;
  TinyFile f = tiny_model();
  f.set("llama.block_count", std::uint64_t{1});
  CHECK(open_tiny(folder, f).spec.dims.n_layers == 1);
}

TEST_CASE("experts that make no sense") {
  const auto drop = [](std::string tensor) { return [tensor](TinyFile& f) { f.erase_tensor(tensor); }; };
  run(
      {
          {"D33", "llama.expert_used_count", "expert_used_count", u32("expert_used_count", 0)},
          {"D34", "llama.expert_used_count", "1 to 4", u32("expert_used_count", 5)},
          {"none used", "llama.expert_used_count", "missing", erase("llama.expert_used_count")},
          {"D35", "llama.expert_count", "expert_count", u32("expert_count", 1u << 31)},
          {"D36", "blk.0.ffn_gate_exps.weight", "[32, 64, 4], needs [32, 64, 8]", u32("expert_count", 8)},
          {"D37", "blk.0.ffn_gate_inp.weight", "missing", drop("blk.0.ffn_gate_inp.weight")},
          {"no stack", "blk.0.ffn_down_exps.weight", "missing", drop("blk.0.ffn_down_exps.weight")},
          {"width", "blk.0.ffn_gate_exps.weight", "needs [32, 48, 4]", u32("expert_feed_forward_length", 48)},
          {"sigmoid", "llama.expert_gating_func", "2", u32("expert_gating_func", 2)},
          {"scale", "llama.expert_weights_scale", "nan", f32("expert_weights_scale", kNan)},
          {"shared", "llama.expert_shared_count", "not supported", u32("expert_shared_count", 1)},
          {"groups", "llama.expert_group_count", "not supported", u32("expert_group_count", 8)},
          {"used without experts", "llama.expert_used_count", "without experts",
           [](TinyFile& f) { f.set("llama.expert_count", std::uint32_t{0}); }},
          {"single tensors", "blk.0.ffn_gate_exps.weight", "convert the model again",
           [](TinyFile& f) {
             for (int e = 0; e < 4; ++e)
               f.add_tensor({"blk.0.ffn_gate." + std::to_string(e) + ".weight", {DType::F32, {32, 64}}});
             f.erase_tensor("blk.0.ffn_gate_exps.weight");
           }},
      },
      {.experts = 4});
}

TEST_CASE("families with and without experts") {
  run({{"absent", "qwen3moe.expert_count", "missing", erase("qwen3moe.expert_count")},
       {"zero", "qwen3moe.expert_count", "outside", set("qwen3moe.expert_count", std::uint32_t{0})},
       {"width", "qwen3moe.expert_feed_forward_length", "missing", erase("qwen3moe.expert_feed_forward_length")}},
      {.arch = "qwen3moe"});
  run({{"absent", "olmoe.expert_count", "missing", erase("olmoe.expert_count")}}, {.arch = "olmoe"});
  run({{"some", "qwen3.expert_count", "without experts", set("qwen3.expert_count", std::uint32_t{8})}},
      {.arch = "qwen3"});
  run({{"some", "qwen2.expert_count", "without experts", set("qwen2.expert_count", std::uint32_t{8})}},
      {.arch = "qwen2"});
}

TEST_CASE("features that no family here follows are refused unless their values change nothing") {
  run(
      {
          {"scale", "llama.logit_scale", "16", f32("logit_scale", 16)},
          {"embedding", "llama.embedding_scale", "12", f32("embedding_scale", 12)},
          {"causal", "llama.attention.causal", "not supported", set("llama.attention.causal", false)},
          {"soft cap", "llama.final_logit_softcapping", "30", f32("final_logit_softcapping", 30)},
          {"alibi", "llama.attention.max_alibi_bias", "8", f32("attention.max_alibi_bias", 8)},
          {"pattern", "llama.attention.sliding_window_pattern", "not supported",
           array("attention.sliding_window_pattern", {1})},
          {"prediction layers", "llama.nextn_predict_layers", "1", u32("nextn_predict_layers", 1)},
      },
      {});
  run({{"multiplier", "qwen3.rope.scaling.yarn_log_multiplier", "not supported",
        set("qwen3.rope.scaling.yarn_log_multiplier", 0.1f)}},
      {.arch = "qwen3", .rope = TinyRope::Yarn});
  run({{"window", "qwen3.attention.sliding_window", "window",
        set("qwen3.attention.sliding_window", std::uint32_t{32})}},
      {.arch = "qwen3"});
  run({{"no positions", "granite.rope.scaling.finetuned", "not supported",
        set("granite.rope.scaling.finetuned", false)},
       {"logits", "granite.logit_scale", "-8", set("granite.logit_scale", -8.0f)},
       {"experts", "granite.expert_count", "without experts", set("granite.expert_count", std::uint32_t{8})},
       {"window", "granite.attention.sliding_window", "window",
        set("granite.attention.sliding_window", std::uint32_t{32})}},
      {.arch = "granite"});
  run({{"shared", "blk.0.ffn_gate_shexp.weight", "[32, 128], needs [32, 96]",
        set("granitemoe.expert_shared_feed_forward_length", std::uint32_t{96})}},
      {.arch = "granitemoe"});
  run({{"temperature", "mistral3.attention.temperature_scale", "-0.1",
        set("mistral3.attention.temperature_scale", -0.1f)},
       {"multiplier", "mistral3.rope.scaling.yarn_log_multiplier", "-1",
        set("mistral3.rope.scaling.yarn_log_multiplier", -1.0f)}},
      {.arch = "mistral3", .rope = TinyRope::Yarn});
  run({{"experts", "llama4.expert_count", "missing", erase("llama4.expert_count")},
       {"several", "llama4.expert_used_count", "only 1", set("llama4.expert_used_count", std::uint32_t{2})},
       {"step", "llama4.interleave_moe_layer_step", "missing", erase("llama4.interleave_moe_layer_step")},
       {"all", "llama4.attention.sliding_window", "not supported",
        set("llama4.attention.sliding_window", std::uint32_t{0})}},
      {.arch = "llama4"});
  run({{"streams", "gemma3n.altup.num_inputs", "not supported", set("gemma3n.altup.num_inputs", std::uint32_t{2})},
       {"active", "gemma3n.altup.active_idx", "not supported", set("gemma3n.altup.active_idx", std::uint32_t{1})},
       {"no window", "gemma3n.attention.sliding_window", "missing", erase("gemma3n.attention.sliding_window")},
       {"part", "gemma3n.embedding_length_per_layer_input", "missing",
        erase("gemma3n.embedding_length_per_layer_input")},
       {"sparsity", "gemma3n.activation_sparsity_scale", "one for each of 1",
        [](TinyFile& f) {
          f.set_array("gemma3n.activation_sparsity_scale", std::vector<float>{1, 1});
        }}},
      {.arch = "gemma3n"});
  run({{"experts", "afmoe.expert_count", "missing", erase("afmoe.expert_count")},
       {"embedding", "afmoe.embedding_scale", "not supported", set("afmoe.embedding_scale", 2.0f)}},
      {.arch = "afmoe"});
  run({{"base", "olmo2.rope.freq_base_swa", "5000", set("olmo2.rope.freq_base_swa", 5000.0f)},
       {"pattern", "olmo2.attention.sliding_window_pattern", "3 elements",
        [](TinyFile& f) {
          f.set_array("olmo2.attention.sliding_window_pattern", std::vector<std::uint32_t>{1, 1, 0});
        }},
       {"period", "olmo2.attention.sliding_window_pattern", "0",
        set("olmo2.attention.sliding_window_pattern", std::uint32_t{0})}},
      {.arch = "olmo2", .layers = 2, .window = 16});
  const auto flags = [](std::vector<std::uint32_t> values) {
    return [values](TinyFile& f) { f.set_array("gemma4.attention.sliding_window_pattern", values); };
  };
  run({{"no pattern", "gemma4.attention.sliding_window_pattern", "array",
        erase("gemma4.attention.sliding_window_pattern")},
       {"no window", "gemma4.attention.sliding_window", "missing", erase("gemma4.attention.sliding_window")},
       {"values", "gemma4.attention.value_length", "key_length",
        set("gemma4.attention.value_length", std::uint32_t{8})},
       {"local values", "gemma4.attention.value_length_swa", "key_length_swa",
        set("gemma4.attention.value_length_swa", std::uint32_t{16})},
       {"turned", "gemma4.rope.dimension_count_swa", "odd", set("gemma4.rope.dimension_count_swa", std::uint32_t{7})},
       {"all shared", "gemma4.attention.shared_kv_layers", "0 to 3",
        set("gemma4.attention.shared_kv_layers", std::uint32_t{4})},
       {"nothing to share", "gemma4.attention.shared_kv_layers", "layer 3", flags({1, 1, 1, 0})},
       {"heads", "gemma4.attention.head_count_kv", "does not divide",
        set("gemma4.attention.head_count_kv", std::uint32_t{3})},
       {"widths", "gemma4.feed_forward_length", "3",
        [](TinyFile& f) {
          f.set_array("gemma4.feed_forward_length", std::vector<std::uint32_t>{64, 64, 64});
        }},
       {"cap", "gemma4.final_logit_softcapping", "-1", set("gemma4.final_logit_softcapping", -1.0f)}},
      {.arch = "gemma4", .layers = 4});
  run({{"cap", "gemma2.attn_logit_softcapping", "nan", set("gemma2.attn_logit_softcapping", kNan)}},
      {.arch = "gemma2"});
  run({{"no window", "cohere2.attention.sliding_window", "missing", erase("cohere2.attention.sliding_window")},
       {"epsilon", "cohere2.attention.layer_norm_epsilon", "missing", erase("cohere2.attention.layer_norm_epsilon")},
       {"scale", "cohere2.logit_scale", "missing", erase("cohere2.logit_scale")}},
      {.arch = "cohere2"});
  run({{"window", "command-r.attention.sliding_window", "window",
        set("command-r.attention.sliding_window", std::uint32_t{32})},
       {"scale", "command-r.logit_scale", "-1", set("command-r.logit_scale", -1.0f)}},
      {.arch = "command-r"});
  run({{"parallel", "nemotron.use_parallel_residual", "1", set("nemotron.use_parallel_residual", true)}},
      {.arch = "nemotron"});
  run({{"shared caches", "qwen3.attention.shared_kv_layers", "2",
        set("qwen3.attention.shared_kv_layers", std::uint32_t{2})},
       {"second embeddings", "qwen3.embedding_length_per_layer_input", "64",
        set("qwen3.embedding_length_per_layer_input", std::uint32_t{64})}},
      {.arch = "qwen3"});
  run({{"heads", "mamba2.attention.head_count", "4", set("mamba2.attention.head_count", std::uint32_t{4})},
       {"groups", "mamba2.ssm.group_count", "missing", erase("mamba2.ssm.group_count")}},
      {.arch = "mamba2"});
  run({{"latents", "minicpm3.attention.key_length_mla", "not supported",
        set("minicpm3.attention.key_length_mla", std::uint32_t{40})}},
      {.arch = "minicpm3"});
  run({{"alpha", "hunyuan-dense.rope.scaling.alpha", "1000", set("hunyuan-dense.rope.scaling.alpha", 1000.0f)}},
      {.arch = "hunyuan-dense"});
  run({{"gating", "glm4moe.expert_gating_func", "3 is not supported",
        set("glm4moe.expert_gating_func", std::uint32_t{3})},
       {"prediction layers", "glm4moe.nextn_predict_layers", "outside of 0 to 1",
        set("glm4moe.nextn_predict_layers", std::uint32_t{2})},
       {"groups", "glm4moe.expert_group_count", "not supported", set("glm4moe.expert_group_count", std::uint32_t{2})},
       {"shared", "blk.1.ffn_gate_shexp.weight", "[32, 64], needs [32, 128]",
        set("glm4moe.expert_shared_count", std::uint32_t{2})},
       {"dense", "blk.0.ffn_gate_exps.weight", "missing", set("glm4moe.leading_dense_block_count", std::uint32_t{0})},
       {"bias", "blk.1.exp_probs_b.bias", "[5], needs [4]",
        [](TinyFile& f) { f.resize("blk.1.exp_probs_b.bias", {5}); }}},
      {.arch = "glm4moe", .layers = 2});
  run({{"heads", "deepseek2.attention.head_count_kv", "needs 1",
        set("deepseek2.attention.head_count_kv", std::uint32_t{4})},
       {"keys", "deepseek2.attention.key_length", "needs 40", set("deepseek2.attention.key_length", std::uint32_t{48})},
       {"values", "deepseek2.attention.value_length", "needs 32",
        set("deepseek2.attention.value_length", std::uint32_t{16})},
       {"no value", "deepseek2.attention.value_length_mla", "missing", erase("deepseek2.attention.value_length_mla")},
       {"no latents", "deepseek2.attention.kv_lora_rank", "missing", erase("deepseek2.attention.kv_lora_rank")},
       {"rotated", "deepseek2.rope.dimension_count", "leaves nothing",
        set("deepseek2.attention.key_length_mla", std::uint32_t{8})},
       {"scale", "deepseek2.attention.scale", "0.5", set("deepseek2.attention.scale", 0.5f)},
       {"multiplier", "deepseek2.rope.scaling.yarn_log_multiplier", "yarn alone",
        set("deepseek2.rope.scaling.yarn_log_multiplier", 0.1f)},
       {"temperature", "deepseek2.attention.temperature_scale", "nan",
        set("deepseek2.attention.temperature_scale", std::numeric_limits<float>::quiet_NaN())},
       {"product", "blk.0.attn_k_b.weight", "[32, 32, 3], needs [32, 32, 4]",
        [](TinyFile& f) {
          f.resize("blk.0.attn_k_b.weight", {32, 32, 3});
        }}},
      {.arch = "deepseek2"});
  run({{"heads", "deepseek2.attention.head_count_kv", "needs 4",
        set("deepseek2.attention.head_count_kv", std::uint32_t{2})}},
      {.arch = "deepseek2", .tied = true});
  run({{"no heads", "deepseek32.attention.indexer.head_count", "missing",
        erase("deepseek32.attention.indexer.head_count")},
       {"no keys", "deepseek32.attention.indexer.key_length", "missing",
        erase("deepseek32.attention.indexer.key_length")},
       {"short keys", "deepseek32.attention.indexer.key_length", "7",
        set("deepseek32.attention.indexer.key_length", std::uint32_t{7})},
       {"nothing selected", "deepseek32.attention.indexer.top_k", "0",
        set("deepseek32.attention.indexer.top_k", std::uint32_t{0})},
       {"no selection", "deepseek32.attention.indexer.top_k", "missing", erase("deepseek32.attention.indexer.top_k")},
       {"pooled", "deepseek32.attention.indexer.kpool", "4 changes what the model computes",
        set("deepseek32.attention.indexer.kpool", std::uint32_t{4})},
       {"of heads", "deepseek32.attention.key_length_mla", "missing", erase("deepseek32.attention.key_length_mla")},
       {"queries of the input", "deepseek32.attention.q_lora_rank", "missing",
        erase("deepseek32.attention.q_lora_rank")},
       {"no experts", "deepseek32.expert_count", "missing", erase("deepseek32.expert_count")},
       {"index", "blk.0.indexer.attn_k.weight", "missing",
        [](TinyFile& f) { f.erase_tensor("blk.0.indexer.attn_k.weight"); }},
       {"norm", "blk.0.indexer.k_norm.weight", "[31], needs [32]",
        [](TinyFile& f) { f.resize("blk.0.indexer.k_norm.weight", {31}); }}},
      {.arch = "deepseek32"});
  const auto list = [](const std::string& key, std::vector<std::uint32_t> values) {
    return [key, values](TinyFile& f) { f.set_array("qwen4exp." + key, values); };
  };
  run({{"no streams", "qwen4exp.hyper_connection.count", "1", set("qwen4exp.hyper_connection.count", std::uint32_t{1})},
       {"full rank", "qwen4exp.hyper_connection.low_rank", "missing", erase("qwen4exp.hyper_connection.low_rank")},
       {"blocks", "qwen4exp.attention.compress_ratios", "3 does not divide 64",
        list("attention.compress_ratios", {0, 3})},
       {"part of a block", "qwen4exp.attention.indexer.top_k", "6 is no multiple",
        set("qwen4exp.attention.indexer.top_k", std::uint32_t{6})},
       {"two layers", "qwen4exp.ple.layers", "needs one of 2 layers", list("ple.layers", {0, 1})},
       {"no such layer", "qwen4exp.ple.layers", "needs one of 2 layers", list("ple.layers", {2})},
       {"few multipliers", "qwen4exp.ple.layer_multipliers", "has 2 elements, at least 3",
        list("ple.layer_multipliers", {5, 7})},
       {"no rows", "qwen4exp.ple.head_vocab_sizes", "value 0", list("ple.head_vocab_sizes", {17, 0, 17, 17})},
       {"no table", "qwen4exp.ple.head_offsets", "missing", erase("qwen4exp.ple.head_offsets")},
       {"width", "qwen4exp.embedding_length_per_layer_input", "embeddings of 16",
        set("qwen4exp.embedding_length_per_layer_input", std::uint32_t{4})},
       {"stop", "qwen4exp.ple.eos_token_id", "267", set("qwen4exp.ple.eos_token_id", std::uint32_t{267})},
       {"rows", "per_layer_token_embd.weight", "[8, 60], needs [8, 68]",
        [](TinyFile& f) {
          f.resize("per_layer_token_embd.weight", {8, 60});
        }},
       {"norm", "blk.1.hc_ffn_norm.weight", "[95], needs [32, 3]",
        [](TinyFile& f) { f.resize("blk.1.hc_ffn_norm.weight", {95}); }}},
      {.arch = "qwen4exp", .layers = 2});
  const auto ratios = [](std::vector<std::uint32_t> values) {
    return [values](TinyFile& f) { f.set_array("deepseek4.attention.compress_ratios", values); };
  };
  run({{"ratio", "deepseek4.attention.compress_ratios", "8 is not supported, only 0, 4 and 128", ratios({4, 8})},
       {"few ratios", "deepseek4.attention.compress_ratios", "has 1 elements, at least 2", ratios({4})},
       {"two heads", "deepseek4.attention.head_count_kv", "2 is not 1",
        set("deepseek4.attention.head_count_kv", std::uint32_t{2})},
       {"values", "deepseek4.attention.value_length", "keys are their own values",
        set("deepseek4.attention.value_length", std::uint32_t{16})},
       {"all turned", "deepseek4.rope.dimension_count", "leaves nothing",
        set("deepseek4.rope.dimension_count", std::uint32_t{32})},
       {"no window", "deepseek4.attention.sliding_window", "missing", erase("deepseek4.attention.sliding_window")},
       {"scale", "deepseek4.attention.scale", "0.5", set("deepseek4.attention.scale", 0.5f)},
       {"groups", "deepseek4.attention.output_group_count", "3 does not share out head_count 4",
        set("deepseek4.attention.output_group_count", std::uint32_t{3})},
       {"gates", "deepseek4.expert_gating_func", "2 is not supported, only 4",
        set("deepseek4.expert_gating_func", std::uint32_t{2})},
       {"streams", "deepseek4.hyper_connection.count", "17",
        set("deepseek4.hyper_connection.count", std::uint32_t{17})},
       {"low rank", "deepseek4.hyper_connection.low_rank", "8 changes what the model computes",
        set("deepseek4.hyper_connection.low_rank", std::uint32_t{8})},
       {"unbalanced", "deepseek4.hyper_connection.sinkhorn_iterations", "0",
        set("deepseek4.hyper_connection.sinkhorn_iterations", std::uint32_t{0})},
       {"base", "deepseek4.attention.compress_rope_freq_base", "missing",
        erase("deepseek4.attention.compress_rope_freq_base")},
       {"hashed", "deepseek4.hash_layer_count", "3", set("deepseek4.hash_layer_count", std::uint32_t{3})},
       {"limit", "deepseek4.swiglu_clamp_exp", "-1",
        [](TinyFile& f) {
          f.set_array("deepseek4.swiglu_clamp_exp", std::vector<float>{1, -1});
        }},
       {"table", "blk.0.ffn_gate_tid2eid.weight", "has type F32, needs I32",
        [](TinyFile& f) { f.retype("blk.0.ffn_gate_tid2eid.weight", DType::F32); }},
       {"output", "blk.0.attn_output_a.weight", "[64, 63], needs [64, 64]",
        [](TinyFile& f) {
          f.resize("blk.0.attn_output_a.weight", {64, 63});
        }}},
      {.arch = "deepseek4", .layers = 2});
  const auto types = [](std::vector<std::uint32_t> flags) {
    return [flags](TinyFile& f) { f.set_array("glm-dsa.attention.indexer.types", flags); };
  };
  run({{"first", "glm-dsa.attention.indexer.types", "layer 0", types({0, 1})},
       {"too many", "glm-dsa.attention.indexer.types", "3 elements for 2 layers", types({1, 0, 0})},
       {"own", "blk.1.indexer.attn_q_b.weight", "missing", types({1, 1})}},
      {.arch = "glm-dsa", .layers = 2});
  run({{"foreign", "deepseek2.attention.indexer.top_k", "not supported for deepseek2",
        set("deepseek2.attention.indexer.top_k", std::uint32_t{2048})}},
      {.arch = "deepseek2"});
  run({{"groups", "bailingmoe2.expert_group_count", "share out 4 experts",
        set("bailingmoe2.expert_group_count", std::uint32_t{3})},
       {"single ones", "bailingmoe2.expert_group_count", "of at least 2",
        set("bailingmoe2.expert_group_count", std::uint32_t{4})},
       {"too few", "bailingmoe2.expert_group_used_count", "do not hold expert_used_count, 3",
        set("bailingmoe2.expert_used_count", std::uint32_t{3})},
       {"none used", "bailingmoe2.expert_group_used_count", "missing", erase("bailingmoe2.expert_group_used_count")}},
      {.arch = "bailingmoe2"});
  run({{"shared", "qwen3vlmoe.expert_shared_count", "1", set("qwen3vlmoe.expert_shared_count", std::uint32_t{1})}},
      {.arch = "qwen3vlmoe"});
  const TempDir folder;
  TinyFile f = tiny_model();
  f32("logit_scale", 0)(f);
  f32("residual_scale", 1)(f);
  u32("expert_group_count", 0)(f);
  u32("nextn_predict_layers", 0)(f);
  f.set("llama.attention.causal", true);
  CHECK(open_tiny(folder, f).graph.hash() == open_tiny(folder, tiny_model()).graph.hash());
}

TEST_CASE("keys of single families that make no sense, or say what is not followed") {
  run({{"function", "bitnet.hidden_activation", "\"gelu\" is not supported", set("bitnet.hidden_activation", "gelu")}},
      {.arch = "bitnet"});
  run({{"window", "arctic.attention.sliding_window", "window",
        set("arctic.attention.sliding_window", std::uint32_t{8})},
       {"no experts", "arctic.expert_count", "outside of 1", set("arctic.expert_count", std::uint32_t{0})}},
      {.arch = "arctic"});
  run({{"alpha", "hunyuan_vl.rope.scaling.alpha", "-1", set("hunyuan_vl.rope.scaling.alpha", -1.0f)}},
      {.arch = "hunyuan_vl"});
  run({{"odd width", "qwen.feed_forward_length", "127 is odd", set("qwen.feed_forward_length", std::uint32_t{127})}},
      {.arch = "qwen"});
  run({{"scale", "muse-glimmer.logit_scale", "missing", erase("muse-glimmer.logit_scale")},
       {"cap", "muse-glimmer.final_logit_softcapping", "-1", set("muse-glimmer.final_logit_softcapping", -1.0f)}},
      {.arch = "muse-glimmer"});
  run({{"no window", "granite_swa.attention.sliding_window", "missing", erase("granite_swa.attention.sliding_window")},
       {"no flags", "granite_swa.attention.sliding_window_pattern", "a flag for each layer",
        erase("granite_swa.attention.sliding_window_pattern")},
       {"turning", "granite_swa.attention.rope_pattern", "has 1 elements for 2 layers",
        [](TinyFile& f) { f.set_array("granite_swa.attention.rope_pattern", std::vector<std::uint32_t>{1}); }},
       {"no sinks", "blk.0.attn_sinks.weight", "missing",
        [](TinyFile& f) { f.erase_tensor("blk.0.attn_sinks.weight"); }}},
      {.arch = "granite_swa", .layers = 2});
  run({{"gating", "laguna.expert_gating_func", "3 is not supported",
        set("laguna.expert_gating_func", std::uint32_t{3})},
       {"rotated", "laguna.rope.dimension_count_swa", "7 is odd",
        set("laguna.rope.dimension_count_swa", std::uint32_t{7})},
       {"heads", "laguna.attention.key_length_swa", "16", set("laguna.attention.key_length_swa", std::uint32_t{16})},
       {"gates", "blk.0.attn_gate.weight", "needs [32, 4]",
        [](TinyFile& f) {
          f.resize("blk.0.attn_gate.weight", {32, 5});
        }}},
      {.arch = "laguna", .layers = 2});
  run({{"no flags", "spark2_5.attention.sliding_window_pattern", "a flag for each layer",
        erase("spark2_5.attention.sliding_window_pattern")},
       {"experts", "spark2_5.expert_count", "without experts", set("spark2_5.expert_count", std::uint32_t{4})}},
      {.arch = "spark2_5", .layers = 2});
  run({{"latents", "plm.attention.key_length_mla", "not supported",
        set("plm.attention.key_length_mla", std::uint32_t{40})}},
      {.arch = "plm"});
  run({{"heads", "mamba.attention.head_count", "4", set("mamba.attention.head_count", std::uint32_t{4})},
       {"rank", "mamba.ssm.time_step_rank", "missing", erase("mamba.ssm.time_step_rank")}},
      {.arch = "mamba"});
  run({{"groups", "grovemoe.experts_per_group", "missing", erase("grovemoe.experts_per_group")},
       {"scale", "grovemoe.expert_group_scale", "missing", erase("grovemoe.expert_group_scale")}},
      {.arch = "grovemoe"});
  run({{"no blocks", "kimi-k3.attn_res.block_size", "missing", erase("kimi-k3.attn_res.block_size")},
       {"flat", "kimi-k3.activation.situ_beta", "0", set("kimi-k3.activation.situ_beta", 0.0f)}},
      {.arch = "kimi-k3", .layers = 2});
  run({{"turned", "glm5-next.rope.dimension_count", "8 changes what the model computes",
        set("glm5-next.rope.dimension_count", std::uint32_t{8})},
       {"single keys", "glm5-next.attention.indexer.kpool", "1",
        set("glm5-next.attention.indexer.kpool", std::uint32_t{1})},
       {"parts of groups", "glm5-next.attention.indexer.top_k", "10 is no multiple of",
        set("glm5-next.attention.indexer.top_k", std::uint32_t{10})},
       {"no tail", "glm5-next.attention.indexer.kpool_select_tail", "0 changes what the model computes",
        set("glm5-next.attention.indexer.kpool_select_tail", false)}},
      {.arch = "glm5-next", .layers = 2});
  run({{"no window", "maple.attention.sliding_window", "missing", erase("maple.attention.sliding_window")},
       {"limit", "maple.swiglu_clamp_exp", "-1", set("maple.swiglu_clamp_exp", -1.0f)}},
      {.arch = "maple", .layers = 2});
  run({{"no floor", "bailingmoe3.kda.gate_lower_bound", "missing", erase("bailingmoe3.kda.gate_lower_bound")}},
      {.arch = "bailingmoe3", .layers = 2});
  run({{"no blocks", "minimax-m3.attention.indexer.block_size", "missing",
        erase("minimax-m3.attention.indexer.block_size")},
       {"no selection", "minimax-m3.attention.indexer.top_k", "0",
        set("minimax-m3.attention.indexer.top_k", std::uint32_t{0})}},
      {.arch = "minimax-m3", .layers = 2});
  run({{"no window", "dots3note.attention.sliding_window", "missing", erase("dots3note.attention.sliding_window")},
       {"no latents", "dots3note.attention.kv_lora_rank_swa", "missing",
        erase("dots3note.attention.kv_lora_rank_swa")}},
      {.arch = "dots3note", .layers = 2});
  run({{"experts", "plamo2.expert_count", "without experts", set("plamo2.expert_count", std::uint32_t{4})},
       {"window", "plamo2.attention.sliding_window", "window",
        set("plamo2.attention.sliding_window", std::uint32_t{8})}},
      {.arch = "plamo2", .layers = 2});
  run({{"groups", "hy_v3.expert_group_count", "not supported", set("hy_v3.expert_group_count", std::uint32_t{2})}},
      {.arch = "hy_v3", .layers = 2});
}

TEST_CASE("tensors that do not fit") {
  const auto resize = [](std::string tensor, Shape shape) {
    return [tensor, shape](TinyFile& f) { f.resize(tensor, shape); };
  };
  const auto retype = [](std::string tensor, DType type) {
    return [tensor, type](TinyFile& f) { f.retype(tensor, type); };
  };
  const auto drop = [](std::string tensor) { return [tensor](TinyFile& f) { f.erase_tensor(tensor); }; };
  run(
      {
          {"D38", "output_norm.weight", "missing", drop("output_norm.weight")},
          {"D40", "blk.0.attn_norm.weight", "Q4_0, needs F32", retype("blk.0.attn_norm.weight", DType::Q4_0)},
          {"half norm", "output_norm.weight", "F16, needs F32", retype("output_norm.weight", DType::F16)},
          {"D41", "token_embd.weight", "[32, 100], needs [32, 267]", resize("token_embd.weight", {32, 100})},
          {"D42", "token_embd.weight", "[32, 320], needs [32, 267]",
           [](TinyFile& f) {
             f.resize("token_embd.weight", {32, 320});
             f.resize("output.weight", {32, 320});
           }},
          {"head", "output.weight", "needs [32, 267]", resize("output.weight", {32, 320})},
          {"D43", "blk.0.attn_q.weight", "[16, 64], needs [32, 32]", resize("blk.0.attn_q.weight", {16, 64})},
          {"transposed", "blk.0.ffn_down.weight", "needs [64, 32]", resize("blk.0.ffn_down.weight", {32, 64})},
          {"three dimensions", "blk.0.ffn_up.weight", "needs [32, 64]", resize("blk.0.ffn_up.weight", {32, 64, 2})},
          {"norm", "blk.0.ffn_norm.weight", "[64], needs [32]", resize("blk.0.ffn_norm.weight", {64})},
          {"sums", "blk.0.attn_k.weight", "Q8_1", retype("blk.0.attn_k.weight", DType::Q8_1)},
          {"integers", "token_embd.weight", "I8", retype("token_embd.weight", DType::I8)},
          {"no layer tensor", "blk.0.attn_v.weight", "missing", drop("blk.0.attn_v.weight")},
          {"bias", "blk.0.attn_q.bias", "[16], needs [32]",
           [](TinyFile& f) {
             f.add_tensor({"blk.0.attn_q.bias", {DType::F32, {16}}});
           }},
          {"scale", "blk.0.attn_q.scale", "[2], needs [1]",
           [](TinyFile& f) {
             f.add_tensor({"blk.0.attn_q.scale", {DType::F32, {2}}});
           }},
          {"factors", "rope_freqs.weight", "[8], needs [4]",
           [](TinyFile& f) {
             f.add_tensor({"rope_freqs.weight", {DType::F32, {8}}, 1});
           }},
      },
      {});
}

TEST_CASE("families whose queries cannot be rows of one matrix with keys and values say so") {
  run({{"fused", "blk.0.attn_q.weight", "fused",
        [](TinyFile& f) {
          f.resize("blk.0.attn_q.weight", {32, 64});
          f.rename("blk.0.attn_q.weight", "blk.0.attn_qkv.weight");
        }}},
      {.arch = "olmoe"});
}

TEST_CASE("the vocabulary's size is needed") {
  run({{"none", "tokenizer.ggml.tokens", "missing", erase("tokenizer.ggml.tokens")},
       {"empty", "tokenizer.ggml.tokens", "strings",
        [](TinyFile& f) { f.set_array("tokenizer.ggml.tokens", std::vector<std::string>{}); }},
       {"not an array", "tokenizer.ggml.tokens", "strings", set("tokenizer.ggml.tokens", "a")}},
      {});
}

TEST_CASE("architectures that nobody knows") {
  run({{"B29", "general.architecture", "missing", erase("general.architecture")},
       {"B30", "general.architecture", "not supported", set("general.architecture", "")},
       {"B31", "general.architecture", "\"foo\" is not supported; known are afmoe, apertus, arcee, arctic",
        set("general.architecture", "foo")},
       {"escape", "general.architecture", "\\x1b", set("general.architecture", "\x1b[2J")},
       {"B32", "general.architecture", "string", set("general.architecture", std::uint32_t{1})}},
      {});
}
