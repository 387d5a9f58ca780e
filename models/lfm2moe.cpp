// lfm2moe: LFM2 and LFM2.5 with experts (8B-A1B). Layers of lfm2; all but the first ones route their tokens by a
// sigmoid of each expert's own and a bias that the choice alone knows, and the weights of the chosen experts sum to 1.
#include "model/hybrid.h"

namespace llm {
namespace {

ConvConfig configure(const Metadata& md) {
  ConvConfig c =
      read_conv_config(md, "lfm2moe", {"attention.head_count_kv", "expert_gating_func", "leading_dense_block_count"});
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  read_gating(md, c, Gating::Sigmoid);
  read_leading_dense(md, c);
  return c;
}

Act forward(Net& net, const ConvConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    const bool attends = c.attends[static_cast<std::size_t>(i)];
    x = a.add("attn_residual", x, attends ? head_norm_attention(a, c, rot, y) : gated_short_conv(a, c, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("token_embd_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_lfm2moe(const Metadata& md) {
  const ConvConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
