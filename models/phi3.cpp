// phi3: Phi-3, 3.5 and 4, dense. Queries, keys and values are rows of one matrix, gate and up of another; files for
// long contexts have two sets of divisors of the rotary frequencies (arXiv:2402.13753).
#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  std::string_view factors;  ///< the tensor, where a file has it
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "phi3", {"rope.scaling.type"}), {}};
  refuse_experts(md, c);
  c.factors = longrope_factors(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, c.factors);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, y));
    Scope f = net.layer(i, Role::Ffn);
    y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, fused_glu_ffn(f, c, Activation::Silu, y));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_phi3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"rope_factors_long.weight", "rope_factors_short.weight"}};
}

}  // namespace llm
