// qwen3, qwen3moe, qwen3vl, qwen3vlmoe: the Qwen3 models, dense and with experts (30B-A3B, 235B-A22B), and the text
// part of Qwen3-VL. Each head of q and k is normalised; no biases. With experts, every layer routes its tokens, and the
// weights of the chosen ones sum to 1; none is shared. A token of text has one position in all of
// rope.dimension_sections, so the rotation is the plain one; the layers of n_deepstack_layers take in pictures alone.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  if (!arch.ends_with("moe")) return read_dense_config(md, arch);
  DecoderConfig c = read_decoder_config(md, arch);
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  refuse_window(md, c);
  return c;
}

Act ffn(Scope s, const DecoderConfig& c, Act x) {
  return c.moe ? moe_ffn(s, *c.moe, x, c.n_embd) : glu_ffn(s, c, Activation::Silu, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_qwen3(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
