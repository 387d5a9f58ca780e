// stablelm: StableLM 3B, StableLM 2 1.6B and 12B, StableCode. Norms subtract the mean, part of each head is rotated. In
// the largest model heads are normalised, and the feed-forward network reads the norm that attention reads.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  return read_layer_norm_config(md, "stablelm", {"use_parallel_residual"});
}

/// Files say by a norm of its own which input the feed-forward network has; a key of theirs is wrong in some.
Act ffn_input(Scope s, const DecoderConfig& c, Act x, Act attention_input) {
  return s.has("ffn_norm") ? s.layer_norm("ffn_norm", x, c.norm_eps) : attention_input;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = a.layer_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, own_norms_attention(a, c, rot, y));
    Scope f = net.layer(i, Role::Ffn);
    y = ffn_input(f, c, x, y);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, y));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_stablelm(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
