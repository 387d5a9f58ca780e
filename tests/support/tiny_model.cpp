#include "support/tiny_model.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "tensor/dtype.h"
#include "tensor/quantize.h"

namespace llm::test {
namespace {

std::uint32_t u32(int value) { return static_cast<std::uint32_t>(value); }

/// splitmix64: the same numbers on every machine, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)

 private:
  std::uint64_t state_;
};

std::uint64_t hash(std::string_view text, std::uint64_t seed) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

void set_spm_tokenizer(TinyFile& f) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", b);
    tokens.emplace_back(text);
    types.push_back(6);
  }
  for (const char* piece : {"\u2581", "a", "b", "c", "ab", "abc", "\u2581a", "\u2581ab"}) {
    tokens.emplace_back(piece);
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size(), 0.0f);
  for (std::size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  f.set("tokenizer.ggml.model", "llama");
  f.set_array("tokenizer.ggml.tokens", tokens);
  f.set_array("tokenizer.ggml.scores", scores);
  f.set_array("tokenizer.ggml.token_type", types);
  f.set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  f.set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  f.set("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
}

std::string utf8(int codepoint) {  // below U+0800
  if (codepoint < 0x80) return {static_cast<char>(codepoint)};
  return {static_cast<char>(0xc0 | (codepoint >> 6)), static_cast<char>(0x80 | (codepoint & 0x3f))};
}

/// GPT-2's visible character of each byte: printable Latin-1 stands for itself, the others follow from U+0100 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> out;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    out.push_back(utf8(printable ? b : next++));
  }
  return out;
}

void set_bpe_tokenizer(TinyFile& f) {
  std::vector<std::string> tokens = byte_characters();
  for (const char* token : {"ab", "abc", "<|end|>"}) tokens.emplace_back(token);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types.back() = 3;
  f.set("tokenizer.ggml.model", "gpt2");
  f.set("tokenizer.ggml.pre", "gpt-2");
  f.set_array("tokenizer.ggml.tokens", tokens);
  f.set_array("tokenizer.ggml.token_type", types);
  f.set_array("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c"});
  f.set("tokenizer.ggml.eos_token_id", std::uint32_t{258});
}

enum class QkNorm { None, Heads, Whole };

/// What the files of a family have that llama's have not, and its norms of width n_embd.
struct Family {
  std::string_view arch;
  std::vector<std::string> norms = {"attn_norm", "ffn_norm"};
  QkNorm qk_norm = QkNorm::None;
  bool qkv_biases = false, always_experts = false;
  enum class Norms { Rms, Layer, BiasedLayer } kind = Norms::Rms;
  bool ungated = false, all_biases = false;
  bool expert_width = false;  ///< a key for it; else experts are feed_forward_length wide
  int shared = 0;             ///< the shared expert in widths of the others
  bool mixed = false;         ///< the first of several layers is dense, experts are chosen with a bias
  bool fused_qkv = false, fused_ffn = false;
  bool latent = false;  ///< attention of deepseek2
  bool delta = false;   ///< every second layer attends, the others go by the gated delta rule
  /// What else does not attend. From the last layer backwards, layers attend and mix in turns; or attend, mix and are
  /// feed-forward networks; or do the first two beside each other.
  enum class Mixer { None, Conv, Mamba, Mamba1, Kimi } mixer = Mixer::None;
  enum class Layers { InTurns, Single, BothInEach, MixersAlone } layers = Layers::InTurns;
  bool has_layer_norms() const { return kind != Norms::Rms; }
};

