// dbrx: DBRX. Norms subtract the mean; queries, keys and values are rows of one matrix, and none of their elements
// exceeds a limit; experts in every layer.
#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float clamp = 0;
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "dbrx", {"attention.clamp_kqv", "attention.layer_norm_rms_epsilon"})};
  refuse_window(md, c);
  c.norm_eps = read_layer_norm_epsilon(md, c);
  c.clamp = read_clamp(md, c);
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const AttentionHeads heads = attention_heads(a, c, a.layer_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, clamp_heads(a, heads, c.clamp)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_ffn(f, *c.moe, f.layer_norm("attn_output_norm", x, c.norm_eps), c.n_embd));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_dbrx(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
