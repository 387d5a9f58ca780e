// lfm2, lfm2moe: LFM2 and LFM2.5, dense and with experts (8B-A1B), the text part. Most layers are a convolution over a
// few tokens between two gates; the others attend, with each head of q and k normalised. With experts, all but the
// first layers route their tokens by a sigmoid of each expert's own and a bias that the choice alone knows, and the
// weights of the chosen ones sum to 1.
#include <string_view>

#include "model/hybrid.h"

namespace llm {
namespace {

ConvConfig configure(const Metadata& md) {
  if (md.get<std::string_view>("general.architecture") == "lfm2") {
    const ConvConfig c = read_conv_config(md, "lfm2", {"attention.head_count_kv"});
    refuse_experts(md, c);
    return c;
  }
  ConvConfig c =
      read_conv_config(md, "lfm2moe", {"attention.head_count_kv", "expert_gating_func", "leading_dense_block_count"});
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  read_gating(md, c, Gating::Sigmoid);
  read_leading_dense(md, c);
  return c;
}

Act ffn(Scope s, const ConvConfig& c, Act x) {
  return c.moe ? moe_or_dense_ffn(s, c, x) : glu_ffn(s, c, Activation::Silu, x);
}

Act forward(Net& net, const ConvConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, c.attends(i) ? head_norm_attention(a, c, rot, y) : gated_short_conv(a, c, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  // The norm of the output under the name that one of the embedding would have.
  x = net.top(Role::Head).rms_norm("token_embd_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_lfm2(const Metadata& md) {
  const ConvConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
