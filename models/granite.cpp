// granite, granitemoe: the Granite models without state space layers, 3.x and 4.0, dense and with experts. Four scales
// that the file gives: of the embedding, of each block's result before it is added, of attention (read with what
// decoders share) and of the logits, which are divided by theirs. With experts, every layer routes its tokens, the
// weights of the chosen ones sum to 1, and beside them there may be an expert that all tokens share.
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  Scales scales = {};
};

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{read_decoder_config(
      md, arch, {"embedding_scale", "residual_scale", "logit_scale", "expert_shared_feed_forward_length"})};
  refuse_window(md, c);
  c.scales = read_scales(md, c);
  HyperParameters(md, arch).expect_neutral("rope.scaling.finetuned", 1, 1);  // 0: without positions
  if (arch == "granite") {
    refuse_experts(md, c);
    return c;
  }
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  c.moe->d_shared = read_shared_width(md, c);  // converters write it for dense models, too
  return c;
}

Act ffn(Scope s, const Config& c, Act x) {
  return c.moe ? shared_moe_ffn(s, *c.moe, x, c.n_embd) : glu_ffn(s, c, Activation::Silu, x);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, c.scales.embedding);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.scale("attn_scaled", y, c.scales.residual));
    Scope f = net.layer(i, Role::Ffn);
    y = ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.scales.residual));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, 1 / c.scales.logits);
}

}  // namespace

ModelSpec open_granite(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
