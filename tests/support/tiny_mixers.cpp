// What layers of tiny models have in place of the usual attention: latents, convolutions, state spaces, delta rules.
#include <cmath>
#include <string>
#include <vector>

#include "support/tiny_writer.h"

namespace llm::test {
namespace {

constexpr int kScanHeads = 4, kGroups = 2, kState = 8;        // of state spaces
constexpr int kKeyHeads = 2, kValueHeads = 6, kInterval = 2;  // of the delta rule

int from_last(const TinyOptions& o, std::size_t layer) { return o.layers - 1 - static_cast<int>(layer); }

void leave_to_mixer(TinyLayer& layer) {
  layer.attends = false;
  layer.mixes = true;
  layer.kv_heads = 0;
}

// Sizes of latents: what queries, and keys and values, are made from; the parts of a key; a value.
int latent_width(const TinyWriter& w) { return w.o.n_embd; }
int own_key(const TinyWriter& w) { return w.o.n_embd; }
int shared_key(const TinyWriter& w) { return w.family.unshared_keys ? 0 : w.o.head_dim; }
int whole_key(const TinyWriter& w) { return own_key(w) + shared_key(w); }
int latent_value(const TinyWriter& w) { return w.o.n_embd / 2; }
/// Where there are files of both forms, those with one table for embedding and logits have the older.
bool keeps_heads(const TinyWriter& w) {
  return w.family.latents == TinyFamily::Latents::Heads ||
         (w.family.latents == TinyFamily::Latents::EitherForm && w.o.tied);
}

bool has_indexer(const TinyWriter& w, int layer) {
  if (w.family.indexer == TinyFamily::Indexer::SeeingAll) return TinyWriter::sees_all(layer);
  return w.family.indexer == TinyFamily::Indexer::All || layer % 2 == 0;
}

void set_conv(TinyWriter& w) { w.set("shortconv.l_cache", 3); }

void add_conv(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer) + "shortconv.";
  const int n = w.o.n_embd;
  w.linear(blk + "in_proj", n, 3 * n);
  w.add({blk + "conv.weight", {DType::F32, {3, n}}, 0, 0.9f});
  w.linear(blk + "out_proj", n, n);
}

int inner(const TinyWriter& w) { return 2 * w.o.n_embd; }

void set_state_space(TinyWriter& w, int rank) {
  w.set("ssm.conv_kernel", 4);
  w.set("ssm.inner_size", inner(w));
  w.set("ssm.state_size", kState);
  w.set("ssm.time_step_rank", rank);
}

void set_mamba(TinyWriter& w) {
  set_state_space(w, kScanHeads);
  w.set("ssm.group_count", kGroups);
}

void add_mamba(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int convolved = inner(w) + 2 * kGroups * kState;
  w.linear(blk + "ssm_in", w.o.n_embd, inner(w) + convolved + kScanHeads);
  w.add({blk + "ssm_conv1d.weight", {DType::F32, {4, convolved}}, 0, 0.9f});
  w.vector(blk + "ssm_conv1d.bias", convolved, 0, 0.3f);
  w.vector(blk + "ssm_dt.bias", kScanHeads, 0, 1);
  w.add({blk + "ssm_a", {DType::F32, {1, kScanHeads}}, -0.5f, 0.4f});
  w.add({blk + "ssm_d", {DType::F32, {1, kScanHeads}}, 1, 0.5f});
  if (!w.layer(layer).attends)  // beside attention it has none
    w.add({blk + "ssm_norm.weight", {DType::F32, {inner(w) / kGroups, kGroups}}, 1, 0.2f});
  w.linear(blk + "ssm_out", inner(w), w.o.n_embd);
}

void set_mamba1(TinyWriter& w) { set_state_space(w, w.o.n_embd); }

void add_mamba1_alone(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd;
  w.linear(blk + "ssm_in", n, 2 * inner(w));
  w.add({blk + "ssm_conv1d.weight", {DType::F32, {4, inner(w)}}, 0, 0.9f});
  w.vector(blk + "ssm_conv1d.bias", inner(w), 0, 0.2f);
  w.linear(blk + "ssm_x", inner(w), n + 2 * kState);
  w.linear(blk + "ssm_dt", n, inner(w), true);
  w.add({blk + "ssm_a", {DType::F32, {kState, inner(w)}}, -0.5f, 0.4f});
  w.vector(blk + "ssm_d", inner(w), 1, 0.5f);
  w.linear(blk + "ssm_out", inner(w), n);
}

/// With the norms of Jamba.
void add_mamba1(TinyWriter& w, int layer) {
  add_mamba1_alone(w, layer);
  w.vector(w.block(layer) + "ssm_dt_norm.weight", w.o.n_embd, 1, 0.2f);
  w.vector(w.block(layer) + "ssm_b_norm.weight", kState, 1, 0.2f);
  w.vector(w.block(layer) + "ssm_c_norm.weight", kState, 1, 0.2f);
}

constexpr int kPlamoRank = 64;  // of narrow models, by the family's rule

void set_plamo2(TinyWriter& w) {
  set_state_space(w, kScanHeads);
  w.set("ssm.group_count", 0);
}

void add_plamo2_scan(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  w.linear(blk + "ssm_in", w.o.n_embd, 2 * inner(w));
  w.add({blk + "ssm_conv1d.weight", {DType::F32, {4, inner(w)}}, 0, 0.9f});
  w.linear(blk + "ssm_x", inner(w), kPlamoRank + 2 * kState);
  w.vector(blk + "ssm_dt_norm", kPlamoRank, 1, 0.2f);  // as converters name them
  w.vector(blk + "ssm_b_norm", kState, 1, 0.2f);
  w.vector(blk + "ssm_c_norm", kState, 1, 0.2f);
  w.linear(blk + "ssm_dt", kPlamoRank, kScanHeads, true);
  w.vector(blk + "ssm_a", kScanHeads, -0.5f, 0.4f);
  w.vector(blk + "ssm_d", kScanHeads, 1, 0.5f);
  w.linear(blk + "ssm_out", inner(w), w.o.n_embd);
}

/// A head of Kimi's delta rule is a row that quantised weights multiply.
int kimi_head(const TinyWriter& w) { return w.o.n_embd; }

void set_kimi(TinyWriter& w) {
  w.set("ssm.conv_kernel", 4);
  w.set("kda.head_dim", kimi_head(w));
}

void add_kimi_delta(TinyWriter& w, const std::string& blk) {
  const int n = w.o.n_embd, head = kimi_head(w), width = w.o.heads * head;
  for (const char* x : {"q", "k", "v"}) {
    w.linear(blk + "attn_" + x, n, width);
    w.add({blk + "ssm_conv1d_" + x + ".weight", {DType::F32, {4, 1, width}}, 0, 0.9f});
  }
  w.linear(blk + "ssm_beta", n, w.o.heads);
  w.vector(blk + "ssm_dt.bias", width, 0, 1);
  w.vector(blk + "ssm_norm.weight", head, 1, 0.2f);
  w.linear(blk + "attn_output", width, n);
}

void add_kimi(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, head = kimi_head(w), width = w.o.heads * head;
  add_kimi_delta(w, blk);
  for (const char* x : {"ssm_f", "ssm_g"}) {
    w.linear(blk + x + "_a", n, head);
    w.linear(blk + x + "_b", head, width);
  }
  w.add({blk + "ssm_a", {DType::F32, {1, w.o.heads}}, -0.3f, 0.2f});
}

void set_ling(TinyWriter& w) {
  set_kimi(w);
  w.set("kda.safe_gate", true);
  w.set("kda.gate_lower_bound", -5.0f);
}

void add_ling(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  add_kimi_delta(w, blk);
  for (const char* x : {"ssm_f_a", "ssm_g_a"}) w.linear(blk + x, w.o.n_embd, w.o.heads * kimi_head(w));
  w.add({blk + "ssm_a", {DType::F32, {1, w.o.heads}}, 1, 0.3f});
}

void set_floored(TinyWriter& w) {
  set_kimi(w);
  w.set("kda.gate_lower_bound", -5.0f);
}

/// Of Kimi K3, whose gates are one matrix, and of GLM-5.3-Flash.
void add_floored(TinyWriter& w, int layer, bool whole_gates) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, head = kimi_head(w), width = w.o.heads * head;
  add_kimi_delta(w, blk);
  const auto low_rank = [&](const std::string& name) {
    w.linear(blk + name + "_a", n, head);
    w.linear(blk + name + "_b", head, width);
  };
  low_rank("ssm_f");
  if (whole_gates) {
    w.linear(blk + "ssm_g", n, width);
  } else {
    low_rank("ssm_g");
  }
  w.vector(blk + "ssm_a", w.o.heads, -1, 0.3f);
}

