// lfm2: the dense LFM2 and LFM2.5 models, the text part. Most layers are a convolution over a few tokens between two
// gates; the others attend, with each head of q and k normalised.
#include "model/hybrid.h"

namespace llm {
namespace {

ConvConfig configure(const Metadata& md) {
  ConvConfig c = read_conv_config(md, "lfm2", {"attention.head_count_kv"});
  refuse_experts(md, c);
  return c;
}

Act forward(Net& net, const ConvConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    const bool attends = c.attends[static_cast<std::size_t>(i)];
    x = a.add("attn_residual", x, attends ? head_norm_attention(a, c, rot, y) : gated_short_conv(a, c, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps), c.d_ff, c.n_embd));
  }
  // The norm of the output under the name that one of the embedding would have.
  x = net.top(Role::Head).rms_norm("token_embd_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_lfm2(const Metadata& md) {
  const ConvConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
