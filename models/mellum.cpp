// mellum: Mellum 2. Heads are normalised, most layers see a window, and every layer has experts by softmax, whose
// weights sum to 1. Layers with a window turn heads by angles that no scaling changes, and may have a base of their
// own.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;  // where the file does not say

struct Config : DecoderConfig {
  RopeTable local_rope = {};  ///< of layers with a window
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "mellum", {"attention.sliding_window_pattern"})};
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  if (c.window > 0) read_local_layers(md, c, kPeriod);
  c.local_rope = {.n_rot = c.rope.n_rot, .base = read_local_base(md, c, c.rope.base)};
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves);
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, head_norm_attention(a, c, c.is_local(i) ? local : global, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_ffn(f, *c.moe, f.rms_norm("ffn_norm", x, c.norm_eps), c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_mellum(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
