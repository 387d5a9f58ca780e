// jais: Jais 13B and 30B. Nothing is rotated: scores fall with the distance (ALiBi), and before that are divided by the
// length of a head, not by its root. Norms subtract the mean, everything has a bias, queries, keys and values are rows
// of one matrix.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_layer_norm_config(md, "jais", {"attention.max_alibi_bias"});
  c.max_bias = read_max_bias(md, c, /*otherwise=*/0);
  if (c.max_bias == 0)
    HyperParameters(md, c.architecture)
        .fail("attention.max_alibi_bias", "is missing or 0, but nothing else tells the model where tokens are");
  c.attention_scale = 1 / static_cast<float>(c.head_dim);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, unrotated_attention(a, c, a.layer_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.layer_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, y));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_jais(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
