// gemma2: Gemma 2, 2B to 27B. Scores of attention and logits stay below caps, each block's result is normalised, too,
// before it is added, and every other layer sees a window.
#include <cmath>

#include "model/blocks.h"
#include "model/gemma.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 2, kLayersOf27B = 46, kWindow = 4096;
constexpr float kScoreCap = 50, kLogitCap = 30;  // and the window: of files from before they had keys

struct Config : DecoderConfig {
  float logit_cap = 0;  ///< 0: none
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(
      md, "gemma2", {"attention.sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping"})};
  const HyperParameters hp(md, "gemma2");
  refuse_experts(md, c);
  if (!hp.has("attention.sliding_window")) c.window = kWindow;
  read_local_layers(md, c, kPeriod);
  const auto cap = [&](std::string_view key, float absent) {
    return hp.has(key) ? hp.nonzero_real({key, 0, kUnbounded}).value_or(0.0f) : absent;
  };
  c.score_cap = cap("attn_logit_softcapping", kScoreCap);
  c.logit_cap = cap("final_logit_softcapping", kLogitCap);
  if (c.n_layers == kLayersOf27B) read_scale_of_27b(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, std::sqrt(static_cast<float>(c.n_embd)));
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
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

ModelSpec open_gemma2(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
