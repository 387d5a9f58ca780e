// falcon, phi2: Falcon 7B, 40B, 180B and 11B; Phi-1, 1.5 and 2. Norms subtract the mean and have biases; attention and
// feed-forward network read one norm, or in larger models of Falcon each its own of the same stream, and are added
// together. Falcon has few heads of keys and values, which are rows of one matrix with the queries, as in older files
// of Phi; in Phi everything has a bias, logits, too, and part of each head is rotated.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  return read_layer_norm_config(md, md.get<std::string_view>("general.architecture"));
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.layer_norm("attn_norm", x, c.norm_eps);
    const Act own = a.has("attn_norm_2") ? a.layer_norm("attn_norm_2", x, c.norm_eps) : y;
    const Act attended = rotary_attention(a, c, rot, own);
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ungated_ffn(f, c, Nonlinearity::Gelu, y));
    x = f.add("attn_residual", x, attended);
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_falcon(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
