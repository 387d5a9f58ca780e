// kimi-linear, bailingmoe3: Kimi Linear; Ling 3.0. Three of four layers, or a few more, go by Kimi Delta Attention
// (arXiv:2510.26692), a gated delta rule whose states decay element by element of a key, of Ling not below a floor;
// queries, keys and values have convolutions of their own, and results pass gates. The others attend to latents, of
// Kimi without positions, of Ling with a gate of each head. Behind the dense layers, experts chosen by sigmoids and a
// bias, beside them one that all tokens share.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"
#include "model/latent_attention.h"
#include "model/prediction.h"

namespace llm {
namespace {

struct Config : LatentConfig {
  int conv_width = 0, delta_head = 0;
  float floor = 0;                                     ///< GatedDelta::floor
  std::vector<float> limits = {}, shared_limits = {};  ///< Glu::limit of each layer's experts, of its other networks
  bool turns() const { return architecture != "kimi-linear"; }
  int heads() const { return most().heads; }  // all layers have as many
  std::int64_t delta_width() const { return std::int64_t{heads()} * delta_head; }
};

void read_mixers(const Metadata& md, Config& c) {
  const HyperParameters hp(md, c.architecture);
  refuse_window(md, c);
  require_alike_heads(md, c);
  hp.integer({"attention.key_length_mla", 1, 1 << 16});  // of files whose cache holds latents
  c.head_dim_v = static_cast<int>(hp.integer({"attention.kv_lora_rank", 1, 1 << 16}));  // converters write another
  read_latent_heads(md, c);
  c.attention_scale = 1 / std::sqrt(static_cast<float>(c.head_key));
  c.conv_width = static_cast<int>(hp.integer({"ssm.conv_kernel", 2, 1 << 10}));
  c.delta_head = static_cast<int>(hp.integer({"kda.head_dim", 1, 1 << 16}));
}

Config configure_kimi(const Metadata& md) {
  Config c{{read_decoder_config(
      md, "kimi-linear",
      {"attention.head_count_kv", "expert_gating_func", "expert_shared_count", "leading_dense_block_count"})}};
  for (const char* key : {"kda.safe_gate", "kda.gate_lower_bound", "moe_latent_size", "attn_res_block_size"})
    HyperParameters(md, c.architecture).expect_neutral(key, 0, 0);
  read_mixers(md, c);
  read_sigmoid_experts(md, c, RouteWeights::Renormalized);
  return c;
}

Config configure_ling(const Metadata& md) {
  Config c{{read_decoder_config(
      md, "bailingmoe3",
      {"attention.head_count_kv", "expert_gating_func", "expert_group_count", "expert_shared_count",
       "expert_shared_feed_forward_length", "leading_dense_block_count", "nextn_predict_layers"})}};
  const HyperParameters hp(md, c.architecture);
  hp.expect_neutral("kda.safe_gate", 1, 1);
  c.floor = hp.real({"kda.gate_lower_bound", -kUnbounded, 0});
  read_mixers(md, c);
  read_sigmoid_experts(md, c);
  read_expert_groups(md, c);
  const std::int64_t shared = read_shared_width(md, c);  // of all of them, whatever expert_shared_count says
  c.moe->d_shared = shared > 0 ? shared : std::max(c.moe->d_shared, c.moe->d_ff);
  c.limits = read_limits(md, c, "swiglu_clamp_exp");
  c.shared_limits = read_limits(md, c, "swiglu_clamp_shexp");
  leave_prediction_layers_out(md, c);
  return c;
}

Config configure(const Metadata& md) {
  return md.get<std::string_view>("general.architecture") == "kimi-linear" ? configure_kimi(md) : configure_ling(md);
}

/// A short convolution of a product.
Act convolved(Scope s, const Config& c, char which, RecurrentType::Part part, Act x) {
  const std::string end(1, which);
  const Act y = s.linear("attn_" + end, x, c.delta_width());
  return s.split_heads("delta_" + end, s.short_conv("ssm_conv1d_" + end, y, c.conv_width, {}, part), 1);
}

/// By a matrix of the rank of a head's length, or by a whole one.
Act of_low_rank(Scope s, const Config& c, std::string_view down, std::string_view up, Act x) {
  if (!s.has(up)) return s.linear(down, x, c.delta_width());
  return s.linear(up, s.linear(down, x, c.delta_head), c.delta_width());
}

Act delta_attention(Scope s, const Config& c, Act x) {
  using enum RecurrentType::Part;
  const Act q = convolved(s, c, 'q', Conv, x);
  const Act k = convolved(s, c, 'k', ConvKeys, x);
  const Act v = convolved(s, c, 'v', ConvValues, x);
  const Act qk = s.concat("delta_qk", q, k);
  const Act qkv = s.flatten_heads("delta_qkv", s.concat("delta_all", qk, v));
  const Act alpha = of_low_rank(s, c, "ssm_f_a", "ssm_f_b", x);
  const Act beta = s.linear("ssm_beta", x, c.heads());
  const Act y = s.gated_delta(qkv, alpha, beta, {.key_heads = c.heads(), .eps = c.norm_eps, .floor = c.floor},
                              {c.delta_head, c.delta_head, c.heads()});
  const Act normal = s.flatten_heads("delta_flat", s.rms_norm("ssm_norm", y, c.norm_eps));
  const Act gate = of_low_rank(s, c, "ssm_g_a", "ssm_g_b", x);
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gate, normal, "delta_gated"), c.n_embd);
}

