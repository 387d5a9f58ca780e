// gpt2, starcoder: GPT-2; StarCoder, whose heads share one of keys and values. Positions have embeddings, which are
// added to those of the tokens: nothing is rotated. Norms subtract the mean, everything has a bias, queries, keys and
// values are rows of one matrix.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  return read_layer_norm_config(md, md.get<std::string_view>("general.architecture"));
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  const Act positions = net.embed("position_embd", step.positions, c.context, c.n_embd);
  x = net.top(Role::Embed).add("embedded", x, positions);
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

ModelSpec open_gpt2(const Metadata& md) {
  const DecoderConfig c = configure(md);
  ModelDims dims = c.dims();
  dims.positions = c.context;
  return {.dims = dims, .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
