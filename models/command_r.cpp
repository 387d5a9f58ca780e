// command-r, plamo: Command R, Command R+ and Aya; PLaMo-13B. Attention and feed-forward network read one norm, whose
// mean Command R subtracts, and are added together. Its largest model normalises each head of queries and keys by
// weights of its own.
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  bool layer_norms = true;
  RopePairing pairing = RopePairing::Interleaved;
  float logit_scale = 1;
};

Config configure_plamo(const Metadata& md) {
  Config c{read_dense_config(md, "plamo")};
  c.layer_norms = false;
  c.pairing = RopePairing::Halves;
  return c;
}

Config configure(const Metadata& md) {
  if (md.get<std::string_view>("general.architecture") == "plamo") return configure_plamo(md);
  Config c{read_layer_norm_config(md, "command-r", {"logit_scale"})};
  const HyperParameters hp(md, "command-r");
  c.logit_scale = hp.nonzero_real({"logit_scale", 0, kUnbounded}).value_or(1.0f);
  return c;
}

Act norm(Scope s, const Config& c, std::string_view name, Act x) {
  return c.layer_norms ? s.layer_norm(name, x, c.norm_eps) : s.rms_norm(name, x, c.norm_eps);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, c.pairing);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = norm(a, c, "attn_norm", x);
    const Act attended = own_norms_attention(a, c, rot, y);
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, y));
    x = f.add("attn_residual", x, attended);
  }
  x = norm(net.top(Role::Head), c, "output_norm", net.rows(x, step.out_rows));
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, c.logit_scale);
}

}  // namespace

ModelSpec open_command_r(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
