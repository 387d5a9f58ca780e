#include "model/blocks.h"

#include <string>

namespace llm {

namespace {

/// By rows of attn_qkv.
AttentionHeads fused_attention_heads(Scope s, const DecoderConfig& c, Act x) {
  const LayerSizes& n = c.of(s.layer());
  const std::int64_t q_rows = n.heads * c.head_dim, k_rows = n.kv_heads * c.head_dim,
                     v_rows = n.kv_heads * c.head_dim_v;
  const auto heads = [&](std::string_view name, RowRange rows, int n) {
    const Act y = s.linear_rows(name, "attn_qkv", q_rows + k_rows + v_rows, x, rows);
    return s.split_heads(std::string(name) + "_heads", y, n);
  };
  const Act q = heads("attn_q", {0, q_rows}, n.heads);
  const Act k = heads("attn_k", {q_rows, k_rows}, n.kv_heads);
  const Act v = heads("attn_v", {q_rows + k_rows, v_rows}, n.kv_heads);
  return {q, k, v};
}

Attention attention_attributes(const Scope& s, const DecoderConfig& c) {
  return {
      .scale = c.attention_scale, .soft_cap = c.score_cap, .max_bias = c.max_bias, .window = c.window_of(s.layer())};
}

}  // namespace

AttentionHeads attention_heads(Scope s, const DecoderConfig& c, Act x) {
  if (s.has("attn_qkv")) return fused_attention_heads(s, c, x);
  const LayerSizes& n = c.of(s.layer());
  const Act q = s.split_heads("attn_q_heads", s.linear("attn_q", x, n.heads * c.head_dim), n.heads);
  const Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, n.kv_heads * c.head_dim), n.kv_heads);
  const Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, n.kv_heads * c.head_dim_v), n.kv_heads);
  return {q, k, v};
}

AttentionHeads clamp_heads(Scope s, const AttentionHeads& heads, float limit) {
  if (limit == 0) return heads;
  const Activate clamp{.function = Nonlinearity::Clamp, .limit = limit};
  const Act q = s.activate("attn_q_clamped", clamp, heads.q);
  const Act k = s.activate("attn_k_clamped", clamp, heads.k);
  return {q, k, s.activate("attn_v_clamped", clamp, heads.v)};
}

AttentionHeads normalize_heads(Scope s, const DecoderConfig& c, const AttentionHeads& heads) {
  const Act q = s.rms_norm("attn_q_norm", heads.q, c.norm_eps);
  const Act k = s.rms_norm("attn_k_norm", heads.k, c.norm_eps);
  return {q, k, heads.v};
}

AttentionHeads rotate_heads(Scope s, const AttentionHeads& heads, const Rotary& rot) {
  const Act q = s.rope("attn_q_rope", heads.q, rot);
  const Act k = s.rope("attn_k_rope", heads.k, rot);
  return {q, k, heads.v};
}

Act scale_queries(Scope s, Act q, const std::optional<Act>& scale) {
  if (!scale) return q;
  const auto heads = static_cast<int>(s.shape(q)[1]);
  const Act flat = s.glu(Activation::Identity, *scale, s.flatten_heads("attn_q_flat", q), "attn_q_grown");
  return s.split_heads("attn_q_scaled", flat, heads);
}

Act results_by_heads(Scope s, const DecoderConfig& c, const AttentionHeads& heads) {
  return s.attention(heads.q, s.kv_append(heads.k, heads.v), attention_attributes(s, c));
}

Act results_with_sinks(Scope s, const DecoderConfig& c, const AttentionHeads& heads) {
  return s.attention(heads.q, s.kv_append(heads.k, heads.v), attention_attributes(s, c), "attn_sinks");
}

Act attention_output(Scope s, const DecoderConfig& c, Act results) {
  return s.linear("attn_output", s.flatten_heads("attn_flat", results), c.n_embd);
}

Act attend(Scope s, const DecoderConfig& c, const AttentionHeads& heads) {
  return attention_output(s, c, results_by_heads(s, c, heads));
}

Act bare_rms_norm(Scope s, std::string_view name, Act x, float eps) {
  const std::string tensor(name);
  return s.rms_norm(tensor + "ed", x, eps, s.has(name) ? tensor + ".weight" : tensor);
}