const Family& family(std::string_view arch) {
  static const std::vector<std::string> after = {"post_attention_norm", "post_ffw_norm"};
  static const std::vector<std::string> around = {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"};
  static const std::vector<Family> families = {
      {.arch = "afmoe",
       .norms = around,
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 1,
       .mixed = true},
      {.arch = "arcee", .ungated = true},
      {.arch = "cohere2", .norms = {"attn_norm"}, .kind = Family::Norms::Layer},
      {.arch = "command-r", .norms = {"attn_norm"}, .kind = Family::Norms::Layer},
      {.arch = "gemma2", .norms = around},
      {.arch = "gemma3", .norms = around, .qk_norm = QkNorm::Heads},
      {.arch = "gemma3n", .norms = around, .qk_norm = QkNorm::Heads},
      {.arch = "gemma4", .norms = around, .qk_norm = QkNorm::Heads, .expert_width = true},
      {.arch = "chatglm", .qkv_biases = true, .fused_qkv = true, .fused_ffn = true},
      {.arch = "gptneox", .kind = Family::Norms::BiasedLayer, .ungated = true, .all_biases = true, .fused_qkv = true},
      {.arch = "gpt2", .kind = Family::Norms::BiasedLayer, .ungated = true, .all_biases = true, .fused_qkv = true},
      {.arch = "starcoder", .kind = Family::Norms::BiasedLayer, .ungated = true, .all_biases = true, .fused_qkv = true},
      {.arch = "olmo", .norms = {}, .kind = Family::Norms::Layer},
      {.arch = "dbrx",
       .norms = {"attn_norm", "attn_output_norm"},
       .always_experts = true,
       .kind = Family::Norms::Layer,
       .fused_qkv = true},
      {.arch = "apertus", .qk_norm = QkNorm::Heads, .ungated = true},
      {.arch = "falcon",
       .norms = {"attn_norm", "attn_norm_2"},
       .kind = Family::Norms::BiasedLayer,
       .ungated = true,
       .fused_qkv = true},
      {.arch = "exaone-moe",
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 1,
       .mixed = true},
      {.arch = "bailingmoe", .always_experts = true, .expert_width = true, .shared = 2, .mixed = true},
      {.arch = "orion", .kind = Family::Norms::BiasedLayer},
      {.arch = "openelm", .qk_norm = QkNorm::Heads, .fused_qkv = true},
      {.arch = "bloom", .kind = Family::Norms::BiasedLayer, .ungated = true, .all_biases = true, .fused_qkv = true},
      {.arch = "jais", .kind = Family::Norms::BiasedLayer, .all_biases = true, .fused_qkv = true},
      {.arch = "mpt", .kind = Family::Norms::Layer, .ungated = true, .fused_qkv = true},
      {.arch = "glm4", .norms = around, .qkv_biases = true, .fused_ffn = true},
      {.arch = "nemotron", .kind = Family::Norms::BiasedLayer, .ungated = true},
      {.arch = "phi2", .norms = {"attn_norm"}, .kind = Family::Norms::BiasedLayer, .ungated = true, .all_biases = true},
      {.arch = "stablelm", .kind = Family::Norms::BiasedLayer},
      {.arch = "starcoder2", .kind = Family::Norms::BiasedLayer, .ungated = true, .all_biases = true},
      {.arch = "qwen2", .qkv_biases = true},
      {.arch = "qwen2vl", .qkv_biases = true},
      {.arch = "qwen3", .qk_norm = QkNorm::Heads},
      {.arch = "qwen3moe", .qk_norm = QkNorm::Heads, .always_experts = true, .expert_width = true},
      {.arch = "qwen3vl", .qk_norm = QkNorm::Heads},
      {.arch = "qwen3vlmoe", .qk_norm = QkNorm::Heads, .always_experts = true, .expert_width = true},
      {.arch = "olmoe", .qk_norm = QkNorm::Whole, .always_experts = true},
      {.arch = "olmo2", .norms = after, .qk_norm = QkNorm::Whole},
      {.arch = "granitemoe", .always_experts = true, .shared = 2},
      {.arch = "gpt-oss",
       .norms = {"attn_norm", "post_attention_norm"},
       .qkv_biases = true,
       .always_experts = true,
       .expert_width = true},
      {.arch = "bailingmoe2",
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 2,
       .mixed = true,
       .fused_qkv = true},
      {.arch = "deepseek2", .always_experts = true, .expert_width = true, .shared = 1, .mixed = true, .latent = true},
      {.arch = "mistral4", .always_experts = true, .expert_width = true, .shared = 1, .mixed = true, .latent = true},
      {.arch = "deepseek", .always_experts = true, .expert_width = true, .shared = 2, .mixed = true},
      {.arch = "dots1",
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 2,
       .mixed = true},
      {.arch = "ernie4_5-moe", .always_experts = true, .expert_width = true, .shared = 2, .mixed = true},
      {.arch = "glm4moe",
       .norms = {"attn_norm", "post_attention_norm"},
       .qk_norm = QkNorm::Heads,
       .qkv_biases = true,
       .always_experts = true,
       .expert_width = true,
       .shared = 1,
       .mixed = true},
      {.arch = "hunyuan-moe", .qk_norm = QkNorm::Heads, .always_experts = true, .shared = 1},
      {.arch = "llama4", .always_experts = true, .expert_width = true, .shared = 1},
      {.arch = "minimax-m2", .qk_norm = QkNorm::Whole, .always_experts = true},
      {.arch = "phi3", .fused_qkv = true, .fused_ffn = true},
      {.arch = "qwen2moe", .qkv_biases = true, .always_experts = true, .expert_width = true, .shared = 2},
      {.arch = "seed_oss", .norms = {"attn_norm", "post_attention_norm"}, .qkv_biases = true},
      {.arch = "hunyuan-dense", .qk_norm = QkNorm::Heads},
      {.arch = "exaone4", .norms = after, .qk_norm = QkNorm::Heads},
      {.arch = "lfm2", .qk_norm = QkNorm::Heads, .mixer = Family::Mixer::Conv},
      {.arch = "lfm2moe",
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .mixed = true,
       .mixer = Family::Mixer::Conv},
      {.arch = "granitehybrid", .shared = 2, .mixer = Family::Mixer::Mamba},
      {.arch = "falcon-h1",
       .norms = {"attn_norm"},
       .mixer = Family::Mixer::Mamba,
       .layers = Family::Layers::BothInEach},
      {.arch = "nemotron_h",
       .norms = {"attn_norm"},
       .ungated = true,
       .mixer = Family::Mixer::Mamba,
       .layers = Family::Layers::Single},
      {.arch = "nemotron_h_moe",
       .norms = {"attn_norm"},
       .always_experts = true,
       .ungated = true,
       .expert_width = true,
       .shared = 2,
       .mixer = Family::Mixer::Mamba,
       .layers = Family::Layers::Single},
      {.arch = "qwen35", .norms = {"attn_norm", "post_attention_norm"}, .qk_norm = QkNorm::Heads, .delta = true},
      {.arch = "qwen35moe",
       .norms = {"attn_norm", "post_attention_norm"},
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 2,
       .delta = true},
      {.arch = "qwen3next",
       .norms = {"attn_norm", "post_attention_norm"},
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 2,
       .delta = true},
      {.arch = "cohere2moe",
       .norms = {"attn_norm"},
       .always_experts = true,
       .kind = Family::Norms::Layer,
       .expert_width = true,
       .shared = 2,
       .mixed = true},
      {.arch = "grok",
       .norms = {"attn_norm", "attn_output_norm", "ffn_norm", "post_ffw_norm"},
       .always_experts = true,
       .expert_width = true},
      {.arch = "jamba", .mixer = Family::Mixer::Mamba1},
      {.arch = "kimi-linear",
       .always_experts = true,
       .expert_width = true,
       .shared = 1,
       .mixed = true,
       .latent = true,
       .mixer = Family::Mixer::Kimi},
      {.arch = "mamba2", .norms = {"attn_norm"}, .mixer = Family::Mixer::Mamba, .layers = Family::Layers::MixersAlone},
      {.arch = "mimo2", .always_experts = true, .expert_width = true, .mixed = true},
      {.arch = "minicpm3", .latent = true},
      {.arch = "phimoe", .always_experts = true, .kind = Family::Norms::BiasedLayer, .all_biases = true},
      {.arch = "smallthinker", .always_experts = true, .expert_width = true},
      {.arch = "step35",
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .expert_width = true,
       .shared = 1,
       .mixed = true},
  };
  static const Family plain = {};
  const auto at = std::ranges::find(families, arch, &Family::arch);
  return at == families.end() ? plain : *at;
}

/// Puts a model's metadata and tensors into a file.
class Builder {
 public:
  explicit Builder(const TinyOptions& o) : o_(o), family_(family(o.arch)) {
    experts_ = o.experts > 0 ? o.experts : family_.always_experts ? 4 : 0;
    vocab_ = o.tokenizer == TinyTokenizer::Spm ? 267 : 259;
    file_.seed = o.seed;
  }

  TinyFile build() {
    set_metadata();
    add_tensors();
    return std::move(file_);
  }

 private:
  void set(const std::string& suffix, int value) { file_.set(o_.arch + "." + suffix, u32(value)); }
  void set(const std::string& suffix, float value) { file_.set(o_.arch + "." + suffix, value); }

  void set_metadata() {
    file_.set("general.architecture", o_.arch);
    file_.set("general.name", "tiny");
    set("context_length", o_.context);
    set("embedding_length", o_.n_embd);
    set("block_count", o_.layers);
    set("feed_forward_length", o_.d_ff);
    set("attention.head_count", o_.heads);
    set("attention.head_count_kv", o_.kv_heads);
    const bool layer_epsilon = family_.has_layer_norms() && o_.arch != "phimoe";
    set(layer_epsilon ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5f);
    set("rope.dimension_count", o_.head_dim);
    set("rope.freq_base", 10000.0f);
    if (o_.head_dim * o_.heads != o_.n_embd) {
      set("attention.key_length", o_.head_dim);
      set("attention.value_length", o_.head_dim);
    }
    if (o_.window > 0) set("attention.sliding_window", o_.window);
    if (experts_ > 0) {
      set("expert_count", experts_);
      set("expert_used_count", o_.arch == "llama4" ? 1 : o_.experts_used);
      if (family_.expert_width) set("expert_feed_forward_length", o_.d_ff);
      set_experts();
    }
    set_own();
    if (differs()) set_layers();
    set_rope();
    if (o_.tokenizer == TinyTokenizer::Spm) set_spm_tokenizer(file_);
    if (o_.tokenizer == TinyTokenizer::Bpe) set_bpe_tokenizer(file_);
  }

  /// Keys of families with experts.
  void set_experts() {
    const std::string_view arch = o_.arch;
    const bool by_sigmoid = arch == "afmoe" || arch == "bailingmoe2" || family_.latent || arch == "dots1" ||
                            arch == "exaone-moe" || arch == "glm4moe" || arch == "minimax-m2";
    if (by_sigmoid || arch == "lfm2moe") set("expert_gating_func", 2);
    if (arch == "deepseek" || arch == "bailingmoe") set("expert_shared_count", family_.shared);
    if ((by_sigmoid && arch != "minimax-m2") || arch == "nemotron_h_moe") {
      set("expert_shared_count", arch == "nemotron_h_moe" ? 1 : family_.shared);
      set("expert_weights_scale", 2.5f);
      file_.set(o_.arch + ".expert_weights_norm", true);
    }
    if (arch == "granitemoe" || arch == "ernie4_5-moe" || arch == "hunyuan-moe" || arch == "qwen2moe" ||
        arch == "granitehybrid" || arch == "nemotron_h_moe" || arch == "exaone-moe")
      set("expert_shared_feed_forward_length", family_.shared * o_.d_ff);
    if (arch == "cohere2moe") set("expert_shared_count", family_.shared);
    if (arch == "cohere2moe" || arch == "step35") set("expert_shared_feed_forward_length", family_.shared * o_.d_ff);
    if (family_.mixed && o_.layers > 1 && arch != "mimo2") set("leading_dense_block_count", 1);
    if (arch == "bailingmoe2") {
      set("expert_group_count", 2);
      set("expert_group_used_count", 1);
    }
  }

  /// Keys that single families have.
  void set_own() {
    const std::string_view arch = o_.arch;
    if (arch == "gemma3") set("rope.freq_base_swa", 1000.0f);
    if (arch == "gemma3" || (o_.window > 0 && (arch == "olmo2" || arch == "exaone4")))
      set("attention.sliding_window_pattern", 2);
    if (family_.latent) set_latent();
    if (alternates()) set_differing();
    if (arch == "cohere2moe") set_cohere2moe();
    if (arch == "grok") set_grok();
    if (arch == "llama4") set_llama4();
    if (arch == "mistral3") set("attention.temperature_scale", 0.5f);
    if (arch == "mistral3") set("attention.temperature_length", 4);
    if ((arch == "afmoe" || arch == "exaone-moe" || arch == "gpt-oss" || arch == "cohere2" || arch == "gemma4") &&
        o_.window == 0)
      set("attention.sliding_window", 16);
    if (arch == "afmoe" || arch == "cohere2" || arch == "exaone-moe") set("attention.sliding_window_pattern", 2);
    if (arch == "cohere2" || arch == "command-r") set("logit_scale", 0.25f);
    if (arch == "gemma2") set("attn_logit_softcapping", 5.0f);
    if (arch == "gemma2" || arch == "gemma4") set("final_logit_softcapping", 10.0f);
    if (arch == "gemma4") set_gemma4();
    if (arch == "gemma3n") set_gemma3n();
    if (arch == "minicpm") {
      set("embedding_scale", 12.0f);
      set("residual_scale", 0.25f);
      set("logit_scale", 8.0f);
    }
    if (arch == "granitehybrid") file_.set(o_.arch + ".rope.scaling.finetuned", false);
    if (arch.starts_with("granite")) {
      set("embedding_scale", 12.0f);
      set("residual_scale", 0.25f);
      set("attention.scale", 0.125f);
      set("logit_scale", 8.0f);
    }
    if (arch == "olmo" || arch == "dbrx") set("attention.clamp_kqv", 1.5f);
    if (arch == "apertus") set_apertus();
    if (arch == "jais" || arch == "mpt") set("attention.max_alibi_bias", 8.0f);
    if (family_.delta) set_delta();
    if (family_.mixer != Family::Mixer::None) set_mixer();
    if (arch == "qwen2vl" || arch.starts_with("qwen3vl")) {
      const std::uint32_t third = u32(o_.head_dim / 2) / 3;
      file_.set_array(o_.arch + ".rope.dimension_sections",
                      std::vector<std::uint32_t>{u32(o_.head_dim / 2) - 2 * third, third, third, 0});
    }
  }

  // Sizes of deepseek2: what queries, and keys and values, are made from; the parts of a key; a value.
  int latent() const { return o_.n_embd; }
  int plain() const { return o_.n_embd; }
  int value() const { return o_.n_embd / 2; }

  /// Files of both forms: with one table for embedding and logits the older.
  bool keeps_heads() const { return o_.arch == "minicpm3" || (o_.tied && o_.arch != "kimi-linear"); }

  void set_latent() {
    const int key = plain() + o_.head_dim;
    if (o_.arch != "kimi-linear") set("attention.q_lora_rank", latent());
    set("attention.kv_lora_rank", latent());
    set("attention.head_count_kv", keeps_heads() ? o_.heads : 1);
    set("attention.key_length", keeps_heads() ? key : latent() + o_.head_dim);
    set("attention.value_length", keeps_heads() ? value() : latent());
    if (keeps_heads()) return;
    set("attention.key_length_mla", key);
    set("attention.value_length_mla", value());
  }

  void add_latent_attention(const std::string& blk) {
    const int key = plain() + o_.head_dim;
    if (o_.arch == "kimi-linear") {
      linear(blk + "attn_q", o_.n_embd, o_.heads * key, false);
    } else {
      linear(blk + "attn_q_a", o_.n_embd, latent(), false);
      vector(blk + "attn_q_a_norm.weight", latent(), 1, 0.2f);
      linear(blk + "attn_q_b", latent(), o_.heads * key, false);
    }
    linear(blk + "attn_kv_a_mqa", o_.n_embd, latent() + o_.head_dim, false);
    vector(blk + "attn_kv_a_norm.weight", latent(), 1, 0.2f);
    if (keeps_heads()) {
      linear(blk + "attn_kv_b", latent(), o_.heads * (plain() + value()), false);
    } else {
      matrix(blk + "attn_k_b.weight", {plain(), latent(), o_.heads});
      matrix(blk + "attn_v_b.weight", {latent(), value(), o_.heads});
    }
    linear(blk + "attn_output", o_.heads * value(), o_.n_embd, false);
  }

  // Of mimo2 and step35, every other layer sees all, with half the heads of keys, of step35 with half of all heads.
  bool alternates() const { return o_.arch == "mimo2" || o_.arch == "step35"; }
  bool sees_all(int layer) const { return alternates() && layer % 2 == 1; }
  int heads(int layer) const { return sees_all(layer) && o_.arch == "step35" ? o_.heads / 2 : o_.heads; }
  int kv_heads(int layer) const { return sees_all(layer) ? o_.kv_heads / 2 : o_.kv_heads; }

  void set_differing() {
    std::vector<std::uint32_t> all, kv, local;
    for (int i = 0; i < o_.layers; ++i) {
      all.push_back(u32(heads(i)));
      kv.push_back(u32(kv_heads(i)));
      local.push_back(sees_all(i) ? 0 : 1);
    }
    file_.set_array(o_.arch + ".attention.head_count", all);
    file_.set_array(o_.arch + ".attention.head_count_kv", kv);
    file_.set_array(o_.arch + ".attention.sliding_window_pattern", local);
    if (o_.window == 0) set("attention.sliding_window", 16);
    set("rope.freq_base_swa", 1000.0f);
    set("attention.key_length", o_.head_dim);
    set("attention.value_length", o_.head_dim);
    if (o_.arch != "step35") return set("attention.value_scale", 0.5f);
    const std::vector<float> limits(static_cast<std::size_t>(o_.layers), 0.25f);
    file_.set_array(o_.arch + ".swiglu_clamp_exp", limits);
    file_.set_array(o_.arch + ".swiglu_clamp_shexp", limits);
  }

  void set_cohere2moe() {
    if (o_.window == 0) set("attention.sliding_window", 16);
    std::vector<std::uint32_t> local;
    for (int i = 0; i < o_.layers; ++i) local.push_back(i % 2 == 0 ? 1 : 0);
    file_.set_array(o_.arch + ".attention.sliding_window_pattern", local);
    set("logit_scale", 0.25f);
  }

  void set_grok() {
    set("attn_logit_softcapping", 5.0f);
    set("router_logit_softcapping", 2.0f);
    set("final_logit_softcapping", 10.0f);
    set("attention.output_scale", 0.125f);
    set("embedding_scale", 12.0f);
    set("logit_scale", 2.0f);
  }

  // Layers of gemma4: every other one sees all, by heads of twice the width; the last of three or more keep no keys.
  bool is_wide(int layer) const { return o_.arch == "gemma4" && layer % 2 == 1; }
  int head_dim(int layer) const { return (is_wide(layer) ? 2 : 1) * o_.head_dim; }
  int shared_layers() const { return o_.arch == "gemma4" || o_.arch == "gemma3n" ? (o_.layers - 1) / 2 : 0; }
  bool keeps(int layer) const { return layer < o_.layers - shared_layers(); }

  // Layers of deci, from the last backwards: plain, with a product for attention, without attention, with nothing.
  // Those of openelm before the last have twice the heads and the width.
  bool differs() const { return o_.arch == "deci" || o_.arch == "openelm"; }
  int deci_turn(int layer) const { return o_.arch == "deci" ? (o_.layers - 1 - layer) % 4 : 0; }
  int times(int layer) const { return o_.arch == "openelm" && layer + 1 < o_.layers ? 2 : 1; }

  void set_layers() {
    std::vector<std::uint32_t> heads, kv_heads, widths;
    for (int i = 0; i < o_.layers; ++i) {
      heads.push_back(deci_turn(i) < 2 ? u32(times(i) * o_.heads) : 0);
      kv_heads.push_back(deci_turn(i) == 0 ? u32(times(i) * o_.kv_heads) : 0);
      widths.push_back(deci_turn(i) < 3 ? u32(times(i) * o_.d_ff) : 0);
    }
    file_.set_array(o_.arch + ".attention.head_count", heads);
    file_.set_array(o_.arch + ".attention.head_count_kv", kv_heads);
    file_.set_array(o_.arch + ".feed_forward_length", widths);
    set("attention.key_length", o_.head_dim);
    set("attention.value_length", o_.head_dim);
  }

  void set_gemma4() {
    std::vector<std::uint32_t> local;
    for (int i = 0; i < o_.layers; ++i) local.push_back(is_wide(i) ? 0 : 1);
    file_.set_array(o_.arch + ".attention.sliding_window_pattern", local);
    for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      set(key, head_dim(1));
      set(std::string(key) + "_swa", head_dim(0));
    }
    set("rope.freq_base_swa", 1000.0f);
    set("attention.shared_kv_layers", shared_layers());
    set("embedding_length_per_layer_input", o_.n_embd);
  }

  /// Every other layer has its chunk and experts.
  void set_llama4() {
    if (o_.window == 0) set("attention.sliding_window", 16);
    set("attention.sliding_window_pattern", 2);
    set("attention.temperature_scale", 0.5f);
    set("attention.temperature_length", 4);
    set("interleave_moe_layer_step", std::min(2, o_.layers));
  }

  void set_gemma3n() {
    if (o_.window == 0) set("attention.sliding_window", 16);
    set("attention.sliding_window_pattern", 2);
    set("attention.shared_kv_layers", shared_layers());
    set("embedding_length_per_layer_input", o_.n_embd);
    set("rope.freq_base_swa", 1000.0f);
    std::vector<float> deviations(static_cast<std::size_t>(o_.layers), -std::numeric_limits<float>::infinity());
    deviations[0] = 0.5f;
    file_.set_array(o_.arch + ".activation_sparsity_scale", deviations);
  }

  void add_gemma3n(const std::string& blk) {
    linear(blk + "inp_gate", o_.n_embd, o_.n_embd, false);
    linear(blk + "proj", o_.n_embd, o_.n_embd, false);
    for (const char* norm : {"post_norm", "altup_correct_scale", "altup_router_norm", "laurel_post_norm"})
      vector(blk + norm + ".weight", o_.n_embd, 1, 0.2f);
    add({blk + "altup_router.weight", {DType::F32, {o_.n_embd, kStreams}}, 0, 4});
    add({blk + "altup_predict_coef.weight", {DType::F32, {kStreams, kStreams * kStreams}}, 0, 0.3f});
    add({blk + "altup_correct_coef.weight", {DType::F32, {kStreams, kStreams}}, 0, 0.5f});
    linear(blk + "laurel_l", o_.n_embd, kNarrow, false);
    linear(blk + "laurel_r", kNarrow, o_.n_embd, false);
  }

  void set_apertus() {
    std::vector<float> positive, negative;
    for (int i = 0; i < o_.layers; ++i) {
      positive.push_back(0.2f * static_cast<float>(i + 1));
      negative.push_back(0.5f - 0.3f * static_cast<float>(i));
    }
    file_.set_array("xielu.alpha_p", positive);
    file_.set_array("xielu.alpha_n", negative);
    file_.set("xielu.beta", 0.5f);
    file_.set("xielu.eps", -1e-6f);
  }

  void set_delta() {
    set("ssm.conv_kernel", 4);
    set("ssm.state_size", delta_length());
    set("ssm.group_count", kKeyHeads);
    set("ssm.time_step_rank", kValueHeads);
    set("ssm.inner_size", kValueHeads * delta_length());
    set("full_attention_interval", kInterval);
    set("rope.dimension_count", o_.head_dim / 2);
    if (experts_ > 0) set("expert_shared_feed_forward_length", 2 * o_.d_ff);
    if (o_.arch != "qwen3next") {
      const std::uint32_t pairs = u32(o_.head_dim / 4), third = pairs / 3;
      file_.set_array(o_.arch + ".rope.dimension_sections",
                      std::vector<std::uint32_t>{pairs - (pairs + 1) / 3 - third, (pairs + 1) / 3, third, 0});
    }
  }

  // Layers that mix otherwise than by attention: by a convolution, or by Mamba-2.
  bool is_single() const { return family_.layers == Family::Layers::Single; }
  int turn(int layer) const { return (o_.layers - 1 - layer) % (is_single() ? 3 : 2); }
  bool mixes(int layer) const {
    if (family_.mixer == Family::Mixer::None) return false;
    return family_.layers == Family::Layers::BothInEach || mixes_alone() || turn(layer) == 1;
  }
  bool mixes_alone() const { return family_.layers == Family::Layers::MixersAlone; }
  bool attends(int layer) const {
    if (family_.delta) return (layer + 1) % kInterval == 0;
    if (deci_turn(layer) > 0) return false;
    if (family_.mixer == Family::Mixer::None || family_.layers == Family::Layers::BothInEach) return true;
    return turn(layer) == 0 && !mixes_alone();
  }
  bool feeds(int layer) const { return deci_turn(layer) < 3 && (!is_single() || turn(layer) == 2) && !mixes_alone(); }
  int inner() const { return 2 * o_.n_embd; }
  int convolved() const { return inner() + 2 * kGroups * kState; }

  void set_mixer() {
    std::vector<std::uint32_t> kv, widths;
    for (int i = 0; i < o_.layers; ++i) {
      kv.push_back(!attends(i) ? 0 : family_.latent ? 1 : u32(o_.kv_heads));
      widths.push_back(feeds(i) ? u32(o_.d_ff) : 0);
    }
    if (family_.layers == Family::Layers::InTurns || is_single())
      file_.set_array(o_.arch + ".attention.head_count_kv", kv);
    if (is_single()) file_.set_array(o_.arch + ".feed_forward_length", widths);
    if (mixes_alone()) {
      set("feed_forward_length", 0);
      set("attention.head_count", 0);
      file_.erase(o_.arch + ".attention.head_count_kv");
    }
    if (family_.mixer == Family::Mixer::Conv) return set("shortconv.l_cache", 3);
    set("ssm.conv_kernel", 4);
    if (family_.mixer == Family::Mixer::Kimi) return set("kda.head_dim", kimi_head());
    set("ssm.inner_size", inner());
    set("ssm.state_size", kState);
    set("ssm.time_step_rank", family_.mixer == Family::Mixer::Mamba ? kScanHeads : o_.n_embd);
    if (family_.mixer == Family::Mixer::Mamba) set("ssm.group_count", kGroups);
  }

  /// A row that quantised weights multiply.
  int kimi_head() const { return o_.n_embd; }
  void add_kimi(const std::string& blk) {
    const int head = kimi_head(), width = o_.heads * head;
    for (const char* x : {"q", "k", "v"}) {
      linear(blk + "attn_" + x, o_.n_embd, width, false);
      add({blk + "ssm_conv1d_" + x + ".weight", {DType::F32, {4, 1, width}}, 0, 0.9f});
    }
    for (const char* x : {"ssm_f", "ssm_g"}) {
      linear(blk + x + "_a", o_.n_embd, head, false);
      linear(blk + x + "_b", head, width, false);
    }
    linear(blk + "ssm_beta", o_.n_embd, o_.heads, false);
    add({blk + "ssm_a", {DType::F32, {1, o_.heads}}, -0.3f, 0.2f});
    vector(blk + "ssm_dt.bias", width, 0, 1);
    vector(blk + "ssm_norm.weight", head, 1, 0.2f);
    linear(blk + "attn_output", width, o_.n_embd, false);
  }

  void add_mamba1(const std::string& blk) {
    linear(blk + "ssm_in", o_.n_embd, 2 * inner(), false);
    add({blk + "ssm_conv1d.weight", {DType::F32, {4, inner()}}, 0, 0.9f});
    vector(blk + "ssm_conv1d.bias", inner(), 0, 0.2f);
    linear(blk + "ssm_x", inner(), o_.n_embd + 2 * kState, false);
    vector(blk + "ssm_dt_norm.weight", o_.n_embd, 1, 0.2f);
    vector(blk + "ssm_b_norm.weight", kState, 1, 0.2f);
    vector(blk + "ssm_c_norm.weight", kState, 1, 0.2f);
    linear(blk + "ssm_dt", o_.n_embd, inner(), true);
    add({blk + "ssm_a", {DType::F32, {kState, inner()}}, -0.5f, 0.4f});
    vector(blk + "ssm_d", inner(), 1, 0.5f);
    linear(blk + "ssm_out", inner(), o_.n_embd, false);
  }

  void add_mixer(const std::string& blk) {
    if (family_.mixer == Family::Mixer::Kimi) return add_kimi(blk);
    if (family_.mixer == Family::Mixer::Mamba1) return add_mamba1(blk);
    if (family_.mixer == Family::Mixer::Conv) {
      linear(blk + "shortconv.in_proj", o_.n_embd, 3 * o_.n_embd, false);
      add({blk + "shortconv.conv.weight", {DType::F32, {3, o_.n_embd}}, 0, 0.9f});
      return linear(blk + "shortconv.out_proj", o_.n_embd, o_.n_embd, false);
    }
    linear(blk + "ssm_in", o_.n_embd, inner() + convolved() + kScanHeads, false);
    add({blk + "ssm_conv1d.weight", {DType::F32, {4, convolved()}}, 0, 0.9f});
    vector(blk + "ssm_conv1d.bias", convolved(), 0, 0.3f);
    vector(blk + "ssm_dt.bias", kScanHeads, 0, 1);
    add({blk + "ssm_a", {DType::F32, {1, kScanHeads}}, -0.5f, 0.4f});
    add({blk + "ssm_d", {DType::F32, {1, kScanHeads}}, 1, 0.5f});
    if (family_.layers != Family::Layers::BothInEach)
      add({blk + "ssm_norm.weight", {DType::F32, {inner() / kGroups, kGroups}}, 1, 0.2f});
    linear(blk + "ssm_out", inner(), o_.n_embd, false);
  }

  void set_rope() {
    if (o_.rope != TinyRope::Linear && o_.rope != TinyRope::Yarn) return;
    file_.set(o_.arch + ".rope.scaling.type", o_.rope == TinyRope::Yarn ? "yarn" : "linear");
    set("rope.scaling.factor", 4.0f);
    if (o_.rope == TinyRope::Yarn) set("rope.scaling.original_context_length", o_.context / 4);
  }

  void add_tensors() {
    matrix("token_embd.weight", {o_.n_embd, vocab_});
    if (o_.arch != "olmo") norm(o_.arch.starts_with("lfm2") ? "token_embd_norm" : "output_norm");
    if (!o_.tied) matrix("output.weight", {o_.n_embd, vocab_});
    if (o_.arch == "bloom") norm("token_embd_norm");
    if (o_.arch == "phi2" || o_.arch == "phimoe") vector("output.bias", vocab_, 0, 0.2f);
    if (o_.arch == "gpt2" || o_.arch == "starcoder") matrix("position_embd.weight", {o_.n_embd, o_.context});
    if (o_.rope == TinyRope::Llama3) vector("rope_freqs.weight", o_.head_dim / 2, 4.5f, 3.5f);
    if (o_.arch == "gemma4") vector("rope_freqs.weight", o_.head_dim, 4.5f, 3.5f);
    if (o_.arch == "gemma3n") {
      matrix("altup_proj.weight", {o_.n_embd, o_.n_embd, kStreams - 1});
      matrix("altup_unembd_proj.weight", {o_.n_embd, o_.n_embd, kStreams - 1});
    }
    if (o_.arch == "gemma4" || o_.arch == "gemma3n") {
      matrix("per_layer_token_embd.weight", {o_.layers * o_.n_embd, vocab_});
      matrix("per_layer_model_proj.weight", {o_.n_embd, o_.layers * o_.n_embd});
      vector("per_layer_proj_norm.weight", o_.n_embd, 1, 0.2f);
    }
    for (int i = 0; i < o_.layers; ++i) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      for (const std::string& name : family_.norms)
        if (has_norm(name, i)) norm(blk + name);
      if (o_.arch == "falcon-h1") vector(blk + "ffn_norm", o_.n_embd, 1, 0.2f);  // as converters name it
      if (attends(i)) add_attention(blk, i);
      if (deci_turn(i) == 1) linear(blk + "attn_output", o_.n_embd, o_.n_embd, false);
      if (family_.delta && !attends(i)) add_delta(blk);
      if (mixes(i)) add_mixer(blk);
      if (o_.arch == "gemma3n") add_gemma3n(blk);
      if (!feeds(i)) continue;
      if (o_.arch == "gemma4") {
        add_gemma4(blk);
        continue;
      }
      if (experts_ > 0 && !is_dense(i)) add_experts(blk);
      if (experts_ == 0 || is_dense(i) || o_.arch == "grok") add_ffn(blk, times(i) * o_.d_ff);
    }
  }

  bool has_norm(std::string_view name, int layer) const { return deci_turn(layer) < (name == "attn_norm" ? 2 : 3); }

  bool is_dense(int layer) const {
    if (o_.arch == "llama4") return o_.layers > 1 && layer % 2 == 0;
    if (o_.arch == "jamba") return layer % 2 == 0;
    return family_.mixed && o_.layers > 1 && layer == 0;
  }

  bool has_biases() const { return o_.biases || family_.all_biases; }

  void add_delta(const std::string& blk) {
    const int keys = kKeyHeads * delta_length(), values = kValueHeads * delta_length();
    linear(blk + "attn_qkv", o_.n_embd, 2 * keys + values, false);
    linear(blk + "attn_gate", o_.n_embd, values, false);
    add({blk + "ssm_conv1d.weight", {DType::F32, {4, 2 * keys + values}}, 0, 0.9f});
    vector(blk + "ssm_a", kValueHeads, -0.3f, 0.2f);
    vector(blk + "ssm_dt.bias", kValueHeads, 0, 1);
    if (o_.arch == "qwen3next") {
      linear(blk + "ssm_ba", o_.n_embd, 2 * kValueHeads, false);
    } else {
      linear(blk + "ssm_alpha", o_.n_embd, kValueHeads, false);
      linear(blk + "ssm_beta", o_.n_embd, kValueHeads, false);
    }
    vector(blk + "ssm_norm.weight", delta_length(), 1, 0.2f);
    linear(blk + "ssm_out", values, o_.n_embd, false);
  }

  void add_attention(const std::string& blk, int layer) {
    const int q = times(layer) * heads(layer) * head_dim(layer), kv = times(layer) * kv_heads(layer) * head_dim(layer);
    const bool qkv_biases = has_biases() || family_.qkv_biases;
    if (family_.latent) return add_latent_attention(blk);
    if (family_.fused_qkv) {
      linear(blk + "attn_qkv", o_.n_embd, q + 2 * kv, qkv_biases);
    } else {
      linear(blk + "attn_q", o_.n_embd, family_.delta ? 2 * q : q, qkv_biases);
      if (keeps(layer)) linear(blk + "attn_k", o_.n_embd, kv, qkv_biases);
      if (keeps(layer) && !is_wide(layer)) linear(blk + "attn_v", o_.n_embd, kv, qkv_biases);
    }
    linear(blk + "attn_output", q, o_.n_embd, has_biases() || o_.arch == "gpt-oss");
    if (o_.arch == "afmoe") linear(blk + "attn_gate", o_.n_embd, q, false);
    if (o_.arch == "step35") linear(blk + "attn_gate", o_.n_embd, heads(layer), false);
    if (o_.arch == "gpt-oss" || (o_.arch == "mimo2" && !sees_all(layer)))
      vector(blk + "attn_sinks.weight", o_.heads, 0, 2);
    if (family_.qk_norm != QkNorm::None) {
      const bool whole = family_.qk_norm == QkNorm::Whole;
      vector(blk + "attn_q_norm.weight", whole ? q : head_dim(layer), 1, 0.2f);
      if (keeps(layer)) vector(blk + "attn_k_norm.weight", whole ? kv : head_dim(layer), 1, 0.2f);
    }
  }

  void add_experts(const std::string& blk) {
    add({blk + "ffn_gate_inp.weight", {DType::F32, {o_.n_embd, experts_}}, 0, 0.5f});
    if (!family_.ungated) matrix(blk + "ffn_gate_exps.weight", {o_.n_embd, o_.d_ff, experts_});
    matrix(blk + "ffn_up_exps.weight", {o_.n_embd, o_.d_ff, experts_});
    matrix(blk + "ffn_down_exps.weight", {o_.d_ff, o_.n_embd, experts_});
    const bool unbiased = o_.arch == "deepseek" || o_.arch == "bailingmoe" || o_.arch == "cohere2moe";
    if ((family_.mixed && !unbiased) || o_.arch == "minimax-m2" || o_.arch == "nemotron_h_moe")
      vector(blk + "exp_probs_b.bias", experts_, 0, 0.3f);
    if (o_.arch == "gpt-oss") {
      vector(blk + "ffn_gate_inp.bias", experts_, 0, 0.5f);
      add({blk + "ffn_gate_exps.bias", {DType::F32, {o_.d_ff, experts_}}, 0, 2});
      add({blk + "ffn_up_exps.bias", {DType::F32, {o_.d_ff, experts_}}, 0, 2});
      add({blk + "ffn_down_exps.bias", {DType::F32, {o_.n_embd, experts_}}, 0, 0.5f});
    }
    if (family_.shared == 0) return;
    if (!family_.ungated) linear(blk + "ffn_gate_shexp", o_.n_embd, family_.shared * o_.d_ff, false);
    linear(blk + "ffn_up_shexp", o_.n_embd, family_.shared * o_.d_ff, false);
    linear(blk + "ffn_down_shexp", family_.shared * o_.d_ff, o_.n_embd, false);
    if (o_.arch == "qwen2moe" || family_.delta) vector(blk + "ffn_gate_inp_shexp.weight", o_.n_embd, 0, 0.5f);
  }

  void add_ffn(const std::string& blk, int d_ff) {
    if (!family_.fused_ffn && !family_.ungated) linear(blk + "ffn_gate", o_.n_embd, d_ff, has_biases());
    linear(blk + "ffn_up", o_.n_embd, (family_.fused_ffn ? 2 : 1) * d_ff, has_biases());
    linear(blk + "ffn_down", d_ff, o_.n_embd, has_biases());
  }

  void add_gemma4(const std::string& blk) {
    linear(blk + "ffn_gate", o_.n_embd, o_.d_ff, false);
    linear(blk + "ffn_up", o_.n_embd, o_.d_ff, false);
    linear(blk + "ffn_down", o_.d_ff, o_.n_embd, false);
    linear(blk + "inp_gate", o_.n_embd, o_.n_embd, false);
    linear(blk + "proj", o_.n_embd, o_.n_embd, false);
    vector(blk + "post_norm.weight", o_.n_embd, 1, 0.2f);
    vector(blk + "layer_output_scale.weight", 1, 0.8f, 0.2f);
    if (experts_ == 0) return;
    for (const char* norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"})
      vector(blk + norm + ".weight", o_.n_embd, 1, 0.2f);
    add({blk + "ffn_gate_inp.weight", {DType::F32, {o_.n_embd, experts_}}, 0, 2});
    vector(blk + "ffn_gate_inp.scale", o_.n_embd, 1, 0.2f);
    matrix(blk + "ffn_gate_up_exps.weight", {o_.n_embd, 2 * o_.d_ff, experts_});
    matrix(blk + "ffn_down_exps.weight", {o_.d_ff, o_.n_embd, experts_});
    vector(blk + "ffn_down_exps.scale", experts_, 1, 0.2f);
  }

  void norm(const std::string& name) {
    vector(name + ".weight", o_.n_embd, 1, 0.2f);
    if (family_.kind == Family::Norms::BiasedLayer) vector(name + ".bias", o_.n_embd, 0, 0.2f);
  }
  void add(TinyTensor tensor) { file_.add_tensor(std::move(tensor)); }
  void vector(const std::string& name, int n, float center, float spread) {
    add({name, {DType::F32, {n}}, center, spread});
  }
  /// Spread so that a product keeps its input's variance: uniform in +-s has variance s^2 / 3.
  void matrix(const std::string& name, Shape shape) {
    DType type = o_.type;
    for (const auto& [pattern, other] : o_.types)
      if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) type = other;
    add({name, {type, shape}, 0, std::sqrt(3.0f / static_cast<float>(shape[0]))});
  }
  void linear(const std::string& name, int k, int n, bool bias) {
    matrix(name + ".weight", {k, n});
    if (bias) vector(name + ".bias", n, 0, 0.2f);
  }

  static constexpr int kStreams = 4, kNarrow = 64;  // of gemma3n
  static constexpr int kInterval = 2, kKeyHeads = 2, kValueHeads = 6;
  static constexpr int kScanHeads = 4, kGroups = 2, kState = 8;
  /// A value head's results are a row that quantised weights multiply.
  int delta_length() const { return o_.head_dim; }

  const TinyOptions& o_;
  const Family& family_;
  int experts_ = 0, vocab_ = 0;
  TinyFile file_;
};

