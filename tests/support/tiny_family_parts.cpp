// What options have a say in of single families.
#include "support/tiny_family_parts.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace llm::test {
namespace {

constexpr int kStreams = 4, kNarrow = 64;  // of gemma3n

// Of qwen4exp: streams, keys that are selected together, and embeddings of up to three tokens, in front of layer 0.
constexpr int kConnections = 3, kTogether = 4, kHashedTokens = 3, kHashes = 2 * (kHashedTokens - 1), kHashSize = 17;

// Of deepseek4: positions that a key stands for, by layers in turns; streams; layers whose experts a table gives.
constexpr int kRatios[] = {4, 128, 0}, kBalanced = 3;
int ratio_of(int layer) { return kRatios[layer % 3]; }
int hash_layers(const TinyWriter& w) { return w.o.layers > 1 ? 1 : 0; }

int layers_without_keys(const TinyOptions& o) { return (o.layers - 1) / 2; }

void add_per_layer_embeddings(TinyWriter& w) {
  const int all = w.o.layers * w.o.n_embd;
  w.matrix("per_layer_token_embd.weight", {all, tiny_vocabulary(w.o.tokenizer)});
  w.matrix("per_layer_model_proj.weight", {w.o.n_embd, all});
  w.vector("per_layer_proj_norm.weight", w.o.n_embd, 1, 0.2f);
}

void add_connection(TinyWriter& w, const std::string& name) {
  const int all = kConnections * w.o.n_embd;
  w.vector(name + "_norm.weight", all, 1, 0.2f);
  w.linear(name + "_down", all, w.o.n_embd);
  w.linear(name + "_up", w.o.n_embd, all);
}

void add_hashed_embedding(TinyWriter& w, const std::string& blk) {
  const int n = w.o.n_embd, all = kConnections * n;
  w.linear(blk + "ple_key", n, all);
  w.linear(blk + "ple_value", n, n);
  for (const std::string name : {"key", "query", "conv"}) w.vector(blk + "ple_norm_" + name + ".weight", all, 1, 0.2f);
  w.add({blk + "ple_conv1d.weight", {DType::BF16, {4, all}}, 0, 0.7f});
}

void add_block_index(TinyWriter& w, const std::string& blk, int heads) {
  const int n = w.o.n_embd;
  w.linear(blk + "indexer.q_proj", n, heads * n);
  w.linear(blk + "indexer.k_proj", n, n);
  for (const std::string name : {"q_norm", "k_norm"}) w.vector(blk + "indexer." + name + ".weight", n, 1, 0.2f);
}

void add_balanced(TinyWriter& w, const std::string& name, int n, int scales) {
  w.linear(name + "_fn", kBalanced * w.o.n_embd, n);
  w.vector(name + "_scale.weight", scales, 1, 0.3f);
  w.vector(name + "_base.weight", n, 0, 1);
}

/// Rows of n_embd elements.
void add_compressor(TinyWriter& w, const std::string& name, int ratio) {
  const int n = w.o.n_embd, width = ratio == 4 ? 2 * n : n;
  w.linear(name + "_kv", n, width);
  w.linear(name + "_gate", n, width);
  w.add({name + "_ape.weight", {DType::F32, {width, ratio}}, 0, 1});
  w.vector(name + "_norm.weight", n, 1, 0.2f);
}

void add_per_layer_part(TinyWriter& w, const std::string& blk) {
  w.linear(blk + "inp_gate", w.o.n_embd, w.o.n_embd);
  w.linear(blk + "proj", w.o.n_embd, w.o.n_embd);
  w.vector(blk + "post_norm.weight", w.o.n_embd, 1, 0.2f);
}

}  // namespace

// Layers.

/// The dense networks are as wide as the layers.
void arrange_arctic(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  for (TinyLayer& layer : layers) layer.d_ff = o.n_embd;
}

/// From the last backwards: plain, with a product for attention, without attention, with nothing.
void arrange_deci(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    TinyLayer& l = layers[i];
    const int turn = (o.layers - 1 - static_cast<int>(i)) % 4;
    l.attends = turn == 0;
    l.feeds = turn < 3;
    if (turn > 0) l.kv_heads = 0;
    if (turn > 1) l.heads = 0;
    if (turn == 2) l.norms = {"ffn_norm"};
    if (turn == 3) l.d_ff = 0, l.norms = {};
  }
}

void add_deci_product(TinyWriter& w, int layer) {
  if (w.layer(layer).heads > 0 && !w.layer(layer).attends)
    w.linear(w.block(layer) + "attn_output", w.o.n_embd, w.o.n_embd);
}

