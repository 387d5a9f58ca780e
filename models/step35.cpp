// step35: Step-3.5-Flash. Layers that see a window have more heads than those that see all, and turn the whole of each,
// by another base; the others turn half of each. A head's result passes a gate of its own. Behind the dense layers,
// experts chosen by sigmoids and a bias, beside them one that all tokens share; in the last layers gates and what they
// meet are limited.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  RopeTable local_rope = {};              ///< of layers with a window
  std::int64_t n_factors = 0;             ///< of the tensor of Llama 3's factors, as many as any layer needs
  std::vector<float> limits = {};         ///< Glu::limit of each layer's experts
  std::vector<float> shared_limits = {};  ///< and of its other networks
};

/// Zeros where the file has none.
std::vector<float> read_limits(const HyperParameters& hp, std::string_view key, int layers) {
  std::vector<float> limits(static_cast<std::size_t>(layers), 0.0f);
  if (!hp.has(key)) return limits;
  limits = hp.metadata().one_or_each<float>(hp.key(key), limits.size());
  for (const float limit : limits)
    if (!std::isfinite(limit) || limit < 0)
      hp.fail(key, "value " + value_text(limit) + " is not a finite number from 0 on");
  return limits;
}

/// rope.dimension_count is that of layers with a window.
void read_rotations(const Metadata& md, Config& c) {
  const HyperParameters hp(md, c.architecture);
  const IntegerRule local{"rope.dimension_count_swa", 2, c.head_dim};
  c.local_rope = {.n_rot = static_cast<int>(hp.optional_integer(local).value_or(c.rope.n_rot)),
                  .base = read_local_base(md, c, c.rope.base)};
  if (c.rope.n_rot % 4 != 0 || c.local_rope.n_rot % 2 != 0)
    hp.fail("rope.dimension_count", "value " + std::to_string(c.rope.n_rot) +
                                        ": half of it, and that of rope.dimension_count_swa, are rotated in pairs");
  c.n_factors = std::max(c.rope.n_rot / 2, c.local_rope.n_rot) / 2;
  c.rope.n_rot /= 2;
}

Config configure(const Metadata& md) {
  Config c{read_decoder_config(
      md, "step35",
      {"attention.head_count", "attention.head_count_kv", "attention.sliding_window_pattern", "expert_gating_func",
       "expert_shared_feed_forward_length", "leading_dense_block_count", "nextn_predict_layers"})};
  const HyperParameters hp(md, "step35");
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  c.moe->d_shared = read_shared_width(md, c);
  read_leading_dense(md, c);
  require_local_layers(md, c);
  read_rotations(md, c);
  c.limits = read_limits(hp, "swiglu_clamp_exp", c.n_layers);
  c.shared_limits = read_limits(hp, "swiglu_clamp_shexp", c.n_layers);
  require_all_attend(md, c);
  leave_prediction_layers_out(md, c);
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const auto normed = [&](std::string_view name, Act part) {
    return s.has(name) ? s.rms_norm(name, part, c.norm_eps) : part;
  };
  const Act q = s.rope("attn_q_rope", normed("attn_q_norm", heads.q), rot);
  const Act k = s.rope("attn_k_rope", normed("attn_k_norm", heads.k), rot);
  Act y = results_by_heads(s, c, {q, k, heads.v});
  if (s.has("attn_gate")) {
    const int n = c.of(s.layer()).heads;
    const Act gate = s.split_heads("attn_gate_heads", s.linear("attn_gate", x, n), n);
    y = s.glu(Activation::Sigmoid, gate, y, "attn_gated");
  }
  return attention_output(s, c, y);
}

Act dense_ffn(Scope s, const Config& c, float limit, Act x) {
  const std::int64_t d_ff = c.of(s.layer()).d_ff;
  const Act gate = s.linear("ffn_gate", x, d_ff), up = s.linear("ffn_up", x, d_ff);
  const Act h = s.glu({.activation = Activation::Silu, .limit = limit}, gate, up, "ffn_glu");
  return s.linear("ffn_down", h, c.n_embd);
}

Act ffn(Scope s, const Config& c, Act x) {
  const auto layer = static_cast<std::size_t>(s.layer());
  if (!c.moe->is_in(s.layer())) return dense_ffn(s, c, c.shared_limits[layer], x);
  MoeConfig m = *c.moe;
  m.limit = c.limits[layer];
  m.shared_limit = c.shared_limits[layer];
  return shared_moe_ffn(s, m, x, c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves, "rope_freqs", c.n_factors, "rope_table");
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, attention(a, c, c.is_local(i) ? local : global, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_step35(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
