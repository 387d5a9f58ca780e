// granite: the dense Granite models, 3.x and 4.0. Four scales that the file gives: of the embedding, of each block's
// result before it is added, of attention (read with what decoders share) and of the logits, which are divided by
// theirs.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;
};

Config configure(const Metadata& md) {
  // Converters write the width of shared experts for dense models, too.
  Config c{read_decoder_config(
      md, "granite", {"embedding_scale", "residual_scale", "logit_scale", "expert_shared_feed_forward_length"})};
  const HyperParameters hp(md, "granite");
  refuse_experts(md, c);
  refuse_window(md, c);
  c.embedding_scale = hp.nonzero_real({"embedding_scale", 0, kUnbounded}).value_or(1.0f);
  c.residual_scale = hp.nonzero_real({"residual_scale", 0, kUnbounded}).value_or(1.0f);
  c.logit_scale = hp.nonzero_real({"logit_scale", 0, kUnbounded}).value_or(1.0f);
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
    y = glu_ffn(f, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps), c.d_ff, c.n_embd);
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.residual_scale));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, 1 / c.logit_scale);
}

}  // namespace

ModelSpec open_granite(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
