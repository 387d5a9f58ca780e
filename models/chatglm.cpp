// chatglm: ChatGLM 2 and 3, GLM-4-9B, GLM-Edge. Biases on queries, keys and values, which are rows of one matrix as
// gate and up are; half of each head is rotated.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) { return read_dense_config(md, "chatglm"); }

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, fused_glu_ffn(f, c, Activation::Silu, y));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_chatglm(const Metadata& md) {
  const DecoderConfig c = configure(md);
  // Early converters stored the rotary frequencies, which follow from the base.
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = {"rope_freqs.weight"}};
}

}  // namespace llm