void add_kimi_k3_delta(TinyWriter& w, int layer) { add_floored(w, layer, /*whole_gates=*/true); }
void add_glm5_next_delta(TinyWriter& w, int layer) { add_floored(w, layer, /*whole_gates=*/false); }

/// A value head's results are a row that quantised weights multiply.
int delta_length(const TinyWriter& w) { return w.o.head_dim; }

void set_delta(TinyWriter& w) {
  w.set("ssm.conv_kernel", 4);
  w.set("ssm.state_size", delta_length(w));
  w.set("ssm.group_count", kKeyHeads);
  w.set("ssm.time_step_rank", kValueHeads);
  w.set("ssm.inner_size", kValueHeads * delta_length(w));
  w.set("full_attention_interval", kInterval);
  w.set("rope.dimension_count", w.o.head_dim / 2);
}

void add_delta(TinyWriter& w, int layer, bool joint_gates) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, keys = kKeyHeads * delta_length(w), values = kValueHeads * delta_length(w);
  w.linear(blk + "attn_qkv", n, 2 * keys + values);
  w.linear(blk + "attn_gate", n, values);
  w.add({blk + "ssm_conv1d.weight", {DType::F32, {4, 2 * keys + values}}, 0, 0.9f});
  w.vector(blk + "ssm_a", kValueHeads, -0.3f, 0.2f);
  w.vector(blk + "ssm_dt.bias", kValueHeads, 0, 1);
  if (joint_gates) {
    w.linear(blk + "ssm_ba", n, 2 * kValueHeads);
  } else {
    w.linear(blk + "ssm_alpha", n, kValueHeads);
    w.linear(blk + "ssm_beta", n, kValueHeads);
  }
  w.vector(blk + "ssm_norm.weight", delta_length(w), 1, 0.2f);
  w.linear(blk + "ssm_out", values, n);
}

