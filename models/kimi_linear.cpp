// kimi-linear, bailingmoe3: Kimi Linear; Ling 3.0. Three of four layers, or a few more, go by Kimi Delta Attention
// (arXiv:2510.26692), a gated delta rule whose states decay element by element of a key, of Ling not below a floor;
// queries, keys and values have convolutions of their own, and results pass gates. The others attend to latents, of
// Kimi without positions, of Ling with a gate of each head. Behind the dense layers, experts chosen by sigmoids and a
// bias, beside them one that all tokens share.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hyper_parameters.h"
#include "model/kimi_delta.h"
#include "model/prediction.h"

namespace llm {
namespace {

struct Config : KimiDeltaConfig {
  std::vector<float> limits = {}, shared_limits = {};  ///< Glu::limit of each layer's experts, of its other networks
  bool turns() const { return architecture != "kimi-linear"; }
};

Config configure_kimi(const Metadata& md) {
  Config c{{{read_decoder_config(
      md, "kimi-linear",
      {"attention.head_count_kv", "expert_gating_func", "expert_shared_count", "leading_dense_block_count"})}}};
  for (const char* key : {"kda.safe_gate", "kda.gate_lower_bound", "moe_latent_size", "attn_res_block_size"})
    HyperParameters(md, c.architecture).expect_neutral(key, 0, 0);
  read_kimi_delta(md, c);
  read_sigmoid_experts(md, c, RouteWeights::Renormalized);
  return c;
}

Config configure_ling(const Metadata& md) {
  Config c{{{read_decoder_config(
      md, "bailingmoe3",
      {"attention.head_count_kv", "expert_gating_func", "expert_group_count", "expert_shared_count",
       "expert_shared_feed_forward_length", "leading_dense_block_count", "nextn_predict_layers"})}}};
  const HyperParameters hp(md, c.architecture);
  hp.expect_neutral("kda.safe_gate", 1, 1);
  c.floor = hp.real({"kda.gate_lower_bound", -kUnbounded, 0});
  read_kimi_delta(md, c);
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

/// Each head of what is attended to times a gate of its own.
Act gated_latent_attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const int n = c.heads();
  const Act y = latent_results(s, c, rot, {}, x);
  const Act gate = s.split_heads("attn_gate_heads", s.linear("attn_gate", x, n), n);
  return attention_output(s, c, s.glu(Activation::Sigmoid, gate, y, "attn_gated"));
}

Act mixed(Scope s, const Config& c, const std::optional<Rotary>& rot, Act x) {
  if (!c.attends(s.layer())) return kimi_delta_attention(s, c, x);
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
