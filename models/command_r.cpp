// command-r: Command R, Command R+ and Aya. Attention and feed-forward network read one norm, whose mean is subtracted,
// and are added together. The largest model normalises each head of queries and keys by weights of its own.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float logit_scale = 1;
};

Config configure(const Metadata& md) {
  Config c{read_layer_norm_config(md, "command-r", {"logit_scale"})};
  const HyperParameters hp(md, "command-r");
  c.logit_scale = hp.nonzero_real({"logit_scale", 0, kUnbounded}).value_or(1.0f);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.layer_norm("attn_norm", x, c.norm_eps);
    const Act attended = own_norms_attention(a, c, rot, y);
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, y));
    x = f.add("attn_residual", x, attended);
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, c.logit_scale);
}

}  // namespace

ModelSpec open_command_r(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
