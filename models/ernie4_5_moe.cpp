// ernie4_5-moe: the ERNIE 4.5 models with experts. Attention of ernie4_5; every so manieth layer behind the dense ones
// has experts, chosen by their gates and a bias, whose weights sum to 1; beside them there may be one that all share.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "ernie4_5-moe",
                                        {"expert_shared_count", "expert_shared_feed_forward_length",
                                         "interleave_moe_layer_step", "leading_dense_block_count"});
  const HyperParameters hp(md, "ernie4_5-moe");
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  read_leading_dense(md, c);
  refuse_window(md, c);
  c.moe->period = static_cast<int>(hp.optional_integer({"interleave_moe_layer_step", 1, 1024}).value_or(1));
  // Of all shared ones together, whose number the files say as well.
  c.moe->d_shared = read_shared_width(md, c);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_ernie4_5_moe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
