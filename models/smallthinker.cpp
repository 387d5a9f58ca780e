// smallthinker: SmallThinker 4B-A0.6B and 21B-A3B. Experts, gated by rectifiers, are chosen by the layer's input,
// before it attends. In the larger model three of every four layers see a window and turn heads, and the first of the
// four sees all without positions; in the smaller one all layers turn heads and see all.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "smallthinker", {"expert_gating_func"});
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  c.moe->activation = Activation::Relu;
  read_gating(md, c, Gating::Softmax);
  for (int i = 0; i < c.n_layers; ++i) c.local.push_back(i % kPeriod != 0);
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const bool turns = c.window == 0 || c.is_local(s.layer());
  return turns ? rotary_attention(s, c, rot, x) : unrotated_attention(s, c, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope f = net.layer(i, Role::Ffn);
    const Routes routes = choose_experts(f, *c.moe, x);
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    const ExpertWeights weights = expert_weights(f, *c.moe, c.n_embd);
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, expert_ffn(f, *c.moe, weights, y, routes));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_smallthinker(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
