// minicpm3: MiniCPM3-4B. The scales of minicpm, which are the model's and in no file, and latent attention whose cache
// holds the keys and values of heads; files may have two sets of divisors of the rotary frequencies, as phi3's.
#include <cmath>
#include <string_view>

#include "model/hyper_parameters.h"
#include "model/latent_attention.h"

namespace llm {
namespace {

constexpr float kEmbeddingScale = 12, kDepth = 1.4f, kBaseWidth = 256;

struct Config : LatentConfig {
  float residual_scale = 1, logit_scale = 1;
  std::string_view factors = {};
};

Config configure(const Metadata& md) {
  Config c{{read_dense_config(md, "minicpm3", {"rope.scaling.type"})}};
  const HyperParameters hp(md, "minicpm3");
  if (hp.has("attention.key_length_mla"))
    hp.fail("attention.key_length_mla", "a cache of latents is not supported for minicpm3");
  read_latent_heads(md, c);
  c.residual_scale = kDepth / std::sqrt(static_cast<float>(c.n_layers));
  c.logit_scale = kBaseWidth / static_cast<float>(c.n_embd);
  c.factors = longrope_factors(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, c.factors);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, kEmbeddingScale);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = latent_attention(a, c, rot, /*growth=*/{}, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.scale("attn_scaled", y, c.residual_scale));
    Scope f = net.layer(i, Role::Ffn);
    y = glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.residual_scale));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.top(Role::Head).scale("output_scaled", x, c.logit_scale);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_minicpm3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"rope_factors_long.weight", "rope_factors_short.weight"}};
}

}  // namespace llm
