// bailingmoe2: Ling and Ring 2.0. Queries, keys and values are rows of one matrix, heads are normalised; behind the
// dense layers, experts chosen from groups by sigmoids and a bias, beside them one that all tokens share.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c =
      read_decoder_config(md, "bailingmoe2",
                          {"expert_gating_func", "expert_group_count", "expert_shared_count",
                           "expert_shared_feed_forward_length", "leading_dense_block_count", "nextn_predict_layers"});
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  read_expert_groups(md, c);
  read_shared_experts(md, c);
  read_leading_dense(md, c);
  refuse_window(md, c);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_bailingmoe2(const Metadata& md) {
  DecoderConfig c = configure(md);
  std::vector<std::string> unread = leave_prediction_layers_out(md, c);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = std::move(unread)};
}

}  // namespace llm
