// gpt-oss: 20B and 120B. Biases on every projection, a sink in every head, windows in every other layer, experts with a
// clamped gate; the weights of the chosen ones are the softmax of their logits.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 2;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "gpt-oss", {"attention.sliding_window_pattern"});
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  c.moe->activation = Activation::ClampedSilu;
  read_local_layers(md, c, kPeriod);
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = rotate_heads(s, attention_heads(s, c, x), rot);
  return attention_output(s, c, results_with_sinks(s, c, heads));
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.rms_norm("post_attention_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, moe_ffn(f, *c.moe, y, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_gpt_oss(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