/// Those before the last have twice the heads and the width.
void arrange_openelm(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 0; i + 1 < layers.size(); ++i)
    layers[i].heads = 2 * o.heads, layers[i].kv_heads = 2 * o.kv_heads, layers[i].d_ff = 2 * o.d_ff;
}

/// Those that see all have half the heads of keys.
void arrange_mimo2(const TinyOptions&, std::vector<TinyLayer>& layers) {
  if (layers.size() > 1) layers[0].dense = true;  // of which the files say nothing
  for (std::size_t i = 1; i < layers.size(); i += 2) layers[i].kv_heads /= 2;
}

/// And half of all heads.
void arrange_step35(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 1; i < layers.size(); i += 2) layers[i].kv_heads /= 2, layers[i].heads /= 2;
}

void arrange_llama4(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 0; layers.size() > 1 && i < layers.size(); i += 2) layers[i].dense = true;
}

void arrange_jamba(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  arrange_in_turns(o, layers);
  for (std::size_t i = 0; i < layers.size(); i += 2) layers[i].dense = true;
}

/// Those that do not attend have no heads of either kind.
void arrange_plamo2(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  arrange_in_turns(o, layers);
  for (TinyLayer& l : layers)
    if (!l.attends) l.heads = 0;
}

void arrange_kimi(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  arrange_in_turns(o, layers);
  for (TinyLayer& l : layers)
    if (l.attends) l.kv_heads = 1;
}

/// Their attention is all their own.
void arrange_deepseek4(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (TinyLayer& layer : layers) layer.attends = false;
}

/// The last of three or more keep no keys.
void arrange_gemma3n(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  for (auto l = layers.end() - layers_without_keys(o); l != layers.end(); ++l) l->keys = l->values = false;
}

/// And those that see all have heads of twice the length, of which keys are the values.
void arrange_gemma4(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  arrange_gemma3n(o, layers);
  for (std::size_t i = 1; i < layers.size(); i += 2) layers[i].head_dim = 2 * o.head_dim, layers[i].values = false;
}

// Keys.

/// Layers that see all turn no heads.
void set_granite_swa(TinyWriter& w) {
  std::vector<std::uint32_t> turning;
  for (int i = 0; i < w.o.layers; ++i) turning.push_back(TinyWriter::sees_all(i) ? 0 : 1);
  w.set_array("attention.rope_pattern", turning);
}

/// Pairs of experts have a small one.
void set_grovemoe(TinyWriter& w) {
  w.set("experts_per_group", 2);
  w.set("expert_chunk_feed_forward_length", w.o.d_ff);
  w.set("expert_group_scale", 0.5f);
}

void set_kimi_k3(TinyWriter& w) {
  w.set("expert_latent_length", w.o.n_embd);
  w.set("attn_res.block_size", w.o.layers > 2 ? 2 : 1);
  w.set("activation.situ_beta", 1.5f);
  w.set("activation.situ_linear_beta", 2.5f);
}

void set_glm5_next(TinyWriter& w) {
  w.set("attention.indexer.kpool", kTogether);
  w.set("hyper_connection.count", kBalanced);
  w.set("hyper_connection.sinkhorn_iterations", 4);
  w.set("hyper_connection.epsilon", 1e-6f);
  set_limits(w);
}

void set_nanbeige(TinyWriter& w) { w.set("num_loops", w.o.layers > 1 ? 2 : 1); }

/// The key is of gate and up together.
void set_qwen(TinyWriter& w) { w.set("feed_forward_length", 2 * w.o.d_ff); }

/// Layers with a window have the sizes of the others.
void set_dots3note(TinyWriter& w) {
  w.set("attention.kv_lora_rank_swa", w.o.n_embd);
  w.set("attention.key_length_mla_swa", w.o.n_embd + w.o.head_dim);
  w.set("attention.value_length_mla_swa", w.o.n_embd / 2);
}

/// Two blocks of 4 are attended to, of which the last is one.
void set_minimax_m3(TinyWriter& w) {
  w.set("attention.indexer.head_count", w.o.kv_heads);
  w.set("attention.indexer.key_length", w.o.n_embd);
  w.set("attention.indexer.block_size", 4);
  w.set("attention.indexer.top_k", 2);
  w.set("attention.indexer.local_blocks", 1);
}

void set_expert_limits(TinyWriter& w) { w.set_array("swiglu_clamp_exp", std::vector<float>(w.layers.size(), 0.25f)); }

void set_limits(TinyWriter& w) {
  set_expert_limits(w);
  w.set_array("swiglu_clamp_shexp", std::vector<float>(w.layers.size(), 0.25f));
}

