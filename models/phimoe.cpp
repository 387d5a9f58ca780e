// phimoe: Phi-3.5-MoE, Phi-mini-MoE. Norms that subtract the mean, biases everywhere; experts whose weights go by the
// logits near the best one, so that they do not sum to 1. Files have two sets of divisors of the rotary frequencies, as
// phi3's.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  std::string_view factors = {};
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "phimoe", {"rope.scaling.type"})};
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::NearBest);
  c.factors = longrope_factors(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, c.factors);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.layer_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_ffn(f, *c.moe, f.layer_norm("ffn_norm", x, c.norm_eps), c.n_embd));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_phimoe(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"rope_factors_long.weight", "rope_factors_short.weight"}};
}

}  // namespace llm