/// Each head of what is attended to times a gate of its own.
Act gated_latent_attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const int n = c.heads();
  const Act y = latent_results(s, c, rot, {}, x);
  const Act gate = s.split_heads("attn_gate_heads", s.linear("attn_gate", x, n), n);
  return attention_output(s, c, s.glu(Activation::Sigmoid, gate, y, "attn_gated"));
}

Act mixed(Scope s, const Config& c, const std::optional<Rotary>& rot, Act x) {
  if (!c.attends(s.layer())) return delta_attention(s, c, x);
  return rot ? gated_latent_attention(s, c, *rot, x) : latent_attention(s, c, {}, {}, x);
}

Act ffn(Scope s, const Config& c, Act x) {
  if (c.limits.empty()) return moe_or_dense_ffn(s, c, x);
  const auto layer = static_cast<std::size_t>(s.layer());
  MoeConfig m = *c.moe;
  m.limit = {c.limits[layer]};
  m.shared_limit = {c.shared_limits[layer]};
  if (!m.is_in(s.layer())) return glu_ffn(s, c, Glu{.activation = m.activation, .limit = c.shared_limits[layer]}, x);
  return shared_moe_ffn(s, m, x, c.n_embd);
}

std::optional<Rotary> turning(Net& net, const Config& c) {
  if (!c.turns()) return std::nullopt;
  return net.rotary(c.rope, RopePairing::Interleaved);
}

/// Layer i. Those that predict attend.
Act block(Net& net, const Config& c, const std::optional<Rotary>& rot, int i, Act x) {
  Scope a = net.layer(i, Role::Attention);
  x = a.add("attn_residual", x, mixed(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
  Scope f = net.layer(i, Role::Ffn);
  return f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const std::optional<Rotary> rot = turning(net, c);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) x = block(net, c, rot, i, x);
  return net.head("output", final_norm(net, c, x, step.out_rows), c.vocab, /*tied_to=*/"token_embd");
}

Act predict(Net& net, const Config& c) {
  const Step step = net.step();
  const std::optional<Rotary> rot = turning(net, c);
  const Act x = block(net, c, rot, c.n_layers, prediction_input(net, c, step.tokens));
  return prediction_logits(net, c, x, step.out_rows);
}

}  // namespace

ModelSpec open_kimi_linear(const Metadata& md) {
  const Config c = configure(md);
  ModelSpec spec{.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
  if (c.turns()) spec.predict = [c](Net& net) { return predict(net, c); };
  return spec;
}

}  // namespace llm
