// nemotron, starcoder2: Minitron, Nemotron-4; StarCoder2, 3B to 15B. Norms subtract the mean and have biases, and the
// feed-forward network has no gate. Of Nemotron it takes the squares of what is positive, and part of each head is
// rotated; of StarCoder2 everything has a bias.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  Nonlinearity function = Nonlinearity::Gelu;  ///< of the feed-forward network
};

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{read_layer_norm_config(md, arch)};
  if (arch == "nemotron") c.function = Nonlinearity::SquaredRelu;
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
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
