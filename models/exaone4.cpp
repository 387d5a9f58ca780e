// exaone4: EXAONE 4.0. Each block's result is normalised, not its input, and so is each head of q and k. Where a file
// has a window (32B), three of every four layers see that alone and the fourth, which sees all, has no positions: its
// queries and keys are not rotated.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "exaone4", {"attention.sliding_window_pattern"});
  refuse_experts(md, c);
  if (c.window > 0) read_local_layers(md, c, kPeriod);
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  if (c.window > 0 && !c.is_local(s.layer())) return unrotated_head_norm_attention(s, c, x);
  return head_norm_attention(s, c, rot, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", attention(a, c, rot, x), c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", glu_ffn(f, c, Activation::Silu, x), c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_exaone4(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