void add_delta_apart(TinyWriter& w, int layer) { add_delta(w, layer, /*joint_gates=*/false); }
void add_delta_joint(TinyWriter& w, int layer) { add_delta(w, layer, /*joint_gates=*/true); }

constexpr int kRwkvRank = 8;

/// As large as a product that keeps its input's variance has it, and stored as floats, as files have these.
void add_low_rank(TinyWriter& w, const std::string& name, int k, int n) {
  w.add({name + ".weight", {DType::F32, {k, n}}, 0, 1.7f / std::sqrt(static_cast<float>(k))});
}

void set_rwkv(TinyWriter& w) { w.set("wkv.head_size", w.o.head_dim); }

void add_channel_mix(TinyWriter& w, const std::string& blk, bool gated) {
  const int n = w.o.n_embd;
  w.vector(blk + "channel_mix_lerp_k.weight", n, 0.5f, 0.5f);
  w.linear(blk + "channel_mix_key", n, w.o.d_ff);
  w.linear(blk + "channel_mix_value", w.o.d_ff, n);
  if (!gated) return;
  w.vector(blk + "channel_mix_lerp_r.weight", n, 0.5f, 0.5f);
  w.linear(blk + "channel_mix_receptance", n, n);
}

void add_heads_norm(TinyWriter& w, const std::string& blk) {
  w.vector(blk + "time_mix_ln.weight", w.o.n_embd, 1, 0.2f);
  w.vector(blk + "time_mix_ln.bias", w.o.n_embd, 0, 0.2f);
}

void set_rwkv6(TinyWriter& w) {
  set_rwkv(w);
  w.set("time_mix_extra_dim", kRwkvRank);
  w.set("time_decay_extra_dim", kRwkvRank);
}

