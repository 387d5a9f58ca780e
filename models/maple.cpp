// maple: Maple. Heads are normalised; most layers see a window and turn heads, those that see all know no positions.
// Every layer has experts by softmax, whose weights sum to 1, with gates and what they meet limited.
#include <cstddef>
#include <vector>

#include "model/blocks.h"

namespace llm {
namespace {

constexpr float kLimit = 7;  // of files from before they had a key

struct Config : DecoderConfig {
  std::vector<float> limits = {};  ///< Glu::limit of each layer's experts
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "maple", {"attention.sliding_window_pattern"})};
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  c.limits = read_limits(md, c, "swiglu_clamp_exp", kLimit);
  require_local_layers(md, c);
  c.rope.base = read_local_base(md, c, c.rope.base);
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  return c.is_local(s.layer()) ? head_norm_attention(s, c, rot, x) : unrotated_head_norm_attention(s, c, x);
}

Act ffn(Scope s, const Config& c, Act x) {
  MoeConfig m = *c.moe;
  m.limit = limits_of_gates(c.limits[static_cast<std::size_t>(s.layer())]);
  return moe_ffn(s, m, x, c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_maple(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
