// granitemoe: the Granite models with experts, 3.x and those of 4.0 without state space layers. Attention and scales of
// granite; every layer routes its tokens, the weights of the chosen experts sum to 1, and beside them there may be an
// expert that all tokens share.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(
      md, "granitemoe", {"embedding_scale", "residual_scale", "logit_scale", "expert_shared_feed_forward_length"})};
  const HyperParameters hp(md, "granitemoe");
  c.moe = require_moe_config(md, c, c.d_ff, RouteWeights::Renormalized);
  refuse_window(md, c);
  c.embedding_scale = hp.nonzero_real({"embedding_scale", 0, kUnbounded}).value_or(1.0f);
  c.residual_scale = hp.nonzero_real({"residual_scale", 0, kUnbounded}).value_or(1.0f);
  c.logit_scale = hp.nonzero_real({"logit_scale", 0, kUnbounded}).value_or(1.0f);
  c.moe->d_shared = read_shared_width(md, c);
  hp.expect_neutral("rope.scaling.finetuned", 1, 1);  // 0: without positions
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, c.embedding_scale);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.scale("attn_scaled", y, c.residual_scale));
    Scope f = net.layer(i, Role::Ffn);
    y = shared_moe_ffn(f, *c.moe, f.rms_norm("ffn_norm", x, c.norm_eps), c.n_embd);
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.residual_scale));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, 1 / c.logit_scale);
}

}  // namespace

ModelSpec open_granitemoe(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
