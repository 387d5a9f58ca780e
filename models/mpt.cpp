// mpt: MPT 7B and 30B, Replit Code. Nothing is rotated: scores fall with the distance (ALiBi), or where they do not,
// positions have embeddings, which are added to those of the tokens. Norms subtract the mean; queries, keys and values
// are rows of one matrix, and of some files none of their elements exceeds a limit.
#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float clamp = 0;
};

Config configure(const Metadata& md) {
  Config c{read_layer_norm_config(md, "mpt", {"attention.clamp_kqv", "attention.max_alibi_bias"})};
  c.clamp = read_clamp(md, c);
  c.max_bias = read_max_bias(md, c, /*otherwise=*/0);
  return c;
}

Act attention(Scope s, const Config& c, Act x) {
  return attend(s, c, clamp_heads(s, attention_heads(s, c, x), c.clamp));
}

Act embed(Net& net, const Config& c, const Step& step) {
  const Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  if (c.max_bias > 0) return x;
  const Act positions = net.embed("position_embd", step.positions, c.context, c.n_embd);
  return net.top(Role::Embed).add("embedded", x, positions);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Act x = embed(net, c, step);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, a.layer_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.layer_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, ungated_ffn(f, c, Nonlinearity::Gelu, y));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_mpt(const Metadata& md) {
  const Config c = configure(md);
  ModelDims dims = c.dims();
  if (c.max_bias == 0) dims.positions = c.context;
  return {.dims = dims, .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