Act rotary_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  return rotary_attention(s, c, rot, attention_heads(s, c, x));
}

Act rotary_attention(Scope s, const DecoderConfig& c, const Rotary& rot, const AttentionHeads& heads) {
  return attend(s, c, rotate_heads(s, heads, rot));
}

Act head_norm_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  return rotary_attention(s, c, rot, normalize_heads(s, c, attention_heads(s, c, x)));
}

Act whole_norm_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const LayerSizes& n = c.of(s.layer());
  Act q = s.rms_norm("attn_q_norm", s.linear("attn_q", x, n.heads * c.head_dim), c.norm_eps);
  Act k = s.rms_norm("attn_k_norm", s.linear("attn_k", x, n.kv_heads * c.head_dim), c.norm_eps);
  const Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, n.kv_heads * c.head_dim_v), n.kv_heads);
  q = s.rope("attn_q_rope", s.split_heads("attn_q_heads", q, n.heads), rot);
  k = s.rope("attn_k_rope", s.split_heads("attn_k_heads", k, n.kv_heads), rot);
  return attend(s, c, {q, k, v});
}

Act own_norms_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const auto normed = [&](std::string_view name, Act part) {
    return s.has(name) ? s.head_layer_norm(name, part, c.norm_eps) : part;
  };
  const Act q = s.rope("attn_q_rope", normed("attn_q_norm", heads.q), rot);
  const Act k = s.rope("attn_k_rope", normed("attn_k_norm", heads.k), rot);
  return attend(s, c, {q, k, heads.v});
}

Act unrotated_attention(Scope s, const DecoderConfig& c, Act x) { return attend(s, c, attention_heads(s, c, x)); }

Act unrotated_head_norm_attention(Scope s, const DecoderConfig& c, Act x) {
  return attend(s, c, normalize_heads(s, c, attention_heads(s, c, x)));
}

Act norm_rotated_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const Act q = s.rms_norm("attn_q_norm", s.rope("attn_q_rope", heads.q, rot), c.norm_eps);
  const Act k = s.rms_norm("attn_k_norm", s.rope("attn_k_rope", heads.k, rot), c.norm_eps);
  return attend(s, c, {q, k, heads.v});
}

Act several_streams(Scope s, Act x, int n) {
  const Act one = s.split_heads("stream", x, 1);
  Act all = one;
  for (int i = 2; i <= n; ++i) all = s.concat("streams_" + std::to_string(i), all, one);
  return s.split_heads("streams", s.flatten_heads("streams_flat", all), n);
}

Act capped_logits(Net& net, Act logits, float cap) {
  return cap > 0 ? net.top(Role::Head).soft_cap("output_capped", logits, cap) : logits;
}

Act glu_ffn(Scope s, const DecoderConfig& c, Activation activation, Act x) {
  return glu_ffn(s, c, Glu{.activation = activation}, x);
}

Act glu_ffn(Scope s, const DecoderConfig& c, const Glu& gated, Act x) {
  const std::int64_t d_ff = c.of(s.layer()).d_ff;
  const Act gate = s.linear("ffn_gate", x, d_ff), up = s.linear("ffn_up", x, d_ff);
  return s.linear("ffn_down", s.glu(gated, gate, up, "ffn_glu"), c.n_embd);
}

Act fused_glu_ffn(Scope s, const DecoderConfig& c, Activation activation, Act x) {
  const std::int64_t d_ff = c.of(s.layer()).d_ff;
  const Act gate = s.linear_rows("ffn_gate", "ffn_up", 2 * d_ff, x, {0, d_ff});
  const Act up = s.linear_rows("ffn_up", "ffn_up", 2 * d_ff, x, {d_ff, d_ff});
  return s.linear("ffn_down", s.glu(activation, gate, up), c.n_embd);
}

Act ungated_ffn(Scope s, const DecoderConfig& c, Nonlinearity function, Act x) {
  const Act up = s.linear("ffn_up", x, c.of(s.layer()).d_ff);
  return s.linear("ffn_down", s.activate("ffn_activated", {.function = function}, up), c.n_embd);
}

