// bloom: BLOOM, BLOOMZ. Nothing is rotated: scores fall with the distance (ALiBi). Norms subtract the mean, the first
// is that of the embedding; everything has a bias; queries, keys and values are rows of one matrix.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr float kMaxBias = 8;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_layer_norm_config(md, "bloom", {"attention.max_alibi_bias"});
  c.max_bias = read_max_bias(md, c, kMaxBias);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).layer_norm("token_embd_norm", x, c.norm_eps);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, unrotated_attention(a, c, a.layer_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.layer_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, ungated_ffn(f, c, Nonlinearity::Gelu, y));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_bloom(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
