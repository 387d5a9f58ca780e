// nemotron, jais2, starcoder2, codeshell: Minitron, Nemotron-4; Jais 2; StarCoder2, 3B to 15B; CodeShell. Norms
// subtract the mean and have biases, and the feed-forward network has no gate. Of Nemotron and Jais it takes the
// squares of what is positive; of Nemotron part of each head is rotated, of the others everything has a bias.
// CodeShell's queries, keys and values are rows of one matrix.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  Nonlinearity function = Nonlinearity::Gelu;  ///< of the feed-forward network
  std::string_view embedding_tied_to = {};     ///< where files may have no token_embd
};

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{read_layer_norm_config(md, arch)};
  if (arch == "nemotron" || arch == "jais2") c.function = Nonlinearity::SquaredRelu;
  if (arch == "codeshell") c.embedding_tied_to = "output";
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd, c.embedding_tied_to);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.layer_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.layer_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, ungated_ffn(f, c, c.function, y));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_nemotron(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