void set_llama4(TinyWriter& w) { w.set("interleave_moe_layer_step", std::min(2, w.o.layers)); }

void set_apertus(TinyWriter& w) {
  std::vector<float> positive, negative;
  for (int i = 0; i < w.o.layers; ++i) {
    positive.push_back(0.2f * static_cast<float>(i + 1));
    negative.push_back(0.5f - 0.3f * static_cast<float>(i));
  }
  w.file.set_array("xielu.alpha_p", positive);
  w.file.set_array("xielu.alpha_n", negative);
  w.file.set("xielu.beta", 0.5f);
  w.file.set("xielu.eps", -1e-6f);
}

void set_pictures(TinyWriter& w) {
  const int pairs = w.o.head_dim / 2, third = pairs / 3;
  w.set_sections({pairs - 2 * third, third, third, 0});
}

void set_qwen35(TinyWriter& w) {
  const int pairs = w.o.head_dim / 4, third = pairs / 3, second = (pairs + 1) / 3;
  w.set_sections({pairs - second - third, second, third, 0});
}

void set_qwen4exp(TinyWriter& w) {
  set_qwen35(w);
  w.set("hyper_connection.count", kConnections);
  w.set("hyper_connection.low_rank", w.o.n_embd);
  w.set("attention.indexer.head_count", w.o.heads);
  w.set("attention.indexer.key_length", w.o.n_embd);
  w.set("attention.indexer.top_k", 2 * kTogether);
  std::vector<std::uint32_t> ratios;
  for (const TinyLayer& layer : w.layers) ratios.push_back(layer.attends ? kTogether : 0);
  w.set_array("attention.compress_ratios", ratios);
  w.set_array("ple.layers", std::vector<std::uint32_t>{0});
  w.set("ple.ngram_size", kHashedTokens);
  w.set("ple.heads_per_ngram", 2);
  w.set("ple.conv_kernel", 4);
  w.set("ple.eos_token_id", 2);
  w.set("embedding_length_per_layer_input", w.o.n_embd / kHashes);
  w.set_array("ple.layer_multipliers", std::vector<std::uint64_t>{31415926535897, 27182818284591, 16180339887499});
  w.set_array("ple.head_offsets", std::vector<std::uint64_t>{0, kHashSize, 2 * kHashSize, 3 * kHashSize});
  w.set_array("ple.head_vocab_sizes", std::vector<std::uint64_t>(kHashes, kHashSize));
}

/// Heads are as long as a row of the layers.
void set_deepseek4(TinyWriter& w) {
  for (const std::string key : {"attention.key_length", "attention.value_length", "attention.indexer.key_length",
                                "attention.q_lora_rank", "attention.output_lora_rank"})
    w.set(key, w.o.n_embd);
  w.set("attention.head_count_kv", 1);
  w.set("attention.output_group_count", 2);
  std::vector<std::uint32_t> ratios;
  for (int i = 0; i < w.o.layers; ++i) ratios.push_back(static_cast<std::uint32_t>(ratio_of(i)));
  w.set_array("attention.compress_ratios", ratios);
  w.set("attention.compress_rope_freq_base", 40000.0f);
  w.set("attention.indexer.head_count", w.o.heads);
  w.set("attention.indexer.top_k", 3);
  w.set("hyper_connection.count", kBalanced);
  w.set("hyper_connection.sinkhorn_iterations", 4);
  w.set("hyper_connection.epsilon", 1e-6f);
  w.set("hash_layer_count", hash_layers(w));
  w.set_array("swiglu_clamp_exp", std::vector<float>(w.layers.size(), 0.25f));
}

/// No layer attends, or has a feed-forward network.
void set_mamba2(TinyWriter& w) {
  w.set("feed_forward_length", 0);
  w.set("attention.head_count", 0);
  w.file.erase(w.o.arch + ".attention.head_count_kv");
}

/// No layer attends.
void set_rwkv_heads(TinyWriter& w) {
  w.set("attention.head_count", 0);
  w.file.erase(w.o.arch + ".attention.head_count_kv");
}

/// Files have 0 for heads that attend, and heads of keys and values all the same.
void set_no_heads(TinyWriter& w) { w.set("attention.head_count", 0); }

void set_gemma3n(TinyWriter& w) {
  w.set("attention.shared_kv_layers", layers_without_keys(w.o));
  w.set("embedding_length_per_layer_input", w.o.n_embd);
  std::vector<float> deviations(w.layers.size(), -std::numeric_limits<float>::infinity());
  deviations[0] = 0.5f;
  w.set_array("activation_sparsity_scale", deviations);
}

