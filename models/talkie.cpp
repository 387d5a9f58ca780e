// talkie: Talkie 13B. Norms have no weights, that of the embedding among them; the normalised embedding comes back in
// every layer, by a number of the layer's. Heads are normalised after they are turned, those of queries times a number
// each.
#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float logit_scale = 1;
};

Config configure(const Metadata& md) {
  Config c{read_dense_config(md, "talkie", {"logit_scale"})};
  refuse_window(md, c);
  c.logit_scale = read_scales(md, c).logits;
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = rotate_heads(s, attention_heads(s, c, x), rot);
  const Act unit_q = s.unit_rms_norm("attn_q_unit", heads.q, c.norm_eps);
  const Act q = s.scale_heads("attn_q_scaled", unit_q, "attn_q_norm");
  const Act k = s.unit_rms_norm("attn_k_unit", heads.k, c.norm_eps);
  return attend(s, c, {q, k, heads.v});
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).unit_rms_norm("embed_norm", x, c.norm_eps);
  const Act embedding = x;
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.unit_rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.unit_rms_norm("ffn_norm", x, c.norm_eps)));
    x = f.add("embed_residual", x, f.scale("embed_scaled", embedding, "layer_output_scale"));
  }
  x = net.top(Role::Head).unit_rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  const Act logits = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("logits_scaled", logits, c.logit_scale);
}

}  // namespace

ModelSpec open_talkie(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
