// plm: PLM-1.8B. Latent attention, whose cache holds the keys and values of heads; the feed-forward network has no gate
// and takes the squares of what is positive.
#include "model/blocks.h"
#include "model/hyper_parameters.h"
#include "model/latent_attention.h"

namespace llm {
namespace {

LatentConfig configure(const Metadata& md) {
  LatentConfig c{read_dense_config(md, "plm")};
  const HyperParameters hp(md, "plm");
  if (hp.has("attention.key_length_mla"))
    hp.fail("attention.key_length_mla", "a cache of latents is not supported for plm");
  read_latent_heads(md, c);
  return c;
}

Act forward(Net& net, const LatentConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, latent_attention(a, c, rot, /*growth=*/{}, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, ungated_ffn(f, c, Nonlinearity::SquaredRelu, y));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_plm(const Metadata& md) {
  const LatentConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
