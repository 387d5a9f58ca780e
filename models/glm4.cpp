// glm4: GLM-4 0414, 9B and 32B, and GLM-Z1. Each block's result is normalised, too, before it is added; half of each
// head is rotated; gate and up are rows of one matrix.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "glm4");
  refuse_experts(md, c);
  refuse_window(md, c);
  HyperParameters(md, "glm4").expect_neutral("rope.dimension_sections", 0, 0);  // of models that see
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = fused_glu_ffn(f, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps), c.d_ff, c.n_embd);
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_glm4(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