void add_time_mix6(TinyWriter& w, const std::string& blk, int keys, bool biases) {
  const int n = w.o.n_embd;
  w.vector(blk + "time_mix_lerp_x.weight", n, 0.5f, 0.5f);
  w.add({blk + "time_mix_lerp_fused.weight", {DType::F32, {n, 1, 1, 5}}, 0.5f, 0.5f});
  add_low_rank(w, blk + "time_mix_w1", n, 5 * kRwkvRank);
  w.add({blk + "time_mix_w2.weight", {DType::F32, {kRwkvRank, n, 5}}, 0, 0.3f});
  w.vector(blk + "time_mix_decay.weight", n, -1.5f, 1.5f);
  add_low_rank(w, blk + "time_mix_decay_w1", n, kRwkvRank);
  add_low_rank(w, blk + "time_mix_decay_w2", kRwkvRank, n);
  w.linear(blk + "time_mix_receptance", n, n, biases);
  w.linear(blk + "time_mix_key", n, keys, biases);
  w.linear(blk + "time_mix_value", n, keys, biases);
  for (const char* name : {"gate", "output"}) w.linear(blk + "time_mix_" + name, n, n);
}

void add_rwkv6(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, head = w.o.head_dim;
  add_time_mix6(w, blk, n, /*biases=*/false);
  w.add({blk + "time_mix_first.weight", {DType::F32, {head, n / head}}, 0.3f, 0.5f});
  add_heads_norm(w, blk);
  add_channel_mix(w, blk, /*gated=*/true);
}

void set_rwkv6qwen2(TinyWriter& w) {
  set_rwkv6(w);
  w.set("token_shift_count", 1);
}

void add_rwkv6qwen2(TinyWriter& w, int layer) {
  add_time_mix6(w, w.block(layer), w.o.kv_heads * w.o.head_dim, /*biases=*/true);
}

void set_rwkv7(TinyWriter& w) {
  set_rwkv(w);
  for (const char* name : {"decay", "iclr", "value_residual_mix", "gate"})
    w.set("attention." + std::string(name) + "_lora_rank", kRwkvRank);
}

void add_time_mix7(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd;
  w.add({blk + "time_mix_lerp_fused.weight", {DType::F32, {n, 1, 1, 6}}, 0.5f, 0.5f});
  for (const char* name : {"w", "a", "v", "g"}) {
    const std::string part = blk + "time_mix_" + name;
    if (name[0] == 'v' && layer == 0) continue;  // the first layer's values are not mixed
    if (name[0] != 'g') w.vector(part + "0.weight", n, name[0] == 'w' ? -1.0f : 0.0f, 1.5f);
    add_low_rank(w, part + "1", n, kRwkvRank);
    add_low_rank(w, part + "2", kRwkvRank, n);
  }
  w.vector(blk + "time_mix_k_k.weight", n, 0.8f, 0.3f);
  w.vector(blk + "time_mix_k_a.weight", n, 1, 0.2f);
  w.vector(blk + "time_mix_r_k.weight", n, 0, 0.3f);
  for (const char* name : {"receptance", "key", "value", "output"}) w.linear(blk + "time_mix_" + name, n, n);
  add_heads_norm(w, blk);
}

void add_rwkv7(TinyWriter& w, int layer) {
  add_time_mix7(w, layer);
  add_channel_mix(w, w.block(layer), /*gated=*/false);
}

void set_arwkv7(TinyWriter& w) {
  set_rwkv7(w);
  w.set("token_shift_count", 1);
}

}  // namespace

const TinyMixer kTinyRwkv6{set_rwkv6, add_rwkv6}, kTinyRwkv6Qwen2{set_rwkv6qwen2, add_rwkv6qwen2},
    kTinyRwkv7{set_rwkv7, add_rwkv7}, kTinyArwkv7{set_arwkv7, add_time_mix7};
const TinyMixer kTinyConv{set_conv, add_conv}, kTinyMamba{set_mamba, add_mamba}, kTinyMamba1{set_mamba1, add_mamba1},
    kTinyMamba1Alone{set_mamba1, add_mamba1_alone}, kTinyPlamo2{set_plamo2, add_plamo2_scan},
    kTinyKimi{set_kimi, add_kimi}, kTinyLing{set_ling, add_ling}, kTinyKimiK3{set_floored, add_kimi_k3_delta},
    kTinyGlm5Next{set_floored, add_glm5_next_delta}, kTinyDelta{set_delta, add_delta_apart},
    kTinyJointDelta{set_delta, add_delta_joint};