void set_gemma4(TinyWriter& w) {
  for (const std::string key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    w.set(key, 2 * w.o.head_dim);
    w.set(key + "_swa", w.o.head_dim);
  }
  w.set("attention.shared_kv_layers", layers_without_keys(w.o));
  w.set("embedding_length_per_layer_input", w.o.n_embd);
}

// Tensors.

void add_ffn_norm(TinyWriter& w, int layer) {
  w.vector(w.block(layer) + "ffn_norm", w.o.n_embd, 1, 0.2f);  // as converters name it
}

void add_head_gates(TinyWriter& w, int layer) {
  if (w.layer(layer).attends) w.linear(w.block(layer) + "attn_gate", w.o.n_embd, w.o.heads);
}

void add_chameleon(TinyWriter& w, int layer) {
  for (const auto& [name, heads] : {std::pair{"attn_q_norm", w.o.heads}, std::pair{"attn_k_norm", w.o.kv_heads}}) {
    w.add({w.block(layer) + name + ".weight", {DType::F32, {w.o.head_dim, heads}}, 1, 0.2f});
    w.add({w.block(layer) + name + ".bias", {DType::F32, {w.o.head_dim, heads}}, 0, 0.2f});
  }
}

void add_grovemoe(TinyWriter& w, int layer) {
  const int n = w.o.n_embd, d_ff = w.o.d_ff, groups = w.experts / 2;
  w.matrix(w.block(layer) + "ffn_gate_chexps.weight", {n, d_ff, groups});
  w.matrix(w.block(layer) + "ffn_up_chexps.weight", {n, d_ff, groups});
  w.matrix(w.block(layer) + "ffn_down_chexps.weight", {d_ff, n, groups});
}

void add_kimi_k3_ends(TinyWriter& w) { w.vector("output_res_score.weight", w.o.n_embd, 0, 0.5f); }

/// Experts work on rows as long as the layers'.
void add_kimi_k3(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd;
  if (layer > 0) w.vector(blk + "attn_res_score.weight", n, 0, 0.5f);
  w.vector(blk + "ffn_res_score.weight", n, 0, 0.5f);
  if (w.layer(layer).attends) w.linear(blk + "attn_gate", n, w.o.heads * n / 2);
  if (w.layer(layer).dense) return;
  w.linear(blk + "ffn_routed_down", n, n);
  w.vector(blk + "ffn_routed_norm.weight", n, 1, 0.2f);
  w.linear(blk + "ffn_routed_up", n, n);
}

void add_glm5_next(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd;
  for (const std::string name : {"hc_attn", "hc_ffn"}) add_balanced(w, blk + name, (2 + kBalanced) * kBalanced, 3);
  if (!w.layer(layer).attends) return;
  w.linear(blk + "indexer_compressor_gate", n, n);
  w.add({blk + "indexer_compressor_ape.weight", {DType::F32, {n, kTogether}}, 0, 1});
}

void add_dots3note(TinyWriter& w, int layer) {
  add_head_gates(w, layer);
  w.vector(w.block(layer) + "attn_k_norm.weight", w.o.head_dim, 1, 0.2f);
}

void add_minimax_m3(TinyWriter& w, int layer) {
  if (!w.layer(layer).dense) add_block_index(w, w.block(layer), w.o.kv_heads);
}

void add_talkie(TinyWriter& w, int layer) {
  w.add({w.block(layer) + "attn_q_norm.weight", {DType::F32, {1, w.o.heads}}, 1, 0.5f});
  w.vector(w.block(layer) + "layer_output_scale.weight", 1, 0.3f, 0.2f);
}

/// Norms behind blocks, and of each head one of its own.
void add_plamo2(TinyWriter& w, int layer) {
  add_post_norms(w, layer);
  if (!w.layer(layer).attends) return;
  w.add({w.block(layer) + "attn_q_norm.weight", {DType::F32, {w.o.head_dim, w.o.heads}}, 1, 0.2f});
  w.add({w.block(layer) + "attn_k_norm.weight", {DType::F32, {w.o.head_dim, w.o.kv_heads}}, 1, 0.2f});
}

void add_post_norms(TinyWriter& w, int layer) {  // as converters name them
  for (const char* norm : {"post_attention_norm", "post_ffw_norm"})
    w.vector(w.block(layer) + norm, w.o.n_embd, 1, 0.2f);
}

void add_sub_norms(TinyWriter& w, int layer) {
  w.vector(w.block(layer) + "attn_sub_norm.weight", w.o.heads * w.o.head_dim, 1, 0.2f);
  w.vector(w.block(layer) + "ffn_sub_norm.weight", w.o.d_ff, 1, 0.2f);
}