std::vector<std::byte> encoded(const TinyTensor& t, std::uint64_t seed) {
  const std::vector<float> values = tiny_values(t, seed);
  std::vector<std::byte> out(t.type.bytes());
  encode(t.type.dtype, values.data(), out.data(), static_cast<std::int64_t>(values.size()));
  return out;
}

}  // namespace

std::vector<float> tiny_values(const TinyTensor& t, std::uint64_t seed) {
  Random random(hash(t.name, seed));
  std::vector<float> out(static_cast<std::size_t>(t.type.shape.elements()));
  for (float& v : out) v = t.center + t.spread * random.uniform();
  return out;
}

TinyFile tiny_model(const TinyOptions& options) { return Builder(options).build(); }

void TinyFile::set(const std::string& key, std::string value) {
  put(key, [key, value](GgufWriter& w) { w.set(key, std::string_view(value)); });
}

void TinyFile::put(const std::string& key, std::function<void(GgufWriter&)> set) {
  const auto at = std::ranges::find(metadata_, key, &Entry::first);
  if (at != metadata_.end())
    at->second = std::move(set);
  else
    metadata_.emplace_back(key, std::move(set));
}

bool TinyFile::has(const std::string& key) const {
  return std::ranges::find(metadata_, key, &Entry::first) != metadata_.end();
}

