// gemma3: Gemma 3 from 270M to 27B, the text part. Each block's result is normalised, too, before it is added; of every
// six layers five see a window and turn by a base of their own, the last one sees all and may have longer positions.
#include <cmath>

#include "model/blocks.h"
#include "model/gemma.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 6, kLayersOf27B = 62;
constexpr float kLocalBase = 10000;  // of files from before it had a key

struct Config : DecoderConfig {
  RopeTable local_rope;
  float logit_cap = 0;  ///< 0: none
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "gemma3", {"attention.sliding_window_pattern", "final_logit_softcapping"}), {}};
  const HyperParameters hp(md, "gemma3");
  refuse_experts(md, c);
  read_local_layers(md, c, kPeriod);
  c.local_rope = {.n_rot = c.rope.n_rot, .base = read_local_base(md, c, kLocalBase)};
  if (c.n_layers == kLayersOf27B) read_scale_of_27b(md, c);
  c.logit_cap = hp.nonzero_real({"final_logit_softcapping", 0, kUnbounded}).value_or(0.0f);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves);
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, std::sqrt(static_cast<float>(c.n_embd)));
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = head_norm_attention(a, c, c.is_local(i) ? local : global, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = glu_ffn(f, c, Activation::Gelu, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return capped_logits(net, x, c.logit_cap);
}

}  // namespace

ModelSpec open_gemma3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
