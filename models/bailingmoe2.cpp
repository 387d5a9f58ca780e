// bailingmoe2, dots1, hy_v3: Ling and Ring 2.0; dots.llm1; Hy3. Heads are normalised; behind the dense layers, experts
// chosen by sigmoids and a bias, of Ling and Ring from groups, beside them one that all tokens share. Of Ling and Ring
// queries, keys and values are rows of one matrix.
#include <cstdint>
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure_dots(const Metadata& md) {
  DecoderConfig c =
      read_decoder_config(md, "dots1", {"expert_gating_func", "expert_shared_count", "leading_dense_block_count"});
  read_sigmoid_experts(md, c);
  return c;
}

DecoderConfig configure_bailing(const Metadata& md) {
  DecoderConfig c =
      read_decoder_config(md, "bailingmoe2",
                          {"expert_gating_func", "expert_group_count", "expert_shared_count",
                           "expert_shared_feed_forward_length", "leading_dense_block_count", "nextn_predict_layers"});
  read_sigmoid_experts(md, c);
  read_expert_groups(md, c);
  leave_prediction_layers_out(md, c);
  return c;
}

DecoderConfig configure_hy(const Metadata& md) {
  DecoderConfig c =
      read_decoder_config(md, "hy_v3",
                          {"expert_gating_func", "expert_shared_count", "expert_shared_feed_forward_length",
                           "leading_dense_block_count", "nextn_predict_layers"});
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  const std::int64_t shared = read_shared_width(md, c);  // of all of them, whatever expert_shared_count says
  c.moe->d_shared = shared > 0 ? shared : c.moe->d_ff;
  leave_prediction_layers_out(md, c);
  return c;
}

DecoderConfig configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  DecoderConfig c = arch == "dots1" ? configure_dots(md) : arch == "hy_v3" ? configure_hy(md) : configure_bailing(md);
  refuse_window(md, c);
  return c;
}

/// Which layers of Hy3 are dense its tensors say, no key has to.
Act ffn(Scope s, const DecoderConfig& c, Act x) {
  if (c.architecture == "hy_v3" && !s.has("ffn_gate_inp")) return glu_ffn(s, c, c.moe->activation, x);
  return moe_or_dense_ffn(s, c, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_bailingmoe2(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
