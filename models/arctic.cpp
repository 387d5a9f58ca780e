// arctic: Snowflake Arctic. Each layer has a dense feed-forward network behind attention, and beside both of them
// experts by softmax, whose weights sum to 1 and which read the layer's input by a norm of their own.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "arctic");
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  refuse_window(md, c);
  for (LayerSizes& layer : c.layers) layer.d_ff = c.n_embd;  // the key is of the experts
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act attended = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", attended, c.norm_eps));
    const Act fed = f.add("ffn_residual", attended, y);
    const Act in = f.rms_norm("ffn_norm_exps", x, c.norm_eps);
    const ExpertWeights weights = expert_weights(f, *c.moe, c.n_embd);
    const Routes routes = choose_experts(f, *c.moe, in);
    x = f.add("layer_sum", fed, expert_ffn(f, *c.moe, weights, in, routes, "ffn_glu_exps"));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_arctic(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
