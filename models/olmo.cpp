// olmo: OLMo 1. Norms subtract the mean and have no weights; of some files, queries, keys and values are kept within a
// limit.
#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float clamp = 0;
};

Config configure(const Metadata& md) {
  Config c{read_layer_norm_config(md, "olmo", {"attention.clamp_kqv"})};
  c.clamp = read_clamp(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const AttentionHeads heads = attention_heads(a, c, a.unit_layer_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, clamp_heads(a, heads, c.clamp)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.unit_layer_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, y));
  }
  x = net.top(Role::Head).unit_layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_olmo(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