void add_gemma3n_ends(TinyWriter& w) {
  w.matrix("altup_proj.weight", {w.o.n_embd, w.o.n_embd, kStreams - 1});
  w.matrix("altup_unembd_proj.weight", {w.o.n_embd, w.o.n_embd, kStreams - 1});
  add_per_layer_embeddings(w);
}

void add_gemma3n(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd;
  add_per_layer_part(w, blk);
  for (const char* norm : {"altup_correct_scale", "altup_router_norm", "laurel_post_norm"})
    w.vector(blk + norm + ".weight", n, 1, 0.2f);
  w.add({blk + "altup_router.weight", {DType::F32, {n, kStreams}}, 0, 4});
  w.add({blk + "altup_predict_coef.weight", {DType::F32, {kStreams, kStreams * kStreams}}, 0, 0.3f});
  w.add({blk + "altup_correct_coef.weight", {DType::F32, {kStreams, kStreams}}, 0, 0.5f});
  w.linear(blk + "laurel_l", n, kNarrow);
  w.linear(blk + "laurel_r", kNarrow, n);
}

void add_gemma4_ends(TinyWriter& w) {
  w.vector("rope_freqs.weight", w.o.head_dim, 4.5f, 3.5f);
  add_per_layer_embeddings(w);
}

void add_gemma4(TinyWriter& w, int layer) {
  add_per_layer_part(w, w.block(layer));
  w.vector(w.block(layer) + "layer_output_scale.weight", 1, 0.8f, 0.2f);
}

void add_gemma4_experts(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd;
  for (const char* norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"})
    w.vector(blk + norm + ".weight", n, 1, 0.2f);
  w.add({blk + "ffn_gate_inp.weight", {DType::F32, {n, w.experts}}, 0, 2});
  w.vector(blk + "ffn_gate_inp.scale", n, 1, 0.2f);
  w.matrix(blk + "ffn_gate_up_exps.weight", {n, 2 * w.o.d_ff, w.experts});
  w.matrix(blk + "ffn_down_exps.weight", {w.o.d_ff, n, w.experts});
  w.vector(blk + "ffn_down_exps.scale", w.experts, 1, 0.2f);
}

void add_qwen4exp_ends(TinyWriter& w) {
  add_connection(w, "output_hc");
  w.add({"per_layer_token_embd.weight", {DType::F32, {w.o.n_embd / kHashes, kHashes * kHashSize + 1}}, 0, 1});
}

void add_qwen4exp(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  for (const std::string name : {"hc_attn", "hc_ffn"}) {
    add_connection(w, blk + name);
    w.linear(blk + name + "_inject", kConnections * w.o.n_embd, kConnections);
  }
  if (layer == 0) add_hashed_embedding(w, blk);
  if (w.layer(layer).attends) add_block_index(w, blk, w.o.heads);
}

void add_deepseek4_ends(TinyWriter& w) { add_balanced(w, "output_hc", kBalanced, 1); }

void add_deepseek4(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, heads = w.o.heads, ratio = ratio_of(layer);
  for (const std::string name : {"hc_attn", "hc_ffn"}) add_balanced(w, blk + name, (2 + kBalanced) * kBalanced, 3);
  w.linear(blk + "attn_q_a", n, n);
  w.vector(blk + "attn_q_a_norm.weight", n, 1, 0.2f);
  w.linear(blk + "attn_q_b", n, heads * n);
  w.linear(blk + "attn_kv", n, n);
  w.vector(blk + "attn_kv_a_norm.weight", n, 1, 0.2f);
  w.vector(blk + "attn_sinks.weight", heads, 0, 2);
  w.linear(blk + "attn_output_a", heads * n / 2, 2 * n);
  w.linear(blk + "attn_output_b", 2 * n, n);
  if (ratio > 0) add_compressor(w, blk + "attn_compressor", ratio);
  if (ratio == 4) {
    add_compressor(w, blk + "indexer_compressor", ratio);
    w.linear(blk + "indexer.attn_q_b", n, heads * n);
    w.linear(blk + "indexer.proj", n, heads);
  }
  if (layer >= hash_layers(w)) return w.vector(blk + "exp_probs_b.bias", w.experts, 0, 0.3f);
  const float middle = static_cast<float>(w.experts - 1) / 2;
  const TensorType table{DType::I32, {w.o.experts_used, tiny_vocabulary(w.o.tokenizer)}};
  w.add({blk + "ffn_gate_tid2eid.weight", table, middle, middle});
}

}  // namespace llm::test
