#include "support/tiny_model.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
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
  bool delta = false;  ///< every second layer attends, the others go by the gated delta rule
};

const Family& family(std::string_view arch) {
  static const std::vector<std::string> after = {"post_attention_norm", "post_ffw_norm"};
  static const std::vector<Family> families = {
      {.arch = "gemma3",
       .norms = {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"},
       .qk_norm = QkNorm::Heads},
      {.arch = "qwen2", .qkv_biases = true},
      {.arch = "qwen2vl", .qkv_biases = true},
      {.arch = "qwen3", .qk_norm = QkNorm::Heads},
      {.arch = "qwen3moe", .qk_norm = QkNorm::Heads, .always_experts = true},
      {.arch = "qwen3vl", .qk_norm = QkNorm::Heads},
      {.arch = "qwen3vlmoe", .qk_norm = QkNorm::Heads, .always_experts = true},
      {.arch = "olmoe", .qk_norm = QkNorm::Whole, .always_experts = true},
      {.arch = "olmo2", .norms = after, .qk_norm = QkNorm::Whole},
      {.arch = "granitemoe", .always_experts = true},
      {.arch = "gpt-oss", .norms = {"attn_norm", "post_attention_norm"}, .qkv_biases = true, .always_experts = true},
      {.arch = "seed_oss", .norms = {"attn_norm", "post_attention_norm"}, .qkv_biases = true},
      {.arch = "hunyuan-dense", .qk_norm = QkNorm::Heads},
      {.arch = "exaone4", .norms = after, .qk_norm = QkNorm::Heads},
      {.arch = "qwen35", .norms = {"attn_norm", "post_attention_norm"}, .qk_norm = QkNorm::Heads, .delta = true},
      {.arch = "qwen35moe",
       .norms = {"attn_norm", "post_attention_norm"},
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .delta = true},
      {.arch = "qwen3next",
       .norms = {"attn_norm", "post_attention_norm"},
       .qk_norm = QkNorm::Heads,
       .always_experts = true,
       .delta = true},
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
    set("attention.layer_norm_rms_epsilon", 1e-5f);
    set("rope.dimension_count", o_.head_dim);
    set("rope.freq_base", 10000.0f);
    if (o_.head_dim * o_.heads != o_.n_embd) {
      set("attention.key_length", o_.head_dim);
      set("attention.value_length", o_.head_dim);
    }
    if (o_.window > 0) set("attention.sliding_window", o_.window);
    if (experts_ > 0) {
      set("expert_count", experts_);
      set("expert_used_count", o_.experts_used);
      if (o_.arch == "qwen3moe" || o_.arch == "qwen3vlmoe" || o_.arch == "gpt-oss" || family_.delta)
        set("expert_feed_forward_length", o_.d_ff);
    }
    set_own();
    set_rope();
    if (o_.tokenizer == TinyTokenizer::Spm) set_spm_tokenizer(file_);
    if (o_.tokenizer == TinyTokenizer::Bpe) set_bpe_tokenizer(file_);
  }

  /// Keys that single families have.
  void set_own() {
    const std::string_view arch = o_.arch;
    if (arch == "gemma3") set("rope.freq_base_swa", 1000.0f);
    if (arch == "gemma3" || (o_.window > 0 && (arch == "olmo2" || arch == "exaone4")))
      set("attention.sliding_window_pattern", 2);
    if (arch == "gpt-oss" && o_.window == 0) set("attention.sliding_window", 16);
    if (arch == "granite" || arch == "granitemoe") {
      set("embedding_scale", 12.0f);
      set("residual_scale", 0.25f);
      set("attention.scale", 0.125f);
      set("logit_scale", 8.0f);
      if (arch == "granitemoe") set("expert_shared_feed_forward_length", 2 * o_.d_ff);
    }
    if (family_.delta) set_delta();
    if (arch == "qwen2vl" || arch.starts_with("qwen3vl")) {
      const std::uint32_t third = u32(o_.head_dim / 2) / 3;
      file_.set_array(o_.arch + ".rope.dimension_sections",
                      std::vector<std::uint32_t>{u32(o_.head_dim / 2) - 2 * third, third, third, 0});
    }
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

  void set_rope() {
    if (o_.rope != TinyRope::Linear && o_.rope != TinyRope::Yarn) return;
    file_.set(o_.arch + ".rope.scaling.type", o_.rope == TinyRope::Yarn ? "yarn" : "linear");
    set("rope.scaling.factor", 4.0f);
    if (o_.rope == TinyRope::Yarn) set("rope.scaling.original_context_length", o_.context / 4);
  }

  void add_tensors() {
    matrix("token_embd.weight", {o_.n_embd, vocab_});
    vector("output_norm.weight", o_.n_embd, 1, 0.2f);
    if (!o_.tied) matrix("output.weight", {o_.n_embd, vocab_});
    if (o_.rope == TinyRope::Llama3) vector("rope_freqs.weight", o_.head_dim / 2, 4.5f, 3.5f);
    for (int i = 0; i < o_.layers; ++i) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      const bool recurrent = family_.delta && (i + 1) % kInterval != 0;
      for (const std::string& norm : family_.norms) vector(blk + norm + ".weight", o_.n_embd, 1, 0.2f);
      recurrent ? add_delta(blk) : add_attention(blk);
      add_ffn(blk);
    }
  }

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

  void add_attention(const std::string& blk) {
    const int q = o_.heads * o_.head_dim, kv = o_.kv_heads * o_.head_dim;
    const bool qkv_biases = o_.biases || family_.qkv_biases;
    if (o_.arch == "phi3") {
      linear(blk + "attn_qkv", o_.n_embd, q + 2 * kv, qkv_biases);
    } else {
      linear(blk + "attn_q", o_.n_embd, family_.delta ? 2 * q : q, qkv_biases);
      linear(blk + "attn_k", o_.n_embd, kv, qkv_biases);
      linear(blk + "attn_v", o_.n_embd, kv, qkv_biases);
    }
    linear(blk + "attn_output", q, o_.n_embd, o_.biases || o_.arch == "gpt-oss");
    if (o_.arch == "gpt-oss") vector(blk + "attn_sinks.weight", o_.heads, 0, 2);
    if (family_.qk_norm != QkNorm::None) {
      const bool whole = family_.qk_norm == QkNorm::Whole;
      vector(blk + "attn_q_norm.weight", whole ? q : o_.head_dim, 1, 0.2f);
      vector(blk + "attn_k_norm.weight", whole ? kv : o_.head_dim, 1, 0.2f);
    }
  }

  void add_ffn(const std::string& blk) {
    if (experts_ > 0) {
      add({blk + "ffn_gate_inp.weight", {DType::F32, {o_.n_embd, experts_}}, 0, 0.5f});
      matrix(blk + "ffn_gate_exps.weight", {o_.n_embd, o_.d_ff, experts_});
      matrix(blk + "ffn_up_exps.weight", {o_.n_embd, o_.d_ff, experts_});
      matrix(blk + "ffn_down_exps.weight", {o_.d_ff, o_.n_embd, experts_});
      if (o_.arch == "gpt-oss") {
        vector(blk + "ffn_gate_inp.bias", experts_, 0, 0.5f);
        add({blk + "ffn_gate_exps.bias", {DType::F32, {o_.d_ff, experts_}}, 0, 2});
        add({blk + "ffn_up_exps.bias", {DType::F32, {o_.d_ff, experts_}}, 0, 2});
        add({blk + "ffn_down_exps.bias", {DType::F32, {o_.n_embd, experts_}}, 0, 0.5f});
      }
      if (family_.delta) add({blk + "ffn_gate_inp_shexp.weight", {DType::F32, {o_.n_embd}}, 0, 0.5f});
      if (o_.arch == "granitemoe" || family_.delta) {
        linear(blk + "ffn_gate_shexp", o_.n_embd, 2 * o_.d_ff, false);
        linear(blk + "ffn_up_shexp", o_.n_embd, 2 * o_.d_ff, false);
        linear(blk + "ffn_down_shexp", 2 * o_.d_ff, o_.n_embd, false);
      }
    } else {
      if (o_.arch != "phi3") linear(blk + "ffn_gate", o_.n_embd, o_.d_ff, o_.biases);
      linear(blk + "ffn_up", o_.n_embd, (o_.arch == "phi3" ? 2 : 1) * o_.d_ff, o_.biases);
      linear(blk + "ffn_down", o_.d_ff, o_.n_embd, o_.biases);
    }
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

  static constexpr int kInterval = 2, kKeyHeads = 2, kValueHeads = 6;
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
