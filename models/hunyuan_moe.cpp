// hunyuan-moe: Hunyuan-A13B. Heads of q and k are normalised after they are rotated; every layer has experts, whose
// weights sum to 1, and one that all tokens share.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c =
      read_decoder_config(md, "hunyuan-moe", {"expert_shared_count", "expert_shared_feed_forward_length"});
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  refuse_window(md, c);
  const std::int64_t shared = read_shared_width(md, c);
  c.moe->d_shared = shared > 0 ? shared : c.most().d_ff;
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, norm_rotated_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, shared_moe_ffn(f, *c.moe, f.rms_norm("ffn_norm", x, c.norm_eps), c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_hunyuan_moe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