void TinyFile::erase(const std::string& key) {
  if (std::erase_if(metadata_, [&](const Entry& e) { return e.first == key; }) != 1)
    throw std::logic_error("TinyFile: no key " + key);
}

void TinyFile::add_tensor(TinyTensor tensor) { tensors_.push_back(std::move(tensor)); }

TinyTensor& TinyFile::tensor(const std::string& name) {
  const auto at = std::ranges::find(tensors_, name, &TinyTensor::name);
  if (at == tensors_.end()) throw std::logic_error("TinyFile: no tensor " + name);
  return *at;
}

void TinyFile::resize(const std::string& name, Shape shape) { tensor(name).type.shape = shape; }
void TinyFile::retype(const std::string& name, DType type) { tensor(name).type.dtype = type; }
void TinyFile::rename(const std::string& old, const std::string& name) { tensor(old).name = name; }
void TinyFile::erase_tensor(const std::string& name) {
  tensors_.erase(tensors_.begin() + (&tensor(name) - tensors_.data()));
}

GgufWriter TinyFile::writer(GgufWriterOptions options) const {
  GgufWriter w(options);
  for (const Entry& e : metadata_) e.second(w);
  for (const TinyTensor& t : tensors_) w.add_tensor(t.name, t.type, encoded(t, seed));
  return w;
}

void TinyFile::write(const std::filesystem::path& path, GgufWriterOptions options) const {
  writer(options).write(path);
}

std::vector<std::byte> TinyFile::bytes(GgufWriterOptions options) const { return writer(options).bytes(); }

}  // namespace llm::test