ExpertWeights expert_weights(Scope s, const MoeConfig& m, std::int64_t n_embd) {
  Scope in = s.with(Role::Experts);
  const auto from_input = [&](std::string_view name, std::int64_t n) {
    return in.expert_weight(name, n_embd, n, m.experts);
  };
  ExpertWeights w;
  w.merged = in.has("ffn_gate_up_exps");
  w.gate = w.merged ? from_input("ffn_gate_up_exps", 2 * m.d_ff) : from_input("ffn_gate_exps", m.d_ff);
  if (!w.merged) w.up = from_input("ffn_up_exps", m.d_ff);
  w.down = in.expert_weight("ffn_down_exps", m.d_ff, n_embd, m.experts);
  return w;
}

Act expert_results(Scope s, const MoeConfig& m, const ExpertWeights& w, Act x, const Routes& routes,
                   std::string_view glu) {
  Scope in = s.with(Role::Experts);
  Act gate, up;  // [d_ff, active, tokens]
  if (w.merged) {
    const Act both = in.expert_linear("ffn_gate_up_exps", x, routes, w.gate);
    gate = in.slice("ffn_gate_exps", both, {.begin = 0, .n = m.d_ff});
    up = in.slice("ffn_up_exps", both, {.begin = m.d_ff, .n = m.d_ff});
  } else {
    gate = in.expert_linear("ffn_gate_exps", x, routes, w.gate);
    up = in.expert_linear("ffn_up_exps", x, routes, w.up);
  }
  const Glu gated{.activation = m.activation, .limit = m.limit.all, .gate_limit = m.limit.gate};
  return in.expert_linear("ffn_down_exps", in.glu(gated, gate, up, glu), routes, w.down);
}

Act expert_ffn(Scope s, const MoeConfig& m, const ExpertWeights& w, Act x, const Routes& routes, std::string_view glu) {
  const Act y = expert_results(s, m, w, x, routes, glu);
  return s.with(Role::Experts).combine("ffn_moe", y, routes);  // the weighted sum over the active experts
}

Route routing(const MoeConfig& m) {
  return {.top_k = m.active,
          .gating = m.gate,
          .weights = m.weights,
          .scale = m.scale,
          .groups = m.groups,
          .groups_used = m.groups_used,
          .group_best = m.group_best};
}

Routes choose_experts(Scope s, const MoeConfig& m, Act x) {
  Scope router = s.with(Role::Router);
  const Act logits = router.linear("ffn_gate_inp", x, m.experts);
  return router.route("ffn_routes", logits, routing(m), "exp_probs_b");
}

Act moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd) {
  // Before the router, so that a wrong expert_count is reported on the experts themselves.
  const ExpertWeights weights = expert_weights(s, m, n_embd);
  return expert_ffn(s, m, weights, x, choose_experts(s, m, x));
}

Act shared_expert(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd) {
  Act gate = s.linear("ffn_gate_shexp", x, m.d_shared);
  Act up = s.linear("ffn_up_shexp", x, m.d_shared);
  const Glu gated{.activation = m.activation, .limit = m.shared_limit.all, .gate_limit = m.shared_limit.gate};
  return s.linear("ffn_down_shexp", s.glu(gated, gate, up, "ffn_glu_shexp"), n_embd);
}

Act gated_shared_moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd) {
  const Act routed = moe_ffn(s, m, x, n_embd);
  const Act shared = shared_expert(s, m, x, n_embd);
  const Act gate = s.linear("ffn_gate_inp_shexp", x, 1);
  return s.add("ffn_sum", routed, s.glu(Activation::Sigmoid, gate, shared, "ffn_shexp_gated"));
}

Act shared_moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd) {
  const Act y = moe_ffn(s, m, x, n_embd);
  return m.d_shared > 0 ? s.add("ffn_sum", y, shared_expert(s, m, x, n_embd)) : y;
}

Act moe_or_dense_ffn(Scope s, const DecoderConfig& c, Act x) {
  if (c.moe->is_in(s.layer())) return shared_moe_ffn(s, *c.moe, x, c.n_embd);
  return glu_ffn(s, c, c.moe->activation, x);
}

}  // namespace llm
