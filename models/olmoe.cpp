// olmoe, minimax-m2: OLMoE 1B-7B; MiniMax-M2. q and k are normalised over their whole width before they are split into
// heads, and every layer has experts. Those chosen keep the weights that the softmax over all experts gave them; of
// MiniMax they are chosen by sigmoids and a bias, and their weights sum to 1.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure_olmoe(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "olmoe");
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::AsGated);
  return c;
}

DecoderConfig configure_minimax(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "minimax-m2", {"expert_gating_func"});
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  read_gating(md, c, Gating::Sigmoid);
  return c;
}

DecoderConfig configure(const Metadata& md) {
  const bool olmoe = md.get<std::string_view>("general.architecture") == "olmoe";
  DecoderConfig c = olmoe ? configure_olmoe(md) : configure_minimax(md);
  refuse_window(md, c);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, whole_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_ffn(f, *c.moe, f.rms_norm("ffn_norm", x, c.norm_eps), c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_olmoe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
