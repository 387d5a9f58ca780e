// llama: Llama 1 to 3.x, Mistral, TinyLlama, SmolLM2; with experts Mixtral. Biases are used where a file has them.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "llama", {"rope.scaling.yarn_log_multiplier"});
  read_log_multiplier(md, c);
  c.moe = read_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  return c;
}

Act ffn(Scope s, const DecoderConfig& c, Act x) {
  if (c.moe) return moe_ffn(s, *c.moe, x, c.n_embd);
  return glu_ffn(s, c, Activation::Silu, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  // Llama 3.1 and later files carry factors per frequency.
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_llama(const Metadata& md) {
  const DecoderConfig c = configure(md);
  // Early converters stored the rotary frequencies, which follow from the base.
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = {"blk.*.attn_rot_embd*"}};
}

}  // namespace llm
