#include "model/blocks.h"

#include <string>

namespace llm {

Act rotary_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  Act q = s.split_heads("attn_q_heads", s.linear("attn_q", x, c.heads * c.head_dim), c.heads);
  Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, c.kv_heads * c.head_dim), c.kv_heads);
  Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, c.kv_heads * c.head_dim_v), c.kv_heads);
  q = s.rope("attn_q_rope", q, rot);
  k = s.rope("attn_k_rope", k, rot);
  return attend(s, c, q, k, v);
}

Act head_norm_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  Act q = s.split_heads("attn_q_heads", s.linear("attn_q", x, c.heads * c.head_dim), c.heads);
  Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, c.kv_heads * c.head_dim), c.kv_heads);
  Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, c.kv_heads * c.head_dim_v), c.kv_heads);
  q = s.rms_norm("attn_q_norm", q, c.norm_eps);
  k = s.rms_norm("attn_k_norm", k, c.norm_eps);
  q = s.rope("attn_q_rope", q, rot);
  k = s.rope("attn_k_rope", k, rot);
  return attend(s, c, q, k, v);
}

Act own_norms_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const auto normed = [&](std::string_view name, Act heads) {
    return s.has(std::string(name) + ".weight") ? s.head_layer_norm(name, heads, c.norm_eps) : heads;
  };
  Act q = s.split_heads("attn_q_heads", s.linear("attn_q", x, c.heads * c.head_dim), c.heads);
  Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, c.kv_heads * c.head_dim), c.kv_heads);
  Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, c.kv_heads * c.head_dim_v), c.kv_heads);
  q = s.rope("attn_q_rope", normed("attn_q_norm", q), rot);
  k = s.rope("attn_k_rope", normed("attn_k_norm", k), rot);
  return attend(s, c, q, k, v);
}

Act fused_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const std::int64_t q_rows = c.heads * c.head_dim, k_rows = c.kv_heads * c.head_dim,
                     v_rows = c.kv_heads * c.head_dim_v;
  const auto heads = [&](std::string_view name, RowRange rows, int n) {
    const Act y = s.linear_rows(name, "attn_qkv", q_rows + k_rows + v_rows, x, rows);
    return s.split_heads(std::string(name) + "_heads", y, n);
  };
  Act q = heads("attn_q", {0, q_rows}, c.heads);
  Act k = heads("attn_k", {q_rows, k_rows}, c.kv_heads);
  Act v = heads("attn_v", {q_rows + k_rows, v_rows}, c.kv_heads);
  q = s.rope("attn_q_rope", q, rot);
  k = s.rope("attn_k_rope", k, rot);
  return attend(s, c, q, k, v);
}

Act unrotated_attention(Scope s, const DecoderConfig& c, Act x) {
  Act q = s.split_heads("attn_q_heads", s.linear("attn_q", x, c.heads * c.head_dim), c.heads);
  Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, c.kv_heads * c.head_dim), c.kv_heads);
  Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, c.kv_heads * c.head_dim_v), c.kv_heads);
  return attend(s, c, q, k, v);
}

Act attend(Scope s, const DecoderConfig& c, Act q, Act k, Act v) {
  Cache kv = s.kv_append(k, v);
  const int window = c.window_of(s.layer());
  Act y = s.attention(q, kv, {.scale = c.attention_scale, .soft_cap = c.score_cap, .window = window});
  return s.linear("attn_output", s.flatten_heads("attn_flat", y), c.n_embd);
}

Act capped_logits(Net& net, Act logits, float cap) {
  return cap > 0 ? net.top(Role::Head).soft_cap("output_capped", logits, cap) : logits;
}

Act glu_ffn(Scope s, Activation activation, Act x, std::int64_t d_ff, std::int64_t n_embd) {
  Act gate = s.linear("ffn_gate", x, d_ff);
  Act up = s.linear("ffn_up", x, d_ff);
  return s.linear("ffn_down", s.glu(activation, gate, up), n_embd);
}

Act fused_glu_ffn(Scope s, Activation activation, Act x, std::int64_t d_ff, std::int64_t n_embd) {
  Act gate = s.linear_rows("ffn_gate", "ffn_up", 2 * d_ff, x, {0, d_ff});
  Act up = s.linear_rows("ffn_up", "ffn_up", 2 * d_ff, x, {d_ff, d_ff});
  return s.linear("ffn_down", s.glu(activation, gate, up), n_embd);
}

Act ungated_ffn(Scope s, Nonlinearity function, Act x, std::int64_t d_ff, std::int64_t n_embd) {
  const Act up = s.linear("ffn_up", x, d_ff);
  return s.linear("ffn_down", s.activate("ffn_activated", function, up), n_embd);
}

Act moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd) {
  Scope experts = s.with(Role::Experts);
  Scope router = s.with(Role::Router);
  // Before the router, so that a wrong expert_count is reported on the experts themselves.
  const Weight w_gate = experts.expert_weight("ffn_gate_exps", n_embd, m.d_ff, m.experts);
  const Weight w_up = experts.expert_weight("ffn_up_exps", n_embd, m.d_ff, m.experts);
  const Weight w_down = experts.expert_weight("ffn_down_exps", m.d_ff, n_embd, m.experts);

  Act logits = router.linear("ffn_gate_inp", x, m.experts);
  Routes routes = router.route(logits, {.top_k = m.active, .gating = m.gate, .weights = m.weights, .scale = m.scale});
  Act gate = experts.expert_linear("ffn_gate_exps", x, routes, w_gate);  // [d_ff, active, tokens]
  Act up = experts.expert_linear("ffn_up_exps", x, routes, w_up);
  Act down = experts.expert_linear("ffn_down_exps", experts.glu(m.activation, gate, up), routes, w_down);
  return experts.combine(down, routes);  // the weighted sum over the active experts: [n_embd, tokens]
}

}  // namespace llm