void arrange_in_turns(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (from_last(o, i) % 2 == 1) leave_to_mixer(layers[i]);
}

void arrange_singles(const TinyOptions& o, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const int turn = from_last(o, i) % 3;
    layers[i].feeds = turn == 2;
    if (turn != 2) layers[i].d_ff = 0;
    if (turn != 0) leave_to_mixer(layers[i]);
    if (turn == 2) layers[i].mixes = false;
  }
}

void arrange_both(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (TinyLayer& layer : layers) layer.mixes = true;
}

void arrange_mixers(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (TinyLayer& layer : layers) {
    leave_to_mixer(layer);
    layer.feeds = false;
  }
}

void arrange_mixers_feeding(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (TinyLayer& layer : layers) leave_to_mixer(layer);
}

void arrange_delta(const TinyOptions&, std::vector<TinyLayer>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    if ((i + 1) % kInterval != 0) leave_to_mixer(layers[i]);
}

void set_tiny_latents(TinyWriter& w) {
  if (!w.family.whole_queries) w.set("attention.q_lora_rank", latent_width(w));
  w.set("attention.kv_lora_rank", latent_width(w));
  w.set("attention.head_count_kv", keeps_heads(w) ? w.o.heads : 1);
  w.set("attention.key_length", keeps_heads(w) ? whole_key(w) : latent_width(w) + shared_key(w));
  w.set("attention.value_length", keeps_heads(w) ? latent_value(w) : latent_width(w));
  w.set("rope.dimension_count", shared_key(w));
  if (keeps_heads(w)) return;
  w.set("attention.key_length_mla", whole_key(w));
  w.set("attention.value_length_mla", latent_value(w));
}

void add_tiny_latents(TinyWriter& w, int layer) {
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, heads = w.o.heads, latent = latent_width(w), value = latent_value(w);
  if (w.family.whole_queries) {
    w.linear(blk + "attn_q", n, heads * whole_key(w));
  } else {
    w.linear(blk + "attn_q_a", n, latent);
    w.vector(blk + "attn_q_a_norm.weight", latent, 1, 0.2f);
    w.linear(blk + "attn_q_b", latent, heads * whole_key(w));
  }
  w.linear(blk + "attn_kv_a_mqa", n, latent + shared_key(w));
  w.vector(blk + "attn_kv_a_norm.weight", latent, 1, 0.2f);
  if (keeps_heads(w)) {
    w.linear(blk + "attn_kv_b", latent, heads * (own_key(w) + value));
  } else {
    w.matrix(blk + "attn_k_b.weight", {own_key(w), latent, heads});
    w.matrix(blk + "attn_v_b.weight", {latent, value, heads});
  }
  w.linear(blk + "attn_output", heads * value, n);
}

void set_tiny_indexer(TinyWriter& w) {
  w.set("attention.indexer.head_count", w.o.heads);
  w.set("attention.indexer.key_length", w.o.n_embd);
  w.set("attention.indexer.top_k", w.o.window > 0 ? w.o.window : 8);
  if (w.family.indexer == TinyFamily::Indexer::All) return;
  std::vector<std::uint32_t> own;
  for (int i = 0; i < w.o.layers; ++i) own.push_back(has_indexer(w, i) ? 1 : 0);
  w.set_array("attention.indexer.types", own);
}

void add_tiny_indexer(TinyWriter& w, int layer) {
  if (!has_indexer(w, layer)) return;
  const std::string blk = w.block(layer) + "indexer.";
  const int n = w.o.n_embd;
  w.linear(blk + "attn_q_b", latent_width(w), w.o.heads * n);
  w.linear(blk + "attn_k", n, n);
  w.vector(blk + "k_norm.weight", n, 1, 0.2f);
  w.vector(blk + "k_norm.bias", n, 0, 0.2f);
  w.linear(blk + "proj", n, w.o.heads);
}

}  // namespace llm::test
