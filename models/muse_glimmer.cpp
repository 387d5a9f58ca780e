// muse-glimmer: Muse Glimmer: the text part. Blocks have norms on both sides, those behind them with an epsilon of
// their own, heads are normalised, and what attention gives passes a gate; the embedding is normalised by no weights.
// Of every four layers three see a window and turn heads, the fourth sees all without positions.
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;
constexpr float kPostEpsilon = 1e-8f;  // no key of the format says it

struct Config : DecoderConfig {
  float logit_scale = 1, logit_cap = 0;  ///< logit_cap: 0: none
};

Config configure(const Metadata& md) {
  constexpr std::string_view kScale = "logit_scale", kCap = "final_logit_softcapping";
  Config c{read_decoder_config(md, "muse-glimmer", {"attention.sliding_window_pattern", kScale, kCap})};
  const HyperParameters hp(md, c.architecture);
  refuse_experts(md, c);
  read_local_layers(md, c, kPeriod);
  // Only these layers turn, by angles that no scaling changes: that would be of the others.
  c.rope = {.n_rot = c.rope.n_rot, .base = read_local_base(md, c, c.rope.base)};
  c.logit_scale = hp.real({kScale, 0, kUnbounded});
  c.logit_cap = hp.nonzero_real({kCap, 0, kUnbounded}).value_or(0.0f);
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const Act gate = s.linear("attn_gate", x, c.of(s.layer()).heads * c.head_dim_v);
  const AttentionHeads normal = normalize_heads(s, c, heads);
  const bool turns = c.local[static_cast<std::size_t>(s.layer())];
  const Act y = s.flatten_heads("attn_flat", results_by_heads(s, c, turns ? rotate_heads(s, normal, rot) : normal));
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gate, y, "attn_gated"), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).unit_rms_norm("embed_normal", x, c.norm_eps);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, kPostEpsilon));
    Scope f = net.layer(i, Role::Ffn);
    y = glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", y, kPostEpsilon));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return capped_logits(net, net.top(Role::Head).scale("output_scaled", x, c.logit_scale), c.logit_cap);
}

}  // namespace

ModelSpec open_muse_glimmer(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
